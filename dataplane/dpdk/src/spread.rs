//! How a device spreads packets over its receive queues: by addresses alone, so that all packets between
//! two hosts come in by one queue, whatever their ports are.

/// Octets of the key of the hash.
const KEY_OCTETS: usize = 40;
/// With a key of equal pairs of octets the hash is the same both ways between two hosts.
const SYMMETRIC_KEY: [[u8; 2]; KEY_OCTETS / 2] = [[0x6d, 0x5a]; KEY_OCTETS / 2];

/// Whether a device spreads packets of both families by their addresses. One that only knows the ports as
/// well would let packets of one queue pair pass each other.
pub(crate) fn can(info: &dpdk_sys::rte_eth_dev_info) -> bool {
    let both = dpdk_sys::SHIM_RSS_IPV4 | dpdk_sys::SHIM_RSS_IPV6;
    info.flow_type_rss_offloads & both == both
}

/// The key, which has to live until the device is configured.
pub(crate) fn key() -> [u8; KEY_OCTETS] {
    let mut key = [0; KEY_OCTETS];
    key.copy_from_slice(SYMMETRIC_KEY.as_flattened());
    key
}

/// Asks for it, where the device can.
pub(crate) fn by_address(
    conf: &mut dpdk_sys::rte_eth_conf,
    info: &dpdk_sys::rte_eth_dev_info,
    key: &mut [u8; KEY_OCTETS],
) {
    if !can(info) {
        return;
    }
    conf.rxmode.mq_mode = dpdk_sys::SHIM_MQ_RX_RSS;
    let rss = &mut conf.rx_adv_conf.rss_conf;
    rss.rss_hf = info.flow_type_rss_offloads & dpdk_sys::SHIM_RSS_ADDRESSES;
    // A device with a key of another length keeps its own.
    if usize::from(info.hash_key_size) == KEY_OCTETS {
        rss.rss_key = key.as_mut_ptr();
        rss.rss_key_len = info.hash_key_size;
    }
}
