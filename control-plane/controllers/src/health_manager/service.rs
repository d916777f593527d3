//! The socket and the database around [`Liveness`]: three tasks that receive, work off and scan.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use amphora_api::{HeartbeatError, HeartbeatMessage, MAX_DATAGRAM_BYTES, decode_heartbeat};
use lb_drivers::Compute;
use lb_model::{AmphoraId, AmphoraStatus, Clock, Timestamp};
use lb_store::{Store, StoreError};
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::process::{Processor, Received, Strangers};
use super::zombies::Zombies;
use super::{Counters, Liveness, LivenessSettings, Refusal, Verdict};

/// Messages waiting to be worked off, at most.
const QUEUE: usize = 20_000;
/// About the memory those may take.
const QUEUE_BYTES: usize = 64 * 1024 * 1024;
/// Messages in one turn at the database.
const BATCH: usize = 512;
/// Messages that come within this share a turn.
const GATHER: Duration = Duration::from_millis(50);
/// The same complaint is logged once in this.
const LOG_EVERY_MILLIS: i64 = 60_000;
/// The database is tried again after this.
const DATABASE_PAUSE: Duration = Duration::from_millis(500);

/// Keys heartbeats may be signed with; several while one replaces another.
#[derive(Clone)]
pub struct HeartbeatKeys(Vec<Vec<u8>>);

impl HeartbeatKeys {
    pub fn new(keys: impl IntoIterator<Item = Vec<u8>>) -> Self {
        Self(keys.into_iter().collect())
    }
}

impl fmt::Debug for HeartbeatKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HeartbeatKeys({} redacted)", self.0.len())
    }
}

#[derive(Debug, Clone)]
pub struct HealthManagerSettings {
    pub liveness: LivenessSettings,
    pub keys: HeartbeatKeys,
}

pub struct HealthManagerDeps {
    pub store: Store,
    /// Deletes servers that outlived their amphora.
    pub compute: Arc<dyn Compute>,
    /// Bound, in whatever network namespace the amphorae send to.
    pub socket: UdpSocket,
    pub clock: Clock,
}

/// A task of the health manager ended though nobody asked it to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a task of the health manager ended")]
pub struct Ended;

pub struct HealthManager {
    deps: HealthManagerDeps,
    settings: HealthManagerSettings,
    shared: Arc<Shared>,
}

/// What the tasks share.
pub(super) struct Shared {
    clock: Clock,
    /// Locked for moments only.
    core: Mutex<Core>,
}

pub(super) struct Core {
    clock: Clock,
    pub(super) liveness: Liveness,
    pub(super) counters: Counters,
    logged: HashMap<&'static str, Timestamp>,
}

impl Shared {
    pub(super) fn new(settings: LivenessSettings, clock: Clock) -> Self {
        Self {
            core: Mutex::new(Core {
                liveness: Liveness::new(settings, clock()),
                counters: Counters::default(),
                logged: HashMap::new(),
                clock: clock.clone(),
            }),
            clock,
        }
    }

    pub(super) fn with<T>(&self, f: impl FnOnce(&mut Core) -> T) -> T {
        f(&mut self.core.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn now(&self) -> Timestamp {
        (self.clock)()
    }
}

impl Core {
    /// True once in a while for each kind of complaint.
    pub(super) fn may_log(&mut self, what: &'static str) -> bool {
        let now = (self.clock)();
        let due = self
            .logged
            .get(what)
            .is_none_or(|last| now.millis_since(*last) >= LOG_EVERY_MILLIS);
        if due {
            self.logged.insert(what, now);
        }
        due
    }
}

/// Reads the counters of a health manager that runs.
#[derive(Clone)]
pub struct CountersReader(Arc<Shared>);

impl CountersReader {
    pub fn read(&self) -> Counters {
        self.0.with(|core| core.counters)
    }
}

impl HealthManager {
    pub fn new(deps: HealthManagerDeps, settings: HealthManagerSettings) -> Self {
        let shared = Arc::new(Shared::new(settings.liveness.clone(), deps.clock.clone()));
        Self {
            deps,
            settings,
            shared,
        }
    }

    pub fn counters(&self) -> CountersReader {
        CountersReader(self.shared.clone())
    }

    /// Runs until `shutdown` is done.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), Ended> {
        let Self {
            deps,
            settings,
            shared,
        } = self;
        let (queue, waiting) = mpsc::channel(QUEUE);
        let queued = Arc::new(AtomicUsize::new(0));
        let mut tasks = JoinSet::new();
        tasks.spawn(
            Receiver {
                socket: deps.socket,
                keys: settings.keys,
                shared: shared.clone(),
                queue,
                queued: queued.clone(),
            }
            .run(),
        );
        tasks.spawn(
            Worker {
                store: deps.store.clone(),
                compute: deps.compute,
                shared: shared.clone(),
                zombies: Arc::default(),
                waiting,
                queued,
            }
            .run(),
        );
        tasks.spawn(
            Scanner {
                store: deps.store.clone(),
                shared: shared.clone(),
                interval: settings.liveness.scan_interval,
            }
            .run(),
        );
        let ended = tokio::select! {
            () = shutdown => Ok(()),
            _ = tasks.join_next() => Err(Ended),
        };
        tasks.shutdown().await;
        // Signs of life that were not written yet spare the next health manager a wait.
        let unwritten = shared.with(|core| core.liveness.unwritten());
        if let Err(error) = deps.store.record_heartbeats(&unwritten).await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "write the last heartbeats"
            );
        }
        ended
    }
}

