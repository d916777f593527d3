//! The database: the only place with SQL, and the only thing that replicas of the control plane share.
//!
//! Owns the schema, transactions, leases and their fencing. A load balancer with all its children (a
//! [`Graph`](lb_model::Graph)) is read and written as a whole, under the lock of its row. Rules of the domain come in
//! as closures on the graph; this crate has none of its own. It reads no clock: `now` is an argument.

mod error;
mod graphs;
mod health;
mod leases;
mod list;
mod migrations;
mod offers;
mod outcome;
mod pool;
mod purge;
mod quotas;
mod reads;
mod receipts;
mod rows;
mod statistics;
mod store;
mod tables;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod upgrade;

pub use error::StoreError;
pub use graphs::StatusUpdate;
pub use health::{Heard, HeartbeatTarget, MessageMark, StaleAmphora};
pub use leases::{Finish, Lease, Progress};
pub use list::{
    Direction, Filter, HealthMonitorRow, L7PolicyRow, ListenerRow, LoadBalancerRow, MemberRow,
    PoolRow, Query, TagFilter,
};
pub use offers::Removal;
pub use outcome::{Outcome, StoredOutcome};
pub use purge::Purged;
pub use quotas::QuotaRow;
pub use receipts::{RECEIPT_LIFE, Receipt};
pub use statistics::{Reading, Statistics, StatsSample};
pub use store::Store;

#[cfg(test)]
mod tests;
