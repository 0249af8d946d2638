//! What a guest starts with: programs with their libraries, the drivers that its kernel needs, the gateway's two files.
//! Starting it is in `mod.rs`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::super::Failure;
use super::cpio::Archive;

/// The guest's first program.
const INIT: &str = include_str!("init.sh");
/// Where Debian has libraries; DPDK's drivers are in a folder below `dpdk`.
const LIBRARIES: &str = "/usr/lib/x86_64-linux-gnu";
/// Drivers that the gateway loads there: of its ports, of the in-band interface, and the pool's.
const DRIVERS: [&str; 5] = [
    "librte_bus_pci.so.",
    "librte_bus_vdev.so.",
    "librte_mempool_ring.so.",
    "librte_net_virtio.so.",
    "librte_net_tap.so.",
];
/// Modules of the kernel: virtio itself and its network device for being asked, TAP, and what hands the ports over.
const MODULES: [&str; 4] = ["virtio_pci", "virtio_net", "tun", "uio_pci_generic"];

/// What is different from guest to guest.
#[derive(Debug)]
pub(super) struct Contents<'a> {
    /// `crem-gateway`.
    pub(super) gateway: &'a Path,
    /// Its bootstrap file.
    pub(super) bootstrap: &'a Path,
    /// Its document.
    pub(super) document: &'a Path,
    /// PCI addresses of its ports.
    pub(super) ports: [&'a str; 2],
    /// Pages of 2 MB for packets.
    pub(super) hugepages: u32,
}

/// Builds the archive with modules of the kernel in `kernel`.
pub(super) fn build(kernel: &Path, contents: &Contents<'_>) -> Result<Vec<u8>, Failure> {
    let mut archive = Archive::default();
    archive.file("/init", INIT.as_bytes());
    for (number, module) in ordered(&kernel.join("modules"))?.iter().enumerate() {
        let name = module.file_name().and_then(|n| n.to_str());
        let path = format!("/modules/{number:02}-{}", name.unwrap_or_default());
        archive.file(&path, &read(module)?);
    }
    let own = std::env::current_exe()?;
    let relay = own.with_file_name("guest-relay");
    let programs = [
        (contents.gateway, "/bin/crem-gateway"),
        (relay.as_path(), "/bin/guest-relay"),
        (Path::new("/bin/busybox"), "/bin/busybox"),
    ];
    let (drivers, mut libraries) = (drivers()?, BTreeSet::new());
    for (from, to) in programs {
        archive.file(to, &stripped(from)?);
        libraries.extend(needed(from)?);
    }
    for driver in &drivers {
        libraries.extend(needed(driver)?);
    }
    libraries.extend(drivers);
    put_libraries(&mut archive, &libraries)?;
    archive.file("/etc/crem/bootstrap.toml", &read(contents.bootstrap)?);
    archive.file("/etc/crem/gateway.toml", &read(contents.document)?);
    archive.file("/etc/crem/ports", contents.ports.join("\n").as_bytes());
    let pages = contents.hugepages.to_string();
    archive.file("/etc/crem/hugepages", pages.as_bytes());
    Ok(archive.end())
}

/// Puts each library where it is here, once, and its other names as links: one that is a driver as well must not be loaded
/// twice.
fn put_libraries(archive: &mut Archive, names: &BTreeSet<PathBuf>) -> Result<(), Failure> {
    let mut files = BTreeSet::new();
    for name in names {
        let file = name.canonicalize()?;
        let text = |path: &Path| path.display().to_string();
        if *name != file {
            archive.link(&text(name), &text(&file));
        }
        if files.insert(file.clone()) {
            archive.file(&text(&file), &read(&file)?);
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()).into())
}

/// A program without what only a debugger reads, most of a program of ours.
fn stripped(program: &Path) -> Result<Vec<u8>, Failure> {
    let name = format!("crem-sc-{}-stripped", std::process::id());
    let file = std::env::temp_dir().join(name);
    let mut command = Command::new("strip");
    let status = command.arg("-o").arg(&file).arg(program).status();
    let status = status.map_err(|error| format!("strip: {error}"))?;
    let octets = read(&file);
    // Not there after a failure.
    let _ = std::fs::remove_file(&file);
    if status.success() {
        octets
    } else {
        Err(format!("strip {}: {status}", program.display()).into())
    }
}

