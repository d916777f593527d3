//! The checks of members, on the tenant's threads; who is down outlives the process.

use std::collections::BTreeMap;
use std::sync::Arc;

use amphora_health::{Runner, States, Status, Target, TargetKey};
use tokio::sync::{Mutex, watch};

use super::lock;
use super::tenant::Tenant;
use crate::down::DownMembers;

pub(super) struct Checks {
    runner: Runner,
    changes: Mutex<watch::Receiver<Arc<States>>>,
    down: std::sync::Mutex<DownMembers>,
}

impl Checks {
    pub(super) fn start(tenant: &Tenant, down: DownMembers) -> Self {
        let runner = Runner::remembering(tenant.handle(), down.keys());
        let changes = Mutex::new(runner.subscribe());
        let down = std::sync::Mutex::new(down);
        Checks {
            runner,
            changes,
            down,
        }
    }

    /// Writes down who is down.
    pub(super) fn save(&self, states: &BTreeMap<TargetKey, Status>) {
        lock(&self.down).save(states);
    }

    pub(super) fn set_targets(&self, targets: Vec<Target>) {
        self.runner.set_targets(targets);
    }

    pub(super) fn states(&self) -> BTreeMap<TargetKey, Status> {
        self.runner.states()
    }

    /// Waits until a member went up or down since the last call.
    pub(super) async fn changed(&self) {
        if self.changes.lock().await.changed().await.is_err() {
            // The tenant's runtime ends, and the process with it.
            std::future::pending::<()>().await;
        }
    }
}
