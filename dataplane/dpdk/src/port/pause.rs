//! Pause frames by priority (IEEE 802.1Qbb): what drivers do with them, as the sources of DPDK 22.11 to 25.11 have it.
//!
//! Ports are opened without DCB mode. In it each traffic class has receive queues of its own, so that a worker would have
//! to poll as many queues of a port as there are classes, and RSS spreads over the queues of one class only; how many
//! there must be differs from driver to driver. Without it devices keep all priorities in one class.

use super::Inner;
use super::settings::Pause;
use super::told::is_missing;
use crate::error::Errno;

/// Drivers that take a setting, and that outside of DCB mode have one traffic class for all priorities.
const ONE_CLASS: [&str; 3] = ["net_hns3", "net_ixgbe", "net_txgbe"];
/// Drivers that refuse thresholds, and one that says when pauses end: the device has its own.
const OWN_THRESHOLDS: [&str; 1] = ["net_hns3"];
/// Drivers that have it in DCB mode only.
const ONLY_DCB: [&str; 2] = ["net_i40e", "net_ice"];
/// Drivers that have it by receive queue of a port that is stopped.
const BY_QUEUE: [&str; 3] = ["net_cn10k", "net_cn20k", "net_cn9k"];
/// Drivers that share the device with the kernel's.
const WITH_KERNEL: [&str; 1] = ["mlx5_pci"];

impl Inner {
    /// Sets pauses for all priorities that are asked for, and notes what is not as asked.
    pub(super) fn set_pauses(&self, pause: &Pause) {
        let driver = super::info(&self.name, self.id).map_or_else(|_| String::new(), |i| i.driver);
        let own = OWN_THRESHOLDS.contains(&driver.as_str());
        let (high, low, xon) = if own {
            (0, 0, 0)
        } else {
            (pause.high_water_kib, pause.low_water_kib, 1)
        };
        let mut taken = false;
        for priority in (0..8).filter(|p| pause.priorities & (1 << p) != 0) {
            let quanta = pause.quanta;
            // SAFETY: takes numbers; the port is started and ours; the shim hands a structure of its own to DPDK.
            let ret =
                unsafe { dpdk_sys::shim_eth_pause(self.id, priority, high, low, quanta, xon) };
            // A function that refuses values is one.
            let only_dcb = ONLY_DCB.contains(&driver.as_str());
            let _ = self.pauses.set(ret >= 0 || !only_dcb && !is_missing(ret));
            taken |= ret >= 0;
            if let Some(why) = amiss(&driver, ret) {
                self.not_applied(format!("pause of priority {priority}: {why}"));
            }
        }
        if own && taken {
            let what = "pause.high_water_kib, pause.low_water_kib";
            self.not_applied(format!("{what}: {driver} has thresholds of its own"));
        }
    }
}

/// What is not as it was asked for, after a driver answered with `ret`.
fn amiss(driver: &str, ret: i32) -> Option<String> {
    let is_of = |drivers: &[&str]| drivers.contains(&driver);
    if ret >= 0 {
        return is_of(&ONE_CLASS).then(|| {
            format!("{driver} has one traffic class for all priorities here, so a pause stops all of them")
        });
    }
    Some(if is_of(&ONLY_DCB) {
        format!(
            "{driver} has it in DCB mode only, where each traffic class takes receive queues that workers do not have"
        )
    } else if !is_missing(ret) {
        Errno::of(ret).to_string()
    } else if is_of(&BY_QUEUE) {
        format!("{driver} has it by receive queue of a stopped port only")
    } else if is_of(&WITH_KERNEL) {
        format!(
            "{driver} leaves it to the kernel's driver of the device: set it there, with `dcb pfc`"
        )
    } else {
        "the driver does not offer it".to_owned()
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const DONE: i32 = 0;
    const MISSING: i32 = -nix::libc::ENOTSUP;
    const UNBUILT: i32 = -nix::libc::ENOSYS;
    const INVALID: i32 = -nix::libc::EINVAL;

    #[test]
    fn a_driver_that_does_it_is_not_told_of() {
        assert_eq!(amiss("net_axgbe", DONE), None);
        assert_eq!(amiss("net_of_tomorrow", DONE), None);
    }

    #[test]
    fn each_driver_is_told_of_in_its_own_way() {
        for (driver, ret, word) in [
            ("net_ixgbe", DONE, "one traffic class"),
            ("net_txgbe", DONE, "one traffic class"),
            ("net_hns3", DONE, "one traffic class"),
            ("net_i40e", UNBUILT, "DCB mode only"),
            ("net_ice", MISSING, "DCB mode only"),
            ("net_ice", INVALID, "DCB mode only"),
            ("net_cn10k", MISSING, "by receive queue"),
            ("mlx5_pci", MISSING, "dcb pfc"),
            ("net_null", MISSING, "does not offer"),
            ("net_of_tomorrow", UNBUILT, "does not offer"),
        ] {
            let told = amiss(driver, ret).unwrap();
            assert!(told.contains(word), "{driver} {ret}: {told}");
        }
    }

    #[test]
    fn values_that_are_refused_have_the_reason_of_the_system() {
        for driver in ["net_ixgbe", "net_hns3", "net_axgbe"] {
            let told = amiss(driver, INVALID).unwrap();
            assert!(told.contains("Invalid argument"), "{told}");
        }
    }
}
