//! A gateway in a guest of QEMU, with virtio ports that DPDK drives: the machine, its start and end, and the way to
//! the gateway's status socket in it. Processors are emulated, so nothing of the host is needed but QEMU.

mod cpio;
mod image;

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sched::{CloneFlags, setns};

use super::Failure;
use super::gateway::table;
use super::process::{Process, Programs};
use super::spec::Host;
use super::topology::{GUEST_TAPS, Place, Topology};
use crate::relay::join;
use image::Contents;

/// Environment variable with the folder of the guests' kernel.
const KERNEL: &str = "CREM_GUEST_KERNEL";
/// The emulator.
const QEMU: &str = "qemu-system-x86_64";
/// Where the two ports are in the guest, LAN and WAN: after the device that it is asked through.
const PORTS: [&str; 2] = ["0000:00:03.0", "0000:00:04.0"];
/// Pages of 2 MB in the guest: 166 MB are asked for before drivers tell their MTU.
const HUGEPAGES: u32 = 88;
/// Memory of the guest in MB: programs, libraries and drivers take about 120 twice, packed and unpacked.
const MEMORY_MB: u32 = 768;
/// Time to start: a few seconds of an emulated processor.
const START_LIMIT: Duration = Duration::from_secs(60);
/// Time for the gateway and then the guest to end.
const STOP_LIMIT: Duration = Duration::from_secs(20);
/// How often the relay looks for somebody who asks.
const LOOK: Duration = Duration::from_millis(2);
/// Time for a connection into the guest.
const CONNECT: Duration = Duration::from_secs(2);
/// The guest's TCP ports, forwarded by QEMU: the status socket, and what ends the gateway.
const STATUS_PORT: u16 = 4_701;
const END_PORT: u16 = 4_702;

/// The device of a port as documents have it.
pub(super) fn port(side: usize) -> toml::Value {
    table("pci", PORTS[side & 1].into())
}

/// The status socket's path in the guest.
pub(super) fn socket() -> toml::Value {
    table("socket", "/run/status.sock".into())
}

/// What a guest is started with.
#[derive(Debug)]
pub(super) struct Setup<'a> {
    /// Whose gateway is in it.
    pub(super) host: Host,
    /// MTU of its ports.
    pub(super) mtu: u16,
    /// Name of the process.
    pub(super) name: &'a str,
    /// Its bootstrap file.
    pub(super) bootstrap: &'a Path,
    /// Its document.
    pub(super) document: &'a Path,
    /// Where its status socket is to be here.
    pub(super) socket: &'a Path,
    /// Where results and logs go.
    pub(super) folder: &'a Path,
}

/// Starts a guest and waits until the gateway in it forwards.
pub(super) fn start(
    setup: &Setup<'_>,
    world: &Topology,
    programs: &Programs,
) -> Result<(Process, Relay), Failure> {
    let kernel = std::env::var_os(KERNEL)
        .map(PathBuf::from)
        .ok_or_else(|| format!("{KERNEL} does not name the folder of a kernel for guests"))?;
    let contents = Contents {
        gateway: &programs.gateway,
        bootstrap: setup.bootstrap,
        document: setup.document,
        ports: PORTS,
        hugepages: HUGEPAGES,
    };
    let disk = setup.folder.join(format!("{}-initrd", setup.name));
    std::fs::write(&disk, image::build(&kernel, &contents)?)?;
    let mut command = world.command(Place::Gateway(setup.host), Path::new(QEMU));
    command.args(arguments(setup.mtu, &kernel.join("vmlinuz"), &disk));
    let log = setup.folder.join(format!("{}.log", setup.name));
    let log = File::options().create(true).append(true).open(log)?;
    let mut process = Process::start_into(command, setup.name, setup.folder, Some(log))?;
    let ready = process.wait_logged("guest: ready", START_LIMIT);
    // The kernel has it in memory by now.
    let _ = std::fs::remove_file(&disk);
    ready?;
    let relay = Relay::start(setup.socket, &world.path(Place::Gateway(setup.host)))?;
    Ok((process, relay))
}

/// Has the gateway end in order, and the guest with it. Tells whether its exit status was 0.
pub(super) fn stop(namespace: PathBuf, process: &mut Process) -> Result<bool, Failure> {
    let ending = std::thread::spawn(move || -> Result<(), Failure> {
        setns(File::open(namespace)?.as_fd(), CloneFlags::CLONE_NEWNET)?;
        let to = SocketAddr::from((Ipv4Addr::LOCALHOST, END_PORT));
        TcpStream::connect_timeout(&to, CONNECT)?;
        Ok(())
    });
    ending.join().map_err(|_| "the ending thread panicked")??;
    let status = process.wait_end(STOP_LIMIT)?;
    Ok(status.success() && process.logged("guest: the gateway ended with 0")?)
}

