//! What the agent asks of the part that does the work: put a document into force, tell what happens.
//!
//! Two implementations: [`crate::kernel::Kernel`] and the one of the tests, which only remembers.

use std::collections::{BTreeMap, BTreeSet};

use amphora_api::{AmphoraConfig, AmphoraStats, InterfaceInfo, ListenerInfo};
use amphora_health::{Status, TargetKey};
use async_trait::async_trait;
use uuid::Uuid;

/// Calls of `apply` and `refresh` come one after the other; `readings` may come at any time.
#[async_trait]
pub trait DataPlane: Send + Sync + 'static {
    /// Brings the world to what the document says. The same document again repairs what drifted, and does nothing
    /// else.
    async fn apply(&self, document: &AmphoraConfig) -> Outcome;

    /// Puts the members' present states into force.
    async fn refresh(&self, document: &AmphoraConfig) -> Outcome;

    /// Waits until a member's state changed since the last call.
    async fn member_changed(&self);

    async fn readings(&self) -> Readings;

    /// Ends what lives in this process; what lives in the kernel goes on.
    async fn stop(&self);
}

/// What an apply did and what it could not do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Each action taken, in order, as one readable line.
    pub actions: Vec<String>,
    /// Listeners that are not served, with the reason; retrying without another document does not help all of them.
    pub failed_listeners: BTreeMap<Uuid, String>,
    /// What is not as the document says; the agent tries again.
    pub problems: Vec<String>,
    pub interfaces: Vec<InterfaceInfo>,
    pub listeners: Vec<ListenerInfo>,
}

/// Counters and member states, as they are now.
#[derive(Debug, Clone, Default)]
pub struct Readings {
    /// `None` when the fast path cannot be asked: its counters are then unknown, not zero.
    pub fast: Option<AmphoraStats>,
    pub proxy: Option<AmphoraStats>,
    /// Listeners at their connection limit, as far as an engine says so itself.
    pub full: BTreeSet<Uuid>,
    /// Members under a health monitor.
    pub members: BTreeMap<TargetKey, Status>,
}
