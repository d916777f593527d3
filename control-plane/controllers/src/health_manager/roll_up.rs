//! What a heartbeat says of a load balancer and everything below it.
//!
//! The rules are Octavia's. A load balancer starts as `ONLINE` (`OFFLINE` when disabled), and what is found below
//! makes it worse:
//!
//! | reported | becomes | load balancer |
//! |---|---|---|
//! | listener `OPEN` | `ONLINE` | |
//! | listener `FULL` | `DEGRADED` | `ONLINE` to `DEGRADED` |
//! | no listener, though enabled and load balancer `ACTIVE` | `ERROR` | |
//! | no listener, otherwise | `OFFLINE` | |
//! | pool `UP` | `ONLINE` | |
//! | pool `DOWN` | `ERROR` | `ERROR` |
//! | no pool | `OFFLINE` | |
//! | member `UP…` | `ONLINE` | |
//! | member `DOWN…` | `ERROR`, its pool `ONLINE` to `DEGRADED` | `ONLINE` to `DEGRADED` |
//! | member `DRAIN` | `DRAINING` | |
//! | member `MAINT` | `OFFLINE` | |
//! | member `no check` | `NO_MONITOR` | |
//! | no member | `OFFLINE`, but `NO_MONITOR` stays | |
//! | member `RESTARTING`, or any other word | unchanged | |

use std::collections::HashMap;
use std::ops::RangeInclusive;

use amphora_api::{HeartbeatMessage, HeartbeatPool, pool_id_of_key};
use lb_model::{Graph, OperatingStatus, Pool, ProvisioningStatus};
use uuid::Uuid;

/// Writes the operating statuses a heartbeat reports into the graph, and nothing else.
pub fn roll_up(graph: &mut Graph, message: &HeartbeatMessage) {
    let active = graph.load_balancer.provisioning_status == ProvisioningStatus::Active;
    let mut overall = if graph.load_balancer.admin_state_up {
        OperatingStatus::Online
    } else {
        OperatingStatus::Offline
    };
    for listener in &mut graph.listeners {
        listener.operating_status = match message.listeners.get(&listener.id.0) {
            Some(reported) => match reported.status.as_str() {
                "OPEN" => OperatingStatus::Online,
                "FULL" => {
                    degrade(&mut overall);
                    OperatingStatus::Degraded
                }
                _ => listener.operating_status,
            },
            None if listener.admin_state_up && active => OperatingStatus::Error,
            None => OperatingStatus::Offline,
        };
    }
    let reported = pools_by_id(message);
    for pool in &mut graph.pools {
        roll_up_pool(pool, reported.get(&pool.id.0).copied(), &mut overall);
    }
    graph.load_balancer.operating_status = overall;
}

/// How many listeners an amphora should report: those enabled, where one that could not be applied may be missing.
/// `None`: any number, the load balancer is being changed or is disabled.
pub fn expected_listeners(graph: &Graph) -> Option<RangeInclusive<usize>> {
    if graph.load_balancer.provisioning_status.is_pending() || !graph.load_balancer.admin_state_up {
        return None;
    }
    let enabled = graph
        .listeners
        .iter()
        .filter(|listener| listener.admin_state_up);
    let applied = enabled
        .clone()
        .filter(|listener| listener.provisioning_status != ProvisioningStatus::Error);
    Some(applied.count()..=enabled.count())
}

fn roll_up_pool(pool: &mut Pool, reported: Option<&HeartbeatPool>, overall: &mut OperatingStatus) {
    match reported.map(|reported| reported.status.as_str()) {
        Some("UP") => pool.operating_status = OperatingStatus::Online,
        Some("DOWN") => {
            pool.operating_status = OperatingStatus::Error;
            *overall = OperatingStatus::Error;
        }
        Some(_) => {}
        None => pool.operating_status = OperatingStatus::Offline,
    }
    for member in &mut pool.members {
        let word = reported.and_then(|reported| reported.members.get(&member.id.0));
        member.operating_status = match word.map(String::as_str) {
            Some(word) if word.starts_with("UP") => OperatingStatus::Online,
            Some(word) if word.starts_with("DOWN") => {
                degrade(&mut pool.operating_status);
                degrade(overall);
                OperatingStatus::Error
            }
            Some("DRAIN") => OperatingStatus::Draining,
            Some("MAINT") => OperatingStatus::Offline,
            Some("no check") => OperatingStatus::NoMonitor,
            Some(_) => member.operating_status,
            None if member.operating_status == OperatingStatus::NoMonitor => {
                OperatingStatus::NoMonitor
            }
            None => OperatingStatus::Offline,
        };
    }
}

/// A pool that several listeners use is reported once for each, with the same members; the first counts, unless a
/// later one is down.
fn pools_by_id(message: &HeartbeatMessage) -> HashMap<Uuid, &HeartbeatPool> {
    let mut pools: HashMap<Uuid, &HeartbeatPool> = HashMap::new();
    for (key, pool) in &message.pools {
        let Some(id) = pool_id_of_key(key) else {
            continue;
        };
        let known = pools.entry(id).or_insert(pool);
        if pool.status == "DOWN" {
            *known = pool;
        }
    }
    pools
}

fn degrade(status: &mut OperatingStatus) {
    if *status == OperatingStatus::Online {
        *status = OperatingStatus::Degraded;
    }
}
