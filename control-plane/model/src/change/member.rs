//! Members, one at a time or as a batch.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::{apply_tags, pend_pool, pool_or_fault, require_mutable, require_mutable_pool};
use crate::spec::{MemberBatch, MemberCreate, MemberUpdate};
use crate::validate::check_member;
use crate::{
    Fault, Graph, Member, MemberId, OperatingStatus, PoolId, ProvisioningStatus, Resource, Rules,
    Timestamp, VnicType,
};

pub fn create_member(
    graph: &mut Graph,
    pool_id: PoolId,
    spec: &MemberCreate,
    id: MemberId,
    rules: &Rules,
    now: Timestamp,
) -> Result<(), Fault> {
    let pool = pool_or_fault(graph, pool_id)?;
    let (protocol, monitored) = (pool.protocol, pool.health_monitor.is_some());
    require_mutable_pool(pool)?;
    require_mutable(&graph.load_balancer)?;
    check_member(
        spec.address.ip(),
        spec.request_sriov,
        protocol,
        is_listening(graph, pool_id),
        &graph.load_balancer,
        rules,
    )?;
    let taken = pool
        .members
        .iter()
        .any(|member| key(member) == (spec.address.ip(), spec.protocol_port));
    if taken {
        return Err(Fault::DuplicateMember {
            address: spec.address.ip(),
            port: spec.protocol_port,
        });
    }
    let member = spec.build(id, &graph.load_balancer.project_id, monitored, now);
    if let Some(pool) = graph.pool_mut(pool_id) {
        pool.members.push(member);
    }
    pend_pool(graph, pool_id, now);
    Ok(())
}

/// Whether a listener sends to the pool by default.
fn is_listening(graph: &Graph, pool: PoolId) -> bool {
    graph
        .listeners
        .iter()
        .any(|listener| listener.default_pool_id == Some(pool))
}

fn key(member: &Member) -> (IpAddr, u16) {
    (member.address.ip(), member.protocol_port)
}

impl MemberCreate {
    /// The member as it is stored at birth.
    pub(super) fn build(
        &self,
        id: MemberId,
        project_id: &str,
        monitored: bool,
        now: Timestamp,
    ) -> Member {
        Member {
            id,
            project_id: project_id.to_owned(),
            name: self.name.clone().unwrap_or_default(),
            admin_state_up: self.admin_state_up.unwrap_or(true),
            provisioning_status: ProvisioningStatus::PendingCreate,
            operating_status: if monitored {
                OperatingStatus::Offline
            } else {
                OperatingStatus::NoMonitor
            },
            address: self.address.clone(),
            protocol_port: self.protocol_port,
            weight: self.weight.unwrap_or(1),
            backup: self.backup.unwrap_or(false),
            subnet_id: self.subnet_id,
            monitor_address: self.monitor_address.clone(),
            monitor_port: self.monitor_port,
            vnic_type: VnicType::Normal,
            tags: self.tags.clone().unwrap_or_default(),
            created_at: now,
            updated_at: None,
        }
    }

    /// A stored member that a batch lists: settings that are left out go back to their defaults, while name, tags and
    /// subnet stay.
    fn apply_to(&self, member: &mut Member) {
        if let Some(name) = &self.name {
            member.name.clone_from(name);
        }
        if let Some(tags) = &self.tags {
            member.tags.clone_from(tags);
        }
        member.admin_state_up = self.admin_state_up.unwrap_or(true);
        member.weight = self.weight.unwrap_or(1);
        member.backup = self.backup.unwrap_or(false);
        member.monitor_address.clone_from(&self.monitor_address);
        member.monitor_port = self.monitor_port;
    }
}

pub fn update_member(
    graph: &mut Graph,
    pool_id: PoolId,
    id: MemberId,
    spec: &MemberUpdate,
    now: Timestamp,
) -> Result<(), Fault> {
    change_member(graph, pool_id, id, now, |member| {
        spec.name.apply(&mut member.name, String::new());
        spec.admin_state_up.apply(&mut member.admin_state_up, false);
        spec.weight.apply(&mut member.weight, 1);
        spec.backup.apply(&mut member.backup, false);
        spec.monitor_address
            .apply_option(&mut member.monitor_address);
        spec.monitor_port.apply_option(&mut member.monitor_port);
        apply_tags(&spec.tags, &mut member.tags);
        member.provisioning_status = ProvisioningStatus::PendingUpdate;
    })
}

