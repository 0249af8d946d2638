//! Ports and management interfaces: links, modules, neighbours.

use std::path::Path;
use std::sync::{Arc, PoisonError};

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use crem_api::rest::{LldpList, PortEntry, PortLink, PortList};
use crem_api::state::Status;
use crem_api::{Device, Document};

use crate::clock;
use crate::host::Machine;
use crate::lldp;
use crate::problem::Kind;

use super::auth::Viewer;
use super::failure::{Failure, Failures};
use super::{App, json};

/// Ports of segments and management interfaces of the document: link, speed, FEC and module as drivers tell.
#[utoipa::path(get, path = "/v1/state/ports", tag = "state",
    responses((status = 200, body = PortList), Failures))]
pub(crate) async fn ports(State(app): State<App>, _: Viewer) -> Result<Response, Failure> {
    let view = app.engine.view();
    let seen = app.watcher.seen();
    let machine = app.machine.borrow().clone();
    let mut ports = entries(view.document.as_deref(), seen.status.as_ref(), &machine);
    let links = Arc::clone(&app.links);
    // Reading a module takes its time.
    let asked = tokio::task::spawn_blocking(move || {
        let mut links = links.lock().unwrap_or_else(PoisonError::into_inner);
        for port in &mut ports {
            port.link = match &port.interface {
                Some(interface) => links.of(interface),
                None => PortLink {
                    not_known: vec!["the device has no kernel interface".to_owned()],
                    ..PortLink::default()
                },
            };
        }
        ports
    });
    let ports = asked
        .await
        .map_err(|e| Failure::new(Kind::Internal, e.to_string()))?;
    Ok(json(StatusCode::OK, &PortList { ports }))
}

fn entries(
    document: Option<&Document>,
    status: Option<&Status>,
    machine: &Machine,
) -> Vec<PortEntry> {
    let mut entries = Vec::new();
    let Some(document) = document else {
        return entries;
    };
    for (id, segment) in &document.segments {
        let seen = status.and_then(|s| s.segments.get(id.as_str()));
        for (role, device, port) in [
            ("lan", &segment.lan, seen.map(|s| &s.lan)),
            ("wan", &segment.wan, seen.map(|s| &s.wan)),
        ] {
            let mut not_applied = port.map(|p| p.link_not_applied.clone()).unwrap_or_default();
            let of_kernel = device
                .kernel_interface()
                .and_then(|name| machine.links.get(name));
            not_applied.extend(of_kernel.into_iter().flatten().cloned());
            entries.push(PortEntry {
                role: role.to_owned(),
                segment: Some(id.as_str().to_owned()),
                device: device.name().to_owned(),
                interface: interface(device),
                dataplane_link_up: port.map(|p| p.link_up),
                not_applied,
                numa_node: port.and_then(|p| p.numa_node),
                offloads_used: port.map(|p| p.offloads_used.clone()).unwrap_or_default(),
                offloads: port.map(|p| p.offloads.clone()).unwrap_or_default(),
                link_layer: port.and_then(|p| p.link_layer.clone()),
                queues: port.and_then(|p| p.queues.clone()),
                pool_numa_nodes: port.map(|p| p.pool_numa_nodes.clone()).unwrap_or_default(),
                link: PortLink::default(),
            });
        }
    }
    let management = document.management.as_ref();
    for name in management.into_iter().flat_map(|m| m.interfaces.keys()) {
        entries.push(PortEntry {
            role: "management".to_owned(),
            device: name.clone(),
            interface: Some(name.clone()),
            ..PortEntry::default()
        });
    }
    entries
}

/// The kernel's interface of a device: a PCI device has one unless it was taken from its driver.
fn interface(device: &Device) -> Option<String> {
    match device {
        Device::Interface(name) | Device::Xdp(name) => Some(name.clone()),
        Device::Pci(address) => {
            let place = Path::new("/sys/bus/pci/devices").join(address).join("net");
            let first = std::fs::read_dir(place).ok()?.next()?.ok()?;
            first.file_name().into_string().ok()
        }
        Device::Vdev(_) => None,
    }
}

/// Neighbours that were heard by LLDP.
#[utoipa::path(get, path = "/v1/state/lldp", tag = "state",
    responses((status = 200, body = LldpList), Failures))]
pub(crate) async fn neighbours(State(app): State<App>, _: Viewer) -> Response {
    let list = lldp::lock(&app.neighbours).list(clock::now().boot_ms);
    json(StatusCode::OK, &list)
}
