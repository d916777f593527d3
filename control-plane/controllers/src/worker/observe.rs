//! Looking at the world of one load balancer: the drivers' answers in the planner's words.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use amphora_api::{AmphoraInfo, AmphoraStats};
use futures_util::future::{join_all, try_join_all};
use lb_drivers::network::{Port, PortFilter, Subnet, base_port_name, member_port_name};
use lb_drivers::{AmphoraError, DriverError, Endpoint, Observed, Server, ServerStatus};
use lb_model::{
    Amphora, AmphoraId, AmphoraStatus, Graph, ListenerId, PortId, ProvisioningStatus, SubnetId,
    Timestamp,
};
use lb_planner::{
    AgentFacts, AgentView, PortPurpose, PortView, ServerFacts, ServerView, SubnetFacts, World,
};

use super::WorkerDeps;

/// What was seen, and the drivers' own objects that steps will need.
pub(crate) struct Observation {
    pub(crate) world: World,
    pub(crate) ports: BTreeMap<PortId, Port>,
    pub(crate) endpoints: BTreeMap<AmphoraId, Endpoint>,
}

/// An agent that serves is called silent only after so many tries.
pub(crate) const TRIES: u32 = 3;

pub(crate) async fn observe(
    deps: &WorkerDeps,
    graph: &Graph,
    now: Timestamp,
) -> Result<Observation, DriverError> {
    let lb = &graph.load_balancer;
    let rows: Vec<&Amphora> = graph
        .amphorae
        .iter()
        .filter(|row| row.status != AmphoraStatus::Deleted)
        .collect();
    let (servers, ports, vip_port, (subnets, mtu_bytes)) = tokio::try_join!(
        try_join_all(rows.iter().map(|row| server(deps, graph, row))),
        try_join_all(rows.iter().map(|row| amphora_ports(deps, row.id))),
        deps.network.port(lb.vip.port_id),
        subnets(deps, graph),
    )?;
    let mut observation = Observation {
        world: World {
            subnets,
            mtu_bytes,
            ..World::empty(now)
        },
        ports: BTreeMap::new(),
        endpoints: BTreeMap::new(),
    };
    let world = &mut observation.world;
    for seen in servers {
        world.servers.insert(seen.amphora, seen.server);
        world
            .agents
            .extend(seen.agent.map(|agent| (seen.amphora, agent)));
        observation
            .endpoints
            .extend(seen.endpoint.map(|endpoint| (seen.amphora, endpoint)));
    }
    let found = ports
        .into_iter()
        .flatten()
        .chain(vip_port.map(|port| (None, port)));
    for (purpose, port) in found {
        world.ports.push(view(purpose, &port));
        observation.ports.insert(port.id, port);
    }
    Ok(observation)
}

struct Seen {
    amphora: AmphoraId,
    server: ServerView,
    endpoint: Option<Endpoint>,
    agent: Option<AgentView>,
}

async fn server(deps: &WorkerDeps, graph: &Graph, row: &Amphora) -> Result<Seen, DriverError> {
    let observed = deps.compute.observe_server(row.id).await?;
    let endpoint = match &observed {
        Observed::Present(server) => endpoint(deps, server).or_else(|| {
            let ip = row.lb_network_ip?;
            Some(Endpoint {
                amphora_id: row.id,
                address: SocketAddr::new(ip, deps.settings.agent_port),
            })
        }),
        Observed::Absent | Observed::Unsure => None,
    };
    let running =
        matches!(&observed, Observed::Present(server) if server.status == ServerStatus::Active);
    let going = graph.load_balancer.provisioning_status == ProvisioningStatus::PendingDelete;
    let agent = match endpoint {
        _ if going => None,
        Some(endpoint) if running => Some(agent(deps, row, &endpoint).await),
        Some(_) | None => Some(AgentView::Silent),
    };
    Ok(Seen {
        amphora: row.id,
        server: server_view(observed),
        endpoint,
        agent,
    })
}

