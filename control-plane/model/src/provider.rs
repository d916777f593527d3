//! Providers, and what each can serve.

use crate::{
    L7PolicyAction, L7RuleType, LbAlgorithm, ListenerProtocol, MonitorType, PoolProtocol,
    SessionPersistenceType, Topology,
};

/// A name a client may ask for, and what stands behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provider {
    pub name: String,
    pub description: String,
    pub support: ProviderSupport,
}

impl Provider {
    pub fn new(name: &str, description: &str, support: ProviderSupport) -> Self {
        Self {
            name: name.to_owned(),
            description: description.to_owned(),
            support,
        }
    }
}

/// What a provider can serve. Asking for more is answered with "does not support a requested option", never by taking
/// the request and doing less.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProviderSupport {
    pub listener_protocols: &'static [ListenerProtocol],
    pub pool_protocols: &'static [PoolProtocol],
    pub algorithms: &'static [LbAlgorithm],
    pub session_persistence: &'static [SessionPersistenceType],
    pub monitor_types: &'static [MonitorType],
    pub l7policy_actions: &'static [L7PolicyAction],
    pub l7rule_types: &'static [L7RuleType],
    pub topologies: &'static [Topology],
    pub features: &'static [ProviderFeature],
}

/// What a provider can or cannot do as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProviderFeature {
    /// TLS towards the members of a pool.
    PoolTls,
    /// Ports that are virtual functions of a network card.
    SrIov,
}

impl ProviderSupport {
    /// All that the API has words for.
    pub const EVERYTHING: Self = Self {
        listener_protocols: ListenerProtocol::ALL,
        pool_protocols: PoolProtocol::ALL,
        algorithms: LbAlgorithm::ALL,
        session_persistence: SessionPersistenceType::ALL,
        monitor_types: MonitorType::ALL,
        l7policy_actions: L7PolicyAction::ALL,
        l7rule_types: L7RuleType::ALL,
        topologies: Topology::ALL,
        features: &[ProviderFeature::PoolTls, ProviderFeature::SrIov],
    };

    /// What the agent of this release serves.
    pub const AMPHORA: Self = Self {
        listener_protocols: &[
            ListenerProtocol::Http,
            ListenerProtocol::Https,
            ListenerProtocol::Tcp,
            ListenerProtocol::Udp,
        ],
        pool_protocols: &[
            PoolProtocol::Http,
            PoolProtocol::Https,
            PoolProtocol::Tcp,
            PoolProtocol::Udp,
        ],
        algorithms: &[
            LbAlgorithm::RoundRobin,
            LbAlgorithm::LeastConnections,
            LbAlgorithm::SourceIp,
        ],
        session_persistence: &[],
        monitor_types: &[
            MonitorType::Http,
            MonitorType::Ping,
            MonitorType::Tcp,
            MonitorType::UdpConnect,
        ],
        l7policy_actions: &[],
        l7rule_types: &[],
        topologies: &[Topology::Single],
        features: &[],
    };
}
