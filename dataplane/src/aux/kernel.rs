//! The in-band interfaces in the kernel: addresses, MTU, what is switched off on them, and the
//! neighbours that peers are reached through. Resolution is the kernel's: we ask for it and watch.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::IpAddr;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use futures::future::join_all;
use futures::{StreamExt, TryStreamExt};
use rtnetlink::packet_core::NetlinkPayload;
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use rtnetlink::{Handle, MulticastGroup};
use tokio::sync::mpsc::Receiver;
use tokio::time::timeout;

use crate::aux::keep::{PutBack, furnish, takes_away};
use crate::aux::wanted::WantedPeers;
use crate::aux::{KernelStation, PortInterface};
use crate::snapshot::{NextHop, Wanted};

/// How often known next hops are refreshed and the neighbour table is read in full, in case a
/// notification was lost.
const REFRESH: Duration = Duration::from_secs(2);
/// Longest wait for the kernel. Under a flood of notifications it drops answers, and those never come.
const ANSWER: Duration = Duration::from_secs(1);
/// Between a notification that something is gone and putting it back: what takes it away and puts it back itself is
/// not interrupted, and who takes it away again and again does not keep us busy.
const PUT_BACK: Duration = Duration::from_millis(200);
/// What the kernel tells of.
const WATCHED: [MulticastGroup; 6] = [
    MulticastGroup::Neigh,
    MulticastGroup::Link,
    MulticastGroup::Ipv4Ifaddr,
    MulticastGroup::Ipv6Ifaddr,
    MulticastGroup::Ipv4Rule,
    MulticastGroup::Ipv6Rule,
];
/// Longest interface name.
const NAME: usize = 15;

/// The name of a segment's in-band interface.
pub fn interface_name(segment: &str) -> String {
    let name = format!("crem-{segment}");
    if name.len() <= NAME {
        return name;
    }
    let hash = segment.bytes().fold(0x811c_9dc5_u32, |h, b| {
        (h ^ u32::from(b)).wrapping_mul(0x0100_0193)
    });
    format!("crem-{hash:08x}")
}

struct Interface {
    station: KernelStation,
    index: u32,
}

/// The kernel's side of all segments.
pub(super) struct Kernel {
    handle: Option<Handle>,
    changes: Option<Changes>,
    interfaces: Vec<Interface>,
    wanted: WantedPeers,
    known: HashMap<(usize, IpAddr), [u8; 6]>,
    /// Next hops lost since they were last asked for.
    lost: Vec<(usize, IpAddr)>,
    put_back: PutBack,
    /// When to look for what is gone, if something is.
    look_at: Option<tokio::time::Instant>,
}

type Changes = futures::channel::mpsc::UnboundedReceiver<(
    rtnetlink::packet_core::NetlinkMessage<RouteNetlinkMessage>,
    rtnetlink::sys::SocketAddr,
)>;

impl Kernel {
    /// Silences the ports and sets all in-band interfaces up.
    pub(super) async fn set_up(
        ports: &[PortInterface],
        stations: Vec<KernelStation>,
    ) -> io::Result<Self> {
        let mut kernel = Self {
            handle: None,
            changes: None,
            interfaces: Vec::new(),
            wanted: WantedPeers::default(),
            known: HashMap::new(),
            lost: Vec::new(),
            put_back: PutBack::new(stations.iter().map(|station| station.segment)),
            look_at: None,
        };
        for port in ports {
            silence(&port.name)
                .map_err(|e| io::Error::new(e.kind(), format!("interface {}: {e}", port.name)))?;
        }
        if stations.is_empty() {
            return Ok(kernel);
        }
        let (connection, handle, changes) = rtnetlink::new_multicast_connection(&WATCHED)?;
        tokio::spawn(connection);
        for station in stations {
            let name = station.interface.clone();
            let fail = |e: io::Error| io::Error::other(format!("in-band interface {name}: {e}"));
            kernel
                .interfaces
                .push(set_up_one(&handle, station).await.map_err(fail)?);
        }
        kernel.handle = Some(handle);
        kernel.changes = Some(changes);
        for number in 0..kernel.interfaces.len() {
            let peers = kernel.interfaces[number].station.peers.clone();
            for peer in peers {
                kernel.want(number, peer, None);
            }
        }
        Ok(kernel)
    }

