//! The compiled snapshot, and a connection's view of it.
//!
//! A snapshot is compiled once and swapped in whole. A connection looks at the generation before
//! each request and takes the new entry of its listener when it has changed; nothing is sent to
//! connections, and none is closed.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::ArcSwap;
use uuid::Uuid;

use crate::admission::Admission;
use crate::config::{self, Snapshot};
use crate::listener::Slots;
use crate::pool::Pool;
use crate::stats::{Counters, ListenerStats, MemberStats, Refusals, Stats};

/// One listener with what it needs at hand.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) config: config::Listener,
    pub(crate) pool: Option<Arc<Pool>>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) slots: Arc<Slots>,
}

#[derive(Debug, Default)]
pub(crate) struct Compiled {
    generation: u64,
    pub(crate) listeners: HashMap<Uuid, Arc<Listener>>,
    pub(crate) by_bind: HashMap<SocketAddr, Arc<Listener>>,
}

/// What all threads share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) threads: usize,
    current: ArcSwap<Compiled>,
    generation: AtomicU64,
    /// The proxy is shutting down: each connection ends after its current response.
    ending: AtomicBool,
    pub(crate) refusals: Refusals,
    pub(crate) admission: Admission,
}

impl Shared {
    pub(crate) fn new(threads: usize) -> Self {
        Shared {
            threads,
            current: ArcSwap::default(),
            generation: AtomicU64::new(0),
            ending: AtomicBool::new(false),
            refusals: Refusals::default(),
            admission: Admission::default(),
        }
    }

    pub(crate) fn current(&self) -> Arc<Compiled> {
        self.current.load_full()
    }

    pub(crate) fn publish(&self, mut compiled: Compiled) {
        let generation = self.generation.load(Ordering::Relaxed) + 1;
        compiled.generation = generation;
        self.current.store(Arc::new(compiled));
        self.generation.store(generation, Ordering::Release);
    }

    pub(crate) fn end(&self) {
        self.ending.store(true, Ordering::Relaxed);
    }
}

/// The listener a connection came in by.
pub(crate) struct Route {
    pub(crate) listener: Arc<Listener>,
    generation: u64,
    /// The listener is no longer configured. Its last state answers what is already under way.
    removed: bool,
}

impl Route {
    /// Refreshed on first use.
    pub(crate) fn new(listener: Arc<Listener>) -> Self {
        Route {
            listener,
            generation: 0,
            removed: false,
        }
    }

    pub(crate) fn refresh(&mut self, shared: &Shared) {
        if self.generation == shared.generation.load(Ordering::Acquire) {
            return;
        }
        let compiled = shared.current.load();
        self.generation = compiled.generation;
        match compiled.listeners.get(&self.listener.config.id) {
            Some(listener) => {
                self.listener = Arc::clone(listener);
                self.removed = false;
            }
            None => self.removed = true,
        }
    }

    /// Whether a client's connection may go on after the current response.
    pub(crate) fn may_keep(&mut self, shared: &Shared) -> bool {
        self.refresh(shared);
        !self.removed && !self.listener.config.draining && !shared.ending.load(Ordering::Relaxed)
    }
}

/// Counters and limits, which outlive the snapshots that name them.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    listeners: HashMap<Uuid, (Arc<Counters>, Arc<Slots>)>,
    members: HashMap<(Uuid, Uuid), Arc<Counters>>,
}

impl Registry {
    /// Compiles `snapshot`. What it no longer names is forgotten once nothing of it is in flight.
    pub(crate) fn compile(
        &mut self,
        snapshot: &Snapshot,
        before: &Compiled,
        threads: usize,
    ) -> Compiled {
        let pools: HashMap<Uuid, &config::Pool> =
            snapshot.pools.iter().map(|pool| (pool.id, pool)).collect();
        let mut compiled = Compiled::default();
        for config in &snapshot.listeners {
            let (counters, slots) = self
                .listeners
                .entry(config.id)
                .or_insert_with(|| (Arc::new(Counters::new(threads)), Arc::default()));
            slots.set_limit(config.connection_limit);
            let pool_before = before
                .listeners
                .get(&config.id)
                .and_then(|listener| listener.pool.as_ref())
                .filter(|pool| Some(pool.id()) == config.default_pool);
            let members = &mut self.members;
            let pool = config
                .default_pool
                .and_then(|id| pools.get(&id))
                .map(|pool| {
                    Pool::compile(pool, pool_before, |member| {
                        let counters = members
                            .entry((pool.id, member))
                            .or_insert_with(|| Arc::new(Counters::new(threads)));
                        Arc::clone(counters)
                    })
                });
            let listener = Arc::new(Listener {
                config: config.clone(),
                pool,
                counters: Arc::clone(counters),
                slots: Arc::clone(slots),
            });
            for bind in &config.binds {
                compiled
                    .by_bind
                    .entry(*bind)
                    .or_insert_with(|| Arc::clone(&listener));
            }
            compiled.listeners.insert(config.id, listener);
        }
        self.listeners.retain(|id, (counters, _)| {
            compiled.listeners.contains_key(id) || counters.active() > 0
        });
        let named: std::collections::HashSet<(Uuid, Uuid)> = snapshot
            .pools
            .iter()
            .flat_map(|pool| pool.members.iter().map(|member| (pool.id, member.id)))
            .collect();
        self.members
            .retain(|key, counters| named.contains(key) || counters.active() > 0);
        for key in named {
            self.members
                .entry(key)
                .or_insert_with(|| Arc::new(Counters::new(threads)));
        }
        compiled
    }

    /// Lets every accept loop look at the snapshot anew.
    pub(crate) fn wake_acceptors(&self) {
        for (_, slots) in self.listeners.values() {
            slots.wake_all();
        }
    }

    pub(crate) fn stats(&self, shared: &Shared) -> Stats {
        let mut stats = Stats {
            refusals: shared.refusals.read(),
            ..Stats::default()
        };
        for (id, (counters, slots)) in &self.listeners {
            let sum = counters.sum();
            stats.listeners.push(ListenerStats {
                id: *id,
                bytes_in: sum.bytes_in,
                bytes_out: sum.bytes_out,
                active_connections: sum.active,
                total_connections: sum.connections,
                request_errors: sum.request_errors,
                requests: sum.requests,
                full: slots.is_full(),
            });
        }
        for ((pool, id), counters) in &self.members {
            let sum = counters.sum();
            stats.members.push(MemberStats {
                pool: *pool,
                id: *id,
                bytes_in: sum.bytes_in,
                bytes_out: sum.bytes_out,
                active_connections: sum.active,
                total_connections: sum.connections,
                request_errors: sum.request_errors,
                requests: sum.requests,
                connect_failures: sum.connect_failures,
            });
        }
        stats.listeners.sort_by_key(|stats| stats.id);
        stats.members.sort_by_key(|stats| (stats.pool, stats.id));
        stats
    }
}
