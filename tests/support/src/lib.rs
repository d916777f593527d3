//! What tests, demo and benchmarks share: a whole local stack with tenant hosts, traffic, and an API client.
//!
//! Everything here is a value that cleans up after itself when dropped, also on panic.

mod api;

pub use api::{Answer, Api};
