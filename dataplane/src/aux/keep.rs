//! What an in-band interface has to have in the kernel: link, address, the route and the rule for its own answers. What
//! somebody took away is put back and counted; what somebody added is left alone. Which neighbours are wanted is in
//! `kernel.rs`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::TryStreamExt;
use rtnetlink::packet_core::ErrorMessage;
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use rtnetlink::packet_route::rule::{RuleAction, RuleAttribute};
use rtnetlink::{Error, Handle, LinkUnspec, RouteMessageBuilder};

use crate::aux::KernelStation;
use crate::snapshot::Snapshot;

/// Routing table of the first in-band interface; each has its own, so that a default route there is
/// nobody else's.
const FIRST_TABLE: u32 = 4801;

/// A part of what an interface has to have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    /// Up, with its MTU.
    Link,
    /// The in-band address.
    Address,
    /// The default route for packets from it.
    Route,
    /// The rule that sends these to the table of that route.
    Rule,
}

/// Puts what an interface lacks; tells what that was. Everything is asked for as new, so what is there already is
/// only confirmed.
///
/// # Errors
/// The kernel refuses the link or the address. Without a route the interface still serves its own link: that is only
/// told.
pub(super) async fn furnish(
    handle: &Handle,
    index: u32,
    station: &KernelStation,
) -> io::Result<Vec<Part>> {
    let mut put = Vec::new();
    if link(handle, index, station)
        .await
        .map_err(io::Error::other)?
    {
        put.push(Part::Link);
    }
    let (own, length) = (
        station.inband.address.address(),
        station.inband.address.length(),
    );
    let add = handle.address().add(index, own, length).execute();
    if is_new(add.await).map_err(io::Error::other)? {
        put.push(Part::Address);
    }
    if let Some(gateway) = station.inband.gateway {
        let table = table(station.segment);
        for (part, added) in [
            (Part::Route, route(handle, index, gateway, table).await),
            (Part::Rule, rule(handle, own, table).await),
        ] {
            match is_new(added) {
                Ok(true) => put.push(part),
                Ok(false) => {}
                Err(e) => tracing::warn!(
                    "in-band interface {}: no {part:?} for its own answers: {e}",
                    station.interface
                ),
            }
        }
    }
    Ok(put)
}

fn table(segment: usize) -> u32 {
    FIRST_TABLE + u32::try_from(segment).unwrap_or(0)
}

/// Whether something was not there yet.
fn is_new(added: Result<(), Error>) -> Result<bool, Error> {
    match added {
        Ok(()) => Ok(true),
        Err(Error::NetlinkError(e)) if exists(&e) => Ok(false),
        Err(e) => Err(e),
    }
}

fn exists(error: &ErrorMessage) -> bool {
    error.to_io().kind() == io::ErrorKind::AlreadyExists
}

/// Whether the link had to be set.
async fn link(handle: &Handle, index: u32, station: &KernelStation) -> Result<bool, Error> {
    let mut found = handle.link().get().match_index(index).execute();
    let is_good = |link: &LinkMessage| {
        let mtu = link.attributes.contains(&LinkAttribute::Mtu(station.mtu));
        mtu && link.header.flags.contains(LinkFlags::Up)
    };
    if found.try_next().await?.as_ref().is_some_and(is_good) {
        return Ok(false);
    }
    let change = LinkUnspec::new_with_index(index)
        .mtu(station.mtu)
        .up()
        .build();
    handle.link().set(change).execute().await?;
    Ok(true)
}

/// A default route in a table of its own.
async fn route(handle: &Handle, index: u32, gateway: IpAddr, table: u32) -> Result<(), Error> {
    let route = match gateway {
        IpAddr::V4(gateway) => RouteMessageBuilder::<Ipv4Addr>::new()
            .gateway(gateway)
            .output_interface(index)
            .table_id(table)
            .build(),
        IpAddr::V6(gateway) => RouteMessageBuilder::<Ipv6Addr>::new()
            .gateway(gateway)
            .output_interface(index)
            .table_id(table)
            .build(),
    };
    handle.route().add(route).execute().await
}

/// Packets from our own address only. The kernel takes a rule for another one if it may choose its place, and adds another one
/// if it is asked to replace it: so it has a place of its own, the table's number, and is asked for as new.
async fn rule(handle: &Handle, own: IpAddr, table: u32) -> Result<(), Error> {
    let rule = handle
        .rule()
        .add()
        .table_id(table)
        .priority(table)
        .action(RuleAction::ToTable);
    match own {
        IpAddr::V4(own) => rule.v4().source_prefix(own, 32).execute().await,
        IpAddr::V6(own) => rule.v6().source_prefix(own, 128).execute().await,
    }
}

/// Whether a notification says that something may be missing at one of these interfaces. Routes are not among what is
/// notified: a machine with a routing daemon changes thousands of them, and a look now and then finds ours as well.
pub(super) fn takes_away(
    message: &RouteNetlinkMessage,
    interfaces: impl IntoIterator<Item = (u32, usize)>,
) -> bool {
    let mut interfaces = interfaces.into_iter();
    match message {
        RouteNetlinkMessage::DelAddress(gone) => {
            interfaces.any(|(index, _)| index == gone.header.index)
        }
        RouteNetlinkMessage::NewLink(link) => {
            let down = !link.header.flags.contains(LinkFlags::Up);
            down && interfaces.any(|(index, _)| index == link.header.index)
        }
        RouteNetlinkMessage::DelRule(gone) => interfaces.any(|(_, segment)| {
            let table = RuleAttribute::Table(table(segment));
            gone.attributes.contains(&table)
        }),
        _ => false,
    }
}

/// How often something was put back, by segment.
#[derive(Clone, Debug, Default)]
pub(super) struct PutBack(Arc<Vec<(usize, AtomicU64)>>);

impl PutBack {
    /// Counts for these segments.
    pub(super) fn new(segments: impl IntoIterator<Item = usize>) -> Self {
        let counts = segments.into_iter().map(|n| (n, AtomicU64::new(0)));
        Self(Arc::new(counts.collect()))
    }

    /// Notes and tells what was put back at an interface.
    pub(super) fn note(&self, station: &KernelStation, parts: &[Part]) {
        if parts.is_empty() {
            return;
        }
        let name = &station.interface;
        tracing::warn!("in-band interface {name}: somebody removed {parts:?}, put back");
        let found = self.0.iter().find(|(n, _)| *n == station.segment);
        if let Some((_, count)) = found {
            count.fetch_add(parts.len() as u64, Ordering::Relaxed);
        }
    }

    /// Puts the counts into a snapshot.
    pub(super) fn complete(&self, snapshot: &mut Snapshot) {
        for (number, count) in self.0.iter() {
            if let Some(segment) = snapshot.segments.get_mut(*number) {
                segment.counters.inband.put_back = count.load(Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
#[path = "keep_tests.rs"]
mod tests;
