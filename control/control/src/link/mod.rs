//! What the kernel's drivers say of links: speed, autonegotiation, FEC, and the module that is plugged in.
//! [`ethtool`] speaks generic netlink, [`optics`] reads the memory of modules and has no socket.

pub mod ethtool;
pub mod netlink;
pub mod optics;

use std::time::{Duration, Instant};

use crem_api::rest::PortLink;

use ethtool::Ethtool;

/// Answers younger than this are given again: modules are slow to read.
const FRESH: Duration = Duration::from_secs(1);
/// Interfaces whose answers are kept.
const MAX_KEPT: usize = 64;

/// Asks drivers, and keeps the answers for a moment.
#[derive(Debug, Default)]
pub struct Links {
    ethtool: Option<Ethtool>,
    kept: std::collections::BTreeMap<String, (Instant, PortLink)>,
}

impl Links {
    /// What the driver of an interface says. Blocks for as long as it takes.
    pub fn of(&mut self, interface: &str) -> PortLink {
        if let Some((at, link)) = self.kept.get(interface)
            && at.elapsed() < FRESH
        {
            return link.clone();
        }
        let link = self.ask(interface);
        if self.kept.len() >= MAX_KEPT {
            self.kept.clear();
        }
        self.kept
            .insert(interface.to_owned(), (Instant::now(), link.clone()));
        link
    }

    fn ask(&mut self, interface: &str) -> PortLink {
        if self.ethtool.is_none() {
            match Ethtool::open() {
                Ok(ethtool) => self.ethtool = Some(ethtool),
                Err(error) => {
                    return PortLink {
                        not_known: vec![format!("ethtool: {error}")],
                        ..PortLink::default()
                    };
                }
            }
        }
        let Some(ethtool) = &mut self.ethtool else {
            return PortLink::default();
        };
        let mut link = ethtool.link(interface);
        let read = optics::read(&mut |place| ethtool.module(interface, place));
        match read {
            Ok(module) => link.module = Some(module),
            Err(error) => link.not_known.push(format!("module: {error}")),
        }
        link
    }
}
