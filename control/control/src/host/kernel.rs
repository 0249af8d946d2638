//! The kernel's side over rtnetlink: reading interfaces, addresses and routes, hearing of changes, and single
//! steps of setting. What is to be set is decided elsewhere.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crem_api::rest::{AddressState, InterfaceList, InterfaceState, RouteList, RouteState};
use crem_api::{MacAddr, Prefix};
use futures::{StreamExt, TryStreamExt};
use rtnetlink::packet_core::NetlinkMessage;
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::address::{
    AddressAttribute, AddressHeaderFlags, AddressMessage, AddressScope,
};
use rtnetlink::packet_route::link::{LinkAttribute, LinkFlags, LinkMessage, State};
use rtnetlink::packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use rtnetlink::{
    AddressMessageBuilder, Error, Handle, LinkUnspec, MulticastGroup, RouteMessageBuilder,
};

use super::drift::{PROTOCOL, Step};

/// Interfaces shown at most.
const MAX_INTERFACES: usize = 512;
/// Addresses of one.
const MAX_ADDRESSES: usize = 256;
/// Routes shown at most.
const MAX_ROUTES: usize = 4096;

/// What the kernel tells without being asked.
const GROUPS: [MulticastGroup; 5] = [
    MulticastGroup::Link,
    MulticastGroup::Ipv4Ifaddr,
    MulticastGroup::Ipv6Ifaddr,
    MulticastGroup::Ipv4Route,
    MulticastGroup::Ipv6Route,
];

type Changes = futures::channel::mpsc::UnboundedReceiver<(
    NetlinkMessage<RouteNetlinkMessage>,
    rtnetlink::sys::SocketAddr,
)>;

/// An open way to the kernel.
#[derive(Debug)]
pub struct Kernel {
    handle: Handle,
    changes: Changes,
    connection: tokio::task::JoinHandle<()>,
}

impl Drop for Kernel {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Kernel {
    /// Opens it, inside of a runtime.
    ///
    /// # Errors
    /// No netlink socket.
    pub fn open() -> std::io::Result<Self> {
        let (connection, handle, changes) = rtnetlink::new_multicast_connection(&GROUPS)?;
        Ok(Self {
            handle,
            changes,
            connection: tokio::spawn(connection),
        })
    }

    /// Waits for a change.
    pub async fn changed(&mut self) {
        if self.changes.next().await.is_none() {
            // The connection ended; looking now and then goes on.
            std::future::pending::<()>().await;
        }
    }

    /// Forgets the changes that are known of: all is read anew.
    pub fn drain(&mut self) {
        while self.changes.try_recv().is_ok() {}
    }

    /// Interfaces with addresses, and routes of the main table.
    ///
    /// # Errors
    /// The kernel refuses.
    pub async fn read(&self) -> Result<(InterfaceList, RouteList), Error> {
        let links: Vec<LinkMessage> = self.handle.link().get().execute().try_collect().await?;
        let addresses: Vec<AddressMessage> =
            self.handle.address().get().execute().try_collect().await?;
        let mut routes = Vec::new();
        let asked = [
            RouteMessageBuilder::<Ipv4Addr>::new().build(),
            RouteMessageBuilder::<Ipv6Addr>::new().build(),
        ];
        for ask in asked {
            let mut answers = self.handle.route().get(ask).execute();
            while let Some(route) = answers.try_next().await? {
                routes.push(route);
            }
        }
        let interfaces = interfaces(&links, &addresses);
        let names: BTreeMap<u32, &str> = links
            .iter()
            .filter_map(|l| Some((l.header.index, name(l)?)))
            .collect();
        let mut shown: Vec<RouteState> = routes.iter().filter_map(|r| route(r, &names)).collect();
        shown.sort_unstable();
        let left_out = shown.len().saturating_sub(MAX_ROUTES) as u64;
        shown.truncate(MAX_ROUTES);
        let routes = RouteList {
            routes: shown,
            left_out,
            ..RouteList::default()
        };
        Ok((interfaces, routes))
    }

