//! Health checks of members, one scheduler for the fast path and the proxy.
//!
//! The [`Scheduler`] decides what to check and what a result means (sans-IO, time is an argument);
//! the [`Runner`] makes the probes and tells what changed. Neither knows who uses the states.

mod probe;
mod runner;
mod scheduler;
mod target;

pub use runner::{Runner, States};
pub use scheduler::{Outcome, Probe, ProbeId, Scheduler, Transition};
pub use target::{
    Check, ExpectedCodes, HttpVersion, ParseExpectedCodesError, State, Status, Target, TargetKey,
};
