//! The load balancer: its intent and the work that is due on it.
//!
//! The row is also the lock of everything below it: each write transaction starts by raising `revision` here.
//! `next_attempt_at` says when a worker shall look (null: nothing to do); the lease columns say who does now.
#![allow(unreachable_pub, reason = "the entity derive makes public items")]

use lb_model::{
    FlavorId, LoadBalancer, LoadBalancerId, NetworkId, PortId, SubnetId, Timestamp, Vip,
};
use sea_orm::entity::prelude::*;

use super::Row;
use super::convert::{id, optional, parsed, read_json, unsigned, wide, write_json};
use crate::StoreError;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "load_balancer")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    pub project_id: String,
    pub name: String,
    pub description: String,
    pub admin_state_up: bool,
    pub provisioning_status: String,
    pub operating_status: String,
    pub provider: String,
    pub topology: String,
    pub vip_address: String,
    pub vip_port_id: String,
    pub vip_subnet_id: String,
    pub vip_network_id: String,
    pub vip_qos_policy_id: Option<String>,
    pub vip_vnic_type: String,
    pub vip_sg_ids: String,
    pub vip_port_is_ours: bool,
    pub additional_vips: String,
    pub flavor_id: Option<String>,
    pub availability_zone: Option<String>,
    pub tags: String,
    pub created_at: i64,
    pub updated_at: Option<i64>,
    pub generation: i64,
    /// Which change made this generation: tells a writer that lost its connection whether it was its own.
    pub change_id: Option<String>,
    pub error_reason: Option<String>,
    /// Grows with every write to the load balancer or to anything below it.
    pub revision: i64,
    pub next_attempt_at: Option<i64>,
    pub lease_owner: Option<String>,
    pub lease_expires_at: Option<i64>,
    /// Grows with every claim; a writer with an older one is refused.
    pub fence: i64,
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

/// Columns that are no part of the intent and survive a change of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bookkeeping {
    pub change_id: Option<String>,
    pub revision: i64,
    pub next_attempt_at: Option<i64>,
    pub lease_owner: Option<String>,
    pub lease_expires_at: Option<i64>,
    pub fence: i64,
}

impl Model {
    pub fn bookkeeping(&self) -> Bookkeeping {
        Bookkeeping {
            change_id: self.change_id.clone(),
            revision: self.revision,
            next_attempt_at: self.next_attempt_at,
            lease_owner: self.lease_owner.clone(),
            lease_expires_at: self.lease_expires_at,
            fence: self.fence,
        }
    }

    pub fn of(load_balancer: &LoadBalancer, bookkeeping: Bookkeeping) -> Self {
        let LoadBalancer {
            id,
            project_id,
            name,
            description,
            admin_state_up,
            provisioning_status,
            operating_status,
            provider,
            topology,
            vip,
            additional_vips,
            flavor_id,
            availability_zone,
            tags,
            created_at,
            updated_at,
            generation,
            error_reason,
        } = load_balancer;
        let Bookkeeping {
            change_id,
            revision,
            next_attempt_at,
            lease_owner,
            lease_expires_at,
            fence,
        } = bookkeeping;
        Self {
            id: id.to_string(),
            project_id: project_id.clone(),
            name: name.clone(),
            description: description.clone(),
            admin_state_up: *admin_state_up,
            provisioning_status: provisioning_status.to_string(),
            operating_status: operating_status.to_string(),
            provider: provider.clone(),
            topology: topology.to_string(),
            vip_address: vip.address.to_string(),
            vip_port_id: vip.port_id.to_string(),
            vip_subnet_id: vip.subnet_id.to_string(),
            vip_network_id: vip.network_id.to_string(),
            vip_qos_policy_id: vip.qos_policy_id.map(|id| id.to_string()),
            vip_vnic_type: vip.vnic_type.to_string(),
            vip_sg_ids: write_json(&vip.sg_ids),
            vip_port_is_ours: vip.port_is_ours,
            additional_vips: write_json(additional_vips),
            flavor_id: flavor_id.map(|id| id.to_string()),
            availability_zone: availability_zone.clone(),
            tags: write_json(tags),
            created_at: created_at.as_micros(),
            updated_at: updated_at.map(Timestamp::as_micros),
            generation: wide(*generation),
            change_id,
            error_reason: error_reason.clone(),
            revision,
            next_attempt_at,
            lease_owner,
            lease_expires_at,
            fence,
        }
    }

    pub fn load_balancer(&self) -> Result<LoadBalancer, StoreError> {
        Ok(LoadBalancer {
            id: id("load_balancer.id", &self.id)?,
            project_id: self.project_id.clone(),
            name: self.name.clone(),
            description: self.description.clone(),
            admin_state_up: self.admin_state_up,
            provisioning_status: parsed(
                "load_balancer.provisioning_status",
                &self.provisioning_status,
            )?,
            operating_status: parsed("load_balancer.operating_status", &self.operating_status)?,
            provider: self.provider.clone(),
            topology: parsed("load_balancer.topology", &self.topology)?,
            vip: Vip {
                address: parsed("load_balancer.vip_address", &self.vip_address)?,
                port_id: id::<PortId>("load_balancer.vip_port_id", &self.vip_port_id)?,
                subnet_id: id::<SubnetId>("load_balancer.vip_subnet_id", &self.vip_subnet_id)?,
                network_id: id::<NetworkId>("load_balancer.vip_network_id", &self.vip_network_id)?,
                qos_policy_id: optional(
                    "load_balancer.vip_qos_policy_id",
                    self.vip_qos_policy_id.as_deref(),
                )?,
                vnic_type: parsed("load_balancer.vip_vnic_type", &self.vip_vnic_type)?,
                sg_ids: read_json("load_balancer.vip_sg_ids", &self.vip_sg_ids)?,
                port_is_ours: self.vip_port_is_ours,
            },
            additional_vips: read_json("load_balancer.additional_vips", &self.additional_vips)?,
            flavor_id: optional::<FlavorId>("load_balancer.flavor_id", self.flavor_id.as_deref())?,
            availability_zone: self.availability_zone.clone(),
            tags: read_json("load_balancer.tags", &self.tags)?,
            created_at: Timestamp::from_micros(self.created_at),
            updated_at: self.updated_at.map(Timestamp::from_micros),
            generation: unsigned("load_balancer.generation", self.generation)?,
            error_reason: self.error_reason.clone(),
        })
    }

    pub fn load_balancer_id(&self) -> Result<LoadBalancerId, StoreError> {
        id("load_balancer.id", &self.id)
    }
}
