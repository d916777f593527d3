//! One file a table: its columns, and how a row becomes a value of the domain and back.
//!
//! Ids are 36 characters of text, times are microseconds since the epoch, lists and maps are JSON text: the same in
//! SQLite, MariaDB and PostgreSQL.

pub(crate) mod amphora;
pub(crate) mod amphora_health;
pub(crate) mod convert;
pub(crate) mod health_monitor;
pub(crate) mod l7policy;
pub(crate) mod l7rule;
pub(crate) mod listener;
pub(crate) mod listener_statistics;
pub(crate) mod load_balancer;
pub(crate) mod member;
pub(crate) mod offer;
pub(crate) mod pool;
pub(crate) mod quota;
pub(crate) mod receipt;
pub(crate) mod reconcile_outcome;
pub(crate) mod tag;

use sea_orm::{EntityTrait, IntoActiveModel, ModelTrait};

/// A row of a resource: has an `id` column, and may have tags.
pub(crate) trait Row:
    ModelTrait + PartialEq + Sync + IntoActiveModel<<Self::Entity as EntityTrait>::ActiveModel>
{
    fn id(&self) -> &str;
    /// The tags as JSON text.
    fn tags(&self) -> Option<&str>;
}
