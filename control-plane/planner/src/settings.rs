//! What an operator may set of the planner's choices.

use std::net::SocketAddr;
use std::time::Duration;

/// Choices that are the same for every load balancer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Health managers that amphorae send their heartbeats to (`[health_manager] controller_ip_port_list`).
    pub heartbeat_controllers: Vec<SocketAddr>,
    /// Time between heartbeats (`[health_manager] heartbeat_interval`).
    pub heartbeat_interval: Duration,
    /// How long a replaced amphora may go on with the connections it has.
    pub drain_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            heartbeat_controllers: Vec::new(),
            heartbeat_interval: Duration::from_secs(10),
            drain_timeout: Duration::from_secs(60),
        }
    }
}
