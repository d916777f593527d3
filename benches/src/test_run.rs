//! Nanoseconds per packet of the eBPF programs themselves, by `BPF_PROG_TEST_RUN`.
//!
//! An example of the loader's crate does it, as it has the packets and the maps at hand; it prints a JSON object a line.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::netns;

const EXAMPLE: &str = "test_run";

pub(crate) fn run() -> Result<Vec<Value>> {
    let program = std::env::current_exe()
        .context("find this program")?
        .with_file_name("examples")
        .join(EXAMPLE);
    ensure!(
        program.exists(),
        "{} is not built: cargo build --release -p xdp-lb --examples",
        program.display()
    );
    let output = netns::run(&mut Command::new(program))?;
    output
        .lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| serde_json::from_str(line).with_context(|| format!("read {line:?}")))
        .collect()
}
