/* Ordinary functions around DPDK's inline ones; see shim.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* fopencookie */
#endif
#include "shim.h"

#include <rte_cycles.h>

uint16_t shim_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **pkts, uint16_t n)
{
	return rte_eth_rx_burst(port, queue, pkts, n);
}

uint16_t shim_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **pkts, uint16_t n)
{
	return rte_eth_tx_burst(port, queue, pkts, n);
}

/* Makes a raw mbuf an empty packet, as rte_pktmbuf_reset does, but within the first cache line of the
 * header: `next` is NULL in every free mbuf by DPDK's rule, and `tx_offload` is only read where a flag asks
 * for an offload. A driver that fills a descriptor leaves both alone too. */
static inline void reset_first_line(struct rte_mbuf *m)
{
	m->pkt_len = 0;
	m->vlan_tci = 0;
	m->vlan_tci_outer = 0;
	m->nb_segs = 1;
	m->port = RTE_MBUF_PORT_INVALID;
	m->ol_flags &= RTE_MBUF_F_EXTERNAL;
	m->packet_type = 0;
	rte_pktmbuf_reset_headroom(m);
	m->data_len = 0;
}

struct rte_mbuf *shim_pktmbuf_alloc(struct rte_mempool *pool)
{
	struct rte_mbuf *m = rte_mbuf_raw_alloc(pool);

	if (m != NULL)
		reset_first_line(m);
	return m;
}

int shim_pktmbuf_alloc_bulk(struct rte_mempool *pool, struct rte_mbuf **pkts, unsigned int n)
{
	int ret = rte_mempool_get_bulk(pool, (void **)pkts, n);

	if (ret == 0)
		for (unsigned int i = 0; i < n; i++)
			reset_first_line(pkts[i]);
	return ret;
}

void shim_pktmbuf_free(struct rte_mbuf *m)
{
	/* One segment, as nearly all have: `next` is NULL by DPDK's rule. rte_pktmbuf_free reads it all the
	 * same, from the second cache line of the header, which nothing else needs. */
	if (unlikely(m->nb_segs != 1 || !RTE_MBUF_DIRECT(m) || RTE_MBUF_HAS_PINNED_EXTBUF(m))) {
		rte_pktmbuf_free(m);
		return;
	}
	if (rte_mbuf_refcnt_read(m) != 1) {
		if (rte_mbuf_refcnt_update(m, -1) != 0)
			return;
		rte_mbuf_refcnt_set(m, 1);
	}
	rte_mbuf_raw_free(m);
}

char *shim_pktmbuf_append(struct rte_mbuf *m, uint16_t len)
{
	return rte_pktmbuf_append(m, len);
}

char *shim_pktmbuf_prepend(struct rte_mbuf *m, uint16_t len)
{
	return rte_pktmbuf_prepend(m, len);
}

char *shim_pktmbuf_adj(struct rte_mbuf *m, uint16_t len)
{
	return rte_pktmbuf_adj(m, len);
}

int shim_pktmbuf_trim(struct rte_mbuf *m, uint16_t len)
{
	return rte_pktmbuf_trim(m, len);
}

int shim_pktmbuf_chain(struct rte_mbuf *head, struct rte_mbuf *tail)
{
	return rte_pktmbuf_chain(head, tail);
}

uint64_t shim_rdtsc(void)
{
	return rte_rdtsc();
}

unsigned int shim_lcore_id(void)
{
	return rte_lcore_id();
}

int shim_errno(void)
{
	return rte_errno;
}

int shim_eth_link(uint16_t port, uint32_t *mbps, int *up)
{
	struct rte_eth_link link = { 0 };
	int ret = rte_eth_link_get_nowait(port, &link);

	*mbps = link.link_speed;
	*up = link.link_status == RTE_ETH_LINK_UP;
	return ret;
}

int shim_eth_fec(uint16_t port, uint32_t mask)
{
	return rte_eth_fec_set(port, mask);
}

int shim_eth_pause(uint16_t port, uint8_t priority, uint32_t high, uint32_t low, uint16_t quanta,
		   uint16_t send_xon)
{
	struct rte_eth_pfc_conf conf = {
		.fc = {
			.high_water = high,
			.low_water = low,
			.pause_time = quanta,
			.send_xon = send_xon,
			.mode = RTE_ETH_FC_TX_PAUSE,
		},
		.priority = priority,
	};

	return rte_eth_dev_priority_flow_ctrl_set(port, &conf);
}

int shim_eth_flow_control(uint16_t port, uint32_t *mode)
{
	struct rte_eth_fc_conf conf = { 0 };
	int ret = rte_eth_dev_flow_ctrl_get(port, &conf);

	*mode = conf.mode;
	return ret;
}

int shim_eth_pfc_by_queue(uint16_t port)
{
	struct rte_eth_pfc_queue_info info = { 0 };

	return rte_eth_dev_priority_flow_ctrl_queue_info_get(port, &info);
}

int shim_eth_fec_in_force(uint16_t port, uint32_t *mask)
{
	*mask = 0;
	return rte_eth_fec_get(port, mask);
}

int shim_eth_fec_offered(uint16_t port, struct shim_fec_offer *offers)
{
	struct rte_eth_fec_capa capa[SHIM_FEC_SPEEDS] = { 0 };
	int n = rte_eth_fec_get_capability(port, NULL, 0);

	if (n <= 0)
		return n;
	if (n > SHIM_FEC_SPEEDS)
		return -ENOSPC;
	n = rte_eth_fec_get_capability(port, capa, SHIM_FEC_SPEEDS);
	for (int i = 0; i < n && i < SHIM_FEC_SPEEDS; i++) {
		offers[i].mbps = capa[i].speed;
		offers[i].mask = capa[i].capa;
	}
	return n;
}

int shim_eth_descriptors(uint16_t port, int transmit, uint16_t *count)
{
	struct rte_eth_rxq_info rx = { 0 };
	struct rte_eth_txq_info tx = { 0 };
	int ret = transmit ? rte_eth_tx_queue_info_get(port, 0, &tx)
			   : rte_eth_rx_queue_info_get(port, 0, &rx);

	*count = transmit ? tx.nb_desc : rx.nb_desc;
	return ret;
}

static void add_node(uint64_t *nodes, const void *at)
{
	const struct rte_memseg *seg = rte_mem_virt2memseg(at, NULL);

	if (seg != NULL && seg->socket_id >= 0 && seg->socket_id < 64)
		*nodes |= UINT64_C(1) << seg->socket_id;
}

static void add_nodes(struct rte_mempool *pool, void *nodes, struct rte_mempool_memhdr *chunk,
		      unsigned int index)
{
	(void)pool;
	(void)index;
	if (chunk->len == 0)
		return;
	add_node(nodes, chunk->addr);
	add_node(nodes, (const char *)chunk->addr + chunk->len - 1);
}

uint64_t shim_mempool_nodes(struct rte_mempool *pool)
{
	uint64_t nodes = 0;

	rte_mempool_mem_iter(pool, add_nodes, &nodes);
	return nodes;
}

int shim_log_to(shim_log_write write)
{
	cookie_io_functions_t io = { .write = write };
	FILE *stream = fopencookie(NULL, "w", io);

	if (stream == NULL)
		return -1;
	return rte_openlog_stream(stream) < 0 ? -1 : 0;
}
