//! What the link of a port is opened with. A driver that cannot do it opens the port all the same: what it did not do is
//! told by [`Port::link_not_applied`].

use std::ffi::{CStr, c_char};
use std::sync::PoisonError;

use super::told::is_missing;
use super::{Inner, Port};
use crate::error::Errno;

/// FEC of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkFec {
    /// As both ends agree.
    Auto,
    /// None.
    None,
    /// Base-R.
    BaseR,
    /// Reed-Solomon.
    Rs,
}

/// Pause frames that the port sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pause {
    /// Priorities, one bit each.
    pub priorities: u8,
    /// From so much in the receive buffer on, KiB.
    pub high_water_kib: u32,
    /// Until so little is left, KiB.
    pub low_water_kib: u32,
    /// How long one lasts, in 512 bit times.
    pub quanta: u16,
}

/// The link; what is `None` stays as the driver has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkSettings {
    /// Whether the speed is negotiated.
    pub autonegotiation: Option<bool>,
    /// The only speed that is offered, or that is set, Mbit/s.
    pub speed_mbit: Option<u32>,
    /// FEC.
    pub fec: Option<LinkFec>,
    /// Pause frames.
    pub pause: Option<Pause>,
}

impl LinkFec {
    fn mask(self) -> u32 {
        match self {
            Self::Auto => dpdk_sys::SHIM_FEC_AUTO,
            Self::None => dpdk_sys::SHIM_FEC_NONE,
            Self::BaseR => dpdk_sys::SHIM_FEC_BASE_R,
            Self::Rs => dpdk_sys::SHIM_FEC_RS,
        }
    }
}

impl Port {
    /// What of [`PortConfig::link`](super::PortConfig::link) the driver did not do, and why.
    pub fn link_not_applied(&self) -> Vec<String> {
        self.inner.problems().clone()
    }
}

impl Inner {
    fn problems(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        self.not_applied
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn not_applied(&self, what: String) {
        self.problems().push(what);
    }

    /// DPDK's flags for the speed, of those that the device has; 0 leaves it to the device.
    pub(super) fn link_speeds(&self, has: u32) -> u32 {
        let link = &self.config.link;
        let Some(speed) = link.speed_mbit else {
            // Without a speed there is nothing to set: to negotiate is what 0 means.
            return 0;
        };
        // SAFETY: takes numbers.
        let flag = unsafe {
            dpdk_sys::rte_eth_speed_bitflag(speed, i32::from(dpdk_sys::SHIM_LINK_FULL_DUPLEX))
        };
        // Virtual functions tell of no speed.
        if flag == 0 || has & flag == 0 {
            self.not_applied(format!("speed_mbit: the device has no {speed} Mbit/s"));
            return 0;
        }
        match link.autonegotiation {
            Some(false) => flag | dpdk_sys::SHIM_LINK_SPEED_FIXED,
            Some(true) | None => flag,
        }
    }

    /// What a driver takes once the port runs.
    pub(super) fn settle_link(&self) {
        let link = &self.config.link;
        if let Some(fec) = link.fec {
            // SAFETY: takes numbers; the port is started and ours.
            let ret = unsafe { dpdk_sys::shim_eth_fec(self.id, fec.mask()) };
            self.unless(ret, "fec");
        }
        if let Some(pause) = &link.pause {
            self.set_pauses(pause);
        }
    }

    fn unless(&self, ret: i32, what: &str) {
        if is_missing(ret) {
            self.not_applied(format!("{what}: the driver does not offer it"));
        } else if ret < 0 {
            self.not_applied(format!("{what}: {}", Errno::of(ret)));
        }
    }
}

/// Names of offloads.
pub(super) fn offloads(rx: u64, tx: u64) -> Vec<String> {
    // SAFETY: both take a number and give a NUL-terminated string that is never freed.
    let rx_name = |bit| unsafe { dpdk_sys::rte_eth_dev_rx_offload_name(bit) };
    // SAFETY: the same.
    let tx_name = |bit| unsafe { dpdk_sys::rte_eth_dev_tx_offload_name(bit) };
    let mut names = Vec::new();
    for bit in (0..u64::BITS).map(|n| 1_u64 << n) {
        if rx & bit != 0 {
            names.push(format!("rx_{}", text(rx_name(bit))));
        }
        if tx & bit != 0 {
            names.push(format!("tx_{}", text(tx_name(bit))));
        }
    }
    names
}

fn text(name: *const c_char) -> String {
    if name.is_null() {
        return "unknown".to_owned();
    }
    // SAFETY: not null, and DPDK's own constant.
    unsafe { CStr::from_ptr(name) }
        .to_string_lossy()
        .to_lowercase()
}
