//! A load balancer with everything that belongs to it.

use crate::{
    Amphora, AmphoraStatus, HealthMonitor, HealthMonitorId, L7Policy, L7PolicyId, Listener,
    ListenerId, LoadBalancer, Pool, PoolId,
};

/// The unit of intent: read, changed and written as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Graph {
    pub load_balancer: LoadBalancer,
    pub listeners: Vec<Listener>,
    pub pools: Vec<Pool>,
    /// Those in `DELETED` are left out.
    pub amphorae: Vec<Amphora>,
}

impl Graph {
    pub fn listener(&self, id: ListenerId) -> Option<&Listener> {
        self.listeners.iter().find(|listener| listener.id == id)
    }

    pub fn listener_mut(&mut self, id: ListenerId) -> Option<&mut Listener> {
        self.listeners.iter_mut().find(|listener| listener.id == id)
    }

    pub fn pool(&self, id: PoolId) -> Option<&Pool> {
        self.pools.iter().find(|pool| pool.id == id)
    }

    pub fn pool_mut(&mut self, id: PoolId) -> Option<&mut Pool> {
        self.pools.iter_mut().find(|pool| pool.id == id)
    }

    /// The pool that has this monitor.
    pub fn pool_of_monitor(&self, id: HealthMonitorId) -> Option<(&Pool, &HealthMonitor)> {
        self.pools.iter().find_map(|pool| {
            let monitor = pool.health_monitor.as_ref()?;
            (monitor.id == id).then_some((pool, monitor))
        })
    }

    /// The listener that has this policy.
    pub fn listener_of_policy(&self, id: L7PolicyId) -> Option<(&Listener, &L7Policy)> {
        self.listeners.iter().find_map(|listener| {
            let policy = listener.l7policies.iter().find(|policy| policy.id == id)?;
            Some((listener, policy))
        })
    }

    pub fn l7policy_mut(&mut self, id: L7PolicyId) -> Option<&mut L7Policy> {
        self.listeners
            .iter_mut()
            .flat_map(|listener| &mut listener.l7policies)
            .find(|policy| policy.id == id)
    }

    /// Listeners that send traffic to a pool, by default or through a policy.
    pub fn listeners_of_pool(&self, id: PoolId) -> impl Iterator<Item = &Listener> {
        self.listeners
            .iter()
            .filter(move |listener| listener.pool_ids().contains(&id))
    }

    /// Amphorae that serve, or are on their way to.
    pub fn live_amphorae(&self) -> impl Iterator<Item = &Amphora> {
        self.amphorae.iter().filter(|amphora| match amphora.status {
            AmphoraStatus::Booting
            | AmphoraStatus::Allocated
            | AmphoraStatus::Ready
            | AmphoraStatus::PendingCreate
            | AmphoraStatus::PendingUpdate
            | AmphoraStatus::FailoverStopped => true,
            AmphoraStatus::PendingDelete | AmphoraStatus::Error | AmphoraStatus::Deleted => false,
        })
    }
}
