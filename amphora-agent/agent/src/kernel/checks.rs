//! The checks of members, on the tenant's threads.

use std::collections::BTreeMap;
use std::sync::Arc;

use amphora_health::{Runner, States, Status, Target, TargetKey};
use tokio::sync::{Mutex, watch};

use super::tenant::Tenant;

pub(super) struct Checks {
    runner: Runner,
    changes: Mutex<watch::Receiver<Arc<States>>>,
}

impl Checks {
    pub(super) fn start(tenant: &Tenant) -> Self {
        let runner = Runner::start(tenant.handle());
        let changes = Mutex::new(runner.subscribe());
        Checks { runner, changes }
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
