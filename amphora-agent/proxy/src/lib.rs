//! The proxy of the amphora: HTTP/1.1 and plain TCP listeners in process.
//!
//! One thread a core, each with its own single-threaded runtime, its own `SO_REUSEPORT` listening
//! sockets and its own idle member connections. It takes a compiled [`Snapshot`], swaps it in
//! atomically, and reads it anew for every request, so a change is in force at once and closes no
//! connection. It knows nothing of REST, netlink or Octavia's JSON.
//!
//! Where to read: `proxy` (the handle), `worker` (a thread), `listener` (accepting), `router` (the
//! snapshot), `pool` and `balance` (choosing a member), `dial` and `idle` (reaching it), `http`
//! (a client connection), `pump` and `tunnel` (moving bytes), `tcp`.

mod admission;
mod balance;
mod buffer;
mod config;
mod dial;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod http;
mod idle;
mod listener;
mod pool;
mod proxy;
mod pump;
mod router;
mod stats;
mod tcp;
mod timer;
mod transport;
mod tunnel;
mod worker;

pub use config::{Algorithm, InsertHeaders, Listener, Member, Options, Pool, Protocol, Snapshot};
pub use error::{ApplyReport, BindError, Error};
pub use proxy::Proxy;
pub use stats::{ListenerStats, MemberStats, Refusal, Stats};
