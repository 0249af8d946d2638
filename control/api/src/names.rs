//! The part of the config document on the resolvers and time servers of this machine. How they stand is in
//! [`rest`](crate::rest).

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::Serialize;
use serde_json::json;

use crate::read::{Node, Table};

/// Most resolvers that a C library asks (resolv.conf(5)).
const MAX_RESOLVERS: usize = 3;
/// Most domains that older C libraries search.
const MAX_SEARCH: usize = 6;
/// Most time servers.
const MAX_TIME_SERVERS: usize = 8;
/// Where it is not said.
const PREFERENCE: u8 = 100;

/// Which of several comes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Preferred {
    /// Lower ones come first; equal ones in the order of their keys.
    pub preference: u8,
}

/// Resolvers of domain names.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Dns {
    /// Resolvers by address.
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, Preferred>))]
    pub servers: BTreeMap<IpAddr, Preferred>,
    /// Domains that names without a dot are looked for in.
    pub search: BTreeMap<String, Preferred>,
}

/// Time servers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Ntp {
    /// Servers by address or name.
    pub servers: BTreeMap<String, Preferred>,
}

impl Dns {
    pub(crate) fn read(node: &Node<'_>) -> Option<Self> {
        let mut t = node.table()?;
        let servers = t.required("servers", |n| {
            let address = |text: &str| text.parse::<IpAddr>().ok().filter(is_of_one);
            read_all(n, "the address of a resolver", address, 1, MAX_RESOLVERS)
        });
        let search = t.or_told("search", BTreeMap::new(), |n| {
            let domain = |text: &str| is_name(text).then(|| text.to_owned());
            read_all(n, "a domain name", domain, 0, MAX_SEARCH)
        });
        t.finish();
        Some(Self {
            servers: servers?,
            search: search?,
        })
    }

    /// Addresses of resolvers, the first one first.
    pub fn servers_in_order(&self) -> Vec<String> {
        in_order(&self.servers)
    }

    /// Domains to search, the first one first.
    pub fn search_in_order(&self) -> Vec<String> {
        in_order(&self.search)
    }
}

impl Ntp {
    pub(crate) fn read(node: &Node<'_>) -> Option<Self> {
        let mut t = node.table()?;
        let servers = t.required("servers", |n| {
            let expected = "the address or the name of a time server";
            let server = |text: &str| match text.parse::<IpAddr>() {
                Ok(address) => is_of_one(&address).then(|| address.to_string()),
                Err(_) => is_name(text).then(|| text.to_owned()),
            };
            read_all(n, expected, server, 1, MAX_TIME_SERVERS)
        });
        t.finish();
        Some(Self { servers: servers? })
    }

    /// Time servers, the first one first.
    pub fn servers_in_order(&self) -> Vec<String> {
        in_order(&self.servers)
    }
}

impl Preferred {
    fn read(node: &Node<'_>) -> Option<Self> {
        let mut t: Table<'_> = node.table()?;
        let preference = t.or_told("preference", PREFERENCE, |n| n.integer(1..=u8::MAX));
        t.finish();
        Some(Self {
            preference: preference?,
        })
    }
}

fn read_all<K: Ord>(
    node: &Node<'_>,
    expected: &str,
    key_of: impl Fn(&str) -> Option<K>,
    least: usize,
    most: usize,
) -> Option<BTreeMap<K, Preferred>> {
    let map = node.map(expected, key_of, Preferred::read)?;
    node.describe(|| json!({"minProperties": least, "maxProperties": most}));
    if map.len() > most {
        return node.too_many(map.len(), most);
    }
    if map.len() < least && !node.describes() {
        return node.note("an empty table", format!("{expected}, at least one"));
    }
    Some(map)
}

fn in_order<K: ToString + Ord>(map: &BTreeMap<K, Preferred>) -> Vec<String> {
    let mut all: Vec<(&Preferred, &K)> = map.iter().map(|(key, rank)| (rank, key)).collect();
    all.sort();
    all.into_iter().map(|(_, key)| key.to_string()).collect()
}

fn is_of_one(address: &IpAddr) -> bool {
    !address.is_unspecified() && !address.is_multicast()
}

/// A name as RFC 1123 has it for hosts, without a dot at its end.
fn is_name(text: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.chars().all(legal)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    // What looks like an address and is none is a mistake, and no name.
    let last = text.rsplit('.').next().unwrap_or_default();
    text.len() <= 253 && text.split('.').all(is_label) && !last.chars().all(|c| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::{Management, Syntax, parse};

    fn management(lines: &str) -> Result<Management, String> {
        let text = format!(
            "version = 1\n[segments.a]\nmode = \"passthrough\"\ncrem_port = 4801\npath_mtu = 1500\n\
             lan = {{ interface = \"lan0\" }}\nwan = {{ interface = \"wan0\" }}\n[management]\n{lines}"
        );
        let read = parse(&text, Syntax::Toml).map_err(|e| e.to_string())?;
        Ok(read.management.unwrap())
    }

    #[test]
    fn the_first_one_is_the_preferred_one() {
        let management = management(
            "dns.servers = { \"192.0.2.53\" = {}, \"2001:db8::53\" = { preference = 1 }, \"10.0.0.1\" = {} }\n\
             dns.search = { \"b.example\" = { preference = 2 }, \"a.example\" = { preference = 3 } }\n\
             ntp.servers = { \"time.example\" = {}, \"192.0.2.123\" = {} }",
        );
        let management = management.unwrap();
        let dns = management.dns.unwrap();
        assert_eq!(
            dns.servers_in_order(),
            ["2001:db8::53", "10.0.0.1", "192.0.2.53"]
        );
        assert_eq!(dns.search_in_order(), ["b.example", "a.example"]);
        let ntp = management.ntp.unwrap();
        assert_eq!(ntp.servers_in_order(), ["192.0.2.123", "time.example"]);
    }

    #[test]
    fn what_cannot_be_asked_is_refused_with_its_place() {
        for (lines, place) in [
            ("dns = {}", "/management/dns/servers"),
            ("dns.servers = {}", "/management/dns/servers"),
            (
                "dns.servers = { \"0.0.0.0\" = {} }",
                "/management/dns/servers/0.0.0.0",
            ),
            (
                "dns.servers = { \"ns.example\" = {} }",
                "/management/dns/servers/ns.example",
            ),
            (
                "dns.servers = { \"10.0.0.1\" = {}, \"10.0.0.2\" = {}, \"10.0.0.3\" = {}, \"10.0.0.4\" = {} }",
                "/management/dns/servers",
            ),
            (
                "dns = { servers = { \"10.0.0.1\" = {} }, search = { \"a b\" = {} } }",
                "/management/dns/search/a b",
            ),
            (
                "ntp.servers = { \"10.0.0.300\" = {} }",
                "/management/ntp/servers/10.0.0.300",
            ),
            (
                "ntp.servers = { \"10.0.0.3\" = { preference = 0 } }",
                "/management/ntp/servers/10.0.0.3/preference",
            ),
            (
                "ntp.servers = { \"-a\" = {} }",
                "/management/ntp/servers/-a",
            ),
        ] {
            let said = management(lines).unwrap_err();
            assert!(said.contains(place), "{lines}: {said}");
        }
    }
}
