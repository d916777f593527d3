//! What the end of a reconcile writes into a [`Graph`]: the one place for Octavia's rules of success and failure.
//!
//! ```text
//!  success: PENDING_CREATE, PENDING_UPDATE -> ACTIVE;  PENDING_DELETE -> gone (load balancer: DELETED)
//!  failure: the objects the request was about -> ERROR; those that were only locked by it -> ACTIVE
//! ```
//!
//! Never touches amphorae (the reconciler records their life step by step) and never leaves anything pending.

use std::collections::BTreeMap;

use uuid::Uuid;

use crate::{
    Graph, HealthMonitorId, L7Policy, Listener, ListenerId, MemberId, OperatingStatus, Pool,
    PoolId, ProvisioningStatus, Timestamp,
};

use ProvisioningStatus::{Active, Deleted, Error, PendingCreate, PendingDelete};

/// How a reconcile ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settlement {
    /// Why the intent was not reached; `None` when it was.
    pub error: Option<String>,
    /// Amphorae were replaced or built: a success heals everything, a failure is the load balancer's.
    pub failed_over: bool,
    /// Objects that cannot be served although the rest is.
    pub unserved: Vec<Unserved>,
}

/// An object the data plane was not given, or could not serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unserved {
    pub object: UnservedObject,
    pub reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UnservedObject {
    Listener(ListenerId),
    Member(MemberId),
    HealthMonitor(HealthMonitorId),
}

impl std::fmt::Display for Unserved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.object {
            UnservedObject::Listener(id) => write!(f, "listener {id}: {}", self.reason),
            UnservedObject::Member(id) => write!(f, "member {id}: {}", self.reason),
            UnservedObject::HealthMonitor(id) => {
                write!(f, "health monitor {id}: {}", self.reason)
            }
        }
    }
}

/// Writes the end of a reconcile into the graph. A graph whose load balancer is not pending stays as it is.
pub fn settle(graph: &mut Graph, settlement: &Settlement, now: Timestamp) {
    let mut before = graph.clone();
    let status = graph.load_balancer.provisioning_status;
    if !status.is_pending() {
        return;
    }
    match (&settlement.error, status) {
        (None, PendingDelete) => delete(graph),
        (None, _) => succeed(graph, settlement.failed_over),
        (Some(_), PendingCreate | PendingDelete) => fail_everything(graph),
        (Some(_), _) => fail_update(graph, settlement.failed_over),
    }
    if graph.load_balancer.provisioning_status != Deleted {
        mark_unserved(graph, &settlement.unserved);
    }
    graph.load_balancer.error_reason = reason(settlement);
    stamp(graph, &mut before, now);
}

/// Reasons are shown to people and stored in one column.
const REASON_LIMIT: usize = 1000;

fn reason(settlement: &Settlement) -> Option<String> {
    let mut lines: Vec<String> = settlement.error.iter().cloned().collect();
    lines.extend(settlement.unserved.iter().map(ToString::to_string));
    if lines.is_empty() {
        return None;
    }
    let mut text = lines.join("; ");
    if text.len() > REASON_LIMIT {
        let cut = (0..=REASON_LIMIT)
            .rev()
            .find(|at| text.is_char_boundary(*at))
            .unwrap_or(0);
        text.truncate(cut);
    }
    Some(text)
}

fn delete(graph: &mut Graph) {
    graph.load_balancer.provisioning_status = Deleted;
    graph.listeners.clear();
    graph.pools.clear();
}

fn succeed(graph: &mut Graph, failed_over: bool) {
    graph.load_balancer.provisioning_status = Active;
    graph
        .pools
        .retain(|pool| pool.provisioning_status != PendingDelete);
    let pools: Vec<PoolId> = graph.pools.iter().map(|pool| pool.id).collect();
    for pool in &mut graph.pools {
        reach(&mut pool.provisioning_status, failed_over);
        pool.members
            .retain(|member| member.provisioning_status != PendingDelete);
        for member in &mut pool.members {
            reach(&mut member.provisioning_status, failed_over);
        }
        settle_monitor(pool, failed_over);
    }
    graph
        .listeners
        .retain(|listener| listener.provisioning_status != PendingDelete);
    for listener in &mut graph.listeners {
        reach(&mut listener.provisioning_status, failed_over);
        if listener
            .default_pool_id
            .is_some_and(|id| !pools.contains(&id))
        {
            listener.default_pool_id = None;
        }
        listener
            .l7policies
            .retain(|policy| policy.provisioning_status != PendingDelete);
        listener.renumber_l7policies();
        for policy in &mut listener.l7policies {
            settle_policy(policy, failed_over);
        }
    }
}

/// Pending becomes active; so does an error when everything was built anew.
fn reach(status: &mut ProvisioningStatus, failed_over: bool) -> bool {
    let reached = status.is_pending() || (failed_over && *status == Error);
    if reached {
        *status = Active;
    }
    reached
}

/// Monitors, policies and rules are never reported by heartbeats: their operating status is written here.
const fn switched(admin_state_up: bool) -> OperatingStatus {
    if admin_state_up {
        OperatingStatus::Online
    } else {
        OperatingStatus::Offline
    }
}

fn settle_monitor(pool: &mut Pool, failed_over: bool) {
    let Some(monitor) = &mut pool.health_monitor else {
        return;
    };
    if monitor.provisioning_status == PendingDelete {
        pool.health_monitor = None;
        for member in &mut pool.members {
            member.operating_status = OperatingStatus::NoMonitor;
        }
    } else if reach(&mut monitor.provisioning_status, failed_over) {
        monitor.operating_status = switched(monitor.admin_state_up);
    }
}

