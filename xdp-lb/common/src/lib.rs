//! The contract between the eBPF programs and their loader, and the whole data path as plain code.
//!
//! Everything here is `no_std` and makes no kernel call: keys and values of the maps, limits,
//! parsing, checksum maths, and [`datapath::process`], the life of one packet. The eBPF crate gives
//! it maps and helpers through [`env::Env`]; tests and fuzzers give it [`twin::Twin`] instead. So one
//! code runs in the kernel and under `cargo test`.
//!
//! Must never: depend on a kernel interface, allocate (outside the `user` feature), panic on input.

#![cfg_attr(not(any(test, feature = "user")), no_std)]
#![cfg_attr(target_arch = "bpf", feature(core_intrinsics))]
#![cfg_attr(
    target_arch = "bpf",
    allow(internal_features, reason = "see atomic.rs")
)]

pub mod address;
mod atomic;
pub mod checksum;
pub mod datapath;
pub mod env;
pub mod flow;
pub mod fragment;
#[cfg(any(test, feature = "user"))]
pub mod fuzzing;
pub mod hash;
pub mod icmp;
pub mod limits;
pub mod open;
pub mod packet;
pub mod parse;
#[cfg(feature = "aya")]
mod pod;
mod rewrite;
#[cfg(any(test, feature = "user"))]
pub mod schedule;
mod select;
pub mod state;
pub mod table;
pub mod tcp;
#[cfg(any(test, feature = "user"))]
pub mod twin;
pub mod verdict;
