//! `/loadbalancers`.

use axum::body::Body;
use axum::http::{Response, StatusCode};
use lb_model::change::{self, GraphSeed, build_graph};
use lb_model::spec::{Field, GraphPool, LoadBalancerCreate, LoadBalancerUpdate};
use lb_model::{Fault, Graph, LoadBalancerId, Resource, SubnetId, Vip};
use lb_store::{LoadBalancerRow, Query, Receipt, Store, StoreError};
use serde_json::{Value, json};

use super::collection::{self, Collection, Stored, Target};
use crate::choice::choose;
use crate::fault::{Result, answer};
use crate::page;
use crate::policy::{self, Rule};
use crate::request::{Request, id};
use crate::vip::{self, VipPlan};
use crate::{ApiState, once, view};

const RESOURCE: Resource = Resource::LoadBalancer;

pub(super) struct LoadBalancers;

impl Collection for LoadBalancers {
    type Row = LoadBalancerRow;
    const RESOURCE: Resource = RESOURCE;
    const ONE: &'static str = "loadbalancer";
    const MANY: &'static str = "loadbalancers";

    async fn rows(&self, store: &Store, query: &Query) -> Stored<Vec<Self::Row>> {
        store.list_load_balancers(query).await
    }

    fn project_id(row: &Self::Row) -> Option<&str> {
        Some(&row.load_balancer.project_id)
    }

    fn view(row: &Self::Row) -> Value {
        view::load_balancer(&row.load_balancer, &row.listener_ids, &row.pool_ids)
    }
}

pub(super) async fn create(request: &Request) -> Result<Response<Body>> {
    let spec = LoadBalancerCreate::decode(&request.json("loadbalancer")?)?;
    let state = &request.state;
    let project_id = spec
        .project_id
        .clone()
        .or_else(|| request.caller.project_id.clone())
        .or_else(|| state.config.default_project_id.clone())
        .filter(|project| !project.is_empty())
        .ok_or(Fault::MissingProject)?;
    policy::allow(request, &project_id)?;
    if !spec.vip_sg_ids.is_empty() {
        policy::allow_rule(request, Rule::LoadBalancerPostVipSgIds, &project_id)?;
    }
    let choice = choose(state, &spec).await?;
    check_references(&spec)?;
    let plan = vip::plan(state, &request.caller, &project_id, &spec).await?;
    choice.check_vip_network(&state.config, plan.network_id())?;
    vip::check_member_subnets(
        state,
        &request.caller,
        Some(&project_id),
        member_subnets(&spec),
    )
    .await?;
    let mut seed = GraphSeed {
        id: LoadBalancerId::random(),
        project_id,
        vip: plan.provisional(),
        provider: choice.provider,
        topology: choice.topology,
    };
    seed.vip.vip.vnic_type = choice.vnic_type;
    let graph = build_graph(&spec, seed, &state.config.rules, state.now())?;
    let receipt = once::receipt(request, LoadBalancers::MANY, graph.load_balancer.id);
    let graph = make(state, plan, graph, receipt).await?;
    let body = json!({"loadbalancer": view::full_load_balancer(&graph)});
    Ok(answer(StatusCode::CREATED, &body))
}

/// As [`create`] answered it, with the statuses of today.
pub(super) async fn show_created(request: &Request, text: &str) -> Result<Response<Body>> {
    let missing = || Fault::not_found(RESOURCE, text);
    let id: LoadBalancerId = id(RESOURCE, text)?;
    let graph = request.state.store.load_graph(id).await?;
    let graph = graph.ok_or_else(missing)?;
    policy::allow(request, &graph.load_balancer.project_id)?;
    let body = json!({"loadbalancer": view::full_load_balancer(&graph)});
    Ok(answer(StatusCode::CREATED, &body))
}

