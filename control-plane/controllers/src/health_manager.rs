//! The health manager: hears amphorae, writes what they report, replaces those that fall silent.
//!
//! - [`roll_up`]: what one heartbeat says of a load balancer, as a pure function on its graph.
//! - [`Liveness`]: who was heard when, which datagrams are refused, and when silence is a failure and when it is an
//!   outage of something larger. No IO; time is an argument.
//! - [`HealthManager`]: the socket and the database around them.
//!
//! Promises: a datagram from the wire costs bounded memory and never a panic; each refusal is counted by reason;
//! liveness is known in memory as soon as a datagram is in, whatever the database does; an outage of the database, a
//! stall of this process or a mass silence starts no failover.

mod counters;
mod liveness;
mod memory;
mod process;
mod replay;
mod roll_up;
mod service;
mod zombies;

#[cfg(test)]
mod tests;

pub use counters::Counters;
pub use liveness::{Liveness, LivenessSettings, Verdict};
pub use replay::Refusal;
pub use roll_up::{expected_listeners, roll_up};
pub use service::{
    CountersReader, Ended, HealthManager, HealthManagerDeps, HealthManagerSettings, HeartbeatKeys,
};
