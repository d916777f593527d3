//! The fast path: loads the eBPF programs, keeps their maps in step with a [`Config`], reads counters.
//!
//! Shape: intent ([`Config`]), observation (the maps themselves, read back when a process before us
//! left them), difference (`apply`), idempotent writes. Owns the pins below its directory, and
//! nothing else of the network: addresses, routes and neighbours belong to the caller.
//!
//! Promises: a change of configuration never resets a flow; a restart loses none. Must never: panic
//! on what it finds in a map, or leave an interface without the program it reported.

mod allowed;
mod apply;
mod attach;
mod clock;
mod config;
mod error;
mod fast_path;
mod maps;
mod object;
mod report;
mod slots;
mod stats;
mod sweep;
mod sys;
mod validate;

pub use config::{
    Algorithm, AttachMode, Config, Interface, Member, Options, Protocol, SNAT_PORTS, Service,
};
pub use error::Error;
pub use fast_path::FastPath;
pub use report::{InterfaceReport, MemberStats, Report, Stats, SweepReport, TrafficStats};
