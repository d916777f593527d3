//! The proxy with real sockets on loopback: scripted members, raw clients.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod change;
mod hostile;
mod http;
mod support;
mod tcp;
