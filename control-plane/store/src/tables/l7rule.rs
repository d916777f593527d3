//! An L7 rule of a policy.
#![allow(unreachable_pub, reason = "the entity derive makes public items")]

use lb_model::{L7PolicyId, L7Rule, LoadBalancerId, Timestamp};
use sea_orm::entity::prelude::*;

use super::Row;
use super::convert::{id, parsed, read_json, write_json};
use crate::StoreError;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "l7rule")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    pub load_balancer_id: String,
    pub l7policy_id: String,
    pub project_id: String,
    pub admin_state_up: bool,
    pub provisioning_status: String,
    pub operating_status: String,
    pub rule_type: String,
    pub compare_type: String,
    pub rule_key: Option<String>,
    pub rule_value: String,
    pub invert: bool,
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
    pub fn of(l7rule: &L7Rule, load_balancer_id: LoadBalancerId, l7policy_id: L7PolicyId) -> Self {
        let L7Rule {
            id,
            project_id,
            admin_state_up,
            provisioning_status,
            operating_status,
            kind,
            compare_type,
            key,
            value,
            invert,
            tags,
            created_at,
            updated_at,
        } = l7rule;
        Self {
            id: id.to_string(),
            load_balancer_id: load_balancer_id.to_string(),
            l7policy_id: l7policy_id.to_string(),
            project_id: project_id.clone(),
            admin_state_up: *admin_state_up,
            provisioning_status: provisioning_status.to_string(),
            operating_status: operating_status.to_string(),
            rule_type: kind.to_string(),
            compare_type: compare_type.to_string(),
            rule_key: key.clone(),
            rule_value: value.clone(),
            invert: *invert,
            tags: write_json(tags),
            created_at: created_at.as_micros(),
            updated_at: updated_at.map(Timestamp::as_micros),
        }
    }

    pub fn l7rule(&self) -> Result<L7Rule, StoreError> {
        Ok(L7Rule {
            id: id("l7rule.id", &self.id)?,
            project_id: self.project_id.clone(),
            admin_state_up: self.admin_state_up,
            provisioning_status: parsed("l7rule.provisioning_status", &self.provisioning_status)?,
            operating_status: parsed("l7rule.operating_status", &self.operating_status)?,
            kind: parsed("l7rule.rule_type", &self.rule_type)?,
            compare_type: parsed("l7rule.compare_type", &self.compare_type)?,
            key: self.rule_key.clone(),
            value: self.rule_value.clone(),
            invert: self.invert,
            tags: read_json("l7rule.tags", &self.tags)?,
            created_at: Timestamp::from_micros(self.created_at),
            updated_at: self.updated_at.map(Timestamp::from_micros),
        })
    }
}
