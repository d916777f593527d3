//! What was observed, in the planner's own words.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use lb_model::{AmphoraId, ListenerId, NetworkId, PortId, SubnetId, Timestamp};

/// Everything outside the database that concerns one load balancer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct World {
    pub now: Timestamp,
    /// The time to reach the intent is over: undo what is half made and build nothing more.
    pub out_of_time: bool,
    /// Every amphora of the graph has an entry.
    pub servers: BTreeMap<AmphoraId, ServerView>,
    /// The VIP port and every port of the graph's amphorae.
    pub ports: Vec<PortView>,
    /// One that is missing was not asked.
    pub agents: BTreeMap<AmphoraId, AgentView>,
    /// Subnets that the graph names; one that is missing does not exist.
    pub subnets: BTreeMap<SubnetId, SubnetFacts>,
    /// Largest packet of each network the graph uses, bytes.
    pub mtu_bytes: BTreeMap<NetworkId, u32>,
}

impl World {
    /// Nothing but the time.
    pub fn empty(now: Timestamp) -> Self {
        Self {
            now,
            out_of_time: false,
            servers: BTreeMap::new(),
            ports: Vec::new(),
            agents: BTreeMap::new(),
            subnets: BTreeMap::new(),
            mtu_bytes: BTreeMap::new(),
        }
    }

    pub fn server(&self, amphora: AmphoraId) -> &ServerView {
        self.servers.get(&amphora).unwrap_or(&ServerView::Absent)
    }

    /// The agent's own words, when its server runs and it answers.
    pub fn agent(&self, amphora: AmphoraId) -> Option<&AgentFacts> {
        match self.agents.get(&amphora) {
            Some(AgentView::Answers(facts)) => Some(facts),
            Some(AgentView::Silent) | None => None,
        }
    }

    pub fn base_port(&self, amphora: AmphoraId) -> Option<&PortView> {
        self.ports
            .iter()
            .find(|port| port.purpose == Some((amphora, crate::PortPurpose::Base)))
    }

    pub fn has_vip_port(&self) -> bool {
        self.ports.iter().any(|port| port.purpose.is_none())
    }

    /// Ports of an amphora in member networks.
    pub fn member_ports(&self, amphora: AmphoraId) -> impl Iterator<Item = &PortView> {
        self.ports
            .iter()
            .filter(move |port| port.purpose == Some((amphora, crate::PortPurpose::Member)))
    }

    pub fn ports_of(&self, amphora: AmphoraId) -> impl Iterator<Item = &PortView> {
        self.ports
            .iter()
            .filter(move |port| port.purpose.is_some_and(|(owner, _)| owner == amphora))
    }
}

/// What the compute service says of an amphora's server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerView {
    Absent,
    /// Something is there, or may be.
    Unsure,
    Building,
    /// There, and does not run.
    Stopped,
    /// The compute service gave up on it.
    Failed,
    Running(ServerFacts),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerFacts {
    pub compute_id: String,
    pub lb_network_ip: Option<IpAddr>,
    pub image_id: Option<String>,
    pub cached_zone: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortView {
    pub id: PortId,
    /// `None` for the VIP port.
    pub purpose: Option<(AmphoraId, crate::PortPurpose)>,
    pub network_id: NetworkId,
    pub mac_address: String,
    pub fixed_ips: Vec<(SubnetId, IpAddr)>,
}

/// What the agent says, if it says anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentView {
    Silent,
    Answers(AgentFacts),
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentFacts {
    /// Generation of the document in force.
    pub generation: Option<u64>,
    /// Digest of the document in force.
    pub digest: Option<String>,
    /// Name of each interface of the tenant side, by MAC address.
    pub interfaces: BTreeMap<String, String>,
    /// Listeners of the document in force that it cannot serve, with the reason.
    pub failed_listeners: BTreeMap<ListenerId, String>,
    /// Connections in progress; asked for only when the amphora is to go.
    pub active_connections: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubnetFacts {
    pub network_id: NetworkId,
    pub cidr: IpNet,
    pub gateway: Option<IpAddr>,
    /// Destination and next hop.
    pub host_routes: Vec<(IpNet, IpAddr)>,
}