pub fn delete_member(
    graph: &mut Graph,
    pool_id: PoolId,
    id: MemberId,
    now: Timestamp,
) -> Result<(), Fault> {
    change_member(graph, pool_id, id, now, |member| {
        member.provisioning_status = ProvisioningStatus::PendingDelete;
    })
}

fn change_member(
    graph: &mut Graph,
    pool_id: PoolId,
    id: MemberId,
    now: Timestamp,
    change: impl FnOnce(&mut Member),
) -> Result<(), Fault> {
    let pool = pool_or_fault(graph, pool_id)?;
    let position = pool
        .members
        .iter()
        .position(|member| member.id == id)
        .ok_or_else(|| Fault::not_found(Resource::Member, id))?;
    require_mutable_pool(pool)?;
    require_mutable(&graph.load_balancer)?;
    let member = graph
        .pool_mut(pool_id)
        .and_then(|pool| pool.members.get_mut(position));
    if let Some(member) = member {
        change(member);
        member.updated_at = Some(now);
    }
    pend_pool(graph, pool_id, now);
    Ok(())
}

/// Makes the members of a pool those of the batch, matched by address and port. A batch that asks for what is there
/// already changes nothing, and answers false.
pub fn batch_update_members(
    graph: &mut Graph,
    pool_id: PoolId,
    batch: &MemberBatch,
    ids: &mut dyn FnMut() -> MemberId,
    rules: &Rules,
    now: Timestamp,
) -> Result<bool, Fault> {
    let pool = pool_or_fault(graph, pool_id)?;
    require_mutable_pool(pool)?;
    require_mutable(&graph.load_balancer)?;
    let wanted = index(batch)?;
    let load_balancer = &graph.load_balancer;
    let mut members = Vec::with_capacity(wanted.len());
    let mut changed = false;
    let mut kept = std::collections::BTreeSet::new();
    for stored in &pool.members {
        let mut member = stored.clone();
        match wanted.get(&key(stored)) {
            Some(spec) => {
                kept.insert(key(stored));
                spec.apply_to(&mut member);
                if member != *stored || !stored.provisioning_status.is_mutable() {
                    member.provisioning_status = ProvisioningStatus::PendingUpdate;
                    member.updated_at = Some(now);
                    changed = true;
                }
            }
            None if batch.additive_only => {}
            None => {
                member.provisioning_status = ProvisioningStatus::PendingDelete;
                member.updated_at = Some(now);
                changed = true;
            }
        }
        members.push(member);
    }
    for spec in &batch.members {
        if kept.contains(&(spec.address.ip(), spec.protocol_port)) {
            continue;
        }
        check_member(
            spec.address.ip(),
            spec.request_sriov,
            pool.protocol,
            is_listening(graph, pool_id),
            load_balancer,
            rules,
        )?;
        let monitored = pool.health_monitor.is_some();
        members.push(spec.build(ids(), &load_balancer.project_id, monitored, now));
        changed = true;
    }
    if !changed {
        return Ok(false);
    }
    if let Some(pool) = graph.pool_mut(pool_id) {
        pool.members = members;
    }
    pend_pool(graph, pool_id, now);
    Ok(true)
}

/// By address and port; the same twice is refused, whether it is stored already or not.
fn index(batch: &MemberBatch) -> Result<BTreeMap<(IpAddr, u16), &MemberCreate>, Fault> {
    let mut wanted = BTreeMap::new();
    for spec in &batch.members {
        if wanted
            .insert((spec.address.ip(), spec.protocol_port), spec)
            .is_some()
        {
            return Err(Fault::validation(format!(
                "Member {}:{} is given more than once.",
                spec.address.ip(),
                spec.protocol_port
            )));
        }
    }
    Ok(wanted)
}
