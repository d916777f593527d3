//! What an operator may set of a worker.

use std::time::Duration;

use lb_drivers::Secret;

#[derive(Debug, Clone)]
pub struct Settings {
    /// Name of this worker in leases; unique among all replicas.
    pub owner: String,
    /// Heartbeat controllers and interval, drain time.
    pub planner: lb_planner::Settings,
    /// Key of the heartbeats (`[health_manager] heartbeat_key`).
    pub heartbeat_key: Secret,
    /// TCP port of the agents (`[haproxy_amphora] bind_port`).
    pub agent_port: u16,
    /// Load balancers worked on at once (`[task_flow] max_workers`).
    pub tasks: usize,
    /// How long a claim holds without being renewed: so long waits the work of a worker that died.
    pub lease: Duration,
    /// Time between looks for work that nobody told of.
    pub poll: Duration,
    pub deadlines: Deadlines,
    /// Longest wait for an agent within one step; the step is tried again until the deadline.
    pub agent_wait: Duration,
    /// Time between two tries to reach a new agent.
    pub agent_poll: Duration,
    /// Longest wait for one answer of an agent that is only looked at.
    pub agent_timeout: Duration,
    /// Delay before a load balancer is tried again whose lease was given back after an error; it doubles with each
    /// failure, up to twenty times this.
    pub retry_delay: Duration,
    /// Time between looks at an amphora that drains.
    pub drain_poll: Duration,
    /// Time between searches for servers and ports that belong to nothing.
    pub sweep_interval: Duration,
    /// How long such an object must have been seen before it is deleted.
    pub sweep_grace: Duration,
}

/// How long an intent is tried before it is given up and the load balancer, or its child, goes to ERROR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadlines {
    pub create: Duration,
    pub update: Duration,
    pub failover: Duration,
    pub delete: Duration,
    /// Undoing what was half made; what is left after it is undone later.
    pub compensation: Duration,
}

impl Settings {
    /// Defaults, with a random owner.
    pub fn new(heartbeat_key: Secret) -> Self {
        Self {
            owner: format!("{}-{}", std::process::id(), uuid::Uuid::new_v4()),
            planner: lb_planner::Settings::default(),
            heartbeat_key,
            agent_port: amphora_api::AGENT_PORT,
            tasks: 8,
            lease: Duration::from_secs(10),
            poll: Duration::from_secs(1),
            deadlines: Deadlines::default(),
            agent_wait: Duration::from_secs(10),
            agent_poll: Duration::from_millis(20),
            agent_timeout: Duration::from_secs(2),
            retry_delay: Duration::from_millis(500),
            drain_poll: Duration::from_millis(500),
            sweep_interval: Duration::from_secs(30),
            sweep_grace: Duration::from_secs(60),
        }
    }
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            create: Duration::from_secs(120),
            update: Duration::from_secs(60),
            failover: Duration::from_secs(120),
            delete: Duration::from_secs(120),
            compensation: Duration::from_secs(60),
        }
    }
}
