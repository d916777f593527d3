//! The worker: reconciles load balancers, one lease at a time.
//!
//! ```text
//!  claim a lease -> load the graph -> observe the world -> plan (pure) -> apply -+-> plan is empty: finish
//!                        ^                                                        |
//!                        +--------------------------------------------------------+
//! ```
//!
//! Owns nothing: all state is in the database and in the world, so any worker goes on where another one died. It
//! promises that nothing stays pending for ever, that what it writes is fenced by its lease, and that a document's
//! generation is claimed before the document is sent. It must never decide anything the planner can.
//!
//! | module | |
//! |---|---|
//! | `settings` | intervals, deadlines, what agents are told |
//! | `observe` | drivers' answers in the planner's words |
//! | `apply` | one step, by the drivers |
//! | `reconcile` | the loop above, back-off, giving up, the outcome |
//! | `sweep` | servers and ports that belong to nothing any more |

mod apply;
mod observe;
mod reconcile;
mod settings;
mod sweep;

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lb_drivers::{AmphoraDriver, CertificateAuthority, Compute, Network};
use lb_model::{Clock, LoadBalancerId, Timestamp};
use lb_store::Store;
use tokio::sync::watch;

pub use settings::{Deadlines, Settings};

use reconcile::Effort;
use sweep::Sweeper;

/// Everything a worker works with.
#[derive(Clone)]
pub struct WorkerDeps {
    pub store: Store,
    pub compute: Arc<dyn Compute>,
    pub network: Arc<dyn Network>,
    pub amphora: Arc<dyn AmphoraDriver>,
    pub ca: Arc<CertificateAuthority>,
    pub settings: Settings,
    pub clock: Clock,
}

/// A worker: `settings.tasks` load balancers at once.
pub struct Worker {
    deps: WorkerDeps,
    /// Since when each generation is being tried. Lost with the process: another one gives it its full time again.
    efforts: Mutex<HashMap<LoadBalancerId, Effort>>,
}

/// How long work in progress may go on after a shutdown is asked for.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(10);

impl Worker {
    pub fn new(deps: WorkerDeps) -> Self {
        Self {
            deps,
            efforts: Mutex::new(HashMap::new()),
        }
    }

    /// Works until `shutdown` is done; then finishes what is in progress, for at most ten seconds. Work that is cut
    /// off goes on with another worker when the lease has run out.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let (stop, stopping) = watch::channel(false);
        let tasks = (0..self.deps.settings.tasks.max(1)).map(|_| self.task(stopping.clone()));
        let work = async {
            tokio::join!(
                futures_util::future::join_all(tasks),
                self.sweep(stopping.clone())
            );
        };
        tokio::pin!(work);
        tokio::select! {
            () = &mut work => return,
            () = shutdown => {}
        }
        stop.send_replace(true);
        if tokio::time::timeout(SHUTDOWN_GRACE, work).await.is_err() {
            tracing::warn!("work in progress is cut off; another worker goes on with it");
        }
    }

    /// Reconciles whatever is due now, then returns how many leases it took.
    pub async fn run_due(&self) -> usize {
        let mut leases = 0;
        while let Some(lease) = self.claim().await {
            leases += 1;
            self.reconcile(lease).await;
        }
        leases
    }

    async fn task(&self, mut stopping: watch::Receiver<bool>) {
        let mut changed = self.deps.store.changed();
        while !*stopping.borrow() {
            changed.mark_unchanged();
            if let Some(lease) = self.claim().await {
                self.reconcile(lease).await;
                continue;
            }
            tokio::select! {
                _ = changed.changed() => {}
                () = tokio::time::sleep(self.deps.settings.poll) => {}
                _ = stopping.changed() => {}
            }
        }
    }

    async fn claim(&self) -> Option<lb_store::Lease> {
        let Settings { owner, lease, .. } = &self.deps.settings;
        match self.deps.store.claim(owner, *lease, self.now()).await {
            Ok(lease) => lease,
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "claim a load balancer"
                );
                None
            }
        }
    }

    async fn sweep(&self, mut stopping: watch::Receiver<bool>) {
        let mut sweeper = Sweeper::default();
        while !*stopping.borrow() {
            tokio::select! {
                () = tokio::time::sleep(self.deps.settings.sweep_interval) => {}
                _ = stopping.changed() => continue,
            }
            sweeper.sweep(&self.deps).await;
        }
    }

    fn now(&self) -> Timestamp {
        (self.deps.clock)()
    }
}