    /// Carries one step out.
    ///
    /// # Errors
    /// The kernel refuses.
    pub async fn carry_out(&self, step: &Step) -> Result<(), Error> {
        match step {
            Step::Enable { index, mtu, .. } => {
                let change = LinkUnspec::new_with_index(*index).up();
                let change = match mtu {
                    Some(mtu) => change.mtu(*mtu),
                    None => change,
                };
                self.handle.link().set(change.build()).execute().await
            }
            Step::AddAddress { index, address, .. } => {
                let (ip, length) = (address.address(), address.length());
                self.handle
                    .address()
                    .add(*index, ip, length)
                    .execute()
                    .await
            }
            Step::RemoveAddress { index, address, .. } => {
                let gone = address_message(*index, address);
                self.handle.address().del(gone).execute().await
            }
            Step::SetRoute {
                destination,
                gateway,
                index,
                metric,
            } => {
                let Some(new) = route_message(destination, *gateway, *index, *metric) else {
                    return Ok(());
                };
                self.handle.route().add(new).replace().execute().await
            }
            Step::RemoveRoute(route) => {
                let metric = (route.metric > 0).then_some(route.metric);
                let Some(gone) = route_message(&route.destination, route.gateway, None, metric)
                else {
                    return Ok(());
                };
                self.handle.route().del(gone).execute().await
            }
        }
    }
}

fn address_message(index: u32, address: &Prefix) -> AddressMessage {
    match address.address() {
        IpAddr::V4(ip) => AddressMessageBuilder::<Ipv4Addr>::new()
            .index(index)
            .address(ip, address.length())
            .build(),
        IpAddr::V6(ip) => AddressMessageBuilder::<Ipv6Addr>::new()
            .index(index)
            .address(ip, address.length())
            .build(),
    }
}

/// None for addresses of two families, which a checked document does not have.
fn route_message(
    destination: &Prefix,
    gateway: Option<IpAddr>,
    index: Option<u32>,
    metric: Option<u32>,
) -> Option<RouteMessage> {
    let new = RouteMessageBuilder::<IpAddr>::new()
        .destination_prefix(destination.address(), destination.length())
        .ok()?
        .protocol(RouteProtocol::from(PROTOCOL));
    let new = match gateway {
        Some(gateway) => new.gateway(gateway).ok()?,
        None => new.scope(RouteScope::Link),
    };
    let new = match index {
        Some(index) => new.output_interface(index),
        None => new,
    };
    Some(match metric {
        Some(metric) => new.priority(metric).build(),
        None => new.build(),
    })
}

fn name(link: &LinkMessage) -> Option<&str> {
    link.attributes.iter().find_map(|a| match a {
        LinkAttribute::IfName(name) => Some(name.as_str()),
        _ => None,
    })
}

fn interfaces(links: &[LinkMessage], addresses: &[AddressMessage]) -> InterfaceList {
    let mut by_index: BTreeMap<u32, BTreeMap<Prefix, AddressState>> = BTreeMap::new();
    for message in addresses {
        let all = by_index.entry(message.header.index).or_default();
        if all.len() < MAX_ADDRESSES
            && let Some((prefix, state)) = address(message)
        {
            all.insert(prefix, state);
        }
    }
    let mut list = InterfaceList::default();
    for link in links {
        let Some(name) = name(link) else { continue };
        if list.interfaces.len() >= MAX_INTERFACES {
            list.left_out += 1;
            continue;
        }
        let mut interface = interface(link);
        interface.addresses = by_index.remove(&link.header.index).unwrap_or_default();
        list.interfaces.insert(name.to_owned(), interface);
    }
    list
}

fn interface(link: &LinkMessage) -> InterfaceState {
    let flags = link.header.flags;
    let mut interface = InterfaceState {
        index: link.header.index,
        enabled: flags.contains(LinkFlags::Up),
        operational: "unknown".to_owned(),
        carrier: flags.contains(LinkFlags::LowerUp),
        ..InterfaceState::default()
    };
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::Mtu(mtu) => interface.mtu = *mtu,
            LinkAttribute::Address(octets) => {
                interface.mac = octets.as_slice().try_into().ok().map(MacAddr);
            }
            LinkAttribute::CarrierChanges(count) => interface.carrier_changes = *count,
            LinkAttribute::OperState(state) => {
                interface.operational = operational(*state).to_owned()
            }
            _ => {}
        }
    }
    interface
}

fn operational(state: State) -> &'static str {
    match state {
        State::Up => "up",
        State::Down => "down",
        State::LowerLayerDown => "lower_layer_down",
        State::NotPresent => "not_present",
        State::Testing => "testing",
        State::Dormant => "dormant",
        _ => "unknown",
    }
}

fn address(message: &AddressMessage) -> Option<(Prefix, AddressState)> {
    let (mut local, mut address) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            // On links between two points the other attribute is that of the other side.
            AddressAttribute::Local(ip) => local = Some(*ip),
            AddressAttribute::Address(ip) => address = Some(*ip),
            _ => {}
        }
    }
    let prefix = Prefix::new(local.or(address)?, message.header.prefix_len)?;
    let scope = match message.header.scope {
        AddressScope::Universe => "universe",
        AddressScope::Site => "site",
        AddressScope::Link => "link",
        _ => "host",
    };
    let state = AddressState {
        scope: scope.to_owned(),
        permanent: message.header.flags.contains(AddressHeaderFlags::Permanent),
        configured: false,
    };
    Some((prefix, state))
}

/// A unicast route of the main table; those to several gateways at once have none here.
fn route(message: &RouteMessage, names: &BTreeMap<u32, &str>) -> Option<RouteState> {
    let header = &message.header;
    let (mut destination, mut gateway, mut interface) = (None, None, None);
    let (mut metric, mut table) = (0, u32::from(header.table));
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(to) => destination = ip(to),
            RouteAttribute::Gateway(via) => gateway = ip(via),
            RouteAttribute::Oif(index) => interface = names.get(index).map(|n| (*n).to_owned()),
            RouteAttribute::Priority(priority) => metric = *priority,
            RouteAttribute::Table(number) => table = *number,
            _ => {}
        }
    }
    if table != u32::from(RouteHeader::RT_TABLE_MAIN) || header.kind != RouteType::Unicast {
        return None;
    }
    let any = || match header.address_family {
        rtnetlink::packet_route::AddressFamily::Inet => Some(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        rtnetlink::packet_route::AddressFamily::Inet6 => Some(IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
        _ => None,
    };
    Some(RouteState {
        destination: Prefix::new(destination.or_else(any)?, header.destination_prefix_length)?,
        gateway,
        interface,
        metric,
        protocol: header.protocol.into(),
        configured: false,
    })
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(ip) => Some((*ip).into()),
        RouteAddress::Inet6(ip) => Some((*ip).into()),
        _ => None,
    }
}