fn settle_policy(policy: &mut L7Policy, failed_over: bool) {
    if reach(&mut policy.provisioning_status, failed_over) {
        policy.operating_status = switched(policy.admin_state_up);
    }
    policy
        .rules
        .retain(|rule| rule.provisioning_status != PendingDelete);
    for rule in &mut policy.rules {
        if reach(&mut rule.provisioning_status, failed_over) {
            rule.operating_status = switched(rule.admin_state_up);
        }
    }
}

fn fail_everything(graph: &mut Graph) {
    graph.load_balancer.provisioning_status = Error;
    for listener in &mut graph.listeners {
        fail(&mut listener.provisioning_status);
        for policy in &mut listener.l7policies {
            fail(&mut policy.provisioning_status);
            for rule in &mut policy.rules {
                fail(&mut rule.provisioning_status);
            }
        }
    }
    for pool in &mut graph.pools {
        fail_pool(pool);
    }
}

fn fail(status: &mut ProvisioningStatus) {
    if status.is_pending() {
        *status = Error;
    }
}

fn unlock(status: &mut ProvisioningStatus) {
    if status.is_pending() {
        *status = Active;
    }
}

fn fail_pool(pool: &mut Pool) {
    fail(&mut pool.provisioning_status);
    for member in &mut pool.members {
        fail(&mut member.provisioning_status);
    }
    if let Some(monitor) = &mut pool.health_monitor {
        fail(&mut monitor.provisioning_status);
    }
}

/// An update failed: find what it was about. A pending leaf is; a parent is only when no child of it is pending.
fn fail_update(graph: &mut Graph, failed_over: bool) {
    let mut blamed = false;
    let mut locking_pools = Vec::new();
    for pool in &mut graph.pools {
        let leaf = pool
            .members
            .iter()
            .any(|member| member.provisioning_status.is_pending())
            || pool
                .health_monitor
                .as_ref()
                .is_some_and(|monitor| monitor.provisioning_status.is_pending());
        if !leaf && !pool.provisioning_status.is_pending() {
            continue;
        }
        blamed = true;
        locking_pools.push(pool.id);
        if leaf && pool.provisioning_status == ProvisioningStatus::PendingUpdate {
            unlock(&mut pool.provisioning_status);
        }
        fail_pool(pool);
    }
    for listener in &mut graph.listeners {
        blamed |= fail_listener(listener, &locking_pools);
    }
    graph.load_balancer.provisioning_status = if blamed && !failed_over {
        Active
    } else {
        Error
    };
}

/// Whether the listener or something below it was what the request was about.
fn fail_listener(listener: &mut Listener, locking_pools: &[PoolId]) -> bool {
    let mut below = false;
    for policy in &mut listener.l7policies {
        let rules = policy
            .rules
            .iter()
            .any(|rule| rule.provisioning_status.is_pending());
        if rules && policy.provisioning_status == ProvisioningStatus::PendingUpdate {
            unlock(&mut policy.provisioning_status);
        }
        below |= rules || policy.provisioning_status.is_pending();
        fail(&mut policy.provisioning_status);
        for rule in &mut policy.rules {
            fail(&mut rule.provisioning_status);
        }
    }
    if !listener.provisioning_status.is_pending() {
        return below;
    }
    let locked_only = below
        || listener
            .pool_ids()
            .iter()
            .any(|pool| locking_pools.contains(pool));
    if locked_only && listener.provisioning_status == ProvisioningStatus::PendingUpdate {
        unlock(&mut listener.provisioning_status);
        return below;
    }
    fail(&mut listener.provisioning_status);
    true
}

fn mark_unserved(graph: &mut Graph, unserved: &[Unserved]) {
    let marked: BTreeMap<UnservedObject, &str> = unserved
        .iter()
        .map(|entry| (entry.object, entry.reason.as_str()))
        .collect();
    for listener in &mut graph.listeners {
        if marked.contains_key(&UnservedObject::Listener(listener.id)) {
            listener.provisioning_status = Error;
            listener.operating_status = OperatingStatus::Error;
        }
    }
    for pool in &mut graph.pools {
        for member in &mut pool.members {
            if marked.contains_key(&UnservedObject::Member(member.id)) {
                member.provisioning_status = Error;
            }
        }
        if let Some(monitor) = &mut pool.health_monitor
            && marked.contains_key(&UnservedObject::HealthMonitor(monitor.id))
        {
            monitor.provisioning_status = Error;
            monitor.operating_status = OperatingStatus::Error;
        }
    }
}

/// A new provisioning status is a change like any other.
fn stamp(graph: &mut Graph, before: &mut Graph, now: Timestamp) {
    let mut old = BTreeMap::new();
    each_status(before, |id, status, _| {
        old.insert(id, status);
    });
    each_status(graph, |id, status, updated_at| {
        if old.get(&id).is_some_and(|old| *old != status) {
            *updated_at = Some(now);
        }
    });
}

/// Every object but the amphorae: its id, status and time of the last change.
fn each_status(
    graph: &mut Graph,
    mut f: impl FnMut(Uuid, ProvisioningStatus, &mut Option<Timestamp>),
) {
    macro_rules! visit {
        ($object:expr) => {
            f(
                $object.id.0,
                $object.provisioning_status,
                &mut $object.updated_at,
            )
        };
    }
    visit!(graph.load_balancer);
    for listener in &mut graph.listeners {
        visit!(listener);
        for policy in &mut listener.l7policies {
            visit!(policy);
            for rule in &mut policy.rules {
                visit!(rule);
            }
        }
    }
    for pool in &mut graph.pools {
        visit!(pool);
        for member in &mut pool.members {
            visit!(member);
        }
        if let Some(monitor) = &mut pool.health_monitor {
            visit!(monitor);
        }
    }
}

#[cfg(test)]
mod tests;
