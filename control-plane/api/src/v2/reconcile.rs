//! `/octavia/loadbalancers/{id}/reconcile`: what the control plane last did for a load balancer, for administrators.
//!
//! Not of Octavia. The same document is what tests read; of a deleted load balancer it stays until its row is purged.

use axum::body::Body;
use axum::http::{Response, StatusCode};
use lb_model::{Fault, LoadBalancerId, Resource};
use serde_json::{Value, json};

use crate::fault::{Result, answer};
use crate::policy;
use crate::request::{Request, id};

pub(super) async fn show(request: &Request, text: &str) -> Result<Response<Body>> {
    policy::allow_own(request)?;
    let id: LoadBalancerId = id(Resource::LoadBalancer, text)?;
    let store = &request.state.store;
    let graph = store.load_graph(id).await?;
    let last = store.outcome(id).await?;
    if graph.is_none() && last.is_none() {
        return Err(Fault::not_found(Resource::LoadBalancer, text).into());
    }
    let lb = graph.as_ref().map(|graph| &graph.load_balancer);
    let last = last.map_or(Value::Null, |last| {
        json!({
            "generation": last.generation,
            "attempts": last.attempts,
            "finished_at": last.finished_at,
            "intended": last.outcome.intended,
            "observed": last.outcome.observed,
            "planned": last.outcome.planned,
            "done": last.outcome.done,
            "blocked_by": last.outcome.blocked_by,
            "error": last.outcome.error,
            "durations_ms": last.outcome.durations_ms,
        })
    });
    let body = json!({"reconcile": {
        "loadbalancer_id": id,
        "generation": lb.map(|lb| lb.generation),
        "provisioning_status": lb.map(|lb| lb.provisioning_status),
        "error_reason": lb.and_then(|lb| lb.error_reason.as_ref()),
        "last": last,
    }});
    Ok(answer(StatusCode::OK, &body))
}
