//! Arithmetic of the protocol as pure functions: which answer a repair request gets, which positions a
//! list of PSN ranges names, what a READ consumes, when a configuration may be used, how large a symbol
//! may be. No state, no time; who asks and when is decided in `csf` and `crf`.

use core::net::IpAddr;

use crem_fec::cauchy;
use crem_wire::crem::registry::{COMMON_HEADER_LEN, ParamStatus, REPAIR_FIXED_LEN, Scheme};
use crem_wire::crem::{Limits, ParamUpdate, PsnRange};
use crem_wire::{Bitmap, Psn};

use crate::mutate::{self, Fault};

/// Octets of a UDP header.
const UDP_HEADER: usize = 8;
/// Octets that a VXLAN tunnel adds in front of an inner IP packet, outer IP header excluded: inner
/// Ethernet 14, VXLAN 8, UDP 8.
const VXLAN_WITHOUT_IP: usize = 30;
/// Octets of a RoCEv2 packet's UDP payload besides the RDMA payload, at most: base transport header 12,
/// RETH 16, ImmDt 4, ICRC 4, and the two octets of the symbol's length prefix.
const SYMBOL_OVERHEAD: u16 = 38;
/// The RDMA MTUs there are, octets.
pub const RDMA_MTUS: [u16; 5] = [256, 512, 1024, 2048, 4096];
/// Octets that the XRC extended header adds.
const XRC_HEADER: u16 = 4;

/// What a request for one block says, and what the CSF knows of that block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// FEC scheme of the block.
    pub scheme: u8,
    /// k of the closed block.
    pub k: u8,
    /// Positions that carry a source.
    pub present: Bitmap,
    /// Repair Indices already sent with scheme 1 (AMB-IDXREUSE).
    pub used: Bitmap,
    /// Positions that the request names.
    pub named: Bitmap,
    /// Repair symbols that the CRF holds, r; 0 for the range form.
    pub held: u8,
    /// Suggested M; 0 for the range form, whose M is X.
    pub suggested: u8,
    /// FALLBACK flag.
    pub fallback: bool,
}

/// The answer to a request for one block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Response {
    /// The request names absent positions: send INFO before anything else (AMB-ABSENTREQ).
    pub info: bool,
    /// What to send besides.
    pub answer: Answer,
}

/// Symbols that answer a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Nothing: every named position is absent.
    Nothing,
    /// Coded retransmission over the set `set`, one symbol for each of `indices`.
    Coded {
        /// Repair Indices not used before, the lowest free ones.
        indices: Bitmap,
        /// L: named and present.
        set: Bitmap,
    },
    /// A Source Copy of each of these positions. Only if both sides list scheme 0; otherwise the
    /// recovery is left to the transport.
    Copies(Bitmap),
}

/// Plans the answer to a request (CREM, Coded Response): M = min(X, max(1, X - r, suggested)) symbols
/// over the lost set L, with Source Copies instead for FALLBACK, for a scheme without coded
/// retransmission, and when too few Repair Indices are left.
pub fn respond(request: &Request) -> Response {
    let named = request.named.and(&Bitmap::first(usize::from(request.k)));
    let set = named.and(&request.present);
    let info = set != named;
    if set.is_empty() {
        return Response {
            info,
            answer: Answer::Nothing,
        };
    }
    let coded = !request.fallback && Scheme::from_code(request.scheme) == Some(Scheme::CauchyRs);
    let count = response_count(set.len(), request.held, request.suggested);
    let indices = if coded {
        free_indices(request.k, &request.used, count)
    } else {
        None
    };
    let answer = match indices {
        Some(indices) => Answer::Coded { indices, set },
        None => Answer::Copies(set),
    };
    Response { info, answer }
}

/// M for `lost` positions (AMB-CLAMP); inconsistent requests are clamped, not refused.
fn response_count(lost: usize, held: u8, suggested: u8) -> usize {
    let missing = lost.saturating_sub(usize::from(held));
    missing.max(usize::from(suggested)).max(1).min(lost) + usize::from(mutate::has(Fault::Response))
}

/// The `count` lowest unused Repair Indices i with i + k <= 255; `None` if there are fewer.
pub fn free_indices(k: u8, used: &Bitmap, count: usize) -> Option<Bitmap> {
    let free = lowest_free_indices(k, used, count);
    (free.len() == count).then_some(free)
}

/// The lowest unused Repair Indices i with i + k <= 255, `count` of them or as many as there are.
pub fn lowest_free_indices(k: u8, used: &Bitmap, count: usize) -> Bitmap {
    let all = Bitmap::first(usize::from(cauchy::index_count(k)));
    all.minus(used).iter().take(count).collect()
}

