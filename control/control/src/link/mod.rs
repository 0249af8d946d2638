//! What the kernel's drivers say of links and are told: speed, autonegotiation, FEC, and the module that is plugged in.
//! [`ethtool`] speaks generic netlink, [`optics`] reads the memory of modules and [`settings`] compares; both have no
//! socket.

pub mod ethtool;
pub mod netlink;
pub mod optics;
pub mod settings;

use std::time::{Duration, Instant};

use crem_api::LinkSettings;
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
    /// What drivers were told last, and of which interface by its number.
    told: std::collections::BTreeMap<String, (u32, LinkSettings)>,
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

    /// Has an interface with this number be as the document says, once for each time that it is said: a driver that
    /// does otherwise would take the link down again and again. What was done, and what is otherwise, in words.
    pub fn settle(
        &mut self,
        interface: &str,
        index: u32,
        wanted: &LinkSettings,
    ) -> (Vec<String>, Vec<String>) {
        let said = (index, wanted.clone());
        let anew = self.told.get(interface) != Some(&said);
        let ethtool = match self.way() {
            Ok(ethtool) => ethtool,
            Err(error) => return (Vec::new(), vec![error]),
        };
        let link = ethtool.link(interface);
        let (mut done, mut failed) = (Vec::new(), Vec::new());
        for step in settings::steps(&link, wanted).into_iter().filter(|_| anew) {
            match ethtool.set(interface, step) {
                Ok(()) => done.push(format!("{interface}: {}.", settings::told(step))),
                Err(error) => failed.push(format!("{}: {error}", settings::told(step))),
            }
        }
        let mut otherwise = settings::different(&ethtool.link(interface), wanted);
        if !done.is_empty() {
            // It comes up anew, and says what it became at the next look only.
            otherwise.retain(|what| !what.starts_with("speed_mbit"));
        }
        otherwise.extend(failed);
        self.told.insert(interface.to_owned(), said);
        (done, otherwise)
    }

    /// Forgets what drivers were told of other interfaces than these: said again it is new.
    pub fn settle_only<'a>(&mut self, interfaces: impl Iterator<Item = &'a str>) {
        let named: std::collections::BTreeSet<&str> = interfaces.collect();
        self.told.retain(|name, _| named.contains(name.as_str()));
    }

    fn way(&mut self) -> Result<&mut Ethtool, String> {
        if self.ethtool.is_none() {
            self.ethtool = Some(Ethtool::open().map_err(|error| format!("ethtool: {error}"))?);
        }
        self.ethtool
            .as_mut()
            .ok_or_else(|| "ethtool: no way".to_owned())
    }

    fn ask(&mut self, interface: &str) -> PortLink {
        let ethtool = match self.way() {
            Ok(ethtool) => ethtool,
            Err(error) => {
                return PortLink {
                    not_known: vec![error],
                    ..PortLink::default()
                };
            }
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
