//! The limits of a project. The row is also the lock under which the objects of a project are counted.
#![allow(unreachable_pub, reason = "the entity derive makes public items")]

use lb_model::{PerResource, Quota};
use sea_orm::entity::prelude::*;

/// A null limit is the deployment's default.
#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "quota")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub project_id: String,
    pub load_balancer: Option<i32>,
    pub listener: Option<i32>,
    pub pool: Option<i32>,
    pub member: Option<i32>,
    pub health_monitor: Option<i32>,
    pub l7policy: Option<i32>,
    pub l7rule: Option<i32>,
    pub created_at: i64,
    /// Raised to take the lock.
    pub revision: i64,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}

impl Model {
    pub fn quota(&self) -> Quota {
        Quota(PerResource {
            load_balancer: self.load_balancer,
            listener: self.listener,
            pool: self.pool,
            member: self.member,
            health_monitor: self.health_monitor,
            l7policy: self.l7policy,
            l7rule: self.l7rule,
        })
    }

    /// The limits by column, in the order of [`PerResource::each`].
    pub fn columns() -> PerResource<Column> {
        PerResource {
            load_balancer: Column::LoadBalancer,
            listener: Column::Listener,
            pool: Column::Pool,
            member: Column::Member,
            health_monitor: Column::HealthMonitor,
            l7policy: Column::L7policy,
            l7rule: Column::L7rule,
        }
    }
}