struct Receiver {
    socket: UdpSocket,
    keys: HeartbeatKeys,
    shared: Arc<Shared>,
    queue: mpsc::Sender<Received>,
    queued: Arc<AtomicUsize>,
}

impl Receiver {
    async fn run(self) {
        let mut buffer = vec![0; MAX_DATAGRAM_BYTES + 1];
        loop {
            match self.socket.recv_from(&mut buffer).await {
                Ok((length, _)) => {
                    if let Some(datagram) = buffer.get(..length) {
                        self.take_in(datagram);
                    }
                }
                Err(error) => {
                    let first = self.shared.with(|core| {
                        core.counters.receive_errors += 1;
                        core.may_log("receive")
                    });
                    if first {
                        tracing::warn!(
                            error = &error as &dyn std::error::Error,
                            "receive heartbeat"
                        );
                    }
                    // An error that stays must not turn this into a busy loop.
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        }
    }

    fn take_in(&self, datagram: &[u8]) {
        let decoded = decode(datagram, &self.keys);
        let now = self.shared.now();
        self.shared.with(|core| core.counters.received += 1);
        let message = match decoded {
            Ok(message) => message,
            Err(error) => {
                let first = self.shared.with(|core| {
                    core.counters.undecodable(error);
                    core.may_log("undecodable")
                });
                if first {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "heartbeat refused; further refusals are counted"
                    );
                }
                return;
            }
        };
        let admitted = self.shared.with(|core| core.liveness.admit(&message, now));
        let refused = match admitted {
            Ok(lost) => {
                let weight = weight(&message);
                let queued = self.queued.fetch_add(weight, Ordering::Relaxed);
                let room = queued.saturating_add(weight) <= QUEUE_BYTES;
                if room && self.queue.try_send(Received { message, at: now }).is_ok() {
                    self.shared.with(|core| {
                        core.counters.lost = core.counters.lost.saturating_add(lost);
                    });
                    return;
                }
                self.queued.fetch_sub(weight, Ordering::Relaxed);
                Refusal::Overflow
            }
            Err(refusal) => refusal,
        };
        let first = self.shared.with(|core| {
            core.counters.refused(refused);
            core.may_log("refused")
        });
        if first {
            tracing::warn!(
                error = &refused as &dyn std::error::Error,
                "heartbeat refused; further refusals are counted"
            );
        }
    }
}

/// The message, if one of the keys signed it.
pub(super) fn decode(
    datagram: &[u8],
    keys: &HeartbeatKeys,
) -> Result<HeartbeatMessage, HeartbeatError> {
    let mut answer = Err(HeartbeatError::BadHmac);
    for key in &keys.0 {
        answer = decode_heartbeat(datagram, key);
        if answer != Err(HeartbeatError::BadHmac) {
            break;
        }
    }
    answer
}

/// About the bytes a message takes while it waits.
fn weight(message: &HeartbeatMessage) -> usize {
    let members: usize = message.pools.values().map(|pool| pool.members.len()).sum();
    let entries = members
        .saturating_add(message.pools.len())
        .saturating_add(message.listeners.len())
        .saturating_add(message.totals.len());
    entries.saturating_mul(150).saturating_add(500)
}

struct Worker {
    store: Store,
    compute: Arc<dyn Compute>,
    shared: Arc<Shared>,
    zombies: Arc<Mutex<Zombies>>,
    waiting: mpsc::Receiver<Received>,
    queued: Arc<AtomicUsize>,
}

impl Worker {
    async fn run(mut self) {
        let mut processor = Processor::new(self.store.clone());
        let mut batch = Vec::new();
        while self.waiting.recv_many(&mut batch, BATCH).await > 0 {
            let taken = batch.iter().map(|received| weight(&received.message)).sum();
            self.queued.fetch_sub(taken, Ordering::Relaxed);
            let batch = std::mem::take(&mut batch);
            let full = batch.len() == BATCH;
            let now = self.shared.now();
            match processor.work_off(batch, &self.shared, now).await {
                Ok(strangers) => {
                    answered(&self.shared);
                    self.remove(strangers).await;
                }
                Err(error) => {
                    processor.forget_samples();
                    failed(&self.shared, &error, "work off heartbeats");
                    tokio::time::sleep(DATABASE_PAUSE).await;
                }
            }
            if !full {
                tokio::time::sleep(GATHER).await;
            }
        }
    }

