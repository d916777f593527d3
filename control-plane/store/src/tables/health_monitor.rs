//! The health monitor of a pool; at most one a pool.
#![allow(unreachable_pub, reason = "the entity derive makes public items")]

use lb_model::{HealthMonitor, HttpVersion, LoadBalancerId, PoolId, Timestamp};
use sea_orm::entity::prelude::*;

use super::Row;
use super::convert::{id, narrow, optional, parsed, read_json, write_json};
use crate::StoreError;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "health_monitor")]
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
    pub monitor_type: String,
    pub delay: i64,
    pub timeout: i64,
    pub max_retries: i32,
    pub max_retries_down: i32,
    pub http_method: Option<String>,
    pub url_path: Option<String>,
    pub expected_codes: Option<String>,
    pub http_version: Option<String>,
    pub domain_name: Option<String>,
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
        health_monitor: &HealthMonitor,
        load_balancer_id: LoadBalancerId,
        pool_id: PoolId,
    ) -> Self {
        let HealthMonitor {
            id,
            project_id,
            name,
            admin_state_up,
            provisioning_status,
            operating_status,
            kind,
            delay,
            timeout,
            max_retries,
            max_retries_down,
            http_method,
            url_path,
            expected_codes,
            http_version,
            domain_name,
            tags,
            created_at,
            updated_at,
        } = health_monitor;
        Self {
            id: id.to_string(),
            load_balancer_id: load_balancer_id.to_string(),
            pool_id: pool_id.to_string(),
            project_id: project_id.clone(),
            name: name.clone(),
            admin_state_up: *admin_state_up,
            provisioning_status: provisioning_status.to_string(),
            operating_status: operating_status.to_string(),
            monitor_type: kind.to_string(),
            delay: i64::from(*delay),
            timeout: i64::from(*timeout),
            max_retries: i32::from(*max_retries),
            max_retries_down: i32::from(*max_retries_down),
            http_method: http_method.clone(),
            url_path: url_path.clone(),
            expected_codes: expected_codes.as_ref().map(ToString::to_string),
            http_version: http_version.map(|version| version_text(version).to_owned()),
            domain_name: domain_name.clone(),
            tags: write_json(tags),
            created_at: created_at.as_micros(),
            updated_at: updated_at.map(Timestamp::as_micros),
        }
    }

    pub fn health_monitor(&self) -> Result<HealthMonitor, StoreError> {
        Ok(HealthMonitor {
            id: id("health_monitor.id", &self.id)?,
            project_id: self.project_id.clone(),
            name: self.name.clone(),
            admin_state_up: self.admin_state_up,
            provisioning_status: parsed(
                "health_monitor.provisioning_status",
                &self.provisioning_status,
            )?,
            operating_status: parsed("health_monitor.operating_status", &self.operating_status)?,
            kind: parsed("health_monitor.monitor_type", &self.monitor_type)?,
            delay: narrow("health_monitor.delay", self.delay)?,
            timeout: narrow("health_monitor.timeout", self.timeout)?,
            max_retries: narrow("health_monitor.max_retries", self.max_retries)?,
            max_retries_down: narrow("health_monitor.max_retries_down", self.max_retries_down)?,
            http_method: self.http_method.clone(),
            url_path: self.url_path.clone(),
            expected_codes: optional(
                "health_monitor.expected_codes",
                self.expected_codes.as_deref(),
            )?,
            http_version: self.http_version.as_deref().map(version).transpose()?,
            domain_name: self.domain_name.clone(),
            tags: read_json("health_monitor.tags", &self.tags)?,
            created_at: Timestamp::from_micros(self.created_at),
            updated_at: self.updated_at.map(Timestamp::from_micros),
        })
    }
}

const fn version_text(version: HttpVersion) -> &'static str {
    match version {
        HttpVersion::V1_0 => "1.0",
        HttpVersion::V1_1 => "1.1",
    }
}

fn version(text: &str) -> Result<HttpVersion, StoreError> {
    [HttpVersion::V1_0, HttpVersion::V1_1]
        .into_iter()
        .find(|version| version_text(*version) == text)
        .ok_or_else(|| StoreError::Corrupt {
            column: "health_monitor.http_version",
            value: text.to_owned(),
        })
}
