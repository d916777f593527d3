//! What the fast path did and what it counted.

use std::collections::BTreeMap;

use serde::Serialize;
use uuid::Uuid;

use crate::config::AttachMode;

/// Outcome of one [`crate::FastPath::apply`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    pub interfaces: Vec<InterfaceReport>,
    /// Writes to maps that this call made; 0 when nothing differed.
    pub changes: u64,
}

/// How one interface is attached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InterfaceReport {
    pub ifindex: u32,
    pub name: String,
    /// The mode in use; never `Auto`.
    pub mode: AttachMode,
    /// Why this mode.
    pub reason: String,
}

/// Outcome of one [`crate::FastPath::sweep`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct SweepReport {
    /// Table entries looked at by this call.
    pub scanned: u64,
    /// Flows (pairs of entries) removed.
    pub expired: u64,
    /// Whether this call finished a pass over the table.
    pub pass_complete: bool,
    /// Flows alive at the end of the last finished pass.
    pub flows: u64,
}

/// Everything counted since the maps were made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// By listener id; a configured listener is always present.
    pub listeners: BTreeMap<Uuid, TrafficStats>,
    /// Per listener and member.
    pub members: Vec<MemberStats>,
    /// Packets by verdict name.
    pub verdicts: BTreeMap<&'static str, u64>,
}

/// Traffic of a listener or of a member under a listener.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct TrafficStats {
    /// L4 payload bytes from clients to members, as forwarded (a retransmission counts again).
    pub bytes_in: u64,
    /// L4 payload bytes from members to clients, as forwarded.
    pub bytes_out: u64,
    pub packets_in: u64,
    pub packets_out: u64,
    /// TCP: handshakes completed by the client. UDP: flows begun.
    pub total_connections: u64,
    pub active_connections: u64,
    /// New flows refused: connection limit, no usable member, no SNAT port, no route.
    pub request_errors: u64,
}

/// Traffic of one member under one listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct MemberStats {
    pub listener: Uuid,
    pub member: Uuid,
    #[serde(flatten)]
    pub traffic: TrafficStats,
}
