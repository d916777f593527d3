//! Frames from the wire through the data path's userspace twin.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| xdp_lb_common::fuzzing::frames(data));
