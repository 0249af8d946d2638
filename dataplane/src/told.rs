//! A port in words of the status: its driver, offloads, queues and link, as DPDK tells them.

use std::path::Path;

use crem_api::Device;
use crem_api::state::{FecOffer, LinkLayer, PortQueues, PortStatus, QueueKind};
use crem_dpdk::{
    FecKinds, FlowControl, LinkTold, Mempool, Port, PriorityFlowControl, QueuesTold, Told,
};

use crate::numa;

/// A driver that has no such function.
const NOT_OFFERED: &str = "not_offered";
/// A driver that does not say.
const UNKNOWN: &str = "unknown";

/// What stays the same of a port while it is open. What the driver did not do of the document is logged.
///
/// # Errors
/// The driver tells nothing of the port.
pub(crate) fn opened(
    name: &str,
    device: &Device,
    port: &Port,
    pool: &Mempool,
) -> Result<PortStatus, crem_dpdk::Error> {
    let info = port.info()?;
    // Virtual devices, and with them kernel interfaces, answer with the node of the thread that made them.
    let numa_node = match device {
        Device::Pci(_) => info.socket,
        Device::Interface(_) | Device::Xdp(_) | Device::Vdev(_) => {
            numa::device_node(Path::new("/sys"), device)
        }
    };
    let link_not_applied = port.link_not_applied();
    for what in &link_not_applied {
        tracing::warn!(port = name, "not as the document says: {what}");
    }
    let [receive, transmit] = port.queues_told().map(queue_kind);
    Ok(PortStatus {
        driver: info.driver,
        numa_node,
        offloads: info.offloads,
        offloads_used: info.offloads_used,
        link_not_applied,
        queues: Some(PortQueues { receive, transmit }),
        pool_numa_nodes: pool.nodes(),
        ..PortStatus::default()
    })
}

fn queue_kind(told: QueuesTold) -> QueueKind {
    QueueKind {
        queues: told.queues,
        descriptors_asked: told.asked,
        descriptors: told.descriptors,
    }
}

/// A link as its driver has it.
pub(crate) fn link_layer(told: &LinkTold) -> LinkLayer {
    let mut not_told = Vec::new();
    let flow_control = word("flow_control", &told.flow_control, &mut not_told, |mode| {
        flow_control(*mode).to_owned()
    });
    let fec = word("fec", &told.fec, &mut not_told, |kinds| {
        let names = kinds.names();
        if names.is_empty() {
            UNKNOWN.to_owned()
        } else {
            names.join(",")
        }
    });
    let fec_offered = match &told.fec_offered {
        Told::Is(offers) => offers.iter().map(|at| offer(at.mbps, at.kinds)).collect(),
        Told::NotOffered => Vec::new(),
        Told::Failed(why) => {
            not_told.push(format!("fec_offered: {why}"));
            Vec::new()
        }
    };
    let priority_flow_control = match told.priority_flow_control {
        PriorityFlowControl::Offered => "offered",
        PriorityFlowControl::ByQueue => "by_queue",
        PriorityFlowControl::NotOffered => NOT_OFFERED,
        PriorityFlowControl::Unknown => UNKNOWN,
    };
    LinkLayer {
        flow_control,
        priority_flow_control: priority_flow_control.to_owned(),
        fec,
        fec_offered,
        not_told,
    }
}

fn flow_control(mode: FlowControl) -> &'static str {
    match mode {
        FlowControl::Off => "off",
        FlowControl::Receive => "receive",
        FlowControl::Send => "send",
        FlowControl::Both => "both",
        FlowControl::Other(_) => UNKNOWN,
    }
}

fn offer(speed_mbit: u32, kinds: FecKinds) -> FecOffer {
    let kinds = kinds.names().into_iter().map(str::to_owned).collect();
    FecOffer { speed_mbit, kinds }
}

/// The word for an answer; a fault is added to `not_told`.
fn word<T>(
    what: &str,
    told: &Told<T>,
    not_told: &mut Vec<String>,
    name: impl FnOnce(&T) -> String,
) -> String {
    match told {
        Told::Is(value) => name(value),
        Told::NotOffered => NOT_OFFERED.to_owned(),
        Told::Failed(why) => {
            not_told.push(format!("{what}: {why}"));
            UNKNOWN.to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crem_dpdk::Errno;

    fn told() -> LinkTold {
        LinkTold {
            flow_control: Told::NotOffered,
            priority_flow_control: PriorityFlowControl::NotOffered,
            fec: Told::NotOffered,
            fec_offered: Told::NotOffered,
        }
    }

    #[test]
    fn a_driver_that_has_nothing_is_not_one_that_has_it_off() {
        let layer = link_layer(&told());
        assert_eq!(layer.flow_control, "not_offered");
        assert_eq!(layer.fec, "not_offered");
        assert!(layer.not_told.is_empty() && layer.fec_offered.is_empty());
        let off = link_layer(&LinkTold {
            flow_control: Told::Is(FlowControl::Off),
            priority_flow_control: PriorityFlowControl::Unknown,
            ..told()
        });
        assert_eq!(off.flow_control, "off");
        assert_eq!(off.priority_flow_control, "unknown");
    }

    #[test]
    fn a_driver_that_fails_to_tell_says_why() {
        let broken = link_layer(&LinkTold {
            flow_control: Told::Failed(Errno(5)),
            fec: Told::Failed(Errno(5)),
            fec_offered: Told::Failed(Errno(28)),
            ..told()
        });
        assert_eq!(
            (&*broken.flow_control, &*broken.fec),
            ("unknown", "unknown")
        );
        let of = |what: &str| broken.not_told.iter().any(|said| said.starts_with(what));
        assert!(of("flow_control: ") && of("fec: ") && of("fec_offered: "));
        // A mode that has no name, and a set of no kinds.
        let odd = link_layer(&LinkTold {
            flow_control: Told::Is(FlowControl::Other(9)),
            fec: Told::Is(FecKinds::default()),
            ..told()
        });
        assert_eq!((&*odd.flow_control, &*odd.fec), ("unknown", "unknown"));
    }
}
