//! Collectors: where records go, how, and which.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Serialize, Serializer};
use serde_json::json;

use crate::net::NotAnAddress;
use crate::read::{Node, Table};
use crate::segment::Empty;

/// What carries messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum CollectorTransport {
    /// TLS 1.3 over TCP, both sides with certificates.
    Tls,
    /// TCP without protection.
    Tcp,
    /// UDP without protection.
    Udp,
    /// SCTP without protection, where the kernel has it.
    Sctp,
}

impl CollectorTransport {
    /// Whether messages go in datagrams, each on its own.
    pub const fn is_datagram(self) -> bool {
        matches!(self, Self::Udp)
    }
}

/// A SHA-256 fingerprint of a certificate in DER, written as 64 hexadecimal digits; colons may stand
/// between octets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Fingerprint(pub [u8; 32]);

impl FromStr for Fingerprint {
    type Err = NotAnAddress;

    fn from_str(text: &str) -> Result<Self, NotAnAddress> {
        let digits: Vec<u8> = text.bytes().filter(|b| *b != b':').collect();
        let mut octets = [0; 32];
        if digits.len() != 64 {
            return Err(NotAnAddress);
        }
        for (octet, pair) in octets.iter_mut().zip(digits.chunks(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| NotAnAddress)?;
            if pair.starts_with('+') {
                return Err(NotAnAddress);
            }
            *octet = u8::from_str_radix(pair, 16).map_err(|_| NotAnAddress)?;
        }
        Ok(Self(octets))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|octet| write!(f, "{octet:02x}"))
    }
}

impl Serialize for Fingerprint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What TLS needs: files in PEM, and the peers that are authorised.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TlsPeer {
    /// File with our certificate, followed by intermediate ones.
    pub certificate: String,
    /// File with its private key.
    pub key: String,
    /// File with the authorities that the collector's certificate has to come from.
    pub authorities: String,
    /// DNS names of which the collector's certificate has to have one; the first is asked for.
    pub names: BTreeMap<String, Empty>,
    /// Certificates of which the collector's has to be one; any without an entry.
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, Empty>))]
    pub fingerprints: BTreeMap<Fingerprint, Empty>,
}

/// A collector.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Collector {
    /// What carries messages.
    pub transport: CollectorTransport,
    /// Its address or host name; a name is looked up at every attempt to connect.
    pub host: String,
    /// Its port; 4740 for `tls` and 4739 for the others if it is not given.
    pub port: u16,
    /// Needed for `tls`, and only there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsPeer>,
    /// Whether it gets records of packets.
    pub packets: bool,
    /// Whether it gets aggregate flows.
    pub flows: bool,
    /// Whether it gets sequence reports: then it has observers of its own.
    pub sequence: bool,
    /// Between two attempts to connect at least, milliseconds; more after failures.
    pub retry_ms: u32,
    /// For connecting, and for the handshake of TLS, milliseconds.
    pub connect_timeout_ms: u32,
    /// How long a refusal of our certificate is waited for, milliseconds.
    pub confirm_ms: u32,
    /// Without any progress in sending for so long, the session ends, milliseconds.
    pub stall_timeout_ms: u32,
    /// A message that is not full leaves after so long, milliseconds.
    pub flush_ms: u32,
    /// Between two reports on what was sent and not sent, milliseconds.
    pub statistics_ms: u32,
    /// Octets that wait for it at most, KB.
    pub queue_kb: u32,
    /// Most octets of a message over a stream.
    pub max_message: u16,
    /// Path MTU for datagrams, octets; 512 if it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
    /// Templates and options are sent again so often in datagrams, milliseconds.
    pub refresh_ms: u32,
}

