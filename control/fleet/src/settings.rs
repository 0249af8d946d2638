//! The agent's own settings: a small TOML file that no other process reads, so that nothing in it can keep the
//! gateway from starting. Every problem is reported at once.

use std::path::PathBuf;

use crem_api::read::{Invalid, Issue, Issues, Node, Table};
use crem_api::{Impact, Syntax};

/// Longest id, and longest prefix of keys, octets.
const MAX_ID: usize = 32;
const MAX_PREFIX: usize = 128;
/// Most endpoints.
const MAX_ENDPOINTS: usize = 16;
/// Bounds of times, seconds.
const CONFIRM_S: std::ops::RangeInclusive<u64> = 2..=3600;
const LEASE_S: std::ops::RangeInclusive<u64> = 5..=3600;

/// Who this gateway is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The gateway.
    pub node: String,
    /// Its fleet: all that share a base.
    pub fleet: String,
    /// Its site, if sites have documents of their own.
    pub site: Option<String>,
    /// The two ends of a segment have the same pair: they never change at once.
    pub pair: String,
}

/// What happens to changes that somebody makes at the gateway itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LocalChanges {
    /// They stay, and are not looked for.
    Allow,
    /// They stay, and the status says so.
    Report,
    /// The desired document comes back.
    Revert,
}

/// How etcd is reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Etcd {
    /// `http://` or `https://` addresses, tried in turn.
    pub endpoints: Vec<Endpoint>,
    /// What keys begin with.
    pub prefix: String,
    /// Authorities of its certificates, a PEM file.
    pub authorities: Option<PathBuf>,
    /// Our certificate and its key, PEM files.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// User, and the file with the password.
    pub user: Option<(String, PathBuf)>,
    /// After so many seconds without us our status is gone.
    pub lease_s: u64,
}

/// One address of etcd.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// Whether it is spoken to through TLS.
    pub tls: bool,
    /// Host name or address, without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
}

/// How changes are made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rollout {
    /// Time for confirming, seconds: what comes back by itself after it.
    pub confirm_s: u64,
    /// How long all has to be well before a change is confirmed, seconds.
    pub settle_s: u64,
    /// What a change may disturb at most.
    pub max_impact: Impact,
    /// Loss of a flow after restoration that is taken for a failure if it was not there before, packets a million.
    pub loss_ppm: u64,
}

/// Everything.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Who we are.
    pub identity: Identity,
    /// Local socket of the control process.
    pub control: PathBuf,
    /// Where the memory is kept.
    pub memory: PathBuf,
    /// Where the status is told at the gateway itself.
    pub status: PathBuf,
    /// Log filter.
    pub log_filter: String,
    /// Changes of others.
    pub local_changes: LocalChanges,
    /// How etcd is reached.
    pub etcd: Etcd,
    /// How changes are made.
    pub rollout: Rollout,
}

impl Settings {
    /// Reads TOML.
    ///
    /// # Errors
    /// Every problem, with a pointer each.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let value = crem_api::value_of(text, Syntax::Toml)?;
        let issues = Issues::default();
        let settings = Self::read(&Node::root(&value, &issues), &issues);
        issues.conclude(settings)
    }

    fn read(node: &Node<'_>, issues: &Issues) -> Option<Self> {
        let mut t = node.table()?;
        let name = t.required("node", id);
        let fleet = t.required("fleet", id);
        let site = t.optional("site", id);
        let pair = t.optional("pair", id);
        let control = t.or("control", "/run/crem/control.sock".into(), path);
        let memory = t.or("memory", "/var/lib/crem/fleet.json".into(), path);
        let status = t.or("status", "/run/crem/fleet-status.json".into(), path);
        let log = t.or("log", "info".to_owned(), |n| text(n, "a log filter"));
        let words = [
            ("allow", LocalChanges::Allow),
            ("report", LocalChanges::Report),
            ("revert", LocalChanges::Revert),
        ];
        let local = t.or("local_changes", LocalChanges::Report, |n| n.choice(&words));
        let etcd = t.required("etcd", |n| Etcd::read(n, issues));
        let rollout = t.or("rollout", Rollout::default(), |n| Rollout::read(n, issues));
        t.finish();
        let name = name?;
        Some(Self {
            identity: Identity {
                fleet: fleet?,
                site: site?,
                // Alone it is a pair of its own.
                pair: pair?.unwrap_or_else(|| name.clone()),
                node: name,
            },
            control: control?,
            memory: memory?,
            status: status?,
            log_filter: log?,
            local_changes: local?,
            etcd: etcd?,
            rollout: rollout?,
        })
    }
}

