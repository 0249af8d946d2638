//! The entry of a flow in the receiver's table: what was offered, what is bound, what is passed by.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use crem_wire::Qpn;

use super::lifecycle::Life;
use super::track::{Offer, Track};
use crate::packet::{Namespace, PsnSpace, StreamKey};
use crate::time::Instant;

/// What HELLO names: a stream without its namespace (AMB-TENANT).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct FlowKey {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) qp: Qpn,
    pub(crate) space: PsnSpace,
}

impl FlowKey {
    /// The key without its namespace.
    pub(crate) const fn of(key: &StreamKey) -> Self {
        Self {
            source: key.source,
            destination: key.destination,
            qp: key.qp,
            space: key.space,
        }
    }
}

/// A flow in the table.
#[derive(Debug)]
pub(crate) struct Stream<B> {
    /// Namespace of the first source packet after binding.
    pub(crate) namespace: Option<Namespace>,
    /// Flow IDs that have not sent a PARAM_UPDATE, oldest first.
    pub(crate) offers: Vec<Offer>,
    pub(crate) bound: Option<Track<B>>,
    /// The last message or source packet.
    pub(crate) heard: Instant,
    /// In the list of flows that the current burst touched.
    pub(crate) touched: bool,
}

impl<B> Stream<B> {
    /// A flow that nothing is known of.
    pub(crate) const fn new(now: Instant) -> Self {
        Self {
            namespace: None,
            offers: Vec::new(),
            bound: None,
            heard: now,
            touched: false,
        }
    }

    /// Its state.
    pub(crate) fn life(&self) -> Life {
        match (&self.bound, self.offers.is_empty()) {
            (None, true) => Life::Unknown,
            (None, false) => Life::Offered,
            (Some(_), true) => Life::Bound,
            (Some(_), false) => Life::Rebinding,
        }
    }

    /// What this CSF was answered for this nonce (AMB-HELLODUP).
    pub(crate) fn offer_of(&self, peer: SocketAddr, nonce: u64) -> Option<&Offer> {
        let bound = self.bound.as_ref().map(|track| &track.offer);
        self.offers
            .iter()
            .chain(bound)
            .find(|offer| offer.peer == peer && offer.nonce == nonce)
    }

    /// DSCP for messages of the flow.
    pub(crate) fn dscp(&self) -> u8 {
        self.bound.as_ref().map_or(0, |track| track.dscp)
    }
}
