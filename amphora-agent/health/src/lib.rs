//! Health checks of members, one scheduler for the fast path and the proxy.
//!
//! The scheduler decides (sans-IO, time is an argument); the runner makes the probes and tells
//! what changed. Neither knows who uses the states.

mod target;

pub use target::{
    Check, ExpectedCodes, HttpVersion, ParseExpectedCodesError, State, Status, Target, TargetKey,
};
