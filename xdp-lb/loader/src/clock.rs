//! The programs' time: ticks of the kernel, which only a program can read.

use aya::programs::{TestRunOptions, Xdp};
use aya::{Ebpf, TestRun};

use crate::error::Error;

pub(crate) const CLOCK: &str = "xdp_lb_clock";

/// The smallest frame the kernel runs a program on is shorter than this.
const FRAME: usize = 64;

/// The time that flows are stamped with, ns: one run of a program that is attached nowhere.
pub(crate) fn now(ebpf: &Ebpf) -> Result<u64, Error> {
    let program: &Xdp = ebpf
        .program(CLOCK)
        .and_then(|program| program.try_into().ok())
        .ok_or(Error::MissingInObject { what: CLOCK })?;
    let (frame, mut out) = ([0u8; FRAME], [0u8; FRAME]);
    let mut options = TestRunOptions::new();
    options.data_in = Some(&frame);
    options.data_out = Some(&mut out);
    program
        .test_run(options)
        .map_err(|source| Error::ReadClock {
            source: Box::new(source),
        })?;
    let [a, b, c, d, e, f, g, h, ..] = out;
    Ok(u64::from_ne_bytes([a, b, c, d, e, f, g, h]))
}
