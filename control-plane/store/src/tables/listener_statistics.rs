//! What one amphora served of one listener.
//!
//! A total is `base_* + current_*`: `current_*` counts since `epoch`, `base_*` holds the epochs before. The row with
//! the nil amphora id holds what amphorae that are gone have served, so that totals never go back.
#![allow(unreachable_pub, reason = "the entity derive makes public items")]

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "listener_statistics")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub listener_id: String,
    #[sea_orm(primary_key, auto_increment = false)]
    pub amphora_id: String,
    pub epoch: i64,
    pub active_connections: i64,
    pub base_bytes_in: i64,
    pub base_bytes_out: i64,
    pub base_total_connections: i64,
    pub base_request_errors: i64,
    pub current_bytes_in: i64,
    pub current_bytes_out: i64,
    pub current_total_connections: i64,
    pub current_request_errors: i64,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
