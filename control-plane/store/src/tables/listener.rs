//! A listener of a load balancer; its L7 policies have rows of their own.
#![allow(unreachable_pub, reason = "the entity derive makes public items")]

use lb_model::{L7Policy, Listener, LoadBalancerId, Timestamp};
use sea_orm::entity::prelude::*;

use super::Row;
use super::convert::{id, narrow, optional, parsed, read_json, unsigned, wide, write_json};
use crate::StoreError;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "listener")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    pub load_balancer_id: String,
    pub project_id: String,
    pub name: String,
    pub description: String,
    pub admin_state_up: bool,
    pub provisioning_status: String,
    pub operating_status: String,
    pub protocol: String,
    pub protocol_port: i32,
    pub connection_limit: i32,
    pub default_pool_id: Option<String>,
    pub default_tls_container_ref: Option<String>,
    pub sni_container_refs: String,
    pub insert_headers: String,
    pub timeout_client_data: i64,
    pub timeout_member_connect: i64,
    pub timeout_member_data: i64,
    pub timeout_tcp_inspect: i64,
    pub client_ca_tls_container_ref: Option<String>,
    pub client_authentication: String,
    pub client_crl_container_ref: Option<String>,
    pub allowed_cidrs: Option<String>,
    pub tls_ciphers: Option<String>,
    pub tls_versions: Option<String>,
    pub alpn_protocols: Option<String>,
    pub hsts_max_age: Option<i64>,
    pub hsts_include_subdomains: bool,
    pub hsts_preload: bool,
    pub tags: String,
    pub created_at: i64,
    pub updated_at: Option<i64>,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}

impl Row for Model {
    fn id(&self) -> &str {
        &self.id
    }

    fn tags(&self) -> Option<&str> {
        Some(&self.tags)
    }
}

impl Model {
    pub fn of(listener: &Listener, load_balancer_id: LoadBalancerId) -> Self {
        let Listener {
            id,
            project_id,
            name,
            description,
            admin_state_up,
            provisioning_status,
            operating_status,
            protocol,
            protocol_port,
            connection_limit,
            default_pool_id,
            default_tls_container_ref,
            sni_container_refs,
            insert_headers,
            timeout_client_data,
            timeout_member_connect,
            timeout_member_data,
            timeout_tcp_inspect,
            client_ca_tls_container_ref,
            client_authentication,
            client_crl_container_ref,
            allowed_cidrs,
            tls_ciphers,
            tls_versions,
            alpn_protocols,
            hsts_max_age,
            hsts_include_subdomains,
            hsts_preload,
            tags,
            created_at,
            updated_at,
            l7policies: _,
        } = listener;
        Self {
            id: id.to_string(),
            load_balancer_id: load_balancer_id.to_string(),
            project_id: project_id.clone(),
            name: name.clone(),
            description: description.clone(),
            admin_state_up: *admin_state_up,
            provisioning_status: provisioning_status.to_string(),
            operating_status: operating_status.to_string(),
            protocol: protocol.to_string(),
            protocol_port: i32::from(*protocol_port),
            connection_limit: *connection_limit,
            default_pool_id: default_pool_id.as_ref().map(ToString::to_string),
            default_tls_container_ref: default_tls_container_ref.clone(),
            sni_container_refs: write_json(sni_container_refs),
            insert_headers: write_json(insert_headers),
            timeout_client_data: i64::from(*timeout_client_data),
            timeout_member_connect: i64::from(*timeout_member_connect),
            timeout_member_data: i64::from(*timeout_member_data),
            timeout_tcp_inspect: i64::from(*timeout_tcp_inspect),
            client_ca_tls_container_ref: client_ca_tls_container_ref.clone(),
            client_authentication: client_authentication.to_string(),
            client_crl_container_ref: client_crl_container_ref.clone(),
            allowed_cidrs: allowed_cidrs.as_ref().map(write_json),
            tls_ciphers: tls_ciphers.clone(),
            tls_versions: tls_versions.as_ref().map(write_json),
            alpn_protocols: alpn_protocols.as_ref().map(write_json),
            hsts_max_age: hsts_max_age.map(wide),
            hsts_include_subdomains: *hsts_include_subdomains,
            hsts_preload: *hsts_preload,
            tags: write_json(tags),
            created_at: created_at.as_micros(),
            updated_at: updated_at.map(Timestamp::as_micros),
        }
    }

    pub fn listener(&self, l7policies: Vec<L7Policy>) -> Result<Listener, StoreError> {
        Ok(Listener {
            id: id("listener.id", &self.id)?,
            project_id: self.project_id.clone(),
            name: self.name.clone(),
            description: self.description.clone(),
            admin_state_up: self.admin_state_up,
            provisioning_status: parsed("listener.provisioning_status", &self.provisioning_status)?,
            operating_status: parsed("listener.operating_status", &self.operating_status)?,
            protocol: parsed("listener.protocol", &self.protocol)?,
            protocol_port: narrow("listener.protocol_port", self.protocol_port)?,
            connection_limit: self.connection_limit,
            default_pool_id: optional("listener.default_pool_id", self.default_pool_id.as_deref())?,
            default_tls_container_ref: self.default_tls_container_ref.clone(),
            sni_container_refs: read_json("listener.sni_container_refs", &self.sni_container_refs)?,
            insert_headers: read_json("listener.insert_headers", &self.insert_headers)?,
            timeout_client_data: narrow("listener.timeout_client_data", self.timeout_client_data)?,
            timeout_member_connect: narrow(
                "listener.timeout_member_connect",
                self.timeout_member_connect,
            )?,
            timeout_member_data: narrow("listener.timeout_member_data", self.timeout_member_data)?,
            timeout_tcp_inspect: narrow("listener.timeout_tcp_inspect", self.timeout_tcp_inspect)?,
            client_ca_tls_container_ref: self.client_ca_tls_container_ref.clone(),
            client_authentication: parsed(
                "listener.client_authentication",
                &self.client_authentication,
            )?,
            client_crl_container_ref: self.client_crl_container_ref.clone(),
            allowed_cidrs: self
                .allowed_cidrs
                .as_deref()
                .map(|text| read_json("listener.allowed_cidrs", text))
                .transpose()?,
            tls_ciphers: self.tls_ciphers.clone(),
            tls_versions: self
                .tls_versions
                .as_deref()
                .map(|text| read_json("listener.tls_versions", text))
                .transpose()?,
            alpn_protocols: self
                .alpn_protocols
                .as_deref()
                .map(|text| read_json("listener.alpn_protocols", text))
                .transpose()?,
            hsts_max_age: self
                .hsts_max_age
                .map(|value| unsigned("listener.hsts_max_age", value))
                .transpose()?,
            hsts_include_subdomains: self.hsts_include_subdomains,
            hsts_preload: self.hsts_preload,
            tags: read_json("listener.tags", &self.tags)?,
            created_at: Timestamp::from_micros(self.created_at),
            updated_at: self.updated_at.map(Timestamp::from_micros),
            l7policies,
        })
    }
}
