//! What the driver of an open port tells of its link and queues when asked. Asking changes nothing.

use super::{Inner, Port};
use crate::error::Errno;
use crate::mempool::Mempool;

/// Drivers of devices that have no MAC of their own, so no pause frames by priority either.
const WITHOUT_MAC: [&str; 9] = [
    "net_af_packet",
    "net_af_xdp",
    "net_memif",
    "net_null",
    "net_pcap",
    "net_ring",
    "net_tap",
    "net_virtio",
    "net_virtio_user",
];

/// The answer of a driver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Told<T> {
    /// The answer.
    Is(T),
    /// The driver has no such function.
    NotOffered,
    /// It has one that failed.
    Failed(Errno),
}

/// Flow control of a whole link (IEEE 802.3, Annex 31B).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlowControl {
    /// None.
    Off,
    /// Pauses that come are obeyed.
    Receive,
    /// Pauses are sent.
    Send,
    /// Both.
    Both,
    /// A mode that this crate does not know, by DPDK's number.
    Other(u32),
}

/// Whether a device has flow control by priority (IEEE 802.1Qbb).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PriorityFlowControl {
    /// It has: it took such a setting, or refused only the values of one.
    Offered,
    /// It has by receive queue, which [`Pause`](super::Pause) does not set.
    ByQueue,
    /// It has none.
    NotOffered,
    /// It tells only when it is set, and was not.
    Unknown,
}

/// FEC of a link, a set of kinds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FecKinds(u32);

/// FEC that a device has at a speed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FecAt {
    /// Mbit/s.
    pub mbps: u32,
    /// Kinds that it can be set to.
    pub kinds: FecKinds,
}

/// What a driver tells of a link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinkTold {
    /// Flow control now.
    pub flow_control: Told<FlowControl>,
    /// Flow control by priority.
    pub priority_flow_control: PriorityFlowControl,
    /// FEC now.
    pub fec: Told<FecKinds>,
    /// FEC that there is, by speed.
    pub fec_offered: Told<Vec<FecAt>>,
}

/// Queues of one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueuesTold {
    /// How many are in use.
    pub queues: u16,
    /// Descriptors that each was asked to have, within what the driver allows.
    pub asked: u16,
    /// Descriptors that the first one has, where the driver tells.
    pub descriptors: Option<u16>,
}

impl FecKinds {
    /// Names: `none`, `auto`, `base_r`, `rs`, `llrs`, and `other` for kinds that this crate does not know.
    pub fn names(self) -> Vec<&'static str> {
        const KINDS: [(u32, &str); 5] = [
            (dpdk_sys::SHIM_FEC_NONE, "none"),
            (dpdk_sys::SHIM_FEC_AUTO, "auto"),
            (dpdk_sys::SHIM_FEC_BASE_R, "base_r"),
            (dpdk_sys::SHIM_FEC_RS, "rs"),
            (dpdk_sys::SHIM_FEC_LLRS, "llrs"),
        ];
        let known = KINDS.iter().fold(0, |mask, (bit, _)| mask | bit);
        let named = KINDS.iter().filter(|(bit, _)| self.0 & bit != 0);
        let other = (self.0 & !known != 0).then_some("other");
        named.map(|(_, name)| *name).chain(other).collect()
    }
}

impl<T> Told<T> {
    /// From what a call returned, and what it gave if that is a success.
    fn of(ret: i32, value: impl FnOnce() -> T) -> Self {
        if ret >= 0 {
            Self::Is(value())
        } else if is_missing(ret) {
            Self::NotOffered
        } else {
            Self::Failed(Errno::of(ret))
        }
    }
}

/// Whether a call returned that there is no such function.
pub(super) fn is_missing(ret: i32) -> bool {
    ret == -nix::libc::ENOTSUP || ret == -nix::libc::ENOSYS
}

impl Port {
    /// What the driver tells of the link now. Up to some milliseconds with devices that ask their firmware; from the
    /// thread that calls [`Port::set_link`].
    pub fn link_told(&self) -> LinkTold {
        let id = self.inner.id;
        let (mut mode, mut mask) = (0, 0);
        // SAFETY: the pointer is to a live local; the port is open.
        let ret = unsafe { dpdk_sys::shim_eth_flow_control(id, &raw mut mode) };
        let flow_control = Told::of(ret, || FlowControl::of(mode));
        // SAFETY: as above.
        let ret = unsafe { dpdk_sys::shim_eth_fec_in_force(id, &raw mut mask) };
        let fec = Told::of(ret, || FecKinds(mask));
        LinkTold {
            flow_control,
            priority_flow_control: self.inner.priority_flow_control(),
            fec,
            fec_offered: self.inner.fec_offered(),
        }
    }

    /// Queues in use: for frames that come, and for those that go.
    pub fn queues_told(&self) -> [QueuesTold; 2] {
        let config = &self.inner.config;
        let asked = self.inner.asked.get().copied().unwrap_or_default();
        [
            self.inner.queues(false, config.rx_queues, asked.0),
            self.inner.queues(true, config.tx_queues, asked.1),
        ]
    }
}

