//! The last outcome of reconciling a load balancer, and how many attempts its generation took.
#![allow(unreachable_pub, reason = "the entity derive makes public items")]

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "reconcile_outcome")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub load_balancer_id: String,
    pub generation: i64,
    pub attempts: i64,
    pub finished_at: i64,
    pub document: String,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
