//! The API as clients see it: request, status, body. A real store in a temporary directory, the network in memory.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on says so by failing"
)]

mod amphorae;
mod audit;
mod cors;
mod filters;
mod health;
mod health_monitors;
mod hostile;
mod idempotency;
mod l7policies;
mod l7rules;
mod listeners;
mod lists;
mod load_balancers;
mod log;
mod members;
mod negotiation;
mod network_lookups;
mod offers;
mod openapi;
mod pains;
mod policy;
mod pools;
mod quotas;
mod reference;
mod routes;
mod support;
mod vips;
