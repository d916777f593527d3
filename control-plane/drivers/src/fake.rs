//! A cloud in memory, for tests: compute, networks and agents that share one state and can fail or die at any call.
//!
//! What a "crashed" worker left stays in the state, as it would in a real cloud. Rules the control plane must keep
//! (one owner of a VIP, documents that name only plugged interfaces) are watched, and each breach is recorded.
//!
//! Compiled behind the feature `fake`; never in a product.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use amphora_api::{AmphoraConfig, VipState};
use ipnet::IpNet;
use lb_model::{AmphoraId, ListenerId, NetworkId, PortId, SubnetId};
use tokio::sync::Notify;

use crate::compute::{Placement, Server, ServerStatus};
use crate::network::{Port, Subnet, TenantNetwork};

/// When a call goes wrong. Calls are counted from 1 over all drivers of one cloud.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FaultPlan {
    #[default]
    None,
    /// The call answers with a transient error and did nothing.
    FailBefore(u64),
    /// The call did its work, and answers with a transient error.
    FailAfter(u64),
    /// This call and all later ones answer with a transient error and do nothing.
    FailFrom(u64),
    /// The caller dies with the call not made: it never returns, and [`FakeCloud::died`] tells.
    DieBefore(u64),
    /// The caller dies with the call's work done.
    DieAfter(u64),
    /// The call waits for [`FakeCloud::resume`]; [`FakeCloud::died`] tells that it does.
    PauseBefore(u64),
}

/// Handles of the same cloud share its state.
#[derive(Clone, Default)]
pub struct FakeCloud {
    state: Arc<Mutex<State>>,
    faults: Arc<Faults>,
}

#[derive(Default)]
struct Faults {
    calls: AtomicU64,
    plan: Mutex<FaultPlan>,
    log: Mutex<Vec<String>>,
    died: Notify,
    resumed: Notify,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) networks: BTreeMap<NetworkId, TenantNetwork>,
    pub(crate) subnets: BTreeMap<SubnetId, Subnet>,
    pub(crate) ports: BTreeMap<PortId, Port>,
    pub(crate) servers: BTreeMap<AmphoraId, FakeServer>,
    /// Subnets that have no address left.
    pub(crate) exhausted: BTreeSet<SubnetId>,
    pub(crate) next_mac: u32,
    pub(crate) next_server: u16,
    /// Calls of `info` that a new agent does not answer yet.
    pub(crate) boot_calls: u32,
    /// Agents take listeners on this port and cannot serve them.
    pub(crate) failing_port: Option<u16>,
    pub(crate) breaches: Vec<String>,
    pub(crate) pushes: Vec<Push>,
}

/// A document an agent took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Push {
    pub amphora: AmphoraId,
    pub generation: u64,
    pub vips: Option<VipState>,
}

#[derive(Debug, Clone)]
pub(crate) struct FakeServer {
    pub(crate) server: Server,
    pub(crate) placement: Placement,
    pub(crate) ports: BTreeSet<PortId>,
    pub(crate) boot_calls_left: u32,
    pub(crate) silent: bool,
    pub(crate) config: Option<AmphoraConfig>,
    pub(crate) active_connections: u64,
    /// Connections served since the server was made, by listener.
    pub(crate) served: BTreeMap<ListenerId, u64>,
    /// Documents with a listener on this port are refused with 400.
    pub(crate) refused_port: Option<u16>,
}

impl FakeCloud {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn add_network(&self, id: NetworkId, name: &str) {
        self.state().networks.insert(
            id,
            TenantNetwork {
                id,
                name: name.to_owned(),
                mtu_bytes: 1500,
                project_id: None,
                subnets: Vec::new(),
            },
        );
    }

    /// A subnet with the first address as gateway.
    pub fn add_subnet(&self, id: SubnetId, network_id: NetworkId, cidr: IpNet) {
        let gateway_ip = cidr.hosts().next();
        let mut state = self.state();
        state.subnets.insert(
            id,
            Subnet {
                id,
                name: cidr.to_string(),
                network_id,
                project_id: None,
                cidr,
                gateway_ip,
                host_routes: Vec::new(),
                allocation_pools: Vec::new(),
            },
        );
        if let Some(network) = state.networks.get_mut(&network_id) {
            network.subnets.push(id);
        }
    }

    /// Every further address in the subnet is refused, or given again.
    pub fn set_exhausted(&self, subnet: SubnetId, exhausted: bool) {
        let mut state = self.state();
        if exhausted {
            state.exhausted.insert(subnet);
        } else {
            state.exhausted.remove(&subnet);
        }
    }

    /// New agents leave so many calls unanswered before they are up.
    pub fn set_boot_calls(&self, calls: u32) {
        self.state().boot_calls = calls;
    }

    /// The agent answers nobody, or does again.
    pub fn set_silent(&self, amphora: AmphoraId, silent: bool) {
        if let Some(server) = self.state().servers.get_mut(&amphora) {
            server.silent = silent;
        }
    }

    pub fn set_active_connections(&self, amphora: AmphoraId, connections: u64) {
        if let Some(server) = self.state().servers.get_mut(&amphora) {
            server.active_connections = connections;
        }
    }

