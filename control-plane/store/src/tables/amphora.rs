//! An amphora. The row stays as DELETED until housekeeping purges it, so that a server which outlived its deletion is
//! recognised.
#![allow(unreachable_pub, reason = "the entity derive makes public items")]

use lb_model::{Amphora, Timestamp};
use sea_orm::entity::prelude::*;

use super::Row;
use super::convert::{id, narrow, optional, parsed, unsigned, wide};
use crate::StoreError;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "amphora")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    pub load_balancer_id: String,
    pub status: String,
    pub role: Option<String>,
    pub compute_id: Option<String>,
    pub lb_network_ip: Option<String>,
    pub vrrp_ip: Option<String>,
    pub ha_ip: Option<String>,
    pub vrrp_port_id: Option<String>,
    pub ha_port_id: Option<String>,
    pub vrrp_interface: Option<String>,
    pub vrrp_id: Option<i32>,
    pub vrrp_priority: Option<i32>,
    pub cert_expiration: Option<i64>,
    pub cert_busy: bool,
    pub cached_zone: Option<String>,
    pub image_id: Option<String>,
    pub compute_flavor: Option<String>,
    pub failover_requested: bool,
    pub config_generation: i64,
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
        None
    }
}

impl Model {
    pub fn of(amphora: &Amphora) -> Self {
        let Amphora {
            id,
            load_balancer_id,
            status,
            role,
            compute_id,
            lb_network_ip,
            vrrp_ip,
            ha_ip,
            vrrp_port_id,
            ha_port_id,
            vrrp_interface,
            vrrp_id,
            vrrp_priority,
            cert_expiration,
            cert_busy,
            cached_zone,
            image_id,
            compute_flavor,
            failover_requested,
            config_generation,
            created_at,
            updated_at,
        } = amphora;
        Self {
            id: id.to_string(),
            load_balancer_id: load_balancer_id.to_string(),
            status: status.to_string(),
            role: role.as_ref().map(ToString::to_string),
            compute_id: compute_id.clone(),
            lb_network_ip: lb_network_ip.as_ref().map(ToString::to_string),
            vrrp_ip: vrrp_ip.as_ref().map(ToString::to_string),
            ha_ip: ha_ip.as_ref().map(ToString::to_string),
            vrrp_port_id: vrrp_port_id.as_ref().map(ToString::to_string),
            ha_port_id: ha_port_id.as_ref().map(ToString::to_string),
            vrrp_interface: vrrp_interface.clone(),
            vrrp_id: vrrp_id.map(i32::from),
            vrrp_priority: vrrp_priority.map(i32::from),
            cert_expiration: cert_expiration.map(Timestamp::as_micros),
            cert_busy: *cert_busy,
            cached_zone: cached_zone.clone(),
            image_id: image_id.clone(),
            compute_flavor: compute_flavor.clone(),
            failover_requested: *failover_requested,
            config_generation: wide(*config_generation),
            created_at: created_at.as_micros(),
            updated_at: updated_at.map(Timestamp::as_micros),
        }
    }

    pub fn amphora(&self) -> Result<Amphora, StoreError> {
        Ok(Amphora {
            id: id("amphora.id", &self.id)?,
            load_balancer_id: id("amphora.load_balancer_id", &self.load_balancer_id)?,
            status: parsed("amphora.status", &self.status)?,
            role: optional("amphora.role", self.role.as_deref())?,
            compute_id: self.compute_id.clone(),
            lb_network_ip: optional("amphora.lb_network_ip", self.lb_network_ip.as_deref())?,
            vrrp_ip: optional("amphora.vrrp_ip", self.vrrp_ip.as_deref())?,
            ha_ip: optional("amphora.ha_ip", self.ha_ip.as_deref())?,
            vrrp_port_id: optional("amphora.vrrp_port_id", self.vrrp_port_id.as_deref())?,
            ha_port_id: optional("amphora.ha_port_id", self.ha_port_id.as_deref())?,
            vrrp_interface: self.vrrp_interface.clone(),
            vrrp_id: self
                .vrrp_id
                .map(|value| narrow("amphora.vrrp_id", value))
                .transpose()?,
            vrrp_priority: self
                .vrrp_priority
                .map(|value| narrow("amphora.vrrp_priority", value))
                .transpose()?,
            cert_expiration: self.cert_expiration.map(Timestamp::from_micros),
            cert_busy: self.cert_busy,
            cached_zone: self.cached_zone.clone(),
            image_id: self.image_id.clone(),
            compute_flavor: self.compute_flavor.clone(),
            failover_requested: self.failover_requested,
            config_generation: unsigned("amphora.config_generation", self.config_generation)?,
            created_at: Timestamp::from_micros(self.created_at),
            updated_at: self.updated_at.map(Timestamp::from_micros),
        })
    }
}
