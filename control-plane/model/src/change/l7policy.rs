//! L7 policies of a listener. Their positions are contiguous from 1, whatever is asked for.

use super::{apply_tags, require_mutable, set_listener, set_load_balancer};
use crate::spec::{Field, L7PolicyUpdate, NewL7Policy};
use crate::validate::check_l7policy;
use crate::{
    Fault, Graph, L7Policy, L7PolicyAction, L7PolicyId, ListenerId, OperatingStatus,
    ProvisioningStatus, Resource, Rules, Timestamp,
};

/// What redirects get when no code is asked for.
const DEFAULT_CODE: u16 = 302;

pub fn create_l7policy(
    graph: &mut Graph,
    listener_id: ListenerId,
    spec: &NewL7Policy,
    id: L7PolicyId,
    rules: &Rules,
    now: Timestamp,
) -> Result<(), Fault> {
    let listener = graph
        .listener(listener_id)
        .ok_or_else(|| Fault::not_found(Resource::Listener, listener_id))?;
    require_mutable(&graph.load_balancer)?;
    let policy = spec.build(id, &graph.load_balancer.project_id, now)?;
    check_l7policy(graph, listener, &policy, rules)?;
    if let Some(listener) = graph.listener_mut(listener_id) {
        listener.insert_l7policy(policy, spec.position);
    }
    pend_listener(graph, listener_id, now);
    Ok(())
}

impl NewL7Policy {
    /// The policy as it is stored at birth, but for its position.
    pub(super) fn build(
        &self,
        id: L7PolicyId,
        project_id: &str,
        now: Timestamp,
    ) -> Result<L7Policy, Fault> {
        match self.action {
            L7PolicyAction::Reject | L7PolicyAction::RedirectToUrl => {}
            L7PolicyAction::RedirectToPool | L7PolicyAction::RedirectPrefix => {
                if self.redirect_pool_id.is_some() && self.redirect_prefix.is_some() {
                    return Err(exclusive("redirect_pool_id", "redirect_prefix"));
                }
            }
        }
        let mut policy = L7Policy {
            id,
            project_id: project_id.to_owned(),
            name: self.name.clone(),
            description: self.description.clone(),
            admin_state_up: self.admin_state_up,
            provisioning_status: ProvisioningStatus::PendingCreate,
            operating_status: OperatingStatus::Offline,
            action: self.action,
            redirect_pool_id: self.redirect_pool_id,
            redirect_url: self.redirect_url.clone(),
            redirect_prefix: self.redirect_prefix.clone(),
            redirect_http_code: self.redirect_http_code,
            position: 0,
            tags: self.tags.clone(),
            created_at: now,
            updated_at: None,
            rules: Vec::new(),
        };
        keep_fields_of_action(&mut policy);
        Ok(policy)
    }
}

fn exclusive(one: &str, other: &str) -> Fault {
    Fault::InvalidL7Policy(format!("{one} and {other} exclude each other"))
}

fn keep_fields_of_action(policy: &mut L7Policy) {
    let action = policy.action;
    if action != L7PolicyAction::RedirectToPool {
        policy.redirect_pool_id = None;
    }
    if action != L7PolicyAction::RedirectToUrl {
        policy.redirect_url = None;
    }
    if action != L7PolicyAction::RedirectPrefix {
        policy.redirect_prefix = None;
    }
    match action {
        L7PolicyAction::RedirectToUrl | L7PolicyAction::RedirectPrefix => {
            policy.redirect_http_code.get_or_insert(DEFAULT_CODE);
        }
        L7PolicyAction::RedirectToPool => policy.redirect_http_code = None,
        // Kept as it is sent, without effect.
        L7PolicyAction::Reject => {}
    }
}

