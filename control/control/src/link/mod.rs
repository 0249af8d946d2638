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

/// What a driver was told last.
#[derive(Debug)]
struct Told {
    /// Of which interface, by its number.
    index: u32,
    wanted: LinkSettings,
    /// What it refused, and why.
    refused: Vec<String>,
}

/// Asks drivers, and keeps the answers for a moment.
#[derive(Debug, Default)]
pub struct Links {
    ethtool: Option<Ethtool>,
    kept: std::collections::BTreeMap<String, (Instant, PortLink)>,
    /// What drivers were told last, by interface.
    told: std::collections::BTreeMap<String, Told>,
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
        let before = self.told.remove(interface);
        let before = before.filter(|told| told.index == index && told.wanted == *wanted);
        let ethtool = match self.way() {
            Ok(ethtool) => ethtool,
            Err(error) => return (Vec::new(), vec![error]),
        };
        let link = ethtool.link(interface);
        let (mut done, mut refused) = (Vec::new(), Vec::new());
        if let Some(before) = before {
            refused = before.refused;
        } else {
            for step in settings::steps(&link, wanted) {
                match ethtool.set(interface, step) {
                    Ok(()) => done.push(format!("{interface}: {}.", settings::told(step))),
                    Err(error) => refused.push(format!("{}: {error}", settings::told(step))),
                }
            }
        }
        let mut known = wanted.clone();
        if !done.is_empty() {
            // It comes up anew, and says at the next look only how fast it is.
            known.speed_mbit = None;
        }
        let mut otherwise = settings::different(&ethtool.link(interface), &known);
        otherwise.extend(refused.iter().cloned());
        let told = Told {
            index,
            wanted: wanted.clone(),
            refused,
        };
        self.told.insert(interface.to_owned(), told);
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