/// The port, then the row; without the row the port goes again. A write is not dropped when its caller hangs up, so
/// neither stays alone. When nobody knows whether there is a row, the port stays: a load balancer may be using it, and
/// without one the worker's sweep removes it.
async fn make(
    state: &ApiState,
    plan: VipPlan,
    mut graph: Graph,
    receipt: Option<Receipt>,
) -> Result<Graph> {
    let id = graph.load_balancer.id;
    let vip = plan
        .ensure(state, id, &graph.load_balancer.project_id)
        .await?;
    let vnic_type = graph.load_balancer.vip.vnic_type;
    graph.load_balancer.vip = Vip {
        vnic_type,
        ..vip.vip
    };
    graph.load_balancer.additional_vips = vip.additional;
    if let Err(error) = state
        .store
        .insert_graph_once(&graph, receipt.as_ref())
        .await
    {
        let unsure = matches!(error, StoreError::OutcomeUnknown(_));
        if graph.load_balancer.vip.port_is_ours && !unsure {
            let port = graph.load_balancer.vip.port_id;
            if let Err(error) = state.network.delete_port(port).await {
                tracing::warn!(%port, %error, "VIP port of a load balancer that was not stored stays");
            }
        }
        return Err(error.into());
    }
    Ok(graph)
}

/// Objects there are none of yet: whatever is named does not exist.
fn check_references(spec: &LoadBalancerCreate) -> Result<()> {
    let missing = |resource, id: String| Fault::InvalidReference { resource, id };
    if spec.vip_qos_policy_id.is_some() {
        return Err(no_qos().into());
    }
    match spec.vip_sg_ids.first() {
        Some(group) => Err(missing("Security Group", group.to_string()).into()),
        None => Ok(()),
    }
}

fn no_qos() -> Fault {
    Fault::Validation("VIP QoS policy is not allowed in this deployment.".to_owned())
}

fn member_subnets(spec: &LoadBalancerCreate) -> impl Iterator<Item = SubnetId> + '_ {
    spec.graph_pools()
        .filter_map(GraphPool::definition)
        .flat_map(|pool| &pool.members)
        .filter_map(|member| member.subnet_id)
}

pub(super) async fn update(request: &Request, text: &str) -> Result<Response<Body>> {
    let spec = LoadBalancerUpdate::decode(&request.json("loadbalancer")?)?;
    let target = existing(request, text).await?;
    if spec.vip_sg_ids != Field::Absent {
        policy::allow_rule_in(request, Rule::LoadBalancerPutVipSgIds, target.id).await?;
    }
    if spec.vip_qos_policy_id != Field::Absent {
        return Err(no_qos().into());
    }
    if let Field::Value(groups) = &spec.vip_sg_ids
        && let Some(group) = groups.first()
    {
        return Err(Fault::InvalidReference {
            resource: "Security Group",
            id: group.to_string(),
        }
        .into());
    }
    let graph = collection::commit(request, &target, None, |graph, now| {
        change::update_load_balancer(graph, &spec, now)
    })
    .await?;
    let body = json!({"loadbalancer": view::load_balancer_of(&graph)});
    Ok(answer(StatusCode::OK, &body))
}

pub(super) async fn delete(request: &Request, text: &str) -> Result<Response<Body>> {
    let target = existing(request, text).await?;
    let cascade = request.flag("cascade");
    collection::write_silently(request, StatusCode::NO_CONTENT, target, |graph, _, now| {
        change::delete_load_balancer(graph, cascade, now)
    })
    .await
}

pub(super) async fn failover(request: &Request, text: &str) -> Result<Response<Body>> {
    let target = existing(request, text).await?;
    collection::write_silently(request, StatusCode::ACCEPTED, target, |graph, _, now| {
        change::request_failover(graph, now)
    })
    .await
}

pub(super) async fn stats(request: &Request, text: &str) -> Result<Response<Body>> {
    let target = existing(request, text).await?;
    let stats = request.state.store.load_balancer_stats(target.id).await?;
    let body = page::show(request, "stats", view::statistics(&stats));
    Ok(answer(StatusCode::OK, &body))
}

pub(super) async fn status(request: &Request, text: &str) -> Result<Response<Body>> {
    let id: LoadBalancerId = id(RESOURCE, text)?;
    let graph = request
        .state
        .store
        .load_graph(id)
        .await?
        .ok_or_else(|| Fault::not_found(RESOURCE, text))?;
    policy::allow(request, &graph.load_balancer.project_id)?;
    let body = json!({"statuses": view::status_tree(&graph)});
    Ok(answer(StatusCode::OK, &body))
}

/// A load balancer that is there and that the caller may use.
async fn existing(request: &Request, text: &str) -> Result<Target<LoadBalancerId>> {
    let id: LoadBalancerId = id(RESOURCE, text)?;
    policy::allow_load_balancer(request, id).await?;
    Ok(Target {
        load_balancer: id,
        id,
        missing: Fault::not_found(RESOURCE, text),
    })
}
