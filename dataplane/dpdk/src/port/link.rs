//! The link of a port: how it is, and taking it down.

use super::Port;
use crate::error::Error;
use crate::log;

/// A link as it is now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link {
    /// Whether it carries frames.
    pub up: bool,
    /// Its rate in Mb/s, where known. Virtual devices invent one.
    pub mbps: Option<u32>,
}

impl Port {
    /// The link now, without waiting.
    ///
    /// # Errors
    /// [`Error::Port`].
    pub fn link(&self) -> Result<Link, Error> {
        let (mut mbps, mut up) = (0, 0);
        let mark = log::mark();
        // SAFETY: both pointers are to live locals.
        let ret = unsafe { dpdk_sys::shim_eth_link(self.inner.id, &raw mut mbps, &raw mut up) };
        self.inner.done("rte_eth_link_get_nowait", ret, mark)?;
        Ok(Link {
            up: up != 0,
            mbps: (mbps != 0 && mbps != u32::MAX).then_some(mbps),
        })
    }

    /// Takes the link down, so that the other end of the cable sees that, or lets it come up. From one thread only.
    ///
    /// # Errors
    /// [`Error::Port`]: not every driver can.
    pub fn set_link(&self, up: bool) -> Result<(), Error> {
        let mark = log::mark();
        // SAFETY: plain calls with the number of a port that this value keeps open.
        let (name, ret) = unsafe {
            if up {
                (
                    "rte_eth_dev_set_link_up",
                    dpdk_sys::rte_eth_dev_set_link_up(self.inner.id),
                )
            } else {
                (
                    "rte_eth_dev_set_link_down",
                    dpdk_sys::rte_eth_dev_set_link_down(self.inner.id),
                )
            }
        };
        self.inner.done(name, ret, mark)
    }
}
