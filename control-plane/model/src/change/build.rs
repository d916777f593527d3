//! A load balancer from its create request, with all the children it asks for.

use std::collections::BTreeMap;

use super::l7rule::check_room;
use super::listener::check_new_listener;
use crate::spec::{GraphL7Policy, GraphPool, LoadBalancerCreate, NewL7Policy, PoolDefinition};
use crate::validate::{
    check_default_pool, check_health_monitor, check_l7policy, check_l7rule, check_member,
    check_pool,
};
use crate::{
    AdditionalVip, Fault, Graph, HealthMonitorId, L7PolicyId, L7RuleId, Listener, ListenerId,
    LoadBalancer, LoadBalancerId, MemberId, OperatingStatus, PoolId, ProvisioningStatus, Rules,
    Timestamp, Topology, Vip,
};

/// What the request does not say: decided before by the API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphSeed {
    pub id: LoadBalancerId,
    pub project_id: String,
    pub provider: String,
    pub topology: Topology,
    pub vip: ResolvedVip,
}

/// The virtual addresses, as found or made in the network service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedVip {
    pub vip: Vip,
    pub additional: Vec<AdditionalVip>,
}

/// Everything PENDING_CREATE; any rule broken anywhere refuses the whole.
pub fn build_graph(
    spec: &LoadBalancerCreate,
    seed: GraphSeed,
    rules: &Rules,
    now: Timestamp,
) -> Result<Graph, Fault> {
    let mut graph = Graph {
        load_balancer: LoadBalancer {
            id: seed.id,
            project_id: seed.project_id,
            name: spec.name.clone(),
            description: spec.description.clone(),
            admin_state_up: spec.admin_state_up,
            provisioning_status: ProvisioningStatus::PendingCreate,
            operating_status: OperatingStatus::Offline,
            provider: seed.provider,
            topology: seed.topology,
            vip: seed.vip.vip,
            additional_vips: seed.vip.additional,
            flavor_id: spec.flavor_id,
            availability_zone: spec.availability_zone.clone(),
            tags: spec.tags.clone(),
            created_at: now,
            updated_at: None,
            generation: 1,
            error_reason: None,
        },
        listeners: Vec::new(),
        pools: Vec::new(),
        amphorae: Vec::new(),
    };
    let pools = build_pools(&mut graph, spec, rules, now)?;
    for wanted in &spec.listeners {
        let mut listener = wanted.listener.build(
            ListenerId::random(),
            &graph.load_balancer.project_id,
            rules,
            now,
        );
        if let Some(pool) = &wanted.default_pool {
            let pool = resolve(&pools, pool.name())?;
            check_default_pool(&graph, &listener, pool)?;
            listener.default_pool_id = Some(pool);
        }
        check_new_listener(&graph, &listener, rules)?;
        build_l7policies(
            &graph,
            &mut listener,
            &wanted.l7policies,
            &pools,
            rules,
            now,
        )?;
        graph.listeners.push(listener);
    }
    Ok(graph)
}

fn build_l7policies(
    graph: &Graph,
    listener: &mut Listener,
    wanted: &[GraphL7Policy],
    pools: &BTreeMap<String, PoolId>,
    rules: &Rules,
    now: Timestamp,
) -> Result<(), Fault> {
    let project = &graph.load_balancer.project_id;
    for spec in wanted {
        let redirect_pool_id = match &spec.redirect_pool {
            None => None,
            Some(pool) => Some(resolve(pools, pool.name())?),
        };
        let mut policy = NewL7Policy {
            redirect_pool_id,
            ..spec.l7policy.clone()
        }
        .build(L7PolicyId::random(), project, now)?;
        check_l7policy(graph, listener, &policy, rules)?;
        for spec in &spec.rules {
            check_room(&policy)?;
            let rule = spec.build(L7RuleId::random(), project, now);
            check_l7rule(&rule, &graph.load_balancer, rules)?;
            policy.rules.push(rule);
        }
        listener.insert_l7policy(policy, spec.l7policy.position);
    }
    Ok(())
}

fn resolve(pools: &BTreeMap<String, PoolId>, name: &str) -> Result<PoolId, Fault> {
    pools.get(name).copied().ok_or_else(|| {
        Fault::validation(format!(
            "Pool {name} is referenced by name and defined nowhere in the request."
        ))
    })
}

/// Every definition, whether it stands under `pools` or within a listener; references by name are checked.
fn build_pools(
    graph: &mut Graph,
    spec: &LoadBalancerCreate,
    rules: &Rules,
    now: Timestamp,
) -> Result<BTreeMap<String, PoolId>, Fault> {
    let mut pools = BTreeMap::new();
    for definition in spec.graph_pools().filter_map(GraphPool::definition) {
        let id = PoolId::random();
        let name = definition.pool.name.clone();
        if pools.insert(name.clone(), id).is_some() {
            return Err(Fault::validation(format!(
                "Pool name \"{name}\" is used for more than one pool definition; pool names must be unique within the request."
            )));
        }
        build_pool(graph, definition, id, rules, now)?;
    }
    for pool in &spec.pools {
        resolve(&pools, pool.name())?;
    }
    Ok(pools)
}

fn build_pool(
    graph: &mut Graph,
    definition: &PoolDefinition,
    id: PoolId,
    rules: &Rules,
    now: Timestamp,
) -> Result<(), Fault> {
    let load_balancer = &graph.load_balancer;
    let project = &load_balancer.project_id;
    let mut pool = definition.pool.build(id, project, rules, now)?;
    check_pool(&pool, load_balancer, rules)?;
    if let Some(spec) = &definition.health_monitor {
        let monitor = spec.build(HealthMonitorId::random(), project, now)?;
        check_health_monitor(&monitor, pool.protocol, load_balancer, rules)?;
        pool.health_monitor = Some(monitor);
    }
    let mut seen = std::collections::BTreeSet::new();
    for spec in &definition.members {
        check_member(
            spec.address.ip(),
            spec.request_sriov,
            pool.protocol,
            true,
            load_balancer,
            rules,
        )?;
        if !seen.insert((spec.address.ip(), spec.protocol_port)) {
            return Err(Fault::DuplicateMember {
                address: spec.address.ip(),
                port: spec.protocol_port,
            });
        }
        let monitored = pool.health_monitor.is_some();
        pool.members
            .push(spec.build(MemberId::random(), project, monitored, now));
    }
    graph.pools.push(pool);
    Ok(())
}
