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

struct rte_mbuf *shim_pktmbuf_alloc(struct rte_mempool *pool)
{
	return rte_pktmbuf_alloc(pool);
}

int shim_pktmbuf_alloc_bulk(struct rte_mempool *pool, struct rte_mbuf **pkts, unsigned int n)
{
	return rte_pktmbuf_alloc_bulk(pool, pkts, n);
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

uint16_t shim_mbuf_refcnt_read(const struct rte_mbuf *m)
{
	return rte_mbuf_refcnt_read(m);
}

void shim_mbuf_refcnt_update(struct rte_mbuf *m, int16_t v)
{
	rte_mbuf_refcnt_update(m, v);
}

void shim_pktmbuf_refcnt_update(struct rte_mbuf *m, int16_t v)
{
	rte_pktmbuf_refcnt_update(m, v);
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

int shim_log_to(shim_log_write write)
{
	cookie_io_functions_t io = { .write = write };
	FILE *stream = fopencookie(NULL, "w", io);

	if (stream == NULL)
		return -1;
	return rte_openlog_stream(stream) < 0 ? -1 : 0;
}
