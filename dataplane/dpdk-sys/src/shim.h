/*
 * What Rust cannot take from the headers by itself: the inline functions of DPDK as ordinary
 * functions, field offsets whose C spelling is the same in every supported release, and a few
 * constants that are macros. No policy and no state live here.
 */
#ifndef CREM_DPDK_SHIM_H
#define CREM_DPDK_SHIM_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_version.h>

/* The Rust handle is Send because the reference count is atomic; refuse a build where it is not. */
#ifndef RTE_MBUF_REFCNT_ATOMIC
#error "this libdpdk was built without RTE_MBUF_REFCNT_ATOMIC: mbufs could not cross threads"
#endif
#if RTE_VERSION < RTE_VERSION_NUM(22, 11, 0, 0)
#error "libdpdk 22.11 or newer is needed"
#endif

/*
 * Between 22.11 and 24.11 these fields moved into anonymous structs and unions, which C does not
 * notice and bindgen does. As offsets they have one name in both.
 */
enum {
	SHIM_OFF_BUF_ADDR = offsetof(struct rte_mbuf, buf_addr),
	SHIM_OFF_NEXT = offsetof(struct rte_mbuf, next),
	SHIM_OFF_DATA_OFF = offsetof(struct rte_mbuf, data_off),
	SHIM_OFF_REFCNT = offsetof(struct rte_mbuf, refcnt),
	SHIM_OFF_NB_SEGS = offsetof(struct rte_mbuf, nb_segs),
	SHIM_OFF_PORT = offsetof(struct rte_mbuf, port),
	SHIM_OFF_OL_FLAGS = offsetof(struct rte_mbuf, ol_flags),
	SHIM_OFF_PKT_LEN = offsetof(struct rte_mbuf, pkt_len),
	SHIM_OFF_DATA_LEN = offsetof(struct rte_mbuf, data_len),
	SHIM_OFF_BUF_LEN = offsetof(struct rte_mbuf, buf_len),
	SHIM_OFF_POOL = offsetof(struct rte_mbuf, pool),
	SHIM_OFF_POOL_SIZE = offsetof(struct rte_mempool, size),
};

/* Macros with casts and shifts, as typed constants. */
static const uint64_t SHIM_MBUF_F_INDIRECT = RTE_MBUF_F_INDIRECT;
static const uint64_t SHIM_MBUF_F_EXTERNAL = RTE_MBUF_F_EXTERNAL;
static const uint64_t SHIM_TX_OFFLOAD_MULTI_SEGS = RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
static const uint32_t SHIM_LINK_SPEED_FIXED = RTE_ETH_LINK_SPEED_FIXED;
static const uint16_t SHIM_LINK_FULL_DUPLEX = RTE_ETH_LINK_FULL_DUPLEX;
static const uint32_t SHIM_FEC_NONE = RTE_ETH_FEC_MODE_CAPA_MASK(NOFEC);
static const uint32_t SHIM_FEC_AUTO = RTE_ETH_FEC_MODE_CAPA_MASK(AUTO);
static const uint32_t SHIM_FEC_BASE_R = RTE_ETH_FEC_MODE_CAPA_MASK(BASER);
static const uint32_t SHIM_FEC_RS = RTE_ETH_FEC_MODE_CAPA_MASK(RS);
/* Newer releases have LLRS as the next one. */
static const uint32_t SHIM_FEC_LLRS = RTE_ETH_FEC_MODE_CAPA_MASK(RS) << 1;
static const uint32_t SHIM_FC_NONE = RTE_ETH_FC_NONE;
static const uint32_t SHIM_FC_RX_PAUSE = RTE_ETH_FC_RX_PAUSE;
static const uint32_t SHIM_FC_TX_PAUSE = RTE_ETH_FC_TX_PAUSE;
static const uint32_t SHIM_FC_FULL = RTE_ETH_FC_FULL;
/* What spreads packets over queues by their addresses alone, whatever is above IP. */
static const uint64_t SHIM_RSS_ADDRESSES = RTE_ETH_RSS_IPV4 | RTE_ETH_RSS_FRAG_IPV4 |
	RTE_ETH_RSS_NONFRAG_IPV4_OTHER | RTE_ETH_RSS_IPV6 | RTE_ETH_RSS_FRAG_IPV6 |
	RTE_ETH_RSS_NONFRAG_IPV6_OTHER | RTE_ETH_RSS_IPV6_EX;