/// A machine with two virtio ports on TAP devices, and one behind a network of QEMU's own for being asked.
fn arguments(mtu: u16, kernel: &Path, disk: &Path) -> Vec<String> {
    let text = |path: &Path| path.display().to_string();
    let forward = |port| format!("hostfwd=tcp:127.0.0.1:{port}-:{port}");
    let mut all: Vec<String> = [
        "-machine",
        "q35",
        "-cpu",
        "max",
        "-accel",
        "tcg,thread=multi",
        "-smp",
        "2",
    ]
    .map(str::to_owned)
    .to_vec();
    all.extend(["-m".to_owned(), MEMORY_MB.to_string()]);
    all.extend(
        [
            "-nodefaults",
            "-display",
            "none",
            "-serial",
            "stdio",
            "-no-reboot",
        ]
        .map(str::to_owned),
    );
    all.extend([
        "-kernel".to_owned(),
        text(kernel),
        "-initrd".to_owned(),
        text(disk),
    ]);
    let line = "console=ttyS0 quiet panic=-1 mitigations=off net.ifnames=0";
    all.extend(["-append".to_owned(), line.to_owned()]);
    let (status, end) = (forward(STATUS_PORT), forward(END_PORT));
    all.extend([
        "-netdev".to_owned(),
        format!("user,id=asked,restrict=on,{status},{end}"),
    ]);
    all.extend([
        "-device".to_owned(),
        "virtio-net-pci,netdev=asked,addr=02.0".to_owned(),
    ]);
    for (tap, port) in GUEST_TAPS.iter().zip(PORTS) {
        let address = port.rsplit(':').next().unwrap_or(port);
        all.extend([
            "-netdev".to_owned(),
            format!("tap,id={tap},ifname={tap},script=no,downscript=no,vhost=off"),
        ]);
        // Frames as they are on the wire: no checksums left to fill in, none longer than the MTU.
        let plain = "csum=off,guest_csum=off,gso=off,guest_tso4=off,guest_tso6=off,guest_ufo=off,host_tso4=off,host_tso6=off,host_ufo=off";
        all.extend([
            "-device".to_owned(),
            format!("virtio-net-pci,netdev={tap},addr={address},disable-legacy=on,rx_queue_size=1024,host_mtu={mtu},{plain}"),
        ]);
    }
    all
}

/// Listens at a socket file here and passes what comes on to the status socket in the guest. Dropping it ends that, so
/// that nothing holds the namespace any longer.
#[derive(Debug)]
pub(super) struct Relay {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    fn start(socket: &Path, namespace: &Path) -> Result<Self, Failure> {
        // A guest that was started before had it too.
        let _ = std::fs::remove_file(socket);
        let listener = UnixListener::bind(socket)?;
        listener.set_nonblocking(true)?;
        let namespace = File::open(namespace)?;
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            if setns(namespace.as_fd(), CloneFlags::CLONE_NEWNET).is_err() {
                return;
            }
            while !flag.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((unix, _)) => pass_on(unix),
                    Err(_) => std::thread::sleep(LOOK),
                }
            }
        });
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic there has been told.
            let _ = thread.join();
        }
    }
}

/// Whoever asked finds the connection closed if the guest cannot be reached.
fn pass_on(unix: UnixStream) {
    let to = SocketAddr::from((Ipv4Addr::LOCALHOST, STATUS_PORT));
    if unix.set_nonblocking(false).is_ok()
        && let Ok(tcp) = TcpStream::connect_timeout(&to, CONNECT)
    {
        let _ = join(unix, tcp);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_has_its_ports_where_the_document_says() {
        let all = arguments(4_400, Path::new("vmlinuz"), Path::new("initrd"));
        for (tap, at) in GUEST_TAPS.iter().zip(["03.0", "04.0"]) {
            let device = format!("netdev={tap},addr={at},");
            assert!(
                all.iter().any(|argument| argument.contains(&device)),
                "{all:?}"
            );
        }
        assert!(
            all.iter()
                .any(|argument| argument.contains("host_mtu=4400"))
        );
        assert_eq!(
            port(1).get("pci").and_then(|at| at.as_str()),
            Some("0000:00:04.0")
        );
    }
}
