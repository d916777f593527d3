//! An L7 policy of a listener.
#![allow(unreachable_pub, reason = "the entity derive makes public items")]

use lb_model::{L7Policy, L7Rule, ListenerId, LoadBalancerId, Timestamp};
use sea_orm::entity::prelude::*;

use super::Row;
use super::convert::{id, narrow, optional, parsed, read_json, write_json};
use crate::StoreError;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "l7policy")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    pub load_balancer_id: String,
    pub listener_id: String,
    pub project_id: String,
    pub name: String,
    pub description: String,
    pub admin_state_up: bool,
    pub provisioning_status: String,
    pub operating_status: String,
    pub action: String,
    pub redirect_pool_id: Option<String>,
    pub redirect_url: Option<String>,
    pub redirect_prefix: Option<String>,
    pub redirect_http_code: Option<i32>,
    pub position: i64,
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
    pub fn of(
        l7policy: &L7Policy,
        load_balancer_id: LoadBalancerId,
        listener_id: ListenerId,
    ) -> Self {
        let L7Policy {
            id,
            project_id,
            name,
            description,
            admin_state_up,
            provisioning_status,
            operating_status,
            action,
            redirect_pool_id,
            redirect_url,
            redirect_prefix,
            redirect_http_code,
            position,
            tags,
            created_at,
            updated_at,
            rules: _,
        } = l7policy;
        Self {
            id: id.to_string(),
            load_balancer_id: load_balancer_id.to_string(),
            listener_id: listener_id.to_string(),
            project_id: project_id.clone(),
            name: name.clone(),
            description: description.clone(),
            admin_state_up: *admin_state_up,
            provisioning_status: provisioning_status.to_string(),
            operating_status: operating_status.to_string(),
            action: action.to_string(),
            redirect_pool_id: redirect_pool_id.as_ref().map(ToString::to_string),
            redirect_url: redirect_url.clone(),
            redirect_prefix: redirect_prefix.clone(),
            redirect_http_code: redirect_http_code.map(i32::from),
            position: i64::from(*position),
            tags: write_json(tags),
            created_at: created_at.as_micros(),
            updated_at: updated_at.map(Timestamp::as_micros),
        }
    }

    pub fn l7policy(&self, rules: Vec<L7Rule>) -> Result<L7Policy, StoreError> {
        Ok(L7Policy {
            id: id("l7policy.id", &self.id)?,
            project_id: self.project_id.clone(),
            name: self.name.clone(),
            description: self.description.clone(),
            admin_state_up: self.admin_state_up,
            provisioning_status: parsed("l7policy.provisioning_status", &self.provisioning_status)?,
            operating_status: parsed("l7policy.operating_status", &self.operating_status)?,
            action: parsed("l7policy.action", &self.action)?,
            redirect_pool_id: optional(
                "l7policy.redirect_pool_id",
                self.redirect_pool_id.as_deref(),
            )?,
            redirect_url: self.redirect_url.clone(),
            redirect_prefix: self.redirect_prefix.clone(),
            redirect_http_code: self
                .redirect_http_code
                .map(|value| narrow("l7policy.redirect_http_code", value))
                .transpose()?,
            position: narrow("l7policy.position", self.position)?,
            tags: read_json("l7policy.tags", &self.tags)?,
            created_at: Timestamp::from_micros(self.created_at),
            updated_at: self.updated_at.map(Timestamp::from_micros),
            rules,
        })
    }
}
