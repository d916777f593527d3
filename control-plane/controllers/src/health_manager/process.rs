//! Works messages off: statuses, signs of life and statistics into the database, in batches.

use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};

use amphora_api::HeartbeatMessage;
use lb_model::{AmphoraId, AmphoraStatus, Graph, ListenerId, Timestamp};
use lb_store::{HeartbeatTarget, Reading, Statistics, StatsSample, Store, StoreError};

use super::memory::{Memory, Seen};
use super::service::Shared;
use super::zombies::Row;
use super::{Refusal, expected_listeners, roll_up};
use crate::statistics;

/// A message that was admitted.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) message: HeartbeatMessage,
    pub(super) at: Timestamp,
}

#[derive(Debug)]
pub(super) struct Processor {
    store: Store,
    memory: Memory,
}

/// Senders that are no amphorae of ours.
pub(super) type Strangers = Vec<(AmphoraId, Row)>;

impl Processor {
    pub(super) fn new(store: Store) -> Self {
        Self {
            store,
            memory: Memory::default(),
        }
    }

    /// On an error what was not reached stays as waiting in [`super::Liveness`]; statuses and totals come again with
    /// the next heartbeat, after [`Self::forget_samples`].
    pub(super) async fn work_off(
        &mut self,
        batch: Vec<Received>,
        shared: &Shared,
        now: Timestamp,
    ) -> Result<Strangers, StoreError> {
        self.memory.sweep(now);
        let ids: Vec<AmphoraId> = batch
            .iter()
            .map(|received| AmphoraId(received.message.id))
            .collect::<HashSet<_>>()
            .into_iter()
            .collect();
        let targets = self.store.heartbeat_targets(&ids).await?;
        let mut strangers = Vec::new();
        let mut samples = Vec::new();
        let mut latest: HashMap<AmphoraId, Received> = HashMap::new();
        for received in batch {
            let id = AmphoraId(received.message.id);
            match targets.get(&id) {
                Some(target) if target.status != AmphoraStatus::Deleted => {
                    let fresh = shared.with(|core| {
                        core.liveness
                            .prove(&received.message, received.at, target.newest)
                            .map_err(|refusal| core.counters.refused(refusal))
                    });
                    if fresh.is_err() {
                        continue;
                    }
                    let counted = samples_of(id, &received.message);
                    if self.memory.are_news(id, &counted, now) {
                        samples.extend(counted);
                    }
                    latest.insert(id, received);
                }
                target => {
                    shared.with(|core| {
                        core.liveness.forget(id);
                        core.counters.refused(Refusal::UnknownAmphora);
                    });
                    self.memory.forget(id);
                    let row = target.map_or(Row::Absent, |_| Row::Deleted);
                    if !strangers.contains(&(id, row)) {
                        strangers.push((id, row));
                    }
                }
            }
        }
        for (id, received) in latest {
            let Some(target) = targets.get(&id) else {
                continue;
            };
            let late = shared.with(|core| core.liveness.take_up(received.at, now));
            let alive = match late {
                Err(refusal) => {
                    shared.with(|core| core.counters.refused(refusal));
                    false
                }
                Ok(()) => {
                    shared.with(|core| core.counters.accepted += 1);
                    self.write_statuses(target, &received.message, shared, now)
                        .await?
                }
            };
            shared.with(|core| core.liveness.worked_off(id, received.at, alive));
        }
        let unwritten = shared.with(|core| core.liveness.unwritten());
        self.store.record_heartbeats(&unwritten).await?;
        shared.with(|core| core.liveness.written(&unwritten));
        self.store.add_listener_stats(&samples).await?;
        Ok(strangers)
    }

    pub(super) fn forget_samples(&mut self) {
        self.memory.forget_samples();
    }

