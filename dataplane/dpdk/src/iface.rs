//! What the kernel says about an interface of this network namespace, for checks before a port is
//! opened. Nothing is changed here.

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
    let fail = |e: io::Error| Error::system(format!("MTU of interface {name:?}"), e);
    // SAFETY: all-zero octets are a valid ifreq: integers, arrays and a union of such.
    let mut request: libc::ifreq = unsafe { core::mem::zeroed() };
    // One octet stays for the NUL.
    if name.len() >= request.ifr_name.len() {
        return Err(fail(io::Error::from(io::ErrorKind::InvalidInput)));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    // Any socket will do; this one is bound to nothing and closed at the end.
    let socket = std::os::unix::net::UnixDatagram::unbound().map_err(fail)?;
    // SAFETY: the descriptor is open, `request` is an ifreq that the kernel reads and writes within its
    // size during the call only.
    let ret = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU, &raw mut request) };
    if ret < 0 {
        return Err(fail(io::Error::last_os_error()));
    }
    // SAFETY: SIOCGIFMTU succeeded, so the kernel wrote this member of the union.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    u32::try_from(mtu).map_err(|e| Error::system(format!("MTU of interface {name:?}"), e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_there_and_another_is_not() {
        assert!(index("lo").is_some());
        assert!(mtu("lo").is_ok_and(|m| m >= 1280));
        assert_eq!(index("crem-none"), None);
        assert!(mtu("crem-none").is_err());
        assert!(mtu("a-name-that-is-far-too-long").is_err());
    }
}
