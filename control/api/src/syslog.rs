//! The part of the config document on syslog servers elsewhere. Messages are made and sent in `crem-control`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::read::{Code, Issue, Issues, Node};

/// Most servers.
const MAX_SERVERS: usize = 8;

/// How messages get to a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum SyslogTransport {
    /// A datagram each (RFC 5426).
    Udp,
    /// A stream with the length before each (RFC 6587).
    Tcp,
    /// The same in TLS (RFC 5425).
    Tls,
}

/// The least that a message has to matter to be sent, by who has to do something.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum SyslogLevel {
    /// Somebody has to act at once.
    Error,
    /// Somebody has to act soon.
    Warning,
    /// Nobody has to, but it explains what was.
    Info,
}

/// A server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SyslogServer {
    /// Address or name, looked up for every connection.
    pub host: String,
    /// Port of the server: 514 with UDP, 601 with TCP, 6514 with TLS if left out.
    pub port: u16,
    /// How messages get there.
    pub transport: SyslogTransport,
    /// PEM file of the authorities of its certificate, with TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authorities: Option<String>,
    /// Facility, 0 to 23 (RFC 5424 section 6.2.1).
    pub facility: u8,
    /// The least that a message has to matter to be sent.
    pub level: SyslogLevel,
}

/// Reads servers by name.
pub(crate) fn servers(node: &Node<'_>) -> Option<BTreeMap<String, SyslogServer>> {
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let name = |text: &str| {
        let fits = (1..=32).contains(&text.len()) && text.chars().all(legal);
        fits.then(|| text.to_owned())
    };
    let map = node.map(
        "1 to 32 characters a-z, 0-9 and -",
        name,
        SyslogServer::read,
    )?;
    if map.len() > MAX_SERVERS {
        return node.too_many(map.len(), MAX_SERVERS);
    }
    Some(map)
}

impl SyslogServer {
    fn read(node: &Node<'_>) -> Option<Self> {
        let mut t = node.table()?;
        let host = t.required("host", |n| {
            let expected = "an address or a name of 1 to 253 characters";
            let text = n.text(expected)?;
            let legal = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
            let fits = (1..=253).contains(&text.len()) && text.chars().all(legal);
            if fits {
                Some(text.to_owned())
            } else {
                n.fail(expected)
            }
        });
        let transports = [
            ("udp", SyslogTransport::Udp),
            ("tcp", SyslogTransport::Tcp),
            ("tls", SyslogTransport::Tls),
        ];
        let transport = t.required("transport", |n| n.choice(&transports));
        let default = match transport {
            Some(SyslogTransport::Udp) => 514,
            Some(SyslogTransport::Tcp) => 601,
            _ => 6514,
        };
        let port = t.or("port", default, |n| n.integer(1..=u16::MAX));
        let authorities = t.optional("authorities", |n| {
            n.text("the path of a PEM file").map(str::to_owned)
        });
        let facility = t.or_told("facility", 16, |n| n.integer(0..=23));
        let levels = [
            ("error", SyslogLevel::Error),
            ("warning", SyslogLevel::Warning),
            ("info", SyslogLevel::Info),
        ];
        let level = t.or_told("level", SyslogLevel::Info, |n| n.choice(&levels));
        t.finish();
        Some(Self {
            host: host?,
            port: port?,
            transport: transport?,
            authorities: authorities?,
            facility: facility?,
            level: level?,
        })
    }
}

/// Notes servers with TLS that nothing proves.
pub(crate) fn check(servers: &BTreeMap<String, SyslogServer>, issues: &Issues) {
    for (name, server) in servers {
        let tls = server.transport == SyslogTransport::Tls;
        let (found, expected, code) = match &server.authorities {
            None if tls => (
                "nothing",
                "the authorities of its certificate, with \"tls\"",
                Code::Missing,
            ),
            Some(_) if !tls => ("a path", "none, but with \"tls\"", Code::Conflict),
            _ => continue,
        };
        let pointer = format!("/management/syslog/{name}/authorities");
        issues.push(Issue::new(pointer, found, expected).of(code));
    }
}
