//! What the kernel says about an interface of this network namespace, for checks before a port is
//! opened. Nothing is changed here but whether it is up.

use nix::libc;
use std::io;
use std::os::fd::AsRawFd;

use crate::error::Error;

/// The interface's index; `None` where there is no such interface in this network namespace.
pub fn index(name: &str) -> Option<u32> {
    nix::net::if_::if_nametoindex(name).ok()
}

/// The interface's MTU in octets.
///
/// # Errors
/// [`Error::System`] where there is no such interface.
pub fn mtu(name: &str) -> Result<u32, Error> {
    let about = format!("MTU of interface {name:?}");
    let request = ask(name, libc::SIOCGIFMTU).map_err(|e| Error::system(about.clone(), e))?;
    // SAFETY: SIOCGIFMTU succeeded, so the kernel wrote this member of the union.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    u32::try_from(mtu).map_err(|e| Error::system(about, e))
}

/// Whether the interface is there, administratively up, and its link carries.
pub fn is_running(name: &str) -> bool {
    ask(name, libc::SIOCGIFFLAGS).is_ok_and(|request| {
        // SAFETY: SIOCGIFFLAGS succeeded, so the kernel wrote this member of the union.
        let flags = libc::c_int::from(unsafe { request.ifr_ifru.ifru_flags });
        let wanted = libc::IFF_UP | libc::IFF_RUNNING;
        flags & wanted == wanted
    })
}

/// Asks the kernel for a property of an interface.
fn ask(name: &str, question: libc::Ioctl) -> io::Result<libc::ifreq> {
    // SAFETY: all-zero octets are a valid ifreq: integers, arrays and a union of such.
    let mut request: libc::ifreq = unsafe { core::mem::zeroed() };
    // One octet stays for the NUL.
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    // Any socket will do; this one is bound to nothing and closed at the end.
    let socket = std::os::unix::net::UnixDatagram::unbound()?;
    // SAFETY: the descriptor is open, `request` is an ifreq that the kernel reads and writes within its
    // size during the call only.
    let ret = unsafe { libc::ioctl(socket.as_raw_fd(), question, &raw mut request) };
    if ret < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(request)
}

/// Sets an interface administratively up or down; down, its other end has no link.
///
/// # Errors
/// What the kernel says: that it is not there, or not allowed.
pub fn set_up(name: &str, up: bool) -> io::Result<()> {
    let mut request = ask(name, libc::SIOCGIFFLAGS)?;
    let flag = libc::IFF_UP as libc::c_short;
    // SAFETY: SIOCGIFFLAGS succeeded, so the kernel wrote this member of the union.
    unsafe {
        if up {
            request.ifr_ifru.ifru_flags |= flag;
        } else {
            request.ifr_ifru.ifru_flags &= !flag;
        }
    }
    let socket = std::os::unix::net::UnixDatagram::unbound()?;
    // SAFETY: as in `ask`.
    let ret = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    if ret < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_there_and_another_is_not() {
        assert!(index("lo").is_some());
        assert!(mtu("lo").is_ok_and(|m| m >= 1280));
        assert!(!is_running("crem-none"));
        assert_eq!(index("crem-none"), None);
        assert!(mtu("crem-none").is_err());
        assert!(mtu("a-name-that-is-far-too-long").is_err());
    }
}
