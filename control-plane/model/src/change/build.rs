//! A load balancer from its create request, with all the children it asks for.

use std::collections::BTreeMap;

use super::listener::check_new_listener;
use crate::spec::{GraphPool, LoadBalancerCreate, PoolDefinition};
use crate::validate::{check_default_pool, check_health_monitor, check_member, check_pool};
use crate::{
    AdditionalVip, Fault, Graph, HealthMonitorId, ListenerId, LoadBalancer, LoadBalancerId,
    MemberId, OperatingStatus, PoolId, ProvisioningStatus, Rules, Timestamp, Topology, Vip,
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
            let pool = resolve(&pools, name_of(pool))?;
            check_default_pool(&graph, &listener, pool)?;
            listener.default_pool_id = Some(pool);
        }
        check_new_listener(&graph, &listener, rules)?;
        graph.listeners.push(listener);
    }
    Ok(graph)
}

fn name_of(pool: &GraphPool) -> &str {
    match pool {
        GraphPool::Reference(name) => name,
        GraphPool::Definition(definition) => &definition.pool.name,
    }
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
    let nested = spec
        .listeners
        .iter()
        .filter_map(|listener| listener.default_pool.as_ref());
    for definition in spec.pools.iter().chain(nested).filter_map(definition) {
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
        resolve(&pools, name_of(pool))?;
    }
    Ok(pools)
}

fn definition(pool: &GraphPool) -> Option<&PoolDefinition> {
    match pool {
        GraphPool::Reference(_) => None,
        GraphPool::Definition(definition) => Some(definition),
    }
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
            spec.address,
            spec.request_sriov,
            pool.protocol,
            load_balancer,
            rules,
        )?;
        if !seen.insert((spec.address, spec.protocol_port)) {
            return Err(Fault::DuplicateMember {
                address: spec.address,
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
