//! Housekeeping: removes rows of load balancers and amphorae that are `DELETED` for long enough, and idempotency keys
//! whose time is over.
//!
//! Until then such a row lets a server that outlived its amphora be recognised, and an operator see what happened.

use std::future::Future;
use std::time::Duration;

use lb_model::{Clock, Timestamp};
use lb_store::{Purged, Store, StoreError};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HousekeepingSettings {
    /// `[house_keeping] cleanup_interval`.
    pub cleanup_interval: Duration,
    /// How long rows are kept (`load_balancer_expiry_age`, `amphora_expiry_age`).
    pub expiry_age: Duration,
}

impl Default for HousekeepingSettings {
    fn default() -> Self {
        Self {
            cleanup_interval: Duration::from_secs(30),
            expiry_age: Duration::from_secs(604_800),
        }
    }
}

pub struct Housekeeping {
    store: Store,
    settings: HousekeepingSettings,
    clock: Clock,
}

impl Housekeeping {
    pub fn new(store: Store, settings: HousekeepingSettings, clock: Clock) -> Self {
        Self {
            store,
            settings,
            clock,
        }
    }

    /// Runs until `shutdown` is done. Any number of replicas may run at once.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let mut ticks = tokio::time::interval(self.settings.cleanup_interval);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        tokio::pin!(shutdown);
        loop {
            tokio::select! {
                () = &mut shutdown => return,
                _ = ticks.tick() => {}
            }
            let now = (self.clock)();
            if let Err(error) = self.store.purge_receipts(now).await {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "remove old idempotency keys"
                );
            }
            match self.purge(now).await {
                Ok(purged) if purged == Purged::default() => {}
                Ok(Purged {
                    load_balancers,
                    amphorae,
                }) => tracing::info!(load_balancers, amphorae, "removed rows deleted long ago"),
                Err(error) => tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "remove rows deleted long ago"
                ),
            }
        }
    }

    /// One pass at `now`.
    pub async fn purge(&self, now: Timestamp) -> Result<Purged, StoreError> {
        let age = i64::try_from(self.settings.expiry_age.as_millis()).unwrap_or(i64::MAX);
        self.store.purge_deleted(now.plus_millis(-age)).await
    }
}
