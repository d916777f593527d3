//! Absolute counters since the agent's first start, for `GET /2.0/stats`.
//!
//! With their epochs they say the same as the totals of a heartbeat, so that either may be stored, in any order.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AmphoraStats {
    pub listeners: BTreeMap<Uuid, ListenerStats>,
    /// Keyed by member id.
    pub members: BTreeMap<Uuid, MemberStats>,
    /// Packets by verdict of the fast path and refusals of the proxy, by reason.
    pub verdicts: BTreeMap<String, u64>,
    /// When the counters of each listener of the document began; see
    /// [`HeartbeatTotals::epoch`](crate::HeartbeatTotals::epoch).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub epochs: BTreeMap<Uuid, u64>,
}

/// Octavia's five numbers. `bytes_in` is what clients sent, `bytes_out` what they received.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenerStats {
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub active_connections: u64,
    pub total_connections: u64,
    pub request_errors: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberStats {
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub active_connections: u64,
    pub total_connections: u64,
    pub connect_failures: u64,
}