/// What PSN ranges name of one block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Named {
    /// Named positions that carry a source.
    pub lost: Bitmap,
    /// Named positions that do not: the CRF has to be told by INFO.
    pub absent: Bitmap,
}

/// The positions of a block that PSN ranges name, as a union; `None` if they name none of it.
pub fn named_positions(
    block_start: Psn,
    k: u8,
    present: &Bitmap,
    ranges: &[PsnRange],
) -> Option<Named> {
    let mut named = Bitmap::EMPTY;
    for range in ranges {
        let first = range.start.distance_from(block_start);
        let end = first
            .saturating_add(i32::from(range.count))
            .min(i32::from(k));
        for position in first.max(0)..end {
            named.insert(position as u8);
        }
    }
    (!named.is_empty()).then(|| Named {
        lost: named.and(present),
        absent: named.minus(present),
    })
}

/// The PSNs that a READ request consumes (CREM, Source Blocks; AMB-READ0).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadSpan {
    /// PSNs consumed: the request's own and one for each further response packet.
    pub count: u32,
    /// First PSN that the request direction never carries; meaningful if `absent` is not 0.
    pub first_absent: Psn,
    /// Number of absent PSNs, `count` - 1.
    pub absent: u32,
    /// PSN of the next request.
    pub next: Psn,
}

/// The span of a READ request with PSN `psn` and the DMA Length of its RETH in octets; `None` while the
/// RDMA MTU is unknown (0).
pub fn read_span(psn: Psn, dma_length: u32, rdma_mtu: u16) -> Option<ReadSpan> {
    if rdma_mtu == 0 {
        return None;
    }
    let count = dma_length.div_ceil(u32::from(rdma_mtu)).max(1);
    // Psn::add reduces modulo 2^24, so it takes the wrapped count as well.
    let next = psn.add(count as i32);
    Some(ReadSpan {
        count,
        first_absent: psn.add(1),
        absent: count - 1,
        next,
    })
}

/// Whether a configuration may be used for a block that starts at `block_start`: its PARAM_ACK has
/// come, and the block does not start before the Effective PSN (AMB-EFFPSN).
pub fn may_use(block_start: Psn, effective: Psn, acknowledged: bool) -> bool {
    acknowledged && block_start.distance_from(effective) >= 0
}

/// Suggested M of a block-form request: X - r + delta with delta 1 where the loss rate `p` exceeds one
/// percent, at most X (CREM, Repair Request). The sender asks only while r < X.
pub fn suggested_m(lost: u8, held: u8, p: f64) -> u8 {
    let delta = u8::from(p > 0.01);
    lost.saturating_sub(held)
        .saturating_add(delta)
        .max(1)
        .min(lost)
}

/// The CRF's verdict on a PARAM_UPDATE against the effective limits of the flow (AMB-STATUS);
/// `resources` says whether memory for it could be reserved.
pub fn param_status(update: &ParamUpdate, limits: &Limits, resources: bool) -> ParamStatus {
    let scheme = Scheme::from_code(update.scheme)
        .filter(|scheme| *scheme != Scheme::SourceCopy && limits.schemes & scheme.bit() != 0);
    let Some(scheme) = scheme else {
        return ParamStatus::UnsupportedScheme;
    };
    let within = update.k <= limits.max_k && update.m <= limits.max_m && update.t <= limits.max_t;
    let possible =
        cauchy::valid_parameters(update.k, update.m) && usize::from(update.t) > crem_fec::PREFIX;
    let single = scheme != Scheme::Xor || update.m <= 1;
    if !(within && possible && single) {
        ParamStatus::LimitsExceeded
    } else if !resources {
        ParamStatus::ResourcesExhausted
    } else {
        ParamStatus::Accepted
    }
}

/// The limits that hold for a flow: the smaller of both sides, and the schemes that both have
/// (AMB-LIMITS).
pub fn common_limits(ours: &Limits, theirs: &Limits) -> Limits {
    Limits {
        schemes: ours.schemes & theirs.schemes,
        max_k: ours.max_k.min(theirs.max_k),
        max_m: ours.max_m.min(theirs.max_m),
        max_t: ours.max_t.min(theirs.max_t),
    }
}

/// Address family of the packets that carry CREM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// IPv4 without options.
    V4,
    /// IPv6 without extension headers.
    V6,
}

