//! The part of the config document on management: where the API listens, with which certificate, and which
//! certificates of clients open it. Secrets are in files that the document names, never in it.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::Serialize;
use serde_json::json;

use crate::addressing::{self, Addressing, ManagementInterface, ManagementRoute};
use crate::names::{Dns, Ntp};
use crate::net::Prefix;
use crate::read::{Code, Issue, Issues, Node, Table};
use crate::rest::Access;
use crate::segment::Empty;
use crate::syslog::{self, SyslogServer};

/// Most listeners and most clients.
const MAX_ENTRIES: usize = 64;

/// Management over the network; without it there is only the local socket.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Management {
    /// Addresses with ports at which the API listens.
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, Empty>))]
    pub listeners: BTreeMap<SocketAddr, Empty>,
    /// Certificates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<ManagementTls>,
    /// What the owner of a certificate may, by a DNS name in it.
    pub clients: BTreeMap<String, ApiClient>,
    /// Who sets addresses, MTUs, routes, resolvers and time servers.
    pub addressing: Addressing,
    /// Interfaces for management.
    pub interfaces: BTreeMap<String, ManagementInterface>,
    /// Routes by destination.
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, ManagementRoute>))]
    pub routes: BTreeMap<Prefix, ManagementRoute>,
    /// Resolvers; without it they are nobody's business here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns: Option<Dns>,
    /// Time servers, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ntp: Option<Ntp>,
    /// Syslog servers.
    pub syslog: BTreeMap<String, SyslogServer>,
}

/// Certificates of the API, as paths of PEM files.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ManagementTls {
    /// Our certificate, with those between it and its authority.
    pub certificate: String,
    /// Its key.
    pub key: String,
    /// Authorities whose certificates clients may show; without it clients need tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_authorities: Option<String>,
}

/// A client with a certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ApiClient {
    /// What it may.
    pub access: Access,
}

impl Management {
    pub(crate) fn read(mut t: Table<'_>) -> Option<Self> {
        let address = |text: &str| text.parse::<SocketAddr>().ok();
        let listeners = t.or_told("listeners", BTreeMap::new(), |n| {
            let expected = "an address with a port, such as \"192.0.2.1:8443\" or \"[::]:8443\"";
            let read = |n: &Node<'_>| n.table().map(Table::finish).map(|()| Empty {});
            bounded(n, n.map(expected, address, read)?)
        });
        let tls = t.optional("tls", |n| n.table().and_then(ManagementTls::read));
        let clients = t.or_told("clients", BTreeMap::new(), |n| {
            let expected = "a DNS name of 1 to 253 characters";
            n.describe(|| json!({"propertyNames": {"minLength": 1, "maxLength": 253}}));
            let name = |text: &str| (1..=253).contains(&text.len()).then(|| text.to_owned());
            bounded(n, n.map(expected, name, ApiClient::read)?)
        });
        let words = [
            ("system", Addressing::System),
            ("gateway", Addressing::Gateway),
        ];
        let addressing = t.or_told("addressing", Addressing::System, |n| n.choice(&words));
        let interfaces = t.or_told("interfaces", BTreeMap::new(), addressing::interfaces);
        let routes = t.or_told("routes", BTreeMap::new(), addressing::routes);
        let dns = t.optional("dns", Dns::read);
        let ntp = t.optional("ntp", Ntp::read);
        let syslog = t.or_told("syslog", BTreeMap::new(), syslog::servers);
        t.finish();
        Some(Self {
            listeners: listeners?,
            tls: tls?,
            clients: clients?,
            addressing: addressing?,
            interfaces: interfaces?,
            routes: routes?,
            dns: dns?,
            ntp: ntp?,
            syslog: syslog?,
        })
    }

    /// Notes what its values do not fulfil together.
    pub(crate) fn check(&self, issues: &Issues) {
        let say = |place: &str, found: &str, expected: &str| {
            let issue = Issue::new(format!("/management{place}"), found, expected);
            issues.push(issue.of(Code::Missing));
        };
        if !self.listeners.is_empty() && self.tls.is_none() {
            say(
                "/tls",
                "nothing",
                "a certificate, since there are listeners",
            );
        }
        addressing::check(&self.routes, issues);
        syslog::check(&self.syslog, issues);
        let authorities = self
            .tls
            .as_ref()
            .and_then(|t| t.client_authorities.as_ref());
        if !self.clients.is_empty() && authorities.is_none() {
            let expected = "authorities of the certificates of clients";
            say("/tls/client_authorities", "nothing", expected);
        }
    }
}

fn bounded<K, V>(node: &Node<'_>, map: BTreeMap<K, V>) -> Option<BTreeMap<K, V>> {
    node.describe(|| json!({"maxProperties": MAX_ENTRIES}));
    if map.len() > MAX_ENTRIES {
        return node.too_many(map.len(), MAX_ENTRIES);
    }
    Some(map)
}

impl ManagementTls {
    fn read(mut t: Table<'_>) -> Option<Self> {
        let path = |n: &Node<'_>| n.text("the path of a PEM file").map(str::to_owned);
        let certificate = t.required("certificate", path);
        let key = t.required("key", path);
        let authorities = t.optional("client_authorities", path);
        t.finish();
        Some(Self {
            certificate: certificate?,
            key: key?,
            client_authorities: authorities?,
        })
    }
}

impl ApiClient {
    fn read(node: &Node<'_>) -> Option<Self> {
        let mut t = node.table()?;
        let words = [
            ("viewer", Access::Viewer),
            ("operator", Access::Operator),
            ("admin", Access::Admin),
        ];
        let access = t.required("access", |n| n.choice(&words));
        t.finish();
        Some(Self { access: access? })
    }
}
