//! Resolvers and time servers: what the document says is written into two files beside the local socket, which everybody
//! may read, and the system uses them where its own files lead there. Nothing else is written, and nothing is started.

use std::io;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use crem_api::rest::{DnsState, Drift, DriftKind, TimeState};
use crem_api::{Addressing, Management};

use crate::access::write_whole;

/// First line of files of ours.
const MARK: &str =
    "# Of crem-gateway control, by /management of its config document. Changes here do not last.\n";
/// Longest file that is read, octets.
const MAX_FILE: u64 = 64 << 10;

/// Where the files are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Places {
    /// Ours for the resolver (resolv.conf(5)).
    pub resolvers: PathBuf,
    /// The system's.
    pub system_resolvers: PathBuf,
    /// Ours for the time service (timesyncd.conf(5)).
    pub time: PathBuf,
    /// The system's.
    pub system_time: PathBuf,
    /// What the time service touches when it set the clock (systemd-timesyncd(8)).
    pub synchronised: PathBuf,
}

impl Places {
    /// With ours in a directory.
    pub fn below(directory: &Path) -> Self {
        Self {
            resolvers: directory.join("resolv.conf"),
            system_resolvers: "/etc/resolv.conf".into(),
            time: directory.join("timesyncd.conf"),
            system_time: "/etc/systemd/timesyncd.conf.d/crem.conf".into(),
            synchronised: "/run/systemd/timesync/synchronized".into(),
        }
    }

    /// Writes what the document says, where the gateway sets it, and looks what the system uses.
    pub fn look(&self, wanted: Option<&Management>, at_ms: u64) -> (DnsState, TimeState) {
        let ours = wanted.filter(|m| m.addressing == Addressing::Gateway);
        let dns = ours.and_then(|m| m.dns.as_ref()).map(|dns| {
            let servers = dns.servers_in_order().into_iter();
            let lines: String = servers.map(|s| format!("nameserver {s}\n")).collect();
            match dns.search_in_order() {
                domains if domains.is_empty() => lines,
                domains => format!("{lines}search {}\n", domains.join(" ")),
            }
        });
        let ntp = ours.and_then(|m| m.ntp.as_ref());
        let ntp = ntp.map(|ntp| format!("[Time]\nNTP={}\n", ntp.servers_in_order().join(" ")));
        let failed = |path: &Path, error: io::Error| format!("{}: {error}", path.display());
        let dns_error = put(&self.resolvers, dns).err();
        let time_error = put(&self.time, ntp).err();
        let (servers, search) = resolvers(&read(&self.system_resolvers));
        let dns = DnsState {
            at_ms,
            servers,
            search,
            by_gateway: leads_to(&self.system_resolvers, &self.resolvers),
            error: dns_error.map(|e| failed(&self.resolvers, e)),
        };
        let time = TimeState {
            at_ms,
            servers: time_servers(&read(&self.system_time)),
            by_gateway: leads_to(&self.system_time, &self.time),
            synchronised_at_ms: changed_ms(&self.synchronised),
            error: time_error.map(|e| failed(&self.time, e)),
        };
        (dns, time)
    }
}

/// What is other than the document says, of what it says at all.
pub fn drift(wanted: Option<&Management>, dns: &DnsState, time: &TimeState) -> Vec<Drift> {
    let mut found = Vec::new();
    let mut compare = |pointer: &str, kind, configured: Vec<String>, operational: &[String]| {
        if configured != operational {
            let joined = |list: &[String]| (!list.is_empty()).then(|| list.join(" "));
            found.push(Drift {
                pointer: format!("/management/{pointer}"),
                kind,
                configured: joined(&configured),
                operational: joined(operational),
            });
        }
    };
    if let Some(configured) = wanted.and_then(|m| m.dns.as_ref()) {
        let servers = configured.servers_in_order();
        compare("dns/servers", DriftKind::Resolvers, servers, &dns.servers);
        let search = configured.search_in_order();
        compare("dns/search", DriftKind::SearchDomains, search, &dns.search);
    }
    if let Some(configured) = wanted.and_then(|m| m.ntp.as_ref()) {
        let servers = configured.servers_in_order();
        compare(
            "ntp/servers",
            DriftKind::TimeServers,
            servers,
            &time.servers,
        );
    }
    found
}

/// Makes a file have a text, or takes away one of ours.
fn put(path: &Path, text: Option<String>) -> io::Result<()> {
    let has = read(path);
    match text {
        Some(text) => {
            let text = format!("{MARK}{text}");
            if has == text {
                return Ok(());
            }
            // The resolver of every program reads it.
            write_whole(path, &text, 0o644)
        }
        None if has.starts_with(MARK) => std::fs::remove_file(path),
        None => Ok(()),
    }
}

/// A file's text; none where there is no file, or one that nobody could mean.
fn read(path: &Path) -> String {
    let length = std::fs::metadata(path).map(|m| m.len());
    if length.is_ok_and(|length| length <= MAX_FILE) {
        std::fs::read_to_string(path).unwrap_or_default()
    } else {
        String::new()
    }
}

/// Whether both are the same file.
fn leads_to(path: &Path, file: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    real(path).is_some_and(|real_path| Some(real_path) == real(file))
}

fn changed_ms(path: &Path) -> Option<u64> {
    let changed = std::fs::metadata(path).and_then(|m| m.modified()).ok()?;
    let since = changed.duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(since.as_millis()).ok()
}

