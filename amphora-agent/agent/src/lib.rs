//! The agent of an amphora.
//!
//! ```text
//!  control plane ==HTTPS==> rest -> agent -> ledger (disk)
//!  health manager <=UDP=== heartbeat <-'|
//!                                       v
//!  observed (what the kernel holds) -> plan -> kernel: links, addresses, routes   (tenant namespace)
//!  document + members' states -> compile -> fast path, proxy, health checks       (tenant namespace)
//! ```
//!
//! Owns the tenant's network namespace and everything in it. Promises: a document is in force as a whole or its
//! problems are told and worked on; a restart loses neither the document nor an established layer-4 flow. Must never:
//! touch the management interface, make a tenant's socket outside the tenant's namespace, write a private key to disk.

pub mod agent;
pub mod compile;
pub mod config;
pub mod dataplane;
pub mod down;
pub mod heartbeat;
pub mod kernel;
pub mod ledger;
pub mod observed;
pub mod path;
pub mod plan;
pub mod rest;
pub mod secret;
pub mod stats;
pub mod sysctl;

#[cfg(test)]
mod samples;
