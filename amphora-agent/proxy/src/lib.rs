//! The proxy of the amphora: HTTP/1.1 and plain TCP listeners in process.
//!
//! One thread a core, each with its own single-threaded runtime, its own `SO_REUSEPORT` listening
//! sockets and its own idle member connections. It takes a compiled [`Snapshot`], swaps it in
//! atomically, and reads it anew for every request, so a change is in force at once and closes no
//! connection. It knows nothing of REST, netlink or Octavia's JSON.

mod config;
mod error;
mod stats;

pub use config::{Algorithm, InsertHeaders, Listener, Member, Options, Pool, Protocol, Snapshot};
pub use error::{ApplyReport, BindError, Error};
pub use stats::{ListenerStats, MemberStats, Refusal, Stats};