    /// Whether the message counts as a sign of life.
    async fn write_statuses(
        &mut self,
        target: &HeartbeatTarget,
        message: &HeartbeatMessage,
        shared: &Shared,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        if !speaks_for_load_balancer(target.status) {
            return Ok(true);
        }
        let fingerprint = fingerprint(message);
        let known = self
            .memory
            .is_alive(target.amphora_id, target.revision, fingerprint);
        if let Some(alive) = known {
            return Ok(alive);
        }
        let update = self
            .store
            .update_operating_statuses(target.load_balancer_id, |graph| {
                if has_current_document(graph, target.amphora_id, message) {
                    roll_up(graph, message);
                }
            })
            .await;
        let update = match update {
            Ok(Some(update)) => update,
            Ok(None) => return Ok(true),
            Err(error) if error.is_transient() => return Err(error),
            Err(error) => {
                // One load balancer with a bad row must not keep the others from being heard.
                tracing::error!(
                    load_balancer_id = %target.load_balancer_id,
                    error = &error as &dyn std::error::Error,
                    "write operating statuses"
                );
                return Ok(true);
            }
        };
        let alive = expected_listeners(&update.graph)
            .is_none_or(|expected| expected.contains(&message.listeners.len()));
        if !alive {
            let first = shared.with(|core| {
                core.counters.listener_mismatches += 1;
                core.may_log("listener mismatch")
            });
            if first {
                tracing::warn!(
                    amphora_id = %target.amphora_id,
                    load_balancer_id = %target.load_balancer_id,
                    reported = message.listeners.len(),
                    "amphora does not serve the listeners it should, its heartbeat does not count"
                );
            }
        }
        let seen = Seen {
            revision: update.revision,
            fingerprint,
            alive,
        };
        self.memory.note(target.amphora_id, seen, now);
        Ok(alive)
    }
}

/// Statuses of an amphora that is being built or taken away say nothing of the load balancer.
const fn speaks_for_load_balancer(status: AmphoraStatus) -> bool {
    match status {
        AmphoraStatus::Allocated
        | AmphoraStatus::Ready
        | AmphoraStatus::PendingUpdate
        | AmphoraStatus::FailoverStopped => true,
        AmphoraStatus::Booting
        | AmphoraStatus::PendingCreate
        | AmphoraStatus::PendingDelete
        | AmphoraStatus::Error
        | AmphoraStatus::Deleted => false,
    }
}

/// A message that was on its way while a new document was pushed speaks of the old one.
fn has_current_document(graph: &Graph, id: AmphoraId, message: &HeartbeatMessage) -> bool {
    let Some(generation) = message.generation else {
        return true;
    };
    graph
        .amphorae
        .iter()
        .find(|amphora| amphora.id == id)
        .is_some_and(|amphora| generation >= amphora.config_generation)
}

fn fingerprint(message: &HeartbeatMessage) -> u64 {
    let mut hasher = DefaultHasher::new();
    message.generation.hash(&mut hasher);
    for (id, listener) in &message.listeners {
        (id, &listener.status).hash(&mut hasher);
    }
    for (key, pool) in &message.pools {
        (key, &pool.status, &pool.members).hash(&mut hasher);
    }
    hasher.finish()
}

/// Absolute counters where the sender offers them, else what its version of the message means.
pub(super) fn samples_of(amphora_id: AmphoraId, message: &HeartbeatMessage) -> Vec<StatsSample> {
    let absolute = message
        .totals
        .iter()
        .map(|(id, totals)| statistics::totals(amphora_id, *id, totals.epoch, &totals.counters));
    let others = message
        .listeners
        .iter()
        .filter(|(id, _)| !message.totals.contains_key(id))
        .map(|(id, listener)| {
            let counters = Statistics {
                bytes_in: listener.stats.rx,
                bytes_out: listener.stats.tx,
                active_connections: listener.stats.conns,
                total_connections: listener.stats.totconns,
                request_errors: listener.stats.ereq,
            };
            StatsSample {
                listener_id: ListenerId(*id),
                amphora_id,
                reading: if message.ver >= 3 {
                    Reading::Deltas(counters)
                } else {
                    Reading::Totals { epoch: 0, counters }
                },
            }
        });
    absolute.chain(others).collect()
}