static const uint32_t SHIM_MQ_RX_RSS = RTE_ETH_MQ_RX_RSS;
static const uint64_t SHIM_RSS_IPV4 = RTE_ETH_RSS_IPV4;
static const uint64_t SHIM_RSS_IPV6 = RTE_ETH_RSS_IPV6;
static const uint16_t SHIM_PKTMBUF_HEADROOM = RTE_PKTMBUF_HEADROOM;
static const uint32_t SHIM_MAX_LCORE = RTE_MAX_LCORE;
static const uint32_t SHIM_MEMPOOL_CACHE_MAX_SIZE = RTE_MEMPOOL_CACHE_MAX_SIZE;
static const size_t SHIM_MEMPOOL_NAMESIZE = RTE_MEMPOOL_NAMESIZE;
static const size_t SHIM_ETH_NAME_MAX_LEN = RTE_ETH_NAME_MAX_LEN;

uint16_t shim_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **pkts, uint16_t n);
uint16_t shim_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **pkts, uint16_t n);

struct rte_mbuf *shim_pktmbuf_alloc(struct rte_mempool *pool);
int shim_pktmbuf_alloc_bulk(struct rte_mempool *pool, struct rte_mbuf **pkts, unsigned int n);
void shim_pktmbuf_free(struct rte_mbuf *m);
char *shim_pktmbuf_append(struct rte_mbuf *m, uint16_t len);
char *shim_pktmbuf_prepend(struct rte_mbuf *m, uint16_t len);
char *shim_pktmbuf_adj(struct rte_mbuf *m, uint16_t len);
int shim_pktmbuf_trim(struct rte_mbuf *m, uint16_t len);
int shim_pktmbuf_chain(struct rte_mbuf *head, struct rte_mbuf *tail);

uint64_t shim_rdtsc(void);
unsigned int shim_lcore_id(void);
int shim_errno(void);

/* The link as two numbers: Mb/s (UINT32_MAX: unknown) and 0 or 1. Never waits. */
int shim_eth_link(uint16_t port, uint32_t *mbps, int *up);

/* FEC of the link, as a mask of RTE_ETH_FEC_MODE_CAPA_MASK. */
int shim_eth_fec(uint16_t port, uint32_t mask);
/* Pause frames for one priority, sent when the receive buffer holds `high` KiB and until it holds `low`; with
 * `send_xon` 1 the end of a pause is told. */
int shim_eth_pause(uint16_t port, uint8_t priority, uint32_t high, uint32_t low, uint16_t quanta,
		   uint16_t send_xon);

/* How a device pauses the whole link now, as SHIM_FC_*. */
int shim_eth_flow_control(uint16_t port, uint32_t *mode);
/* Not negative where pauses by priority are offered by receive queue. Changes nothing. */
int shim_eth_pfc_by_queue(uint16_t port);
/* FEC of the link now, as a mask of SHIM_FEC_*. */
int shim_eth_fec_in_force(uint16_t port, uint32_t *mask);

/* Speeds that a device may offer FEC at; there are less than that. */
#define SHIM_FEC_SPEEDS 32
struct shim_fec_offer {
	uint32_t mbps;
	uint32_t mask;
};
/* Fills up to SHIM_FEC_SPEEDS entries and returns how many. */
int shim_eth_fec_offered(uint16_t port, struct shim_fec_offer *offers);

/* Descriptors of the first queue of one direction. The queue must have been set up. */
int shim_eth_descriptors(uint16_t port, int transmit, uint16_t *count);
/* NUMA nodes that a pool's memory is on, one bit each, as EAL notes them. */
uint64_t shim_mempool_nodes(struct rte_mempool *pool);

/*
 * Sends DPDK's log to `write` instead of stdout and syslog. `write` gets whole messages (DPDK
 * flushes after each) on the thread that logs. Returns 0, or -1 where no stream could be made.
 */
typedef ssize_t (*shim_log_write)(void *cookie, const char *text, size_t len);
int shim_log_to(shim_log_write write);

#endif
