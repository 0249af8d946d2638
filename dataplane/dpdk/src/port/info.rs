//! What drivers say of ports.

use std::ffi::CStr;

use super::{done, settings};
use crate::error::Error;
use crate::log;
use crate::spread;

/// What the driver says about a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortInfo {
    /// The driver, for example `net_af_packet`.
    pub driver: String,
    /// The kernel interface's index; 0 where there is none.
    pub if_index: u32,
    /// Most receive queues.
    pub max_rx_queues: u16,
    /// Most transmit queues.
    pub max_tx_queues: u16,
    /// Largest MTU that it can be opened with, octets of IP.
    pub max_mtu: u16,
    /// Whether packets of several segments may be sent.
    pub multi_segment_tx: bool,
    /// NUMA node, where known.
    pub socket: Option<u16>,
    /// Offloads that the driver has, by DPDK's names in lower case, with `rx_` or `tx_` in front.
    pub offloads: Vec<String>,
    /// Those that a port is opened with.
    pub offloads_used: Vec<String>,
    /// Whether it spreads packets over its receive queues by their addresses, whatever is above IP.
    pub spreads_by_address: bool,
}

pub(super) fn info(name: &str, id: u16) -> Result<PortInfo, Error> {
    let raw = raw_info(name, id)?;
    let driver = if raw.driver_name.is_null() {
        String::new()
    } else {
        // SAFETY: a driver's name is a NUL-terminated string of its registration, never freed.
        unsafe { CStr::from_ptr(raw.driver_name) }
            .to_string_lossy()
            .into_owned()
    };
    // SAFETY: takes a number; -1 where unknown.
    let socket = unsafe { dpdk_sys::rte_eth_dev_socket_id(id) };
    Ok(PortInfo {
        driver,
        if_index: raw.if_index,
        max_rx_queues: raw.max_rx_queues,
        max_tx_queues: raw.max_tx_queues,
        max_mtu: raw.max_mtu,
        offloads: settings::offloads(raw.rx_offload_capa, raw.tx_offload_capa),
        offloads_used: settings::offloads(0, used_offloads(&raw)),
        multi_segment_tx: raw.tx_offload_capa & dpdk_sys::SHIM_TX_OFFLOAD_MULTI_SEGS != 0,
        socket: u16::try_from(socket).ok(),
        spreads_by_address: spread::can(&raw),
    })
}

pub(super) fn raw_info(name: &str, id: u16) -> Result<dpdk_sys::rte_eth_dev_info, Error> {
    let mut raw = dpdk_sys::rte_eth_dev_info::default();
    let mark = log::mark();
    // SAFETY: the pointer is to a live local.
    let ret = unsafe { dpdk_sys::rte_eth_dev_info_get(id, &raw mut raw) };
    done(name, "rte_eth_dev_info_get", ret, mark)?;
    Ok(raw)
}

/// Chains where the driver can send them.
pub(super) fn used_offloads(info: &dpdk_sys::rte_eth_dev_info) -> u64 {
    info.tx_offload_capa & dpdk_sys::SHIM_TX_OFFLOAD_MULTI_SEGS
}
