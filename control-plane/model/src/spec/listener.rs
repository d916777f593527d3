//! Bodies of `POST` and `PUT /listeners`, and listeners within a fully populated create.

use std::collections::BTreeMap;

use ipnet::IpNet;
use serde_json::Value;

use super::decode::{
    Field, Object, boolean, cidr, integer, list, one_of, string_map, tags, text, uuid, word,
};
use super::{GraphL7Policy, GraphPool};
use crate::{ClientAuthentication, Fault, ListenerProtocol, LoadBalancerId, PoolId};

/// Milliseconds: 24 days.
const MAX_TIMEOUT: i64 = 2_073_600_000;
pub(super) const TLS_VERSIONS: &[&str] = &["SSLv3", "TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"];
pub(super) const ALPN_PROTOCOLS: &[&str] = &["h2", "http/1.1", "http/1.0"];

/// A listener to be; what is `None` gets its default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewListener {
    pub name: String,
    pub description: String,
    pub admin_state_up: bool,
    pub protocol: ListenerProtocol,
    pub protocol_port: u16,
    pub connection_limit: Option<i32>,
    pub default_pool_id: Option<PoolId>,
    pub default_tls_container_ref: Option<String>,
    pub sni_container_refs: Vec<String>,
    pub insert_headers: BTreeMap<String, String>,
    pub timeout_client_data: Option<u32>,
    pub timeout_member_connect: Option<u32>,
    pub timeout_member_data: Option<u32>,
    pub timeout_tcp_inspect: Option<u32>,
    pub client_ca_tls_container_ref: Option<String>,
    pub client_authentication: Option<ClientAuthentication>,
    pub client_crl_container_ref: Option<String>,
    pub allowed_cidrs: Option<Vec<IpNet>>,
    pub tls_ciphers: Option<String>,
    pub tls_versions: Option<Vec<String>>,
    pub alpn_protocols: Option<Vec<String>>,
    pub hsts_max_age: Option<u64>,
    pub hsts_include_subdomains: bool,
    pub hsts_preload: bool,
    pub tags: Vec<String>,
}

const CREATE: &[&str] = &[
    "name",
    "description",
    "admin_state_up",
    "protocol",
    "protocol_port",
    "connection_limit",
    "default_pool_id",
    "default_tls_container_ref",
    "sni_container_refs",
    "insert_headers",
    "timeout_client_data",
    "timeout_member_connect",
    "timeout_member_data",
    "timeout_tcp_inspect",
    "client_ca_tls_container_ref",
    "client_authentication",
    "client_crl_container_ref",
    "allowed_cidrs",
    "tls_ciphers",
    "tls_versions",
    "alpn_protocols",
    "hsts_max_age",
    "hsts_include_subdomains",
    "hsts_preload",
    "tags",
    // Taken and not used: a listener belongs to the project of its load balancer.
    "project_id",
    "tenant_id",
];

