//! The archive format that a kernel unpacks as its first file system ("newc" of cpio): written, never read. What goes into
//! it is decided in `image.rs`.

use std::collections::BTreeSet;
use std::path::Path;

/// Magic number of an entry's header.
const MAGIC: &str = "070701";
/// Name of the entry that ends an archive.
const TRAILER: &str = "TRAILER!!!";
/// File types and permissions of entries.
const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const LINK: u32 = 0o120_777;

/// An archive under construction.
#[derive(Debug, Default)]
pub(super) struct Archive {
    octets: Vec<u8>,
    entries: u32,
    folders: BTreeSet<String>,
}

impl Archive {
    /// Puts a file at an absolute path, with the folders above it. All files may be read and run.
    pub(super) fn file(&mut self, path: &str, content: &[u8]) {
        self.put(path, PROGRAM, content);
    }

    /// Puts a symbolic link there.
    pub(super) fn link(&mut self, path: &str, to: &str) {
        self.put(path, LINK, to.as_bytes());
    }

    fn put(&mut self, path: &str, mode: u32, content: &[u8]) {
        let name = path.trim_start_matches('/');
        let parents: Vec<_> = Path::new(name).ancestors().skip(1).collect();
        for folder in parents.iter().rev().filter_map(|folder| folder.to_str()) {
            if !folder.is_empty() && self.folders.insert(folder.to_owned()) {
                self.entry(folder, FOLDER, &[]);
            }
        }
        self.entry(name, mode, content);
    }

    /// The archive, ended.
    pub(super) fn end(mut self) -> Vec<u8> {
        self.entry(TRAILER, 0, &[]);
        self.octets
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let size = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        // Number, mode, owner, group, links, time, size, device numbers of the file and of what it stands for, length
        // of the name with its NUL, checksum.
        let fields = [
            self.entries,
            mode,
            0,
            0,
            1,
            0,
            size(content.len()),
            0,
            0,
            0,
            0,
            size(name.len() + 1),
            0,
        ];
        self.octets.extend(MAGIC.as_bytes());
        for field in fields {
            self.octets.extend(format!("{field:08x}").bytes());
        }
        self.octets.extend(name.as_bytes());
        self.octets.push(0);
        self.pad();
        self.octets.extend(content);
        self.pad();
    }

    fn pad(&mut self) {
        let length = self.octets.len().next_multiple_of(4);
        self.octets.resize(length, 0);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Names, sizes and contents, as a kernel would go through them.
    fn entries(archive: &[u8]) -> Vec<(String, Vec<u8>)> {
        let (mut at, mut found) = (0, Vec::new());
        loop {
            let header = std::str::from_utf8(&archive[at..at + 110]).unwrap();
            assert_eq!(&header[..6], MAGIC);
            let field =
                |n: usize| usize::from_str_radix(&header[6 + 8 * n..14 + 8 * n], 16).unwrap();
            let (size, name) = (field(6), field(11));
            let text = archive[at + 110..at + 110 + name - 1].to_vec();
            let text = String::from_utf8(text).unwrap();
            let start = (at + 110 + name).next_multiple_of(4);
            if text == TRAILER {
                assert_eq!(start, archive.len());
                return found;
            }
            found.push((text, archive[start..start + size].to_vec()));
            at = (start + size).next_multiple_of(4);
        }
    }

    #[test]
    fn entries_are_aligned_and_folders_come_first_and_once() {
        let mut archive = Archive::default();
        archive.file("/bin/one", b"12345");
        archive.link("/bin/deep/two", "../one");
        archive.file("/init", b"#!");
        let found = entries(&archive.end());
        let names: Vec<_> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            names,
            ["bin", "bin/one", "bin/deep", "bin/deep/two", "init"]
        );
        assert_eq!(found[1].1, b"12345");
        assert_eq!(
            (&found[3].1[..], &found[4].1[..]),
            (&b"../one"[..], &b"#!"[..])
        );
    }
}
