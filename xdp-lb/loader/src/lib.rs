//! The fast path: loads the eBPF programs, keeps their maps in step with a [`Config`], reads counters.

mod config;
mod report;

pub use config::{
    Algorithm, AttachMode, Config, Interface, Member, Options, Protocol, SNAT_PORTS, Service,
};
pub use report::{InterfaceReport, MemberStats, Report, Stats, SweepReport, TrafficStats};