impl Etcd {
    fn read(node: &Node<'_>, issues: &Issues) -> Option<Self> {
        let mut t = node.table()?;
        let endpoints = t.required("endpoints", endpoints);
        let prefix = t.or("prefix", "/crem/v1".to_owned(), prefix);
        let authorities = t.optional("authorities", path);
        let certificate = both(&mut t, ["certificate", "key"], issues, path, path);
        let user = both(
            &mut t,
            ["user", "password_file"],
            issues,
            |n| text(n, "a user's name"),
            path,
        );
        let lease_s = t.or("lease_s", 30, |n| n.integer(LEASE_S));
        let place = t.node().pointer().to_owned();
        t.finish();
        let (endpoints, authorities, certificate) = (endpoints?, authorities?, certificate?);
        let tls = endpoints.iter().any(|e| e.tls);
        if tls && authorities.is_none() {
            let expected = "authorities of the certificates of https endpoints, a PEM file";
            issues.push(Issue::new(
                format!("{place}/authorities"),
                "nothing",
                expected,
            ));
        }
        if !tls && (authorities.is_some() || certificate.is_some()) {
            let found = "certificates for endpoints without TLS";
            issues.push(Issue::new(
                format!("{place}/endpoints"),
                found,
                "https:// endpoints",
            ));
        }
        Some(Self {
            endpoints,
            prefix: prefix?,
            authorities,
            certificate,
            user: user?,
            lease_s: lease_s?,
        })
    }
}