/// Paths of DPDK's drivers. It looks for them in a folder whose name has its version in it.
fn drivers() -> Result<Vec<PathBuf>, Failure> {
    let mut found = Vec::new();
    for folder in std::fs::read_dir(Path::new(LIBRARIES).join("dpdk"))?.flatten() {
        for entry in std::fs::read_dir(folder.path())?.flatten() {
            let name = entry.file_name();
            let name = name.to_str().unwrap_or_default();
            if DRIVERS.iter().any(|driver| name.starts_with(driver)) {
                found.push(entry.path());
            }
        }
    }
    if found.len() < DRIVERS.len() {
        return Err(format!("drivers of DPDK: {found:?} of {DRIVERS:?}").into());
    }
    found.sort();
    Ok(found)
}

/// Paths of the libraries that a program is linked with, the loader among them.
fn needed(program: &Path) -> Result<Vec<PathBuf>, Failure> {
    let out = Command::new("ldd").arg(program).output();
    let out = out.map_err(|error| format!("ldd: {error}"))?;
    // A program without libraries is an error to `ldd`.
    Ok(paths(&String::from_utf8_lossy(&out.stdout)))
}

/// The paths in what `ldd` prints.
fn paths(text: &str) -> Vec<PathBuf> {
    let words = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        words.find(|word| word.starts_with('/'))
    });
    words.map(PathBuf::from).collect()
}

/// Modules in an order in which each finds what it depends on.
fn ordered(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut order = Vec::new();
    for name in MODULES {
        add(folder, name, &mut order)?;
    }
    Ok(order)
}

fn add(folder: &Path, name: &str, order: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let path = find(folder, &format!("{name}.ko"))?
        .ok_or_else(|| format!("{}: no module {name}", folder.display()))?;
    if order.contains(&path) {
        return Ok(());
    }
    for other in depends(&read(&path)?) {
        add(folder, &other, order)?;
    }
    order.push(path);
    Ok(())
}

/// Names in files of modules have `-` where the kernel says `_`.
fn find(folder: &Path, name: &str) -> Result<Option<PathBuf>, Failure> {
    for entry in std::fs::read_dir(folder)?.flatten() {
        if entry.file_type()?.is_dir() {
            if let Some(found) = find(&entry.path(), name)? {
                return Ok(Some(found));
            }
        } else if entry.file_name().to_string_lossy().replace('-', "_") == name {
            return Ok(Some(entry.path()));
        }
    }
    Ok(None)
}

/// What a module says that it depends on.
fn depends(module: &[u8]) -> Vec<String> {
    let fields = module.split(|&octet| octet == 0);
    let mut found = fields.filter_map(|field| field.strip_prefix(b"depends="));
    let list = String::from_utf8_lossy(found.next().unwrap_or_default());
    let names = list.split(',').filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn libraries_are_read_out_of_what_ldd_prints() {
        let text = "\tlinux-vdso.so.1 (0x00007ffd)\n\
                    \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        assert_eq!(
            paths(text),
            [
                "/lib/x86_64-linux-gnu/libc.so.6",
                "/lib64/ld-linux-x86-64.so.2"
            ]
            .map(PathBuf::from)
        );
        assert!(paths("\tnot a dynamic executable\n").is_empty());
    }

    #[test]
    fn modules_come_behind_what_they_depend_on() {
        let folder = std::env::temp_dir().join(format!("crem-modules-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("deep")).unwrap();
        let module = |path: &str, needs: &str| {
            let octets = format!("\0license=GPL\0depends={needs}\0more\0");
            std::fs::write(folder.join(path), octets).unwrap();
        };
        module("virtio_pci.ko", "virtio,virtio_ring");
        module("virtio_net.ko", "virtio_ring");
        module("deep/virtio-ring.ko", "virtio");
        module("deep/virtio.ko", "");
        module("tun.ko", "");
        module("uio_pci_generic.ko", "uio");
        module("uio.ko", "");
        let order = ordered(&folder).unwrap();
        std::fs::remove_file(folder.join("uio.ko")).unwrap();
        let broken = ordered(&folder).unwrap_err().to_string();
        std::fs::remove_dir_all(&folder).unwrap();
        let names: Vec<_> = order
            .iter()
            .map(|path| path.file_name().unwrap().to_str().unwrap())
            .collect();
        assert_eq!(
            names,
            [
                "virtio.ko",
                "virtio-ring.ko",
                "virtio_pci.ko",
                "virtio_net.ko",
                "tun.ko",
                "uio.ko",
                "uio_pci_generic.ko"
            ]
        );
        assert!(broken.contains("no module uio"), "{broken}");
    }
}