impl FlowControl {
    fn of(mode: u32) -> Self {
        match mode {
            dpdk_sys::SHIM_FC_NONE => Self::Off,
            dpdk_sys::SHIM_FC_RX_PAUSE => Self::Receive,
            dpdk_sys::SHIM_FC_TX_PAUSE => Self::Send,
            dpdk_sys::SHIM_FC_FULL => Self::Both,
            other => Self::Other(other),
        }
    }
}

impl Inner {
    fn queues(&self, transmit: bool, queues: u16, asked: u16) -> QueuesTold {
        let mut count = 0;
        // SAFETY: the pointer is to a live local; the port is open, so its first queues are set up.
        let ret =
            unsafe { dpdk_sys::shim_eth_descriptors(self.id, i32::from(transmit), &raw mut count) };
        QueuesTold {
            queues,
            asked,
            // Drivers that fill in nothing leave zero.
            descriptors: (ret >= 0 && count > 0).then_some(count),
        }
    }

    fn fec_offered(&self) -> Told<Vec<FecAt>> {
        let none = dpdk_sys::shim_fec_offer { mbps: 0, mask: 0 };
        let mut offers = [none; dpdk_sys::SHIM_FEC_SPEEDS as usize];
        // SAFETY: the array has as many entries as the function fills at most; the port is open.
        let ret = unsafe { dpdk_sys::shim_eth_fec_offered(self.id, offers.as_mut_ptr()) };
        let filled = usize::try_from(ret).unwrap_or(0);
        Told::of(ret, || {
            let offers = offers.iter().take(filled);
            let at = |offer: &dpdk_sys::shim_fec_offer| FecAt {
                mbps: offer.mbps,
                kinds: FecKinds(offer.mask),
            };
            offers.map(at).collect()
        })
    }

    /// DPDK has no function that only asks for this: the one that sets it is not called for the sake of its answer.
    fn priority_flow_control(&self) -> PriorityFlowControl {
        if let Some(offered) = self.pauses.get() {
            return match offered {
                true => PriorityFlowControl::Offered,
                false => PriorityFlowControl::NotOffered,
            };
        }
        // SAFETY: takes a number; the port is open.
        if unsafe { dpdk_sys::shim_eth_pfc_by_queue(self.id) } >= 0 {
            return PriorityFlowControl::ByQueue;
        }
        let driver = super::info(&self.name, self.id).map(|info| info.driver);
        match driver {
            Ok(driver) if WITHOUT_MAC.contains(&driver.as_str()) => PriorityFlowControl::NotOffered,
            _ => PriorityFlowControl::Unknown,
        }
    }
}

impl Mempool {
    /// NUMA nodes of its memory. None where that is no hugepages, which the kernel places page by page.
    pub fn nodes(&self) -> Vec<u16> {
        // SAFETY: takes nothing and reads what EAL noted at its start.
        if unsafe { dpdk_sys::rte_eal_has_hugepages() } == 0 {
            return Vec::new();
        }
        // SAFETY: the pool is valid while `self` is, and its chunks do not change after it was made.
        let nodes = unsafe { dpdk_sys::shim_mempool_nodes(self.as_ptr()) };
        (0..64).filter(|node| nodes & (1 << node) != 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_a_missing_function_and_a_fault_are_three_things() {
        assert_eq!(Told::of(0, || 7), Told::Is(7));
        assert_eq!(Told::of(3, || 7), Told::Is(7));
        for missing in [nix::libc::ENOTSUP, nix::libc::ENOSYS] {
            assert_eq!(Told::of(-missing, || 7), Told::NotOffered);
        }
        let broken = nix::libc::EIO;
        assert_eq!(Told::of(-broken, || 7), Told::Failed(Errno(broken)));
    }

    #[test]
    fn kinds_of_fec_have_names_also_several_and_unknown_ones() {
        assert_eq!(FecKinds(0).names(), Vec::<&str>::new());
        assert_eq!(FecKinds(dpdk_sys::SHIM_FEC_NONE).names(), ["none"]);
        let auto = FecKinds(dpdk_sys::SHIM_FEC_AUTO | dpdk_sys::SHIM_FEC_RS);
        assert_eq!(auto.names(), ["auto", "rs"]);
        let later = FecKinds(dpdk_sys::SHIM_FEC_LLRS | 1 << 20);
        assert_eq!(later.names(), ["llrs", "other"]);
    }

    #[test]
    fn modes_of_flow_control_are_told_from_the_side_of_the_port() {
        assert_eq!(FlowControl::of(dpdk_sys::SHIM_FC_NONE), FlowControl::Off);
        let receive = FlowControl::of(dpdk_sys::SHIM_FC_RX_PAUSE);
        assert_eq!(receive, FlowControl::Receive);
        let send = FlowControl::of(dpdk_sys::SHIM_FC_TX_PAUSE);
        assert_eq!(send, FlowControl::Send);
        assert_eq!(FlowControl::of(dpdk_sys::SHIM_FC_FULL), FlowControl::Both);
        assert_eq!(FlowControl::of(77), FlowControl::Other(77));
    }
}