    /// The amphora serves so many more connections, of one byte each way, since its last heartbeat.
    pub fn serve(&self, amphora: AmphoraId, listener: ListenerId, connections: u64) {
        if let Some(server) = self.state().servers.get_mut(&amphora) {
            *server.served.entry(listener).or_default() += connections;
        }
    }

    /// The agent refuses documents that have a listener on this port.
    pub fn refuse_listener_port(&self, amphora: AmphoraId, port: u16) {
        if let Some(server) = self.state().servers.get_mut(&amphora) {
            server.refused_port = Some(port);
        }
    }

    /// Every agent takes documents with a listener on this port, and serves all but that one.
    pub fn fail_listener_port(&self, port: u16) {
        self.state().failing_port = Some(port);
    }

    /// Somebody else deletes a port.
    pub fn lose_port(&self, port: PortId) {
        self.state().ports.remove(&port);
    }

    /// The server is gone, with its agent; its ports stay.
    pub fn kill_server(&self, amphora: AmphoraId) {
        self.state().servers.remove(&amphora);
    }

    /// The server stays and does not run.
    pub fn stop_server(&self, amphora: AmphoraId) {
        if let Some(server) = self.state().servers.get_mut(&amphora) {
            server.server.status = ServerStatus::Stopped;
        }
    }

    /// Sets what goes wrong from now on, and counts calls anew.
    pub fn set_faults(&self, plan: FaultPlan) {
        self.faults.calls.store(0, Ordering::SeqCst);
        *lock(&self.faults.plan) = plan;
        lock(&self.faults.log).clear();
    }

    /// Calls since [`FakeCloud::set_faults`].
    pub fn calls(&self) -> u64 {
        self.faults.calls.load(Ordering::SeqCst)
    }

    /// Names of these calls, in order.
    pub fn call_log(&self) -> Vec<String> {
        lock(&self.faults.log).clone()
    }

    /// Returns when a call died, or waits.
    pub async fn died(&self) {
        self.faults.died.notified().await;
    }

    /// Lets a waiting call go on.
    pub fn resume(&self) {
        self.faults.resumed.notify_one();
    }

    /// Puts a port as it is, such as the VIP port that a create call makes.
    pub fn add_port(&self, port: Port) {
        self.state().ports.insert(port.id, port);
    }

    pub fn ports(&self) -> Vec<Port> {
        self.state().ports.values().cloned().collect()
    }

    pub fn servers(&self) -> Vec<Server> {
        self.state()
            .servers
            .values()
            .map(|server| server.server.clone())
            .collect()
    }

    /// The document in force, if the server is there and has one.
    pub fn config(&self, amphora: AmphoraId) -> Option<AmphoraConfig> {
        self.state().servers.get(&amphora)?.config.clone()
    }

    /// What a server was made of and where.
    pub fn placement(&self, amphora: AmphoraId) -> Option<Placement> {
        Some(self.state().servers.get(&amphora)?.placement.clone())
    }

    /// Ports plugged into a server.
    pub fn plugged(&self, amphora: AmphoraId) -> Vec<PortId> {
        self.state()
            .servers
            .get(&amphora)
            .map(|server| server.ports.iter().copied().collect())
            .unwrap_or_default()
    }

    /// Every document taken, in order.
    pub fn pushes(&self) -> Vec<Push> {
        self.state().pushes.clone()
    }

    /// Rules that were broken, in words.
    pub fn breaches(&self) -> Vec<String> {
        self.state().breaches.clone()
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// One call of a driver: counted, and perhaps a fault.
    pub(crate) async fn call<T, E>(
        &self,
        name: &str,
        injected: impl Fn() -> E,
        effect: impl FnOnce(&mut State) -> Result<T, E>,
    ) -> Result<T, E> {
        let number = self.faults.calls.fetch_add(1, Ordering::SeqCst) + 1;
        lock(&self.faults.log).push(name.to_owned());
        let plan = *lock(&self.faults.plan);
        match plan {
            FaultPlan::FailBefore(n) if n == number => return Err(injected()),
            FaultPlan::FailFrom(n) if n <= number => return Err(injected()),
            FaultPlan::DieBefore(n) if n == number => self.die().await,
            FaultPlan::PauseBefore(n) if n == number => {
                self.faults.died.notify_one();
                self.faults.resumed.notified().await;
            }
            _ => {}
        }
        // Let others run between the counting and the work, as a real call would.
        tokio::task::yield_now().await;
        let answer = effect(&mut self.state());
        match plan {
            FaultPlan::FailAfter(n) if n == number => Err(injected()),
            FaultPlan::DieAfter(n) if n == number => {
                self.die().await;
                answer
            }
            _ => answer,
        }
    }

    async fn die(&self) {
        self.faults.died.notify_one();
        std::future::pending::<()>().await;
    }
}

impl State {
    /// A MAC address no other port of this cloud has.
    pub(crate) fn mac(&mut self) -> String {
        self.next_mac += 1;
        let [_, a, b, c] = self.next_mac.to_be_bytes();
        format!("fa:16:3e:{a:02x}:{b:02x}:{c:02x}")
    }

    /// A management address no other server has.
    pub(crate) fn management_address(&mut self) -> IpAddr {
        self.next_server += 1;
        let [high, low] = self.next_server.to_be_bytes();
        IpAddr::V4(Ipv4Addr::new(198, 18, high, low))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
