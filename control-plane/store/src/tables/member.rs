//! A member of a pool.
#![allow(unreachable_pub, reason = "the entity derive makes public items")]

use lb_model::{LoadBalancerId, Member, PoolId, Timestamp};
use sea_orm::entity::prelude::*;

use super::Row;
use super::convert::{id, narrow, optional, parsed, read_json, write_json};
use crate::StoreError;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "member")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    pub load_balancer_id: String,
    pub pool_id: String,
    pub project_id: String,
    pub name: String,
    pub admin_state_up: bool,
    pub provisioning_status: String,
    pub operating_status: String,
    pub address: String,
    pub protocol_port: i32,
    pub weight: i32,
    pub backup: bool,
    pub subnet_id: Option<String>,
    pub monitor_address: Option<String>,
    pub monitor_port: Option<i32>,
    pub vnic_type: String,
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
    pub fn of(member: &Member, load_balancer_id: LoadBalancerId, pool_id: PoolId) -> Self {
        let Member {
            id,
            project_id,
            name,
            admin_state_up,
            provisioning_status,
            operating_status,
            address,
            protocol_port,
            weight,
            backup,
            subnet_id,
            monitor_address,
            monitor_port,
            vnic_type,
            tags,
            created_at,
            updated_at,
        } = member;
        Self {
            id: id.to_string(),
            load_balancer_id: load_balancer_id.to_string(),
            pool_id: pool_id.to_string(),
            project_id: project_id.clone(),
            name: name.clone(),
            admin_state_up: *admin_state_up,
            provisioning_status: provisioning_status.to_string(),
            operating_status: operating_status.to_string(),
            address: address.to_string(),
            protocol_port: i32::from(*protocol_port),
            weight: i32::from(*weight),
            backup: *backup,
            subnet_id: subnet_id.as_ref().map(ToString::to_string),
            monitor_address: monitor_address.as_ref().map(ToString::to_string),
            monitor_port: monitor_port.map(i32::from),
            vnic_type: vnic_type.to_string(),
            tags: write_json(tags),
            created_at: created_at.as_micros(),
            updated_at: updated_at.map(Timestamp::as_micros),
        }
    }

    pub fn member(&self) -> Result<Member, StoreError> {
        Ok(Member {
            id: id("member.id", &self.id)?,
            project_id: self.project_id.clone(),
            name: self.name.clone(),
            admin_state_up: self.admin_state_up,
            provisioning_status: parsed("member.provisioning_status", &self.provisioning_status)?,
            operating_status: parsed("member.operating_status", &self.operating_status)?,
            address: parsed("member.address", &self.address)?,
            protocol_port: narrow("member.protocol_port", self.protocol_port)?,
            weight: narrow("member.weight", self.weight)?,
            backup: self.backup,
            subnet_id: optional("member.subnet_id", self.subnet_id.as_deref())?,
            monitor_address: optional("member.monitor_address", self.monitor_address.as_deref())?,
            monitor_port: self
                .monitor_port
                .map(|value| narrow("member.monitor_port", value))
                .transpose()?,
            vnic_type: parsed("member.vnic_type", &self.vnic_type)?,
            tags: read_json("member.tags", &self.tags)?,
            created_at: Timestamp::from_micros(self.created_at),
            updated_at: self.updated_at.map(Timestamp::from_micros),
        })
    }
}
