//! When an amphora was last heard. Its absence means never.
#![allow(unreachable_pub, reason = "the entity derive makes public items")]

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "amphora_health")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub amphora_id: String,
    pub last_update: i64,
    /// A failover is under way; not to be found stale again.
    pub busy: bool,
    /// Number and time of the newest message, as its sender counts: what is not newer is a replay.
    pub newest_seq: Option<i64>,
    pub newest_sent_at_ms: Option<i64>,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