impl Family {
    /// The family of an address.
    pub const fn of(address: &IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    const fn header(self) -> usize {
        match self {
            Self::V4 => 20,
            Self::V6 => 40,
        }
    }
}

/// Octets that a VXLAN tunnel with this outer family takes from the path MTU.
pub const fn vxlan_overhead(outer: Family) -> u16 {
    (outer.header() + VXLAN_WITHOUT_IP) as u16
}

/// Octets around the symbol of a RETX REPAIR for blocks of up to `k` positions: IP, UDP, REPAIR header
/// and both bitmaps.
const fn repair_overhead(family: Family, k: u8) -> usize {
    // The fixed part of REPAIR includes the common header.
    const { assert!(REPAIR_FIXED_LEN > COMMON_HEADER_LEN) };
    family.header() + UDP_HEADER + REPAIR_FIXED_LEN + 2 * Bitmap::wire_len(k)
}

/// The largest T whose RETX REPAIR still fits a path with this IP MTU, with `tunnel` octets taken by
/// tunnels; 0 if not even an empty symbol fits.
pub fn max_symbol_length(path_mtu: u16, family: Family, k: u8, tunnel: u16) -> u16 {
    let taken = repair_overhead(family, k) + usize::from(tunnel);
    usize::from(path_mtu).saturating_sub(taken) as u16
}

/// Octets of the IP packet around a UDP payload of so many, tunnels not counted.
pub const fn packet_length(payload: u16, family: Family) -> u16 {
    payload.saturating_add((family.header() + UDP_HEADER) as u16)
}

/// T for an RDMA MTU: the largest UDP payload of the flow plus its length prefix, XRC headers included
/// if the flow may carry them.
pub const fn symbol_length(rdma_mtu: u16, xrc: bool) -> u16 {
    rdma_mtu.saturating_add(SYMBOL_OVERHEAD + if xrc { XRC_HEADER } else { 0 })
}

/// IP MTU that the path needs for a RETX REPAIR with symbols of `t` octets; the counterpart of
/// [`max_symbol_length`].
pub fn path_mtu_needed(t: u16, family: Family, k: u8, tunnel: u16) -> u32 {
    u32::from(t) + repair_overhead(family, k) as u32 + u32::from(tunnel)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crem_wire::{ConfigId, FlowId};
    use proptest::prelude::*;

    fn set(positions: &[u8]) -> Bitmap {
        positions.iter().copied().collect()
    }

    fn request() -> Request {
        Request {
            scheme: 1,
            k: 32,
            present: Bitmap::first(32),
            used: set(&[0, 1]),
            named: set(&[3, 4, 5]),
            held: 0,
            suggested: 1,
            fallback: false,
        }
    }

    // shows: CREM-REQ-05, AMB-CLAMP
    #[test]
    fn too_small_a_suggestion_is_raised() {
        let answer = Answer::Coded {
            indices: set(&[2, 3, 4]),
            set: set(&[3, 4, 5]),
        };
        assert_eq!(
            respond(&request()),
            Response {
                info: false,
                answer
            }
        );
    }

    // shows: AMB-ABSENTREQ
    #[test]
    fn absent_positions_get_info_and_are_not_coded() {
        let present = Bitmap::first(5);
        let some = respond(&Request {
            present,
            ..request()
        });
        assert!(some.info);
        assert_eq!(
            some.answer,
            Answer::Coded {
                indices: set(&[2, 3]),
                set: set(&[3, 4])
            }
        );
        let none = respond(&Request {
            present: Bitmap::first(3),
            ..request()
        });
        assert_eq!(
            none,
            Response {
                info: true,
                answer: Answer::Nothing
            }
        );
    }

    // shows: CREM-FEC-14, CREM-RSP-03
    #[test]
    fn copies_where_coding_is_not_possible() {
        let copies = Answer::Copies(set(&[3, 4, 5]));
        assert_eq!(
            respond(&Request {
                fallback: true,
                ..request()
            })
            .answer,
            copies
        );
        assert_eq!(
            respond(&Request {
                scheme: 2,
                ..request()
            })
            .answer,
            copies
        );
        let k = 250;
        let exhausted = Request {
            k,
            present: Bitmap::first(250),
            used: Bitmap::first(4),
            ..request()
        };
        assert_eq!(respond(&exhausted).answer, copies);
        let enough = Request {
            used: Bitmap::first(3),
            ..exhausted
        };
        assert!(matches!(respond(&enough).answer, Answer::Coded { .. }));
    }

    #[test]
    fn unknown_mtu_has_no_span() {
        assert_eq!(read_span(Psn::new(1), 4096, 0), None);
        let longest = read_span(Psn::new(7), u32::MAX, 256).unwrap();
        assert_eq!((longest.count, longest.next), (1 << 24, Psn::new(7)));
    }

    // shows: QOS-MTU-02, QOS-MTU-03, CREM-OPS-01
    #[test]
    fn sizes_of_the_architecture_page() {
        for (family, over) in [(Family::V4, 118), (Family::V6, 138)] {
            let t = symbol_length(4096, false);
            assert_eq!(path_mtu_needed(t, family, 128, 0), 4096 + over);
            assert_eq!(max_symbol_length(4096 + over as u16, family, 128, 0), t);
        }
        // Both octets of length, BTH, RETH, immediate data, payload, ICRC.
        assert_eq!(symbol_length(4096, false), 2 + 12 + 16 + 4 + 4096 + 4);
        assert_eq!(
            (vxlan_overhead(Family::V4), vxlan_overhead(Family::V6)),
            (50, 70)
        );
        assert_eq!(
            max_symbol_length(50, Family::V4, 32, vxlan_overhead(Family::V6)),
            0
        );
    }

    // shows: AMB-STATUS
    #[test]
    fn refusals_have_a_fixed_order() {
        let limits = Limits {
            schemes: 0b011,
            max_k: 64,
            max_m: 255,
            max_t: 1100,
        };
        let update = ParamUpdate {
            flow: FlowId::new(1).unwrap(),
            config: ConfigId(0),
            scheme: 1,
            k: 64,
            m: 192,
            t: 1100,
            effective: Psn::new(0),
        };
        assert_eq!(param_status(&update, &limits, true), ParamStatus::Accepted);
        let more = ParamUpdate { m: 193, ..update };
        assert_eq!(
            param_status(&more, &limits, false),
            ParamStatus::LimitsExceeded
        );
        let not_common = ParamUpdate {
            scheme: 2,
            m: 2,
            ..update
        };
        assert_eq!(
            param_status(&not_common, &limits, true),
            ParamStatus::UnsupportedScheme
        );
        let empty = ParamUpdate { t: 2, ..update };
        assert_eq!(
            param_status(&empty, &limits, true),
            ParamStatus::LimitsExceeded
        );
    }

    proptest! {
        // shows: CREM-REQ-02, CREM-REQ-03, CREM-REQ-04
        #[test]
        fn a_suggestion_makes_up_for_what_is_missing_and_no_more(
            lost in 1u8..=255, held in 0u8..=255, p in 0.0f64..0.1,
        ) {
            let held = held % lost;
            let suggested = suggested_m(lost, held, p);
            prop_assert!(suggested <= lost);
            let delta = u8::from(p > 0.01);
            prop_assert_eq!(suggested, lost.min(lost - held + delta));
        }

        /// M lies where the document wants it, indices are new and legal, L holds present ones only.
        // shows: CREM-FEC-06, CREM-RSP-01, CREM-CC-03, CREM-SEC-02
        #[test]
        fn responses_keep_the_rules(
            k in 1u8..=255,
            words: [[u64; 4]; 3],
            held: u8,
            suggested: u8,
            fallback: bool,
            scheme in 1u8..=2,
        ) {
            let [present, used, named] = words.map(Bitmap::from_words);
            let inside = Bitmap::first(usize::from(k));
            let (present, named) = (present.and(&inside), named.and(&inside));
            let request = Request { scheme, k, present, used, named, held, suggested, fallback };
            let response = respond(&request);
            prop_assert_eq!(response.info, !present.contains_all(&named));
            match response.answer {
                Answer::Nothing => prop_assert!(named.and(&present).is_empty()),
                Answer::Copies(set) => prop_assert_eq!(set, named.and(&present)),
                Answer::Coded { indices, set } => {
                    prop_assert_eq!(set, named.and(&present));
                    prop_assert!(indices.and(&used).is_empty());
                    prop_assert!(u16::from(indices.last().unwrap()) + u16::from(k) <= 255);
                    prop_assert!(indices.len() <= set.len());
                    prop_assert!(indices.len() + usize::from(held) >= set.len());
                    prop_assert!(!fallback && scheme == 1);
                }
            }
        }

        /// Ranges name exactly the PSNs they cover, across the wrap of the PSN space.
        // shows: CREM-BLOCK-01, CREM-REQ-08
        #[test]
        fn ranges_name_what_they_cover(
            start in 0u32..1 << 24,
            k in 1u8..=255,
            present: [u64; 4],
            ranges in proptest::collection::vec((-300i32..300, 1u8..=255), 1..5),
        ) {
            let start = Psn::new(start);
            let present = Bitmap::from_words(present);
            let wire: Vec<PsnRange> =
                ranges.iter().map(|&(d, count)| PsnRange { start: start.add(d), count }).collect();
            let result = named_positions(start, k, &present, &wire);
            for j in 0..k {
                let covered = ranges.iter().any(|&(d, n)| (d..d + i32::from(n)).contains(&i32::from(j)));
                let lost = result.is_some_and(|named| named.lost.contains(j));
                let absent = result.is_some_and(|named| named.absent.contains(j));
                prop_assert_eq!(lost, covered && present.contains(j));
                prop_assert_eq!(absent, covered && !present.contains(j));
            }
        }
    }
}
