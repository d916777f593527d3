//! A simulated world: what applying a plan does, without any IO.

#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(clippy::unwrap_used, reason = "a failing unwrap is a failing test")]
#![allow(unreachable_pub, reason = "a module of test binaries")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use amphora_api::{AmphoraConfig, VipState};
use lb_model::{
    AmphoraId, AmphoraStatus, Graph, ListenerId, NetworkId, PortId, ProvisioningStatus, Settlement,
    SubnetId, Timestamp, sample, settle,
};
use lb_planner::{
    AgentFacts, AgentView, FreshIds, Plan, PortPurpose, PortView, PortWish, ServerFacts,
    ServerView, Settings, Step, SubnetFacts, World, plan,
};

pub const OTHER_NETWORK: NetworkId = NetworkId(sample::uuid(0xe02));
pub const THIRD_NETWORK: NetworkId = NetworkId(sample::uuid(0xe03));
pub const OTHER_SUBNET: SubnetId = SubnetId(sample::uuid(0x502));
pub const SECOND_SUBNET: SubnetId = SubnetId(sample::uuid(0x503));
pub const THIRD_SUBNET: SubnetId = SubnetId(sample::uuid(0x504));

pub struct Sim {
    pub graph: Graph,
    pub now: Timestamp,
    pub out_of_time: bool,
    pub servers: BTreeMap<AmphoraId, SimServer>,
    pub ports: BTreeMap<PortId, PortView>,
    pub settings: Settings,
    next: u32,
    ids: Ids,
}

#[derive(Default, Clone)]
pub struct SimServer {
    pub silent: bool,
    pub stopped: bool,
    pub plugged: BTreeSet<PortId>,
    pub config: Option<AmphoraConfig>,
    pub connections: u64,
    pub failed_listeners: BTreeMap<ListenerId, String>,
}

impl Sim {
    /// The graph's VIP port is there, and nothing else.
    pub fn new(graph: Graph) -> Self {
        let vip = &graph.load_balancer.vip;
        let port = PortView {
            id: vip.port_id,
            purpose: None,
            network_id: vip.network_id,
            mac_address: "fa:16:3e:ff:ff:ff".to_owned(),
            fixed_ips: vec![(vip.subnet_id, vip.address)],
        };
        Self {
            now: sample::NOW,
            out_of_time: false,
            servers: BTreeMap::new(),
            ports: BTreeMap::from([(port.id, port)]),
            settings: Settings {
                heartbeat_controllers: vec!["198.18.0.1:5555".parse().unwrap()],
                ..Settings::default()
            },
            graph,
            next: 0,
            ids: Ids(0),
        }
    }

    pub fn observe(&self) -> World {
        let mut world = World::empty(self.now);
        world.out_of_time = self.out_of_time;
        world.ports = self.ports.values().cloned().collect();
        for row in &self.graph.amphorae {
            let server = self.servers.get(&row.id);
            let view = match server {
                None => ServerView::Absent,
                Some(server) if server.stopped => ServerView::Stopped,
                Some(_) => ServerView::Running(ServerFacts {
                    compute_id: format!("vm-{}", row.id),
                    lb_network_ip: Some("198.18.0.2".parse().unwrap()),
                    image_id: None,
                    cached_zone: None,
                }),
            };
            world.servers.insert(row.id, view);
            let agent = match server {
                Some(server) if !server.silent && !server.stopped => {
                    AgentView::Answers(self.facts(server))
                }
                _ => AgentView::Silent,
            };
            world.agents.insert(row.id, agent);
        }
        for (subnet, network, third) in [
            (sample::SUBNET, sample::NETWORK, 0),
            (OTHER_SUBNET, OTHER_NETWORK, 1),
            (SECOND_SUBNET, sample::NETWORK, 2),
            (THIRD_SUBNET, THIRD_NETWORK, 3),
        ] {
            let cidr = format!("10.0.{third}.0/24");
            world.subnets.insert(
                subnet,
                SubnetFacts {
                    network_id: network,
                    cidr: cidr.parse().unwrap(),
                    gateway: Some(format!("10.0.{third}.1").parse().unwrap()),
                    host_routes: Vec::new(),
                },
            );
            world.mtu_bytes.insert(network, 1450);
        }
        world
    }

    fn facts(&self, server: &SimServer) -> AgentFacts {
        let config = server.config.as_ref();
        AgentFacts {
            generation: config.map(|config| config.generation),
            digest: config.map(AmphoraConfig::digest),
            interfaces: config
                .iter()
                .flat_map(|config| &config.interfaces)
                .map(|interface| (interface.mac_address.clone(), interface.name.clone()))
                .collect(),
            failed_listeners: server.failed_listeners.clone(),
            active_connections: Some(server.connections),
        }
    }

    pub fn plan(&mut self) -> Plan {
        let world = self.observe();
        plan(&self.graph, &world, &self.settings, &mut self.ids)
    }

    pub fn apply(&mut self, plan: &Plan) {
        for (_, steps) in plan.phases() {
            for step in steps {
                self.step(step);
            }
        }
    }