    /// Asks for the deletion of servers that outlived their amphora.
    async fn remove(&self, strangers: Strangers) {
        if strangers.is_empty() {
            return;
        }
        let known = match self.store.watched_amphorae().await {
            Ok(known) => usize::try_from(known).unwrap_or(usize::MAX),
            Err(error) => return failed(&self.shared, &error, "count amphorae"),
        };
        for (id, row) in strangers {
            let ask = lock(&self.zombies).heard(id, row, known, self.shared.now());
            if !ask {
                continue;
            }
            self.shared
                .with(|core| core.counters.zombie_deletions_requested += 1);
            tracing::warn!(amphora_id = %id, ?row, "heartbeat of an amphora that should be gone, deleting its server");
            let compute = self.compute.clone();
            let zombies = self.zombies.clone();
            let shared = self.shared.clone();
            tokio::spawn(async move {
                if let Err(error) = compute.delete_server(id).await {
                    tracing::warn!(
                        amphora_id = %id,
                        error = &error as &dyn std::error::Error,
                        "delete server that outlived its amphora"
                    );
                    lock(&zombies).deletion_failed(id, shared.now());
                }
            });
        }
    }
}

struct Scanner {
    store: Store,
    shared: Arc<Shared>,
    interval: Duration,
}

impl Scanner {
    async fn run(self) {
        let mut ticks = tokio::time::interval(self.interval);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if let Err(error) = self.scan().await {
                failed(&self.shared, &error, "look for silent amphorae");
            }
        }
    }

    async fn scan(&self) -> Result<(), StoreError> {
        let now = self.shared.now();
        let deadline = self.shared.with(|core| core.liveness.deadline(now));
        let stale = self.store.stale_amphorae(deadline).await?;
        let watched = usize::try_from(self.store.watched_amphorae().await?).unwrap_or(usize::MAX);
        let marked = self.store.stopped_amphorae().await?;
        answered(&self.shared);
        let verdict = self.shared.with(|core| {
            core.liveness.prune(now);
            core.liveness.judge(&stale, watched, &marked, now)
        });
        match verdict {
            Verdict::Grace { .. } => Ok(()),
            Verdict::HoldBack { stale, mark } => {
                let first = self.shared.with(|core| {
                    core.counters.scans_held_back += 1;
                    core.may_log("held back")
                });
                if first {
                    tracing::error!(
                        stale,
                        watched,
                        "too many amphorae are silent at once, automatic failover is held back"
                    );
                }
                self.store
                    .move_amphorae(
                        &mark,
                        AmphoraStatus::Allocated,
                        AmphoraStatus::FailoverStopped,
                    )
                    .await
                    .map(|_| ())
            }
            Verdict::Act { fail_over, unmark } => {
                if !unmark.is_empty() {
                    self.store
                        .move_amphorae(
                            &unmark,
                            AmphoraStatus::FailoverStopped,
                            AmphoraStatus::Allocated,
                        )
                        .await?;
                    tracing::info!(amphorae = unmark.len(), "amphorae are heard again");
                }
                for id in fail_over {
                    self.fail_over(id, now).await?;
                }
                Ok(())
            }
        }
    }

    async fn fail_over(&self, id: AmphoraId, now: Timestamp) -> Result<(), StoreError> {
        if self.store.request_failover(id, now).await? {
            self.shared
                .with(|core| core.counters.failovers_requested += 1);
            tracing::warn!(amphora_id = %id, "amphora is silent, replacing it");
        }
        Ok(())
    }
}

fn answered(shared: &Shared) {
    let now = shared.now();
    if shared.with(|core| core.liveness.database_answered(now)) {
        tracing::info!("database answers again, silence of amphorae counts anew");
    }
}

fn failed(shared: &Shared, error: &StoreError, act: &'static str) {
    let first = shared.with(|core| {
        core.counters.database_errors += 1;
        core.liveness.database_failed();
        core.may_log("database")
    });
    if first {
        tracing::error!(error = error as &dyn std::error::Error, "{act}");
    }
}

fn lock(zombies: &Mutex<Zombies>) -> std::sync::MutexGuard<'_, Zombies> {
    zombies.lock().unwrap_or_else(PoisonError::into_inner)
}
