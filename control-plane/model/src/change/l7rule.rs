//! L7 rules of a policy. They need the policy ACTIVE, and name it.

use super::l7policy::{pend_listener, policy_or_fault};
use super::{apply_tags, require_mutable};
use crate::spec::{L7RuleUpdate, NewL7Rule};
use crate::validate::{MAX_RULES, check_l7rule};
use crate::{
    Fault, Graph, L7Policy, L7PolicyId, L7Rule, L7RuleId, L7RuleType, OperatingStatus,
    ProvisioningStatus, Resource, Rules, Timestamp,
};

pub fn create_l7rule(
    graph: &mut Graph,
    policy_id: L7PolicyId,
    spec: &NewL7Rule,
    id: L7RuleId,
    rules: &Rules,
    now: Timestamp,
) -> Result<(), Fault> {
    let policy = mutable_policy(graph, policy_id)?;
    check_room(policy)?;
    let rule = spec.build(id, &graph.load_balancer.project_id, now);
    check_l7rule(&rule, &graph.load_balancer, rules)?;
    if let Some(policy) = graph.l7policy_mut(policy_id) {
        policy.rules.push(rule);
    }
    pend_policy(graph, policy_id, now);
    Ok(())
}

/// The policy, when it and its load balancer are ACTIVE.
fn mutable_policy(graph: &Graph, id: L7PolicyId) -> Result<&L7Policy, Fault> {
    let (_, policy) = policy_or_fault(graph, id)?;
    if !policy.provisioning_status.is_mutable() {
        return Err(Fault::immutable(Resource::L7Policy, id));
    }
    require_mutable(&graph.load_balancer)?;
    Ok(policy)
}

/// One more rule fits on the policy.
pub(super) fn check_room(policy: &L7Policy) -> Result<(), Fault> {
    if policy.rules.len() < MAX_RULES {
        Ok(())
    } else {
        Err(Fault::TooManyL7Rules(policy.id.0))
    }
}

impl NewL7Rule {
    /// The rule as it is stored at birth.
    pub(super) fn build(&self, id: L7RuleId, project_id: &str, now: Timestamp) -> L7Rule {
        L7Rule {
            id,
            project_id: project_id.to_owned(),
            admin_state_up: self.admin_state_up,
            provisioning_status: ProvisioningStatus::PendingCreate,
            operating_status: OperatingStatus::Offline,
            kind: self.kind,
            compare_type: self.compare_type,
            key: self.key.clone(),
            value: self.value.clone(),
            invert: self.invert,
            tags: self.tags.clone(),
            created_at: now,
            updated_at: None,
        }
    }
}

pub fn update_l7rule(
    graph: &mut Graph,
    policy_id: L7PolicyId,
    id: L7RuleId,
    spec: &L7RuleUpdate,
    rules: &Rules,
    now: Timestamp,
) -> Result<(), Fault> {
    let mut rule = rule_or_fault(graph, policy_id, id)?.clone();
    mutable_policy(graph, policy_id)?;
    apply(&mut rule, spec);
    check_l7rule(&rule, &graph.load_balancer, rules)?;
    rule.provisioning_status = ProvisioningStatus::PendingUpdate;
    replace(graph, policy_id, rule, now);
    Ok(())
}

fn apply(rule: &mut L7Rule, spec: &L7RuleUpdate) {
    let L7RuleUpdate {
        admin_state_up,
        kind,
        compare_type,
        key,
        value,
        invert,
        tags,
    } = spec;
    admin_state_up.apply(&mut rule.admin_state_up, false);
    rule.kind = kind.unwrap_or(rule.kind);
    rule.compare_type = compare_type.unwrap_or(rule.compare_type);
    key.apply_option(&mut rule.key);
    match rule.kind {
        L7RuleType::HostName | L7RuleType::Path | L7RuleType::FileType => rule.key = None,
        L7RuleType::Header
        | L7RuleType::Cookie
        | L7RuleType::SslConnHasCert
        | L7RuleType::SslVerifyResult
        | L7RuleType::SslDnField => {}
    }
    if let Some(value) = value {
        rule.value.clone_from(value);
    }
    invert.apply(&mut rule.invert, false);
    apply_tags(tags, &mut rule.tags);
}

pub fn delete_l7rule(
    graph: &mut Graph,
    policy_id: L7PolicyId,
    id: L7RuleId,
    now: Timestamp,
) -> Result<(), Fault> {
    let mut rule = rule_or_fault(graph, policy_id, id)?.clone();
    mutable_policy(graph, policy_id)?;
    rule.provisioning_status = ProvisioningStatus::PendingDelete;
    replace(graph, policy_id, rule, now);
    Ok(())
}

fn rule_or_fault(graph: &Graph, policy_id: L7PolicyId, id: L7RuleId) -> Result<&L7Rule, Fault> {
    let (_, policy) = policy_or_fault(graph, policy_id)?;
    policy
        .rules
        .iter()
        .find(|rule| rule.id == id)
        .ok_or_else(|| Fault::not_found(Resource::L7Rule, id))
}

fn replace(graph: &mut Graph, policy_id: L7PolicyId, mut rule: L7Rule, now: Timestamp) {
    rule.updated_at = Some(now);
    let slot = graph
        .l7policy_mut(policy_id)
        .and_then(|policy| policy.rules.iter_mut().find(|other| other.id == rule.id));
    if let Some(slot) = slot {
        *slot = rule;
    }
    pend_policy(graph, policy_id, now);
}

/// The load balancer, the listener and the policy become PENDING_UPDATE.
fn pend_policy(graph: &mut Graph, id: L7PolicyId, now: Timestamp) {
    if let Some(policy) = graph.l7policy_mut(id) {
        policy.provisioning_status = ProvisioningStatus::PendingUpdate;
        policy.updated_at = Some(now);
    }
    let listener = graph
        .listener_of_policy(id)
        .map(|(listener, _)| listener.id);
    if let Some(listener) = listener {
        pend_listener(graph, listener, now);
    }
}
