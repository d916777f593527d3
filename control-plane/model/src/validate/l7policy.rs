//! Rules of an L7 policy.

use super::{check_default_pool, require_support};
use crate::{
    Fault, Graph, L7Policy, L7PolicyAction, Listener, ListenerProtocol, LoadBalancer, Rules,
};

/// Everything but its rules; the policy has the fields of its action and no others.
pub(crate) fn check_l7policy(
    graph: &Graph,
    listener: &Listener,
    policy: &L7Policy,
    rules: &Rules,
) -> Result<(), Fault> {
    check_listener(listener)?;
    let (field, given) = match policy.action {
        L7PolicyAction::Reject => ("", true),
        L7PolicyAction::RedirectToUrl => ("redirect_url", policy.redirect_url.is_some()),
        L7PolicyAction::RedirectPrefix => ("redirect_prefix", policy.redirect_prefix.is_some()),
        L7PolicyAction::RedirectToPool => ("redirect_pool_id", policy.redirect_pool_id.is_some()),
    };
    if !given {
        return Err(Fault::InvalidL7Policy(format!(
            "{field} must not be None for action {}",
            policy.action
        )));
    }
    if let Some(pool) = policy.redirect_pool_id {
        check_default_pool(graph, listener, pool)?;
    }
    check_support(policy, &graph.load_balancer, rules)
}

/// Only a listener that reads HTTP can have policies.
fn check_listener(listener: &Listener) -> Result<(), Fault> {
    match listener.protocol {
        ListenerProtocol::Http | ListenerProtocol::TerminatedHttps => Ok(()),
        ListenerProtocol::Prometheus => Err(Fault::ListenerNoChildren(listener.protocol)),
        ListenerProtocol::Https
        | ListenerProtocol::Tcp
        | ListenerProtocol::Udp
        | ListenerProtocol::Sctp => Err(Fault::validation(format!(
            "L7 policies are not allowed on {} protocol listeners.",
            listener.protocol
        ))),
    }
}

fn check_support(policy: &L7Policy, lb: &LoadBalancer, rules: &Rules) -> Result<(), Fault> {
    let served = rules.support(lb)?.l7policy_actions;
    require_support(lb, served, policy.action, "L7 policy")
}