/// Resolvers and domains of a resolv.conf; the last list of domains counts.
fn resolvers(text: &str) -> (Vec<String>, Vec<String>) {
    let (mut servers, mut search) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        match words.next() {
            Some("nameserver") => servers.extend(words.next().map(str::to_owned)),
            Some("search" | "domain") => search = words.map(str::to_owned).collect(),
            _ => {}
        }
    }
    (servers, search)
}

/// Servers of a timesyncd.conf; an empty assignment forgets those before it.
fn time_servers(text: &str) -> Vec<String> {
    let mut servers = Vec::new();
    for list in text.lines().filter_map(|l| l.trim().strip_prefix("NTP=")) {
        if list.trim().is_empty() {
            servers.clear();
        }
        servers.extend(list.split_ascii_whitespace().map(str::to_owned));
    }
    servers
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crem_api::{Syntax, parse};

    const DNS: &str = "dns = { servers = { \"192.0.2.53\" = {}, \"2001:db8::1\" = { preference = 1 } }, search = { \"x.example\" = {} } }";
    const NTP: &str = "ntp.servers = { \"192.0.2.123\" = {}, \"t.example\" = {} }";

    fn wanted(addressing: &str, lines: &str) -> Management {
        let text = format!(
            "version = 1\n[segments.a]\nmode = \"passthrough\"\ncrem_port = 4801\npath_mtu = 1500\n\
             lan = {{ interface = \"lan0\" }}\nwan = {{ interface = \"wan0\" }}\n[management]\n\
             addressing = \"{addressing}\"\n{lines}"
        );
        parse(&text, Syntax::Toml).unwrap().management.unwrap()
    }

    /// A machine whose files lead to ours.
    fn places(name: &str) -> (PathBuf, Places) {
        let path = std::env::temp_dir().join(format!("crem-names-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(path.join("ours")).unwrap();
        let mut places = Places::below(&path.join("ours"));
        places.system_resolvers = path.join("resolv.conf");
        places.system_time = path.join("crem.conf");
        places.synchronised = path.join("synchronized");
        std::os::unix::fs::symlink(&places.resolvers, &places.system_resolvers).unwrap();
        std::os::unix::fs::symlink(&places.time, &places.system_time).unwrap();
        (path, places)
    }

    #[test]
    fn the_document_becomes_the_machines_and_goes_with_it() {
        let (path, places) = places("set");
        let management = wanted("gateway", &format!("{DNS}\n{NTP}"));
        let (dns, time) = places.look(Some(&management), 7);
        assert_eq!(dns.servers, ["2001:db8::1", "192.0.2.53"]);
        assert_eq!(
            (dns.search, dns.by_gateway),
            (vec!["x.example".to_owned()], true)
        );
        assert_eq!(time.servers, ["192.0.2.123", "t.example"]);
        assert_eq!((time.by_gateway, time.synchronised_at_ms), (true, None));
        let (dns, time) = places.look(Some(&management), 8);
        assert_eq!(drift(Some(&management), &dns, &time), []);
        // Somebody else's hand is put right, and the clock is set.
        std::fs::write(&places.system_resolvers, "nameserver 203.0.113.1\n").unwrap();
        std::fs::write(&places.synchronised, "").unwrap();
        let (dns, time) = places.look(Some(&management), 9);
        assert_eq!(dns.servers.len(), 2);
        assert!(time.synchronised_at_ms > Some(1_700_000_000_000));
        // Without the keys nothing of ours stays.
        let (dns, time) = places.look(Some(&wanted("gateway", "")), 10);
        assert!(dns.servers.is_empty() && time.servers.is_empty());
        assert!(!places.resolvers.exists() && !places.time.exists());
        std::fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn what_the_system_sets_is_compared_and_left_alone() {
        let (path, places) = places("left");
        std::fs::write(
            &places.system_resolvers,
            "# somebody's\nnameserver 203.0.113.1\ndomain a\nsearch b c\n",
        )
        .unwrap();
        let management = wanted("system", &format!("{DNS}\n{NTP}"));
        let (dns, time) = places.look(Some(&management), 7);
        let found = drift(Some(&management), &dns, &time);
        let told: Vec<_> = found
            .iter()
            .map(|d| (d.pointer.as_str(), d.kind, d.operational.as_deref()))
            .collect();
        assert_eq!(
            told,
            [
                (
                    "/management/dns/servers",
                    DriftKind::Resolvers,
                    Some("203.0.113.1")
                ),
                (
                    "/management/dns/search",
                    DriftKind::SearchDomains,
                    Some("b c")
                ),
                ("/management/ntp/servers", DriftKind::TimeServers, None),
            ]
        );
        let text = std::fs::read_to_string(&places.system_resolvers).unwrap();
        assert!(text.starts_with("# somebody's"), "{text}");
        // A document that says nothing of it finds nothing wrong, and takes nothing away.
        let nothing = wanted("gateway", "");
        let (dns, time) = places.look(Some(&nothing), 8);
        assert_eq!(drift(Some(&nothing), &dns, &time), []);
        assert_eq!(dns.servers, ["203.0.113.1"]);
        std::fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn a_file_that_cannot_be_written_is_told() {
        let (path, mut places) = places("error");
        places.resolvers = path.join("nowhere").join("resolv.conf");
        let (dns, time) = places.look(Some(&wanted("gateway", DNS)), 7);
        assert!(dns.error.unwrap().contains("nowhere"));
        assert_eq!((dns.by_gateway, time.error), (false, None));
        std::fs::remove_dir_all(path).unwrap();
    }
}