impl NewListener {
    fn decode(object: &Object<'_>) -> Result<Self, Fault> {
        let timeout = || integer::<u32>(0, MAX_TIMEOUT);
        object.optional("project_id", text(36))?;
        object.optional("tenant_id", text(36))?;
        Ok(Self {
            name: object.optional("name", text(255))?.unwrap_or_default(),
            description: object
                .optional("description", text(255))?
                .unwrap_or_default(),
            admin_state_up: object.optional("admin_state_up", boolean)?.unwrap_or(true),
            protocol: object.required("protocol", word(ListenerProtocol::ALL))?,
            protocol_port: object.required("protocol_port", integer(1, 65535))?,
            connection_limit: object.optional("connection_limit", connection_limit())?,
            default_pool_id: object.optional("default_pool_id", uuid)?,
            default_tls_container_ref: object.optional("default_tls_container_ref", text(255))?,
            sni_container_refs: object
                .optional("sni_container_refs", list(text(128)))?
                .unwrap_or_default(),
            insert_headers: object
                .optional("insert_headers", string_map)?
                .unwrap_or_default(),
            timeout_client_data: object.optional("timeout_client_data", timeout())?,
            timeout_member_connect: object.optional("timeout_member_connect", timeout())?,
            timeout_member_data: object.optional("timeout_member_data", timeout())?,
            timeout_tcp_inspect: object.optional("timeout_tcp_inspect", timeout())?,
            client_ca_tls_container_ref: object
                .optional("client_ca_tls_container_ref", text(255))?,
            client_authentication: object
                .optional("client_authentication", word(ClientAuthentication::ALL))?,
            client_crl_container_ref: object.optional("client_crl_container_ref", text(255))?,
            allowed_cidrs: object.optional("allowed_cidrs", list(cidr))?,
            tls_ciphers: object.optional("tls_ciphers", text(2048))?,
            tls_versions: object.optional("tls_versions", list(one_of(TLS_VERSIONS)))?,
            alpn_protocols: object.optional("alpn_protocols", list(one_of(ALPN_PROTOCOLS)))?,
            hsts_max_age: object.optional("hsts_max_age", integer(0, i64::MAX))?,
            hsts_include_subdomains: object
                .optional("hsts_include_subdomains", boolean)?
                .unwrap_or(false),
            hsts_preload: object.optional("hsts_preload", boolean)?.unwrap_or(false),
            tags: object.optional("tags", tags)?.unwrap_or_default(),
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenerCreate {
    pub load_balancer_id: LoadBalancerId,
    pub listener: NewListener,
}

impl ListenerCreate {
    pub fn decode(body: &Value) -> Result<Self, Fault> {
        let object = Object::root(body, "listener")?;
        object.only(&[CREATE, &["loadbalancer_id", "default_pool", "l7policies"]])?;
        object.refuse_nested(&["default_pool", "l7policies"])?;
        Ok(Self {
            load_balancer_id: object.required("loadbalancer_id", uuid)?,
            listener: NewListener::decode(&object)?,
        })
    }
}

/// A listener within a fully populated create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphListener {
    pub listener: NewListener,
    pub default_pool: Option<GraphPool>,
    pub l7policies: Vec<GraphL7Policy>,
}

impl GraphListener {
    pub(super) fn decode(object: &Object<'_>) -> Result<Self, Fault> {
        object.only(&[CREATE, &["default_pool", "l7policies"]])?;
        Ok(Self {
            listener: NewListener::decode(object)?,
            default_pool: object
                .object("default_pool")?
                .map(|pool| GraphPool::decode(&pool))
                .transpose()?,
            l7policies: object
                .objects("l7policies")?
                .iter()
                .map(GraphL7Policy::decode)
                .collect::<Result<_, _>>()?,
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListenerUpdate {
    pub name: Field<String>,
    pub description: Field<String>,
    pub admin_state_up: Field<bool>,
    pub connection_limit: Field<i32>,
    pub default_pool_id: Field<PoolId>,
    pub default_tls_container_ref: Field<String>,
    pub sni_container_refs: Field<Vec<String>>,
    pub insert_headers: Field<BTreeMap<String, String>>,
    pub timeout_client_data: Field<u32>,
    pub timeout_member_connect: Field<u32>,
    pub timeout_member_data: Field<u32>,
    pub timeout_tcp_inspect: Field<u32>,
    pub client_ca_tls_container_ref: Field<String>,
    pub client_authentication: Field<ClientAuthentication>,
    pub client_crl_container_ref: Field<String>,
    pub allowed_cidrs: Field<Vec<IpNet>>,
    pub tls_ciphers: Field<String>,
    pub tls_versions: Field<Vec<String>>,
    pub alpn_protocols: Field<Vec<String>>,
    pub hsts_max_age: Field<u64>,
    pub hsts_include_subdomains: Field<bool>,
    pub hsts_preload: Field<bool>,
    pub tags: Field<Vec<String>>,
}

const UPDATE: &[&str] = &[
    "name",
    "description",
    "admin_state_up",
    "connection_limit",
    "default_pool_id",
    "default_tls_container_ref",
    "sni_container_refs",
    "insert_headers",
    "timeout_client_data",
    "timeout_member_connect",
    "timeout_member_data",
    "timeout_tcp_inspect",
    "client_ca_tls_container_ref",
    "client_authentication",
    "client_crl_container_ref",
    "allowed_cidrs",
    "tls_ciphers",
    "tls_versions",
    "alpn_protocols",
    "hsts_max_age",
    "hsts_include_subdomains",
    "hsts_preload",
    "tags",
];

impl ListenerUpdate {
    pub fn decode(body: &Value) -> Result<Self, Fault> {
        let object = Object::root(body, "listener")?;
        object.only(&[UPDATE])?;
        let timeout = || integer::<u32>(0, MAX_TIMEOUT);
        Ok(Self {
            name: object.field("name", text(255))?,
            description: object.field("description", text(255))?,
            admin_state_up: object.field("admin_state_up", boolean)?,
            connection_limit: object.field("connection_limit", connection_limit())?,
            default_pool_id: object.field("default_pool_id", uuid)?,
            default_tls_container_ref: object.field("default_tls_container_ref", text(255))?,
            sni_container_refs: object.field("sni_container_refs", list(text(128)))?,
            insert_headers: object.field("insert_headers", string_map)?,
            timeout_client_data: object.field("timeout_client_data", timeout())?,
            timeout_member_connect: object.field("timeout_member_connect", timeout())?,
            timeout_member_data: object.field("timeout_member_data", timeout())?,
            timeout_tcp_inspect: object.field("timeout_tcp_inspect", timeout())?,
            client_ca_tls_container_ref: object.field("client_ca_tls_container_ref", text(255))?,
            client_authentication: object
                .field("client_authentication", word(ClientAuthentication::ALL))?,
            client_crl_container_ref: object.field("client_crl_container_ref", text(255))?,
            allowed_cidrs: object.field("allowed_cidrs", list(cidr))?,
            tls_ciphers: object.field("tls_ciphers", text(2048))?,
            tls_versions: object.field("tls_versions", list(one_of(TLS_VERSIONS)))?,
            alpn_protocols: object.field("alpn_protocols", list(one_of(ALPN_PROTOCOLS)))?,
            hsts_max_age: object.field("hsts_max_age", integer(0, i64::MAX))?,
            hsts_include_subdomains: object.field("hsts_include_subdomains", boolean)?,
            hsts_preload: object.field("hsts_preload", boolean)?,
            tags: object.field("tags", tags)?,
        })
    }
}

fn connection_limit() -> impl Fn(&Value) -> Result<i32, String> {
    integer(-1, i64::from(i32::MAX))
}
