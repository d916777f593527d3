//! Drives the scheduler with real probes.
//!
//! One task holds the scheduler, one task a probe is under way. All of them, and with them every
//! socket, live on the runtime the runner was started on, whose threads the caller has put into
//! the network namespace of the members.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::task::{Id, JoinHandle, JoinSet};

use crate::probe;
use crate::scheduler::{Outcome, ProbeId, Scheduler};
use crate::target::{State, Status, Target, TargetKey};

/// The state of every target that is checked.
pub type States = BTreeMap<TargetKey, State>;

/// Checks its targets until it is dropped.
pub struct Runner {
    targets: UnboundedSender<Vec<Target>>,
    changes: watch::Receiver<Arc<States>>,
    scheduler: Arc<Mutex<Scheduler>>,
    task: JoinHandle<()>,
}

impl Runner {
    /// Starts with no targets, on `runtime`.
    pub fn start(runtime: &Handle) -> Runner {
        Runner::remembering(runtime, [])
    }

    /// Starts with no targets, and takes these to be down until they are checked.
    pub fn remembering(runtime: &Handle, down: impl IntoIterator<Item = TargetKey>) -> Runner {
        let (targets, new_targets) = unbounded_channel();
        let (changed, changes) = watch::channel(Arc::default());
        let scheduler = Arc::new(Mutex::new(Scheduler::remembering(down)));
        let task = runtime.spawn(run(Arc::clone(&scheduler), new_targets, changed));
        Runner {
            targets,
            changes,
            scheduler,
            task,
        }
    }

    /// Checks these from now on, and no others. The states of those that stay are kept.
    pub fn set_targets(&self, targets: Vec<Target>) {
        // At once, so that `states` knows them when this returns.
        lock(&self.scheduler).set_targets(targets.clone(), Instant::now());
        // The task ends with the runtime; then there is nothing to check with.
        let _ = self.targets.send(targets);
    }

    /// Changes when a member goes up or down and when targets come or go. Level-triggered: a slow
    /// reader misses states in between, never the last one.
    pub fn subscribe(&self) -> watch::Receiver<Arc<States>> {
        self.changes.clone()
    }

    /// Where every target stands, with its progress.
    pub fn states(&self) -> BTreeMap<TargetKey, Status> {
        lock(&self.scheduler).states().collect()
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock(scheduler: &Mutex<Scheduler>) -> MutexGuard<'_, Scheduler> {
    scheduler.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn run(
    scheduler: Arc<Mutex<Scheduler>>,
    mut new_targets: UnboundedReceiver<Vec<Target>>,
    changed: watch::Sender<Arc<States>>,
) {
    let mut probes: JoinSet<(ProbeId, Outcome)> = JoinSet::new();
    let mut ids: HashMap<Id, ProbeId> = HashMap::new();
    loop {
        let due = lock(&scheduler).poll(Instant::now());
        for probe in due {
            let id = probe.id;
            let task = probes.spawn(async move { (id, probe::make(&probe.target).await) });
            ids.insert(task.id(), id);
        }
        let deadline = lock(&scheduler).next_deadline();
        let sleep = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            targets = new_targets.recv() => match targets {
                // The scheduler has them already.
                Some(_) => publish(&scheduler, &changed),
                None => return,
            },
            Some(ended) = probes.join_next_with_id() => {
                let (id, outcome) = match ended {
                    Ok((task, (id, outcome))) => {
                        ids.remove(&task);
                        (id, outcome)
                    }
                    Err(error) => {
                        let Some(id) = ids.remove(&error.id()) else { continue };
                        tracing::error!(%error, "health check ended abnormally");
                        (id, Outcome::Failure("the check itself failed".to_owned()))
                    }
                };
                let transition = lock(&scheduler).on_result(id, outcome, Instant::now());
                if let Some(transition) = transition {
                    let TargetKey { pool, member } = transition.key;
                    match transition.state {
                        State::Up => tracing::info!(%pool, %member, "member is up"),
                        State::Down => tracing::info!(%pool, %member, reason = transition.reason, "member is down"),
                    }
                    publish(&scheduler, &changed);
                }
            }
            () = sleep => {}
        }
    }
}

fn publish(scheduler: &Mutex<Scheduler>, changed: &watch::Sender<Arc<States>>) {
    let states: States = lock(scheduler)
        .states()
        .map(|(key, status)| (key, status.state))
        .collect();
    changed.send_if_modified(|current| {
        let differs = **current != states;
        if differs {
            *current = Arc::new(states);
        }
        differs
    });
}
