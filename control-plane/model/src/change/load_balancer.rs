//! The load balancer's own update, delete and failover.

use super::{apply_tags, set_load_balancer};
use crate::spec::{Field, LoadBalancerUpdate};
use crate::{Fault, Graph, LoadBalancer, ProvisioningStatus, Timestamp};

pub fn update_load_balancer(
    graph: &mut Graph,
    spec: &LoadBalancerUpdate,
    now: Timestamp,
) -> Result<(), Fault> {
    require(&graph.load_balancer, ProvisioningStatus::is_mutable)?;
    let lb = &mut graph.load_balancer;
    spec.name.apply(&mut lb.name, String::new());
    spec.description.apply(&mut lb.description, String::new());
    spec.admin_state_up.apply(&mut lb.admin_state_up, false);
    spec.vip_qos_policy_id
        .apply_option(&mut lb.vip.qos_policy_id);
    match &spec.vip_sg_ids {
        Field::Absent => {}
        Field::Null => lb.vip.sg_ids.clear(),
        Field::Value(ids) => lb.vip.sg_ids.clone_from(ids),
    }
    apply_tags(&spec.tags, &mut lb.tags);
    set_load_balancer(graph, ProvisioningStatus::PendingUpdate, now);
    Ok(())
}

/// Children are marked and removed by the worker.
pub fn delete_load_balancer(graph: &mut Graph, cascade: bool, now: Timestamp) -> Result<(), Fault> {
    let has_children = !graph.listeners.is_empty() || !graph.pools.is_empty();
    if has_children && !cascade {
        return Err(Fault::HasChildren(graph.load_balancer.id.0));
    }
    require(&graph.load_balancer, ProvisioningStatus::is_deletable)?;
    set_load_balancer(graph, ProvisioningStatus::PendingDelete, now);
    Ok(())
}

/// Replaces every amphora.
pub fn request_failover(graph: &mut Graph, now: Timestamp) -> Result<(), Fault> {
    require(&graph.load_balancer, ProvisioningStatus::may_fail_over)?;
    for amphora in &mut graph.amphorae {
        if super::amphora::may_be_replaced(amphora.status) {
            amphora.failover_requested = true;
            amphora.updated_at = Some(now);
        }
    }
    set_load_balancer(graph, ProvisioningStatus::PendingUpdate, now);
    Ok(())
}

/// The load balancer's own operations report its state.
fn require(
    load_balancer: &LoadBalancer,
    allows: impl Fn(ProvisioningStatus) -> bool,
) -> Result<(), Fault> {
    if allows(load_balancer.provisioning_status) {
        Ok(())
    } else {
        Err(Fault::InvalidState {
            id: load_balancer.id.0,
            state: load_balancer.provisioning_status,
        })
    }
}