    /// Resolves what is wanted and reports every change, until the worker is gone.
    pub(super) async fn run(mut self, mut wanted: Receiver<Wanted>, found: Found) {
        let (Some(handle), Some(mut changes)) = (self.handle.take(), self.changes.take()) else {
            // Nothing to watch; nothing will be wanted either.
            while wanted.recv().await.is_some() {}
            return;
        };
        let mut refresh = tokio::time::interval(REFRESH);
        loop {
            tokio::select! {
                change = changes.next() => match change {
                    Some((message, _)) => {
                        self.take_change(message.payload, &found);
                        self.ask_again(&handle).await;
                    }
                    None => {
                        tracing::error!("rtnetlink ended; next hops are no longer watched");
                        return;
                    }
                },
                want = wanted.recv() => match want {
                    Some(wanted) => self.on_wanted(wanted, &handle, &found).await,
                    None => return,
                },
                _ = refresh.tick() => {
                    self.put_back(&handle).await;
                    self.refresh(&handle, &found).await;
                    self.ask_again(&handle).await;
                }
                () = until(self.look_at) => self.put_back(&handle).await,
            }
        }
    }

    /// What was put back since the start.
    pub(super) fn counts(&self) -> PutBack {
        self.put_back.clone()
    }

    /// Puts what is gone from the interfaces.
    async fn put_back(&mut self, handle: &Handle) {
        self.look_at = None;
        for Interface { station, index } in &self.interfaces {
            match timeout(ANSWER, furnish(handle, *index, station)).await {
                Ok(Ok(parts)) => self.put_back.note(station, &parts),
                Ok(Err(e)) => tracing::warn!("in-band interface {}: {e}", station.interface),
                // The next look tries again.
                Err(_) => {}
            }
        }
    }

    /// Everybody is asked at once where a next hop is that does not answer any more at its MAC address.
    async fn ask_again(&mut self, handle: &Handle) {
        for (number, hop) in std::mem::take(&mut self.lost) {
            if let Some(interface) = self.interfaces.get(number) {
                resolve(handle, interface.index, hop).await;
            }
        }
    }

    async fn on_wanted(&mut self, wanted: Wanted, handle: &Handle, found: &[SyncSender<NextHop>]) {
        let Wanted { segment, peer } = wanted;
        let number = self
            .interfaces
            .iter()
            .position(|i| i.station.segment == segment);
        let Some((number, (index, hop))) =
            number.and_then(|n| Some((n, self.want(n, peer, Some(Instant::now()))?)))
        else {
            return;
        };
        // The kernel may have met it already, by a question of its own.
        if let Some(mac) = self.known.get(&(number, hop)) {
            let mac = Some(*mac);
            tell(found, NextHop { segment, peer, mac });
        }
        resolve(handle, index, hop).await;
    }

    /// Notes that a peer is wanted, for a while if `asked`; gives interface index and next hop. `None`
    /// as well if there are too many already.
    fn want(
        &mut self,
        number: usize,
        peer: IpAddr,
        asked: Option<Instant>,
    ) -> Option<(u32, IpAddr)> {
        let interface = self.interfaces.get(number)?;
        let hop = next_hop(&interface.station, peer)?;
        self.wanted
            .add((number, hop, peer), asked)
            .then_some((interface.index, hop))
    }

    async fn refresh(&mut self, handle: &Handle, found: &[SyncSender<NextHop>]) {
        // All that is wanted is asked for now.
        self.lost.clear();
        let known = &self.known;
        self.wanted
            .forget(Instant::now(), |hop| known.contains_key(hop));
        let hops = self.wanted.hops();
        let asked = hops.iter().filter_map(|(number, hop)| {
            let interface = self.interfaces.get(*number)?;
            Some(resolve(handle, interface.index, *hop))
        });
        join_all(asked).await;
        let mut all = handle.neighbours().get().execute();
        let mut listed = HashSet::new();
        loop {
            match timeout(ANSWER, all.try_next()).await {
                Ok(Ok(Some(neighbour))) => {
                    let address = read(&neighbour).map(|(address, _)| address);
                    listed.extend(address.map(|a| (neighbour.header.ifindex, a)));
                    self.take_neighbour(&neighbour, false, found);
                }
                // All of them: what is not among them is gone, and its notification was lost.
                Ok(Ok(None)) => return self.forget_unlisted(&listed, found),
                Ok(Err(_)) | Err(_) => return,
            }
        }
    }

    /// Takes next hops for lost that the kernel does not know any more.
    fn forget_unlisted(&mut self, listed: &HashSet<(u32, IpAddr)>, found: &[SyncSender<NextHop>]) {
        let index = |number: usize| self.interfaces.get(number).map(|i| i.index);
        let gone: Vec<_> = self
            .known
            .keys()
            .filter(|(number, hop)| index(*number).is_none_or(|i| !listed.contains(&(i, *hop))))
            .copied()
            .collect();
        for (number, hop) in gone {
            self.change(number, hop, None, found);
        }
    }

