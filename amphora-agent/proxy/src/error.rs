//! What can go wrong when the proxy is started or told a new snapshot.

use std::io;
use std::net::SocketAddr;

use uuid::Uuid;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("start proxy thread {index}")]
    StartThread {
        index: usize,
        #[source]
        source: io::Error,
    },
    /// The thread ended before it was ready: `on_thread_start` panicked, or no runtime could be made.
    #[error("set up proxy thread {index}: {reason}")]
    SetUpThread { index: usize, reason: String },
}

/// What [`crate::Proxy::apply`] did with the listening sockets.
#[derive(Debug, Default)]
pub struct ApplyReport {
    /// Addresses that are listened on from now on and were not before.
    pub bound: Vec<SocketAddr>,
    /// Addresses no longer listened on.
    pub unbound: Vec<SocketAddr>,
    /// Addresses that could not be had. Everything else of the snapshot is in force; the next
    /// `apply` tries these again.
    pub errors: Vec<BindError>,
}

#[derive(Debug, thiserror::Error)]
#[error("bind listener {listener} to {address}")]
pub struct BindError {
    pub listener: Uuid,
    pub address: SocketAddr,
    #[source]
    pub source: io::Error,
}
