//! Changes of intent: what each API call checks and writes, as pure functions on a [`Graph`].
//!
//! ```text
//! find the object (404) -> pool ACTIVE? -> load balancer ACTIVE? (409) -> rules (400/409/501) -> new values, PENDING_*
//! ```
//!
//! Each either changes the graph completely or returns a [`Fault`]; after a fault the graph is not to be kept. The
//! caller makes it one transaction under the load balancer's row lock.

mod amphora;
mod build;
mod health_monitor;
mod l7policy;
mod l7rule;
mod listener;
mod load_balancer;
mod member;
mod pool;

pub use amphora::{delete_amphora, request_amphora_failover};
pub use build::{GraphSeed, ResolvedVip, build_graph};
pub use health_monitor::{create_health_monitor, delete_health_monitor, update_health_monitor};
pub use l7policy::{create_l7policy, delete_l7policy, update_l7policy};
pub use l7rule::{create_l7rule, delete_l7rule, update_l7rule};
pub use listener::{create_listener, delete_listener, update_listener};
pub use load_balancer::{delete_load_balancer, request_failover, update_load_balancer};
pub use member::{batch_update_members, create_member, delete_member, update_member};
pub use pool::{create_pool, delete_pool, update_pool};

use crate::{
    Fault, Graph, Listener, ListenerId, LoadBalancer, Pool, PoolId, ProvisioningStatus, Resource,
    Timestamp,
};

/// Child operations name the load balancer as immutable.
fn require_mutable(load_balancer: &LoadBalancer) -> Result<(), Fault> {
    if load_balancer.provisioning_status.is_mutable() {
        Ok(())
    } else {
        Err(Fault::immutable(Resource::LoadBalancer, load_balancer.id))
    }
}

/// Members and monitors also need their pool ACTIVE, and name it first.
fn require_mutable_pool(pool: &Pool) -> Result<(), Fault> {
    if pool.provisioning_status.is_mutable() {
        Ok(())
    } else {
        Err(Fault::immutable(Resource::Pool, pool.id))
    }
}

fn set_load_balancer(graph: &mut Graph, status: ProvisioningStatus, now: Timestamp) {
    graph.load_balancer.provisioning_status = status;
    graph.load_balancer.updated_at = Some(now);
}

fn set_listener(listener: &mut Listener, status: ProvisioningStatus, now: Timestamp) {
    listener.provisioning_status = status;
    listener.updated_at = Some(now);
}

/// The load balancer and every listener that uses the pool become PENDING_UPDATE.
fn pend_above_pool(graph: &mut Graph, pool: PoolId, now: Timestamp) {
    let users: Vec<ListenerId> = graph
        .listeners_of_pool(pool)
        .map(|listener| listener.id)
        .collect();
    for listener in graph
        .listeners
        .iter_mut()
        .filter(|listener| users.contains(&listener.id))
    {
        set_listener(listener, ProvisioningStatus::PendingUpdate, now);
    }
    set_load_balancer(graph, ProvisioningStatus::PendingUpdate, now);
}

/// As [`pend_above_pool`], and the pool itself.
fn pend_pool(graph: &mut Graph, pool: PoolId, now: Timestamp) {
    pend_above_pool(graph, pool, now);
    if let Some(pool) = graph.pool_mut(pool) {
        pool.provisioning_status = ProvisioningStatus::PendingUpdate;
        pool.updated_at = Some(now);
    }
}

fn pool_or_fault(graph: &Graph, id: PoolId) -> Result<&Pool, Fault> {
    graph
        .pool(id)
        .ok_or_else(|| Fault::not_found(Resource::Pool, id))
}

/// Null does not clear tags, an empty list does.
fn apply_tags(field: &crate::spec::Field<Vec<String>>, tags: &mut Vec<String>) {
    if let crate::spec::Field::Value(value) = field {
        tags.clone_from(value);
    }
}

#[cfg(test)]
mod tests;
