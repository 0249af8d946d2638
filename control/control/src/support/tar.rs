//! Writing an archive of small files (ustar, POSIX.1-1988). Nothing is read here.

use std::io::{self, Write};

/// Octets of a block, and of a header.
const BLOCK: usize = 512;
/// Longest name.
const NAME: usize = 100;

/// Writes files into an archive, and its end.
///
/// # Errors
/// A name that is too long, or what `to` refuses.
pub(super) fn write(to: &mut impl Write, files: &[(String, Vec<u8>)], at_s: u64) -> io::Result<()> {
    for (name, octets) in files {
        to.write_all(&header(name, octets.len(), at_s)?)?;
        to.write_all(octets)?;
        let rest = octets.len().next_multiple_of(BLOCK) - octets.len();
        to.write_all(&[0; BLOCK][..rest])?;
    }
    to.write_all(&[0; 2 * BLOCK])
}

/// The header of a plain file that its owner alone reads.
fn header(name: &str, length: usize, at_s: u64) -> io::Result<[u8; BLOCK]> {
    if name.len() >= NAME {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, name.to_owned()));
    }
    let mut header = [0; BLOCK];
    let mut put = |at: usize, text: &str| {
        let octets = text.as_bytes();
        if let Some(place) = header.get_mut(at..at + octets.len()) {
            place.copy_from_slice(octets);
        }
    };
    put(0, name);
    put(100, "0000600\0");
    put(108, "0000000\0");
    put(116, "0000000\0");
    put(124, &format!("{length:011o}\0"));
    put(136, &format!("{at_s:011o}\0"));
    // The checksum is reckoned with blanks in its place.
    put(148, "        ");
    put(156, "0");
    put(257, "ustar\x0000");
    let sum: u32 = header.iter().map(|octet| u32::from(*octet)).sum();
    let sum = format!("{sum:06o}\0 ");
    if let Some(place) = header.get_mut(148..156) {
        place.copy_from_slice(sum.as_bytes());
    }
    Ok(header)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn the_tar_of_the_system_reads_it() {
        let files = [
            ("d/a.json".to_owned(), b"{}\n".to_vec()),
            ("d/b".to_owned(), vec![7; 1024]),
            ("d/c".to_owned(), Vec::new()),
        ];
        let mut archive = Vec::new();
        write(&mut archive, &files, 1_700_000_000).unwrap();
        let path = std::env::temp_dir().join(format!("crem-tar-{}", std::process::id()));
        std::fs::write(&path, &archive).unwrap();
        let tar = |arguments: &[&str]| {
            let output = std::process::Command::new("tar")
                .args(arguments)
                .arg("-f")
                .arg(&path)
                .output();
            let output = output.unwrap();
            assert!(
                output.status.success(),
                "{}",
                String::from_utf8_lossy(&output.stderr)
            );
            output.stdout
        };
        assert_eq!(tar(&["-t"]), b"d/a.json\nd/b\nd/c\n");
        assert_eq!(
            tar(&["-x", "-O"]),
            [b"{}\n".as_slice(), &[7; 1024]].concat()
        );
        std::fs::remove_file(path).unwrap();
        assert!(write(&mut Vec::new(), &[("x".repeat(100), Vec::new())], 0).is_err());
    }
}