impl Collector {
    pub(super) fn read(mut t: Table<'_>) -> Option<Self> {
        let words = [
            ("tls", CollectorTransport::Tls),
            ("tcp", CollectorTransport::Tcp),
            ("udp", CollectorTransport::Udp),
            ("sctp", CollectorTransport::Sctp),
        ];
        let transport = t.required("transport", |n| n.choice(&words));
        let default_port = match transport {
            Some(CollectorTransport::Tls) => 4740,
            _ => 4739,
        };
        let host = t.required("host", read_host);
        let port = t.optional("port", |n| n.integer(1..=u16::MAX));
        let port = port.map(|port| port.unwrap_or(default_port));
        let tls = t.optional("tls", |n| n.table().and_then(TlsPeer::read));
        let packets = t.or_told("packets", true, |n| n.flag());
        let flows = t.or_told("flows", true, |n| n.flag());
        let sequence = t.or_told("sequence", false, |n| n.flag());
        let retry = t.or_told("retry_ms", 60_000, |n| n.integer(100..=86_400_000));
        let connect = t.or_told("connect_timeout_ms", 10_000, |n| n.integer(100..=120_000));
        let confirm = t.or_told("confirm_ms", 1000, |n| n.integer(0..=60_000));
        let stall = t.or_told("stall_timeout_ms", 30_000, |n| n.integer(100..=600_000));
        let flush = t.or_told("flush_ms", 1000, |n| n.integer(1..=60_000));
        let statistics = t.or_told("statistics_ms", 60_000, |n| n.integer(100..=3_600_000));
        let queue = t.or_told("queue_kb", 4096, |n| n.integer(1..=1 << 20));
        let message = t.or_told("max_message", 1400, |n| n.integer(320..=u16::MAX));
        let mtu = t.optional("mtu", |n| n.integer(512..=9216));
        let refresh = t.or_told("refresh_ms", 600_000, |n| n.integer(100..=86_400_000));
        t.finish();
        Some(Self {
            transport: transport?,
            host: host?,
            port: port?,
            tls: tls?,
            packets: packets?,
            flows: flows?,
            sequence: sequence?,
            retry_ms: retry?,
            connect_timeout_ms: connect?,
            confirm_ms: confirm?,
            stall_timeout_ms: stall?,
            flush_ms: flush?,
            statistics_ms: statistics?,
            queue_kb: queue?,
            max_message: message?,
            mtu: mtu?,
            refresh_ms: refresh?,
        })
    }

    /// Its address, if it is given as one.
    pub fn address(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }
}

impl TlsPeer {
    fn read(mut t: Table<'_>) -> Option<Self> {
        let path = |n: &Node<'_>| n.text("the path of a PEM file").map(str::to_owned);
        let certificate = t.required("certificate", path);
        let key = t.required("key", path);
        let authorities = t.required("authorities", path);
        let names = t.required("names", |n| {
            let name = |text: &str| is_host_name(text).then(|| text.to_owned());
            n.describe(|| json!({"minProperties": 1}));
            let names = n.map("a DNS name", name, read_empty)?;
            if names.is_empty() {
                return n.fail("the DNS name of at least one authorised collector");
            }
            Some(names)
        });
        let fingerprints = t.or_told("fingerprints", BTreeMap::new(), |n| {
            let expected = "a SHA-256 fingerprint of 64 hexadecimal digits";
            n.describe(|| json!({"propertyNames": {"pattern": "^[0-9A-Fa-f:]{64,}$"}}));
            n.map(expected, |text| text.parse().ok(), read_empty)
        });
        t.finish();
        Some(Self {
            certificate: certificate?,
            key: key?,
            authorities: authorities?,
            names: names?,
            fingerprints: fingerprints?,
        })
    }
}

fn read_empty(node: &Node<'_>) -> Option<Empty> {
    node.table()?.finish();
    Some(Empty {})
}

fn read_host(node: &Node<'_>) -> Option<String> {
    let expected = "an IP address or a host name";
    let text = node.text(expected)?;
    if text.parse::<IpAddr>().is_ok() || is_host_name(text) {
        Some(text.to_owned())
    } else {
        node.fail(expected)
    }
}

/// Labels of letters, digits and hyphens, of which the last is no number.
fn is_host_name(text: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let numeric = |label: &str| label.bytes().all(|b| b.is_ascii_digit());
    text.len() <= 253 && text.split('.').all(label) && !text.rsplit('.').next().is_some_and(numeric)
}
