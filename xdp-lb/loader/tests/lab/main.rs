//! The fast path on real packets: namespaces, veth, the kernel's own TCP, UDP and ICMP.
//!
//! Needs root. Names begin with `lab_`, so that runs without root can leave them out.

mod change;
mod support;
mod traffic;
