//! What tests, demo and benchmarks share: a whole local stack with tenant hosts, traffic, and an API client.
//!
//! Everything here is a value that cleans up after itself when dropped, also on panic.

mod api;
mod balancer;
mod client;
mod group;
mod heat;
pub mod http;
mod inside;
pub mod keystone;
mod leftovers;
mod member;
mod region;
mod replica;
pub mod scene;
mod stack;
mod tempest;
mod venv;
mod wsgi;

pub use api::{Answer, Api};
pub use balancer::Balancer;
pub use client::{
    LongLived, Probe, Sample, Tally, Traffic, first_answer, http_requests, tcp_connections,
    udp_exchanges,
};
pub use heat::Heat;
pub use inside::{Background, Stop, inside};
pub use leftovers::ensure_nothing_left;
pub use member::{Member, Service};
pub use region::Region;
pub use replica::{Replica, control_plane};
pub use stack::{NETWORKS, Stack, StackOptions, binary};
pub use tempest::{Roles, Summary, run_tempest};
pub use venv::venv;
