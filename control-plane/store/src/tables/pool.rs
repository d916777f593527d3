//! A pool of a load balancer; its members and its health monitor have rows of their own.
#![allow(unreachable_pub, reason = "the entity derive makes public items")]

use lb_model::{HealthMonitor, LoadBalancerId, Member, Pool, Timestamp};
use sea_orm::entity::prelude::*;

use super::Row;
use super::convert::{id, parsed, read_json, write_json};
use crate::StoreError;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "pool")]
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
    pub lb_algorithm: String,
    pub session_persistence: Option<String>,
    pub tls_container_ref: Option<String>,
    pub ca_tls_container_ref: Option<String>,
    pub crl_container_ref: Option<String>,
    pub tls_enabled: bool,
    pub tls_ciphers: Option<String>,
    pub tls_versions: Option<String>,
    pub alpn_protocols: Option<String>,
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
    pub fn of(pool: &Pool, load_balancer_id: LoadBalancerId) -> Self {
        let Pool {
            id,
            project_id,
            name,
            description,
            admin_state_up,
            provisioning_status,
            operating_status,
            protocol,
            lb_algorithm,
            session_persistence,
            tls_container_ref,
            ca_tls_container_ref,
            crl_container_ref,
            tls_enabled,
            tls_ciphers,
            tls_versions,
            alpn_protocols,
            tags,
            created_at,
            updated_at,
            members: _,
            health_monitor: _,
        } = pool;
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
            lb_algorithm: lb_algorithm.to_string(),
            session_persistence: session_persistence.as_ref().map(write_json),
            tls_container_ref: tls_container_ref.clone(),
            ca_tls_container_ref: ca_tls_container_ref.clone(),
            crl_container_ref: crl_container_ref.clone(),
            tls_enabled: *tls_enabled,
            tls_ciphers: tls_ciphers.clone(),
            tls_versions: tls_versions.as_ref().map(write_json),
            alpn_protocols: alpn_protocols.as_ref().map(write_json),
            tags: write_json(tags),
            created_at: created_at.as_micros(),
            updated_at: updated_at.map(Timestamp::as_micros),
        }
    }

    pub fn pool(
        &self,
        members: Vec<Member>,
        health_monitor: Option<HealthMonitor>,
    ) -> Result<Pool, StoreError> {
        Ok(Pool {
            id: id("pool.id", &self.id)?,
            project_id: self.project_id.clone(),
            name: self.name.clone(),
            description: self.description.clone(),
            admin_state_up: self.admin_state_up,
            provisioning_status: parsed("pool.provisioning_status", &self.provisioning_status)?,
            operating_status: parsed("pool.operating_status", &self.operating_status)?,
            protocol: parsed("pool.protocol", &self.protocol)?,
            lb_algorithm: parsed("pool.lb_algorithm", &self.lb_algorithm)?,
            session_persistence: self
                .session_persistence
                .as_deref()
                .map(|text| read_json("pool.session_persistence", text))
                .transpose()?,
            tls_container_ref: self.tls_container_ref.clone(),
            ca_tls_container_ref: self.ca_tls_container_ref.clone(),
            crl_container_ref: self.crl_container_ref.clone(),
            tls_enabled: self.tls_enabled,
            tls_ciphers: self.tls_ciphers.clone(),
            tls_versions: self
                .tls_versions
                .as_deref()
                .map(|text| read_json("pool.tls_versions", text))
                .transpose()?,
            alpn_protocols: self
                .alpn_protocols
                .as_deref()
                .map(|text| read_json("pool.alpn_protocols", text))
                .transpose()?,
            tags: read_json("pool.tags", &self.tags)?,
            created_at: Timestamp::from_micros(self.created_at),
            updated_at: self.updated_at.map(Timestamp::from_micros),
            members,
            health_monitor,
        })
    }
}
