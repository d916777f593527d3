//! One record for each write, as a structured log event of the target `audit`, in the words of CADF (DMTF DSP0262).
//!
//! Says who, what, to which object, with which outcome, and from where; never what a body holds. A write that is
//! refused, for want of a token too, is recorded like one that is done.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{Method, Response};
use lb_drivers::Caller;

use crate::policy::Rule;
use crate::{Route, RouteKind};

/// Extension of a request: who is at the other end of its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteAddress(pub SocketAddr);

/// Extension of an answer: the id of the object that was made, or what it is known by.
#[derive(Debug, Clone)]
pub(crate) struct CreatedId(pub(crate) String);

/// Ids and paths are not longer in a record.
const MAX_TEXT_CHARS: usize = 255;

/// What is known of a write, as it becomes known.
#[derive(Debug, Default)]
pub(crate) struct Account {
    pub(crate) caller: Option<Arc<Caller>>,
    /// What it is; `None` for what is no write.
    pub(crate) act: Option<Act>,
}

/// A write: which rule governs it and what it acts upon.
#[derive(Debug)]
pub(crate) struct Act {
    rule: Rule,
    target_id: Option<String>,
}

impl Act {
    pub(crate) fn new(route: &Route, method: &Method, path: &str) -> Option<Self> {
        let rule = route.rule(method).filter(|_| is_write(method))?;
        let mut segments = path.trim_end_matches('/').rsplit('/');
        let target_id = match route.kind() {
            RouteKind::Item => segments.next(),
            // Of a collection below an object, and of an action: the object.
            RouteKind::Collection | RouteKind::Other => {
                segments.find(|segment| lb_model::spec::parse_uuid(segment).is_some())
            }
        };
        Some(Self {
            rule,
            target_id: target_id.map(bounded),
        })
    }
}

pub(crate) fn is_write(method: &Method) -> bool {
    [Method::POST, Method::PUT, Method::DELETE].contains(method)
}

/// The log line; within the span of the request, which has its ids.
pub(crate) fn record(account: &Account, remote: Option<RemoteAddress>, answer: &Response<Body>) {
    let Some(act) = &account.act else {
        return;
    };
    let status = answer.status();
    let outcome = if status.is_success() {
        "success"
    } else {
        "failure"
    };
    let created = answer.extensions().get::<CreatedId>().map(|id| &id.0);
    let caller = account.caller.as_deref();
    tracing::info!(
        target: "audit",
        type_uri = "http://schemas.dmtf.org/cloud/audit/1.0/event",
        event_type = "activity",
        action = action(act.rule),
        outcome,
        reason_code = status.as_u16(),
        target_type_uri = format!("service/load-balancer/{}", act.rule.resource()),
        target_id = created.or(act.target_id.as_ref()),
        initiator_id = caller.and_then(|caller| caller.user_id.as_deref()),
        initiator_project_id = caller.and_then(|caller| caller.project_id.as_deref()),
        initiator_roles = caller.map(|caller| caller.roles.len()),
        initiator_address = remote.map(|RemoteAddress(address)| tracing::field::display(address.ip())),
        observer = "octavia-api",
        "write"
    );
}

/// CADF's word where it has one.
fn action(rule: Rule) -> &'static str {
    match rule.action() {
        "post" => "create",
        "put" => "update",
        "delete" => "delete",
        "put_failover" => "update/failover",
        "put_config" => "update/config",
        other => other,
    }
}

pub(crate) fn bounded(text: &str) -> String {
    text.chars().take(MAX_TEXT_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_names_its_rule_and_its_target() {
        let id = "8f2b7a4e-1c3d-4e5f-8a9b-0c1d2e3f4a5b";
        let pool = "11111111-1c3d-4e5f-8a9b-0c1d2e3f4a5b";
        for (method, path, rule, target) in [
            (
                Method::POST,
                "/v2/lbaas/loadbalancers".to_owned(),
                Rule::LoadBalancerPost,
                None,
            ),
            (
                Method::PUT,
                format!("/v2/lbaas/pools/{id}/"),
                Rule::PoolPut,
                Some(id),
            ),
            (
                Method::DELETE,
                format!("/v2.0/pools/{pool}/members/{id}"),
                Rule::MemberDelete,
                Some(id),
            ),
            (
                Method::PUT,
                format!("/v2/lbaas/pools/{pool}/members"),
                Rule::MemberPut,
                Some(pool),
            ),
            (
                Method::PUT,
                format!("/v2/lbaas/loadbalancers/{id}/failover"),
                Rule::LoadBalancerPutFailover,
                Some(id),
            ),
        ] {
            let route = Route::parse(&path).unwrap();
            let act = Act::new(&route, &method, &path).unwrap();
            assert_eq!(
                (act.rule, act.target_id.as_deref()),
                (rule, target),
                "{path}"
            );
            assert!(Act::new(&route, &Method::GET, &path).is_none());
        }
    }

    #[test]
    fn a_target_has_a_bound() {
        let path = format!("/v2/lbaas/pools/{}", "x".repeat(10_000));
        let route = Route::parse(&path).unwrap();
        let act = Act::new(&route, &Method::PUT, &path).unwrap();
        assert_eq!(act.target_id.map(|id| id.len()), Some(MAX_TEXT_CHARS));
    }
}