    fn take_change(
        &mut self,
        payload: NetlinkPayload<RouteNetlinkMessage>,
        found: &[SyncSender<NextHop>],
    ) {
        match payload {
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewNeighbour(neighbour)) => {
                self.take_neighbour(&neighbour, false, found);
            }
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelNeighbour(neighbour)) => {
                self.take_neighbour(&neighbour, true, found);
            }
            NetlinkPayload::InnerMessage(message) => {
                let ours = self.interfaces.iter().map(|i| (i.index, i.station.segment));
                if takes_away(&message, ours) {
                    let at = tokio::time::Instant::now() + PUT_BACK;
                    self.look_at.get_or_insert(at);
                }
            }
            _ => {}
        }
    }

    fn take_neighbour(
        &mut self,
        neighbour: &NeighbourMessage,
        gone: bool,
        found: &[SyncSender<NextHop>],
    ) {
        let number = self
            .interfaces
            .iter()
            .position(|i| i.index == neighbour.header.ifindex);
        let (Some(number), Some((hop, mac))) = (number, read(neighbour)) else {
            return;
        };
        let mac = mac.filter(|_| !gone);
        let before = self.known.get(&(number, hop)).copied();
        // While the kernel asks again the old address may still be right: only a failure ends it.
        let fails = gone || neighbour.header.state == NeighbourState::Failed;
        if mac == before || (mac.is_none() && !fails) {
            return;
        }
        self.change(number, hop, mac, found);
    }

    /// Notes what is known of a next hop now and tells the workers.
    fn change(
        &mut self,
        number: usize,
        hop: IpAddr,
        mac: Option<[u8; 6]>,
        found: &[SyncSender<NextHop>],
    ) {
        match mac {
            Some(mac) => self.known.insert((number, hop), mac),
            None => {
                self.lost.push((number, hop));
                self.known.remove(&(number, hop))
            }
        };
        let segment = self.interfaces.get(number).map_or(0, |i| i.station.segment);
        let mut reported = true;
        for peer in self.wanted.behind(number, hop) {
            reported &= tell(found, NextHop { segment, peer, mac });
        }
        if !reported {
            // The worker's queue is full: the next reading of the table tries again.
            self.known.remove(&(number, hop));
        }
    }
}

/// Where packets toward a peer go first.
fn next_hop(station: &KernelStation, peer: IpAddr) -> Option<IpAddr> {
    if station.inband.address.contains(peer) {
        Some(peer)
    } else {
        station.inband.gateway
    }
}

/// Address and, if it can be used, MAC address of a neighbour.
fn read(neighbour: &NeighbourMessage) -> Option<(IpAddr, Option<[u8; 6]>)> {
    let usable = matches!(
        neighbour.header.state,
        NeighbourState::Reachable
            | NeighbourState::Stale
            | NeighbourState::Delay
            | NeighbourState::Probe
            | NeighbourState::Permanent
    );
    let (mut address, mut mac) = (None, None);
    for attribute in &neighbour.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(a)) => {
                address = Some(IpAddr::V4(*a));
            }
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(a)) => {
                address = Some(IpAddr::V6(*a));
            }
            NeighbourAttribute::LinkLayerAddress(octets) => {
                mac = <[u8; 6]>::try_from(octets.as_slice()).ok();
            }
            _ => {}
        }
    }
    Some((address?, mac.filter(|_| usable)))
}

/// Has the kernel resolve an address, or confirm what it knows if that is old.
async fn resolve(handle: &Handle, index: u32, hop: IpAddr) {
    let request = handle
        .neighbours()
        .add(index, hop)
        .state(NeighbourState::None)
        .flags(NeighbourFlags::Use)
        .replace();
    match timeout(ANSWER, request.execute()).await {
        Ok(Ok(())) => {}
        Ok(Err(e)) => tracing::warn!("next hop {hop}: {e}"),
        Err(_) => tracing::warn!("next hop {hop}: no answer of the kernel"),
    }
}

async fn set_up_one(handle: &Handle, station: KernelStation) -> io::Result<Interface> {
    let name = &station.interface;
    let mut links = handle.link().get().match_name(name.clone()).execute();
    let link = links.try_next().await.map_err(io::Error::other)?;
    let index = link
        .ok_or_else(|| io::Error::other("it does not exist"))?
        .header
        .index;
    restrict(name, station.inband.address.address())?;
    furnish(handle, index, &station).await?;
    Ok(Interface { station, index })
}