/// Two keys of which neither makes sense without the other.
fn both<A, B>(
    t: &mut Table<'_>,
    keys: [&'static str; 2],
    issues: &Issues,
    first: impl FnOnce(&Node<'_>) -> Option<A>,
    second: impl FnOnce(&Node<'_>) -> Option<B>,
) -> Option<Option<(A, B)>> {
    let [a, b] = keys;
    let found = (t.optional(a, first)?, t.optional(b, second)?);
    let missing = match found {
        (Some(a), Some(b)) => return Some(Some((a, b))),
        (None, None) => return Some(None),
        (Some(_), None) => [b, a],
        (None, Some(_)) => [a, b],
    };
    let pointer = format!("{}/{}", t.node().pointer(), missing[0]);
    let expected = format!("this key too, since there is {}", missing[1]);
    issues.push(Issue::new(pointer, "nothing", expected).of(crem_api::Code::Missing));
    None
}

impl Default for Rollout {
    fn default() -> Self {
        Self {
            confirm_s: 120,
            settle_s: 10,
            max_impact: Impact::Hot,
            loss_ppm: 1_000,
        }
    }
}

impl Rollout {
    fn read(node: &Node<'_>, issues: &Issues) -> Option<Self> {
        let d = Self::default();
        let mut t = node.table()?;
        let confirm_s = t.or("confirm_s", d.confirm_s, |n| n.integer(CONFIRM_S));
        let settle_s = t.or("settle_s", d.settle_s, |n| n.integer(0..=3600));
        // What takes a new start of the data plane cannot be tried, so it is not the agent's to do.
        let words = [("hot", Impact::Hot), ("segment", Impact::Segment)];
        let max_impact = t.or("max_impact", d.max_impact, |n| n.choice(&words));
        let loss_ppm = t.or("loss_ppm", d.loss_ppm, |n| n.integer(0..=1_000_000));
        let place = format!("{}/settle_s", t.node().pointer());
        t.finish();
        let rollout = Self {
            confirm_s: confirm_s?,
            settle_s: settle_s?,
            max_impact: max_impact?,
            loss_ppm: loss_ppm?,
        };
        if rollout.settle_s >= rollout.gate_s() {
            let expected = "less than three quarters of confirm_s, when a change is given up";
            let issue = Issue::new(place, rollout.settle_s.to_string(), expected);
            issues.push(issue.limited(crem_api::Code::TooLarge, rollout.gate_s()));
        }
        Some(rollout)
    }

    /// Seconds after which a change that is not well is given up: what is left before it would end by itself is for
    /// doing so in order.
    pub fn gate_s(&self) -> u64 {
        (self.confirm_s * 3 / 4).max(1)
    }
}

fn text(node: &Node<'_>, expected: &str) -> Option<String> {
    node.text(expected).map(str::to_owned)
}

fn path(node: &Node<'_>) -> Option<PathBuf> {
    node.text("a path").map(PathBuf::from)
}

fn id(node: &Node<'_>) -> Option<String> {
    let expected = "an id of 1 to 32 characters a-z, 0-9, '-' and '.'";
    let found = node.text(expected)?;
    let good = |c: u8| matches!(c, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.');
    if found.len() > MAX_ID || !found.bytes().all(good) {
        return node.fail(expected);
    }
    Some(found.to_owned())
}

fn prefix(node: &Node<'_>) -> Option<String> {
    let expected = "a beginning of keys such as \"/crem/v1\", without a slash at its end";
    let found = node.text(expected)?;
    if found.len() > MAX_PREFIX || found.ends_with('/') {
        return node.fail(expected);
    }
    Some(found.to_owned())
}

/// A table whose keys are the addresses, as everywhere in our documents.
fn endpoints(node: &Node<'_>) -> Option<Vec<Endpoint>> {
    let expected = "an address such as \"https://etcd-1.example:2379\"";
    let nothing = |n: &Node<'_>| n.table().map(Table::finish);
    let keyed = |text: &str| Endpoint::parse(text).map(|e| (text.to_owned(), e));
    let found = node.map(expected, |t| keyed(t).map(|(text, _)| text), nothing)?;
    if found.is_empty() {
        return node.note("no address", "at least one address of etcd");
    }
    if found.len() > MAX_ENDPOINTS {
        return node.too_many(found.len(), MAX_ENDPOINTS);
    }
    Some(found.keys().filter_map(|t| Endpoint::parse(t)).collect())
}

impl Endpoint {
    fn parse(text: &str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        let tls = match scheme {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        let (host, port) = rest.rsplit_once(':')?;
        let inner = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
        let bracketed = inner.is_some();
        let host = inner.unwrap_or(host);
        let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        let fits = if bracketed {
            host.parse::<std::net::Ipv6Addr>().is_ok()
        } else {
            !host.is_empty() && host.chars().all(good)
        };
        let port = port.parse().ok().filter(|&p| p != 0)?;
        fits.then(|| Self {
            tls,
            host: host.to_owned(),
            port,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const LEAST: &str =
        "node = \"gw-a\"\nfleet = \"f\"\n[etcd.endpoints]\n\"http://[::1]:2379\" = {}\n";

    fn problems(text: &str) -> Vec<String> {
        let invalid = Settings::parse(text).unwrap_err();
        invalid.issues.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn four_lines_are_enough() {
        let settings = Settings::parse(LEAST).unwrap();
        assert_eq!(settings.identity.pair, "gw-a");
        assert_eq!(settings.etcd.endpoints[0].host, "::1");
        assert_eq!(settings.rollout, Rollout::default());
        assert_eq!(settings.local_changes, LocalChanges::Report);
    }

    #[test]
    fn every_problem_is_told_at_once() {
        let text = "node = \"GW\"\nfleet = \"f\"\nextra = 1\n[etcd]\nuser = \"x\"\n\
                    endpoints = { \"https://e:2379\" = {}, \"ftp://e:1\" = {} }\n\
                    [rollout]\nconfirm_s = 8\nsettle_s = 6\nmax_impact = \"process\"\n";
        let found = problems(text);
        for expected in [
            "/node: ",
            "/extra: ",
            "/etcd/endpoints/ftp:~1~1e:1: ",
            "/etcd/password_file: ",
            "/rollout/max_impact: ",
        ] {
            assert!(found.iter().any(|p| p.starts_with(expected)), "{found:?}");
        }
    }

    #[test]
    fn a_change_has_to_settle_before_it_is_given_up() {
        let text = |settle: u64| format!("{LEAST}[rollout]\nconfirm_s = 8\nsettle_s = {settle}\n");
        assert!(Settings::parse(&text(5)).is_ok());
        assert!(problems(&text(6))[0].starts_with("/rollout/settle_s: "));
    }

    #[test]
    fn tls_takes_authorities_and_certificates_take_tls() {
        let https = LEAST.replace("http:", "https:");
        assert!(problems(&https)[0].starts_with("/etcd/authorities: "));
        let good = format!("{https}\n[etcd]\nauthorities = \"/ca\"\n").replace(
            "[etcd.endpoints]\n\"https://[::1]:2379\" = {}\n\n[etcd]\n",
            "[etcd]\nendpoints = { \"https://e:2379\" = {} }\n",
        );
        assert!(Settings::parse(&good).is_ok(), "{good}");
        let key_only = good.replace(
            "authorities = \"/ca\"",
            "authorities = \"/ca\"\nkey = \"/k\"",
        );
        assert!(problems(&key_only)[0].starts_with("/etcd/certificate: "));
        let plain = good.replace("https:", "http:");
        assert!(problems(&plain)[0].starts_with("/etcd/endpoints: "));
    }
}
