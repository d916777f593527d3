//! What is written down of a local server.

use std::net::Ipv4Addr;

use lb_model::{AmphoraId, LoadBalancerId, NetworkId, PortId};
use serde::{Deserialize, Serialize};

use crate::DriverError;
use crate::local::Netns;

/// The content of `server.json`: enough to build the server again, and to take it apart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ServerRecord {
    pub(super) amphora_id: AmphoraId,
    pub(super) load_balancer_id: LoadBalancerId,
    /// Name of the agent's network namespace.
    pub(super) netns: String,
    pub(super) management_address: Ipv4Addr,
    pub(super) management_mac: String,
    pub(super) ports: Vec<PluggedPort>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PluggedPort {
    pub(super) id: PortId,
    pub(super) network_id: NetworkId,
    pub(super) mac_address: String,
}

impl ServerRecord {
    pub(super) fn netns(&self) -> Result<Netns, DriverError> {
        Netns::named(self.netns.clone())
    }

    /// The namespace the agent makes for the tenant's interfaces.
    pub(super) fn tenant_netns(&self) -> Result<Netns, DriverError> {
        Netns::named(format!("{}-t", self.netns))
    }
}