/// That moment, or never.
async fn until(at: Option<tokio::time::Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// To every worker.
type Found = Vec<SyncSender<NextHop>>;

/// Tells every worker; `false` if the queue of one is full.
fn tell(found: &[SyncSender<NextHop>], hop: NextHop) -> bool {
    // Each of them, also behind one whose queue is full.
    let told = found.iter().filter(|to| to.try_send(hop).is_ok());
    told.count() == found.len()
}

/// Sets keys of `/proc/sys/net`. Kernels without IPv6 lack its keys.
fn set_keys(keys: &[(String, &str)]) -> io::Result<()> {
    for (key, value) in keys {
        let path = format!("/proc/sys/net/{key}");
        match std::fs::write(&path, value) {
            Err(e) if key.starts_with("ipv6") && e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(io::Error::new(e.kind(), format!("{path}: {e}"))),
            Ok(()) => {}
        }
    }
    Ok(())
}

/// A port gives its frames to us, but the kernel sees them too. It must not answer for our in-band
/// address there, nor take packets, nor send any of its own.
fn silence(port: &str) -> io::Result<()> {
    let v4 = |key: &str| format!("ipv4/conf/{port}/{key}");
    set_keys(&[
        (format!("ipv6/conf/{port}/disable_ipv6"), "1"),
        (v4("forwarding"), "0"),
        // Answers no ARP at all.
        (v4("arp_ignore"), "8"),
        // Takes no packet whose way back is another interface; ours all have theirs on the TAP.
        (v4("rp_filter"), "1"),
        (v4("accept_redirects"), "0"),
    ])
}

/// What an in-band interface must not do: forward, take router advertisements, answer for addresses of
/// other interfaces.
fn restrict(name: &str, address: IpAddr) -> io::Result<()> {
    let v4 = |key: &str| format!("ipv4/conf/{name}/{key}");
    let v6 = |key: &str| format!("ipv6/conf/{name}/{key}");
    let neigh = |family: &str, key: &str| format!("{family}/neigh/{name}/{key}");
    // Another MAC address of a neighbour is not believed as long as the old one answers: ask it often, and do not wait
    // long for the answer. A next hop that has gone is noticed at most 4.5 s (what the kernel makes of 3 s), a refresh, 1 s
    // and three questions later.
    for family in ["ipv4", "ipv6"] {
        set_keys(&[
            (neigh(family, "base_reachable_time_ms"), "3000"),
            (neigh(family, "delay_first_probe_time"), "1"),
            (neigh(family, "retrans_time_ms"), "300"),
        ])?;
    }
    set_keys(&[
        (v4("forwarding"), "0"),
        (v4("arp_ignore"), "1"),
        (v4("arp_announce"), "2"),
        (v4("accept_redirects"), "0"),
        (v4("rp_filter"), "0"),
    ])?;
    if address.is_ipv4() {
        return set_keys(&[(v6("disable_ipv6"), "1")]);
    }
    set_keys(&[
        (v6("forwarding"), "0"),
        (v6("accept_ra"), "0"),
        (v6("autoconf"), "0"),
        (v6("accept_redirects"), "0"),
        (v6("accept_dad"), "0"),
    ])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crem_api::Inband;

    #[test]
    fn a_next_hop_that_the_kernel_no_longer_lists_is_lost() {
        let hop = |last: u8| IpAddr::from([192, 0, 2, last]);
        let station = KernelStation {
            segment: 3,
            interface: "crem-a".to_owned(),
            inband: Inband {
                address: "192.0.2.1/24".parse().unwrap(),
                mac: None,
                vlan: None,
                port: crem_api::Side::Wan,
                gateway: Some(hop(2)),
            },
            mac: crem_api::MacAddr([2, 0, 0, 0, 0, 1]),
            mtu: 1500,
            peers: Vec::new(),
        };
        let mut kernel = Kernel {
            handle: None,
            changes: None,
            interfaces: vec![Interface { station, index: 7 }],
            wanted: WantedPeers::default(),
            known: HashMap::new(),
            lost: Vec::new(),
            put_back: PutBack::default(),
            look_at: None,
        };
        let (to, found) = std::sync::mpsc::sync_channel(8);
        let found_by = [to];
        let far = IpAddr::from([198, 51, 100, 1]);
        assert!(kernel.want(0, far, None).is_some() && kernel.want(0, hop(9), None).is_some());
        kernel.change(0, hop(2), Some([2; 6]), &found_by);
        kernel.change(0, hop(9), Some([9; 6]), &found_by);
        let told = |peer, mac| NextHop {
            segment: 3,
            peer,
            mac,
        };
        let all: Vec<_> = found.try_iter().collect();
        assert_eq!(all, [told(far, Some([2; 6])), told(hop(9), Some([9; 6]))]);
        // The gateway is listed at another interface only.
        kernel.forget_unlisted(&[(8, hop(2)), (7, hop(9))].into(), &found_by);
        assert_eq!(found.try_iter().collect::<Vec<_>>(), [told(far, None)]);
        kernel.forget_unlisted(&[(7, hop(9))].into(), &found_by);
        assert_eq!(found.try_iter().count(), 0);
    }

    #[test]
    fn interface_names_fit_and_differ() {
        assert_eq!(interface_name("a"), "crem-a");
        assert_eq!(interface_name("0123456789"), "crem-0123456789");
        let long = interface_name("a-rather-long-segment-id");
        assert_eq!(long.len(), 13);
        assert_ne!(long, interface_name("a-rather-long-segment-ie"));
    }
}
