//! Packets in, verdict and packet out: one table, run through the userspace twin, through the
//! classifier and through XDP.

mod cases;
mod kernel;
mod properties;
mod rig;
#[path = "../lab/support.rs"]
#[allow(
    dead_code,
    reason = "this test needs the namespaces only, not the traffic"
)]
mod support;
mod wire;