/// Where the agent of a server listens, once it has an address.
pub(crate) fn endpoint(deps: &WorkerDeps, server: &Server) -> Option<Endpoint> {
    Some(Endpoint {
        amphora_id: server.amphora_id,
        address: SocketAddr::new(server.lb_network_ip?, deps.settings.agent_port),
    })
}

fn server_view(observed: Observed<Server>) -> ServerView {
    match observed {
        Observed::Absent => ServerView::Absent,
        Observed::Unsure => ServerView::Unsure,
        Observed::Present(server) => match server.status {
            ServerStatus::Building => ServerView::Building,
            ServerStatus::Error => ServerView::Failed,
            ServerStatus::Stopped => ServerView::Stopped,
            ServerStatus::Active => ServerView::Running(ServerFacts {
                compute_id: server.compute_id,
                lb_network_ip: server.lb_network_ip,
                image_id: server.image_id,
                cached_zone: server.cached_zone,
            }),
        },
    }
}

async fn agent(deps: &WorkerDeps, row: &Amphora, endpoint: &Endpoint) -> AgentView {
    // One that is being built is waited for by a step of its own.
    let tries = match row.status {
        AmphoraStatus::PendingCreate | AmphoraStatus::Booting => 1,
        AmphoraStatus::Allocated
        | AmphoraStatus::Ready
        | AmphoraStatus::PendingUpdate
        | AmphoraStatus::PendingDelete
        | AmphoraStatus::Error
        | AmphoraStatus::FailoverStopped
        | AmphoraStatus::Deleted => TRIES,
    };
    for attempt in 1..=tries {
        match info(deps, endpoint).await {
            Ok(info) => {
                let drains = row.status == AmphoraStatus::PendingDelete && row.failover_requested;
                let active_connections = if drains {
                    connections(deps, endpoint).await
                } else {
                    None
                };
                return AgentView::Answers(facts(info, active_connections));
            }
            Err(error) => {
                tracing::debug!(
                    amphora_id = %row.id,
                    attempt,
                    error = &error as &dyn std::error::Error,
                    "agent does not answer"
                );
            }
        }
        if attempt < tries {
            tokio::time::sleep(deps.settings.agent_poll).await;
        }
    }
    AgentView::Silent
}

/// Asks an agent for its state, within the time that a look may take.
pub(crate) async fn info(
    deps: &WorkerDeps,
    endpoint: &Endpoint,
) -> Result<AmphoraInfo, AmphoraError> {
    let asked = tokio::time::timeout(deps.settings.agent_timeout, deps.amphora.info(endpoint));
    let info = asked.await.unwrap_or(Err(AmphoraError::TimedOut {
        operation: "info",
        address: endpoint.address,
    }))?;
    if info.amphora_id != endpoint.amphora_id.0 {
        return Err(AmphoraError::Protocol {
            address: endpoint.address,
            reason: format!("it says that it is amphora {}", info.amphora_id),
        });
    }
    Ok(info)
}

fn facts(info: AmphoraInfo, active_connections: Option<u64>) -> AgentFacts {
    AgentFacts {
        generation: info.generation,
        digest: info.config_digest,
        interfaces: info
            .interfaces
            .into_iter()
            .map(|interface| (interface.mac_address, interface.name))
            .collect(),
        failed_listeners: info
            .failed_listeners
            .into_iter()
            .map(|(id, reason)| (ListenerId(id), reason))
            .collect(),
        active_connections,
    }
}

/// Asks an agent for its counters, within the time that a look may take.
pub(crate) async fn stats(
    deps: &WorkerDeps,
    endpoint: &Endpoint,
) -> Result<AmphoraStats, AmphoraError> {
    let asked = tokio::time::timeout(deps.settings.agent_timeout, deps.amphora.stats(endpoint));
    asked.await.unwrap_or(Err(AmphoraError::TimedOut {
        operation: "stats",
        address: endpoint.address,
    }))
}

async fn connections(deps: &WorkerDeps, endpoint: &Endpoint) -> Option<u64> {
    let stats = stats(deps, endpoint).await.ok()?;
    Some(stats.listeners.values().fold(0, |sum: u64, listener| {
        sum.saturating_add(listener.active_connections)
    }))
}

