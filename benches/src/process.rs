//! Child processes that end with their owner.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::stop::Stop;

/// Files in the scratch folder that hold what a process said.
pub(crate) const OUT: &str = "stdout";
pub(crate) const ERR: &str = "stderr";

/// How long it may take to end when asked, before it is killed.
const PATIENCE: Duration = Duration::from_secs(10);
/// How much of what it said is shown, from each end: a verifier's log is longer than anyone reads, its beginning
/// names the program; what went wrong in a daemon is at its end.
const SHOWN: usize = 500;

/// A child process, ended when dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
}

impl Process {
    /// Starts it; what it says goes to files in `scratch`.
    pub(crate) fn spawn(command: &mut Command, scratch: &Path) -> Result<Self> {
        let file = |name| {
            let path = scratch.join(name);
            File::create(&path).with_context(|| format!("make {}", path.display()))
        };
        let child = command
            .stdout(file(OUT)?)
            .stderr(file(ERR)?)
            .spawn()
            .with_context(|| format!("start {command:?}"))?;
        Ok(Process { child })
    }

    /// How it ended, if it did.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// The process and its descendants.
    pub(crate) fn family(&self) -> Vec<u32> {
        family(self.child.id())
    }
}

/// A process and its descendants, whichever thread forked them.
pub(crate) fn family(pid: u32) -> Vec<u32> {
    let mut all = vec![pid];
    let mut next = 0;
    while let Some(pid) = all.get(next).copied() {
        next += 1;
        let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
        for thread in threads.into_iter().flatten().flatten() {
            let children = std::fs::read_to_string(thread.path().join("children"));
            all.extend(
                children
                    .unwrap_or_default()
                    .split_ascii_whitespace()
                    .filter_map(|pid| pid.parse::<u32>().ok()),
            );
        }
    }
    all
}

/// What a process said, without its middle when it is long.
pub(crate) fn said(scratch: &Path) -> String {
    let text: String = [OUT, ERR]
        .iter()
        .filter_map(|name| std::fs::read_to_string(scratch.join(name)).ok())
        .collect();
    let text = text.trim();
    let length = text.chars().count();
    if length <= 2 * SHOWN {
        return text.to_owned();
    }
    let head: String = text.chars().take(SHOWN).collect();
    let tail: String = text.chars().skip(length - SHOWN).collect();
    format!("{head} [...] {tail}")
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Ok(pid) = i32::try_from(self.child.id()) {
            // Gone already is fine: `wait` below collects it.
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        let ended = Stop::default().wait_for(PATIENCE, || {
            self.child.try_wait().is_ok_and(|status| status.is_some())
        });
        if !matches!(ended, Ok(true)) {
            drop(self.child.kill());
            drop(self.child.wait());
        }
    }
}
