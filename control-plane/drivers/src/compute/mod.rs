//! Compute: the machine an amphora runs on.
//!
//! Every object is found by the amphora's id (server name `amphora-<id>`), so each call is idempotent and adopts
//! what an interrupted one left.

#[cfg(feature = "fake")]
mod fake;
mod local;
mod noop;

use std::collections::BTreeMap;
use std::net::IpAddr;

use async_trait::async_trait;
use lb_model::{AmphoraId, LoadBalancerId, NetworkId, PortId};

use crate::network::Port;
use crate::{DriverError, Observed, Secret};

pub use local::LocalCompute;
pub use noop::NoopCompute;

/// Creates, observes and removes the servers of amphorae.
#[async_trait]
pub trait Compute: Send + Sync {
    /// Makes the server exist and run. A server that is there and runs is left as it is (its files too); one that
    /// stopped is started again with the ports it had.
    async fn ensure_server(&self, spec: &ServerSpec) -> Result<Server, DriverError>;

    async fn observe_server(&self, amphora: AmphoraId) -> Result<Observed<Server>, DriverError>;

    /// Every server of this installation, those of unknown amphorae too.
    async fn list_servers(&self) -> Result<Vec<Server>, DriverError>;

    /// Hot-plugs a port; one that is plugged in already is left alone. The guest finds it by its MAC address.
    async fn attach_port(&self, amphora: AmphoraId, port: &Port) -> Result<(), DriverError>;

    /// Unplugs a port; absent port or server is fine.
    async fn detach_port(&self, amphora: AmphoraId, port: PortId) -> Result<(), DriverError>;

    /// Removes the server and all that belongs to it; absent is fine.
    async fn delete_server(&self, amphora: AmphoraId) -> Result<(), DriverError>;
}

/// What a server is to be.
#[derive(Debug, Clone)]
pub struct ServerSpec {
    pub amphora_id: AmphoraId,
    pub load_balancer_id: LoadBalancerId,
    /// Files of the config drive by absolute path, as Octavia places them: see [`SERVER_PEM`], [`CLIENT_CA_PEM`]
    /// and [`AGENT_CONF`].
    pub files: BTreeMap<String, Secret>,
    pub placement: Placement,
}

/// On what and where a server is to run: what the flavor and the availability zone of its load balancer say. What is
/// `None` is for the deployment to decide. A compute service that has nothing to choose from takes anything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Placement {
    pub compute_flavor: Option<String>,
    pub image_tag: Option<String>,
    pub compute_zone: Option<String>,
    pub volume_zone: Option<String>,
    pub management_network: Option<NetworkId>,
}

/// Certificate and private key the agent serves with.
pub const SERVER_PEM: &str = "/etc/octavia/certs/server.pem";
/// Authorities whose certificates may talk to the agent.
pub const CLIENT_CA_PEM: &str = "/etc/octavia/certs/client_ca.pem";
/// The agent's configuration, see [`agent_conf`](crate::agent_conf).
pub const AGENT_CONF: &str = "/etc/octavia/amphora-agent.conf";

/// Name of an amphora's server, as in Octavia.
pub fn server_name(amphora: AmphoraId) -> String {
    format!("amphora-{amphora}")
}

/// A server as the compute service knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    pub amphora_id: AmphoraId,
    pub compute_id: String,
    pub status: ServerStatus,
    /// Address of the agent on the management network.
    pub lb_network_ip: Option<IpAddr>,
    pub image_id: Option<String>,
    pub cached_zone: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ServerStatus {
    /// Not running yet.
    Building,
    /// Running; whether the agent answers is for [`AmphoraDriver`](crate::AmphoraDriver) to tell.
    Active,
    /// The compute service gave up on it.
    Error,
    /// It is there and does not run.
    Stopped,
}