pub fn update_l7policy(
    graph: &mut Graph,
    id: L7PolicyId,
    spec: &L7PolicyUpdate,
    rules: &Rules,
    now: Timestamp,
) -> Result<(), Fault> {
    let (listener, stored) = policy_or_fault(graph, id)?;
    let listener_id = listener.id;
    require_mutable(&graph.load_balancer)?;
    let mut policy = stored.clone();
    apply(&mut policy, spec)?;
    check_l7policy(graph, listener, &policy, rules)?;
    policy.provisioning_status = ProvisioningStatus::PendingUpdate;
    policy.updated_at = Some(now);
    if let Some(listener) = graph.listener_mut(listener_id) {
        let position = spec.position.unwrap_or(policy.position);
        listener.l7policies.retain(|other| other.id != id);
        listener.insert_l7policy(policy, Some(position));
    }
    pend_listener(graph, listener_id, now);
    Ok(())
}

fn apply(policy: &mut L7Policy, spec: &L7PolicyUpdate) -> Result<(), Fault> {
    let L7PolicyUpdate {
        name,
        description,
        admin_state_up,
        action: _,
        redirect_pool_id,
        redirect_url,
        redirect_prefix,
        redirect_http_code,
        position: _,
        tags,
    } = spec;
    name.apply(&mut policy.name, String::new());
    description.apply(&mut policy.description, String::new());
    admin_state_up.apply(&mut policy.admin_state_up, false);
    let action = updated_action(policy.action, spec)?;
    if action != policy.action {
        policy.action = action;
        policy.redirect_http_code = None;
    }
    redirect_pool_id.apply_option(&mut policy.redirect_pool_id);
    redirect_url.apply_option(&mut policy.redirect_url);
    redirect_prefix.apply_option(&mut policy.redirect_prefix);
    redirect_http_code.apply_option(&mut policy.redirect_http_code);
    keep_fields_of_action(policy);
    apply_tags(tags, &mut policy.tags);
    Ok(())
}

/// The action asked for, else the one that goes with the target that is given.
fn updated_action(stored: L7PolicyAction, spec: &L7PolicyUpdate) -> Result<L7PolicyAction, Fault> {
    let pool = matches!(spec.redirect_pool_id, Field::Value(_));
    let url = matches!(spec.redirect_url, Field::Value(_));
    let prefix = matches!(spec.redirect_prefix, Field::Value(_));
    if pool && url {
        return Err(exclusive("redirect_pool_id", "redirect_url"));
    }
    if pool && prefix {
        return Err(exclusive("redirect_pool_id", "redirect_prefix"));
    }
    match (spec.action, pool, url, prefix) {
        (Some(action), ..) => Ok(action),
        (None, _, true, true) => Err(exclusive("redirect_url", "redirect_prefix")),
        (None, true, ..) => Ok(L7PolicyAction::RedirectToPool),
        (None, _, true, _) => Ok(L7PolicyAction::RedirectToUrl),
        (None, _, _, true) => Ok(L7PolicyAction::RedirectPrefix),
        (None, false, false, false) => Ok(stored),
    }
}

/// Its rules go with it; the positions close up when it is gone.
pub fn delete_l7policy(graph: &mut Graph, id: L7PolicyId, now: Timestamp) -> Result<(), Fault> {
    let listener_id = policy_or_fault(graph, id)?.0.id;
    require_mutable(&graph.load_balancer)?;
    if let Some(policy) = graph.l7policy_mut(id) {
        policy.provisioning_status = ProvisioningStatus::PendingDelete;
        policy.updated_at = Some(now);
    }
    pend_listener(graph, listener_id, now);
    Ok(())
}

pub(super) fn policy_or_fault(
    graph: &Graph,
    id: L7PolicyId,
) -> Result<(&crate::Listener, &L7Policy), Fault> {
    graph
        .listener_of_policy(id)
        .ok_or_else(|| Fault::not_found(Resource::L7Policy, id))
}

/// The load balancer and one listener become PENDING_UPDATE.
pub(super) fn pend_listener(graph: &mut Graph, id: ListenerId, now: Timestamp) {
    if let Some(listener) = graph.listener_mut(id) {
        set_listener(listener, ProvisioningStatus::PendingUpdate, now);
    }
    set_load_balancer(graph, ProvisioningStatus::PendingUpdate, now);
}
