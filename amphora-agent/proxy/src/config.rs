//! What the proxy is told: a whole snapshot of listeners and pools.
//!
//! Plain data with public fields. A snapshot is complete in itself: what is not in it is removed.
//! It knows nothing of REST bodies or of Octavia's statuses; the agent compiles those into this.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

/// How the proxy's own threads are set up.
#[derive(Clone, Default)]
pub struct Options {
    /// Worker threads, each with a runtime, listening sockets and member connections of its own.
    /// 0 takes one for each core this process may use.
    pub threads: usize,
    /// Runs first on every worker thread, before it makes any socket (enter the tenant's network
    /// namespace here). A panic in it makes [`crate::Proxy::start`] fail.
    pub on_thread_start: Option<Arc<dyn Fn() + Send + Sync>>,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("threads", &self.threads)
            .field("on_thread_start", &self.on_thread_start.is_some())
            .finish()
    }
}

/// Everything the proxy serves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    pub listeners: Vec<Listener>,
    pub pools: Vec<Pool>,
}

/// One listener: the same service on each of `binds`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    pub id: Uuid,
    /// One address and port for each VIP. The address need not be on an interface yet.
    pub binds: Vec<SocketAddr>,
    pub protocol: Protocol,
    /// Without one (or when it names no pool of the snapshot) HTTP clients get 503 and TCP
    /// clients are closed after the accept.
    pub default_pool: Option<Uuid>,
    /// Concurrent client connections over all binds and threads; more wait in the kernel's accept
    /// queue. `None`: as many as file descriptors allow.
    pub connection_limit: Option<u32>,
    pub insert_headers: InsertHeaders,
    /// Client-side inactivity, and the time a client has for a whole request head.
    pub timeout_client_data: Duration,
    /// One connect attempt to a member.
    pub timeout_member_connect: Duration,
    /// Member-side inactivity; for HTTP also the wait for the response head (504).
    pub timeout_member_data: Duration,
    /// Planned handover: keep accepting and answer everything, but end each keep-alive connection
    /// after its current response with `Connection: close`.
    pub draining: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    Http,
    Tcp,
}

/// Which request headers are written towards the member. HTTP listeners only.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InsertHeaders {
    /// One more header line after what the client sent, with the client's address.
    pub x_forwarded_for: bool,
    /// Replaces the client's: the port the client connected to.
    pub x_forwarded_port: bool,
    /// Replaces the client's: the scheme the client used.
    pub x_forwarded_proto: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    pub id: Uuid,
    pub algorithm: Algorithm,
    pub members: Vec<Member>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// Smooth weighted round robin, exact over all threads together.
    RoundRobin,
    /// Fewest requests (or connections) in flight relative to weight; round robin among equals.
    LeastConnections,
    /// Hash of the client's address modulo the total weight of the usable members.
    SourceIp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    pub id: Uuid,
    pub address: SocketAddr,
    /// 0 takes nothing new.
    pub weight: u16,
    /// Used, all backups together, only when no other member is usable.
    pub backup: bool,
    /// What the health checks say; members without a monitor are up.
    pub up: bool,
}