type Found = (Option<(AmphoraId, PortPurpose)>, Port);

async fn amphora_ports(deps: &WorkerDeps, amphora: AmphoraId) -> Result<Vec<Found>, DriverError> {
    let of = |name: String| PortFilter {
        name: Some(name),
        ..PortFilter::default()
    };
    let (base_filter, member_filter) = (of(base_port_name(amphora)), of(member_port_name(amphora)));
    let (base, member) = tokio::try_join!(
        deps.network.list_ports(&base_filter),
        deps.network.list_ports(&member_filter),
    )?;
    let with = |purpose| move |port| (Some((amphora, purpose)), port);
    Ok(base
        .into_iter()
        .map(with(PortPurpose::Base))
        .chain(member.into_iter().map(with(PortPurpose::Member)))
        .collect())
}

fn view(purpose: Option<(AmphoraId, PortPurpose)>, port: &Port) -> PortView {
    PortView {
        id: port.id,
        purpose,
        network_id: port.network_id,
        mac_address: port.mac_address.clone(),
        fixed_ips: port
            .fixed_ips
            .iter()
            .map(|fixed| (fixed.subnet_id, fixed.ip_address))
            .collect(),
    }
}

type Subnets = (
    BTreeMap<SubnetId, SubnetFacts>,
    BTreeMap<lb_model::NetworkId, u32>,
);

/// The subnets a graph names, and the networks they are in.
async fn subnets(deps: &WorkerDeps, graph: &Graph) -> Result<Subnets, DriverError> {
    let vip = &graph.load_balancer.vip;
    let named: BTreeSet<SubnetId> = std::iter::once(vip.subnet_id)
        .chain(
            graph
                .load_balancer
                .additional_vips
                .iter()
                .map(|vip| vip.subnet_id),
        )
        .chain(
            graph
                .pools
                .iter()
                .flat_map(|pool| &pool.members)
                .filter_map(|member| member.subnet_id),
        )
        .collect();
    let found: Vec<Subnet> = try_join_all(named.into_iter().map(|id| deps.network.subnet(id)))
        .await?
        .into_iter()
        .flatten()
        .collect();
    let networks: BTreeSet<_> = found
        .iter()
        .map(|subnet| subnet.network_id)
        .chain(std::iter::once(vip.network_id))
        .collect();
    let mut mtu_bytes = BTreeMap::new();
    for network in join_all(networks.into_iter().map(|id| deps.network.network(id))).await {
        if let Some(network) = network? {
            mtu_bytes.insert(network.id, network.mtu_bytes);
        }
    }
    let facts = found
        .into_iter()
        .map(|subnet| {
            let routes = subnet.host_routes.iter();
            let facts = SubnetFacts {
                network_id: subnet.network_id,
                cidr: subnet.cidr,
                gateway: subnet.gateway_ip,
                host_routes: routes
                    .map(|route| (route.destination, route.nexthop))
                    .collect(),
            };
            (subnet.id, facts)
        })
        .collect();
    Ok((facts, mtu_bytes))
}

/// The world in a few readable lines.
pub(crate) fn lines(graph: &Graph, world: &World) -> Vec<String> {
    graph
        .amphorae
        .iter()
        .map(|row| {
            let server = match world.server(row.id) {
                ServerView::Absent => "no server",
                ServerView::Unsure => "server in doubt",
                ServerView::Building => "server is built",
                ServerView::Stopped => "server stopped",
                ServerView::Failed => "server failed",
                ServerView::Running(_) => "server runs",
            };
            let agent = match world.agents.get(&row.id) {
                Some(AgentView::Answers(facts)) => match facts.generation {
                    Some(generation) => format!("document {generation} in force"),
                    None => "agent without document".to_owned(),
                },
                Some(AgentView::Silent) => "agent silent".to_owned(),
                None => "agent not asked".to_owned(),
            };
            let ports = world.ports_of(row.id).count();
            format!(
                "amphora {} {}: {server}, {agent}, {ports} ports",
                row.id, row.status
            )
        })
        .collect()
}
