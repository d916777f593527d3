//! What the control plane and an amphora say to each other.
//!
//! Owns the types of the agent's REST interface (`/2.0`) and the codec of the heartbeat datagram. Both sides
//! depend on this crate and on nothing of each other.
//!
//! | call | body | answer |
//! |---|---|---|
//! | `PUT /2.0/config` | [`AmphoraConfig`] | [`ApplyReport`], 409 [`AgentFault`] for an older generation |
//! | `GET /2.0/info` | | [`AmphoraInfo`] |
//! | `GET /2.0/stats` | | [`AmphoraStats`] |

mod config;
mod heartbeat;
mod info;
mod stats;

pub use config::{
    AmphoraConfig, Check, ConfigError, Heartbeat, Interface, LbAlgorithm, Listener,
    ListenerProtocol, Member, Monitor, Pool, PoolProtocol, Route, SessionPersistence, Vip,
    VipState, parse_mac,
};
pub use heartbeat::{
    HeartbeatError, HeartbeatListener, HeartbeatListenerStats, HeartbeatMessage, HeartbeatPool,
    HeartbeatTotals, MAX_DATAGRAM_BYTES, MAX_MESSAGE_BYTES, decode_heartbeat, encode_heartbeat,
    pool_id_of_key,
};
pub use info::{AgentFault, AmphoraInfo, ApplyReport, InterfaceInfo, ListenerInfo, ListenerPath};
pub use stats::{AmphoraStats, ListenerStats, MemberStats};

/// Version of the REST interface described by this crate; the first path segment.
pub const API_VERSION: &str = "2.0";

/// TCP port the agent listens on unless configured otherwise (as in Octavia, `[haproxy_amphora] bind_port`).
pub const AGENT_PORT: u16 = 9443;

/// UDP port of the health manager (as in Octavia, `[health_manager] bind_port`).
pub const HEARTBEAT_PORT: u16 = 5555;