    fn step(&mut self, step: &Step) {
        if step.write(&mut self.graph, self.now).is_some() {
            assert!(step.is_row());
            self.graph
                .amphorae
                .retain(|row| row.status != AmphoraStatus::Deleted);
            return;
        }
        match step {
            Step::EnsureServer { amphora, .. } => {
                let server = self.servers.entry(*amphora).or_default();
                server.stopped = false;
            }
            Step::EnsurePort(wish) => self.ensure_port(wish),
            Step::EnsureVipPort {
                network_id,
                addresses,
            } => {
                self.next += 1;
                let port = PortView {
                    id: PortId(sample::uuid(0x7000 + u128::from(self.next))),
                    purpose: None,
                    network_id: *network_id,
                    mac_address: "fa:16:3e:ff:ff:fe".to_owned(),
                    fixed_ips: addresses.clone(),
                };
                self.graph.load_balancer.vip.port_id = port.id;
                self.graph.load_balancer.vip.port_is_ours = true;
                self.ports.insert(port.id, port);
            }
            Step::AddAddresses { port, subnets, .. } => {
                for subnet in subnets {
                    let address = self.address(*subnet);
                    let port = self.ports.get_mut(port).expect("port is there");
                    port.fixed_ips.push((*subnet, address));
                }
            }
            Step::RemoveAddresses {
                port, addresses, ..
            } => {
                let port = self.ports.get_mut(port).expect("port is there");
                port.fixed_ips
                    .retain(|(_, address)| !addresses.contains(address));
            }
            Step::AwaitAgent { amphora } => {
                self.servers.get_mut(amphora).expect("server").silent = false;
            }
            Step::AttachPort { amphora, port } => {
                let server = self.servers.get_mut(amphora).expect("server");
                server.plugged.insert(*port);
            }
            Step::DetachPort { amphora, port } => {
                let server = self.servers.get_mut(amphora).expect("server");
                server.plugged.remove(port);
            }
            Step::PushDocument {
                amphora, document, ..
            } => self.push(*amphora, document),
            Step::DeleteServer { amphora } => {
                self.servers.remove(amphora);
            }
            Step::DeletePort { port, .. } => {
                self.ports.remove(port);
            }
            row => panic!("{row} was no row step"),
        }
    }

    fn push(&mut self, amphora: AmphoraId, document: &AmphoraConfig) {
        document.validate().expect("a valid document");
        let server = self.servers.get_mut(&amphora).expect("server");
        for interface in &document.interfaces {
            let plugged = server
                .plugged
                .iter()
                .filter_map(|id| self.ports.get(id))
                .any(|port| port.mac_address == interface.mac_address);
            assert!(plugged, "document names unplugged {interface:?}");
        }
        let newest = server.config.as_ref().map(|config| config.generation);
        assert!(newest.is_none_or(|newest| newest < document.generation));
        server.config = Some(document.clone());
        let row = self
            .graph
            .amphorae
            .iter_mut()
            .find(|row| row.id == amphora)
            .expect("row");
        row.config_generation = document.generation;
        let owners = self.vip_owners();
        assert!(owners.len() <= 1, "several own the VIP: {owners:?}");
    }

    fn ensure_port(&mut self, wish: &PortWish) {
        self.next += 1;
        let number = self.next;
        let fixed_ips = wish
            .subnets
            .iter()
            .map(|subnet| (*subnet, self.address(*subnet)))
            .collect();
        let port = PortView {
            id: PortId(sample::uuid(0x7000 + u128::from(number))),
            purpose: Some((wish.amphora, wish.purpose)),
            network_id: wish.network_id,
            mac_address: format!("fa:16:3e:00:00:{number:02x}"),
            fixed_ips,
        };
        self.ports.insert(port.id, port);
    }

    pub fn ensure_port_for_test(&mut self, wish: &PortWish) {
        self.ensure_port(wish);
    }

    fn address(&mut self, subnet: SubnetId) -> IpAddr {
        self.next += 1;
        let third = match subnet {
            sample::SUBNET => 0,
            OTHER_SUBNET => 1,
            SECOND_SUBNET => 2,
            _ => 3,
        };
        format!("10.0.{third}.{}", 100 + self.next).parse().unwrap()
    }

    /// Servers that answer for the VIP.
    pub fn vip_owners(&self) -> Vec<AmphoraId> {
        self.servers
            .iter()
            .filter(|(_, server)| {
                server.config.as_ref().is_some_and(|config| {
                    config
                        .vips
                        .iter()
                        .any(|vip| matches!(vip.state, VipState::Active { .. }))
                })
            })
            .map(|(id, _)| *id)
            .collect()
    }

    /// Plans and applies until nothing is left; answers all plans, in words.
    pub fn converge(&mut self) -> String {
        let mut story = String::new();
        for pass in 1..=12 {
            let plan = self.plan();
            if plan.is_empty() {
                story.push_str(&format!("pass {pass}: nothing\n{plan}"));
                return story;
            }
            story.push_str(&format!("pass {pass}\n{plan}"));
            self.apply(&plan);
        }
        panic!("does not converge:\n{story}");
    }

    /// Converges, and writes the success.
    pub fn finish(&mut self) -> String {
        let story = self.converge();
        settle(&mut self.graph, &Settlement::default(), self.now);
        story
    }

    pub fn ports_of(
        &self,
        amphora: AmphoraId,
    ) -> Vec<(PortPurpose, NetworkId, BTreeSet<SubnetId>)> {
        let mut ports: Vec<_> = self
            .ports
            .values()
            .filter_map(|port| match port.purpose {
                Some((owner, purpose)) if owner == amphora => Some((
                    purpose,
                    port.network_id,
                    port.fixed_ips.iter().map(|(subnet, _)| *subnet).collect(),
                )),
                _ => None,
            })
            .collect();
        ports.sort();
        ports
    }

    pub fn only_amphora(&self) -> AmphoraId {
        assert_eq!(self.graph.amphorae.len(), 1, "{:?}", self.graph.amphorae);
        self.graph.amphorae[0].id
    }

    pub fn set_pending_update(&mut self) {
        self.graph.load_balancer.provisioning_status = ProvisioningStatus::PendingUpdate;
    }
}

/// Ids in order, so that golden files stay the same.
pub struct Ids(pub usize);

impl FreshIds for Ids {
    fn amphora(&mut self) -> AmphoraId {
        self.0 += 1;
        AmphoraId(sample::uuid(0xa000 + self.0 as u128))
    }
}
