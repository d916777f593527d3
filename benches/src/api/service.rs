//! A program with all it starts, as one group: nothing of it outlives the value that stands for it.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::process::family;
use crate::stop::Stop;

/// How long it may take to answer at first.
const START_LIMIT: Duration = Duration::from_secs(90);
/// How long it may take to end when asked, before it is killed.
const STOP_LIMIT: Duration = Duration::from_secs(5);
/// How much of its log is shown, in lines.
const SHOWN: usize = 30;

#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) name: &'static str,
    child: Child,
    log: PathBuf,
}

/// A command that dies with this program, however that ends.
pub(crate) fn bound_to_us(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM", "--"]).arg(program);
    command
}

impl Service {
    /// Starts it; what it says goes to a file in `scratch`.
    pub(crate) fn start(name: &'static str, command: &mut Command, scratch: &Path) -> Result<Self> {
        let log = scratch.join(format!("{name}.log"));
        let file = File::create(&log).with_context(|| format!("make {}", log.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            // Ctrl-C is for us: we end it when nothing is measured any more.
            .process_group(0)
            .spawn()
            .with_context(|| format!("start {command:?}"))?;
        Ok(Self { name, child, log })
    }

    /// Returns when `ready` holds, given its log.
    pub(crate) fn wait_for(&mut self, stop: &Stop, ready: impl Fn(&str) -> bool) -> Result<()> {
        let mut ended = None;
        let holds = stop.wait_for(START_LIMIT, || {
            ended = self.child.try_wait().ok().flatten();
            ended.is_some() || ready(&self.said())
        })?;
        match ended {
            Some(status) => bail!("{} ended: {status}\n{}", self.name, self.last_words()),
            None if !holds => bail!("{} does not come up\n{}", self.name, self.last_words()),
            None => Ok(()),
        }
    }

    pub(crate) fn pids(&self) -> Vec<u32> {
        family(self.child.id())
    }

    pub(crate) fn said(&self) -> String {
        let log = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    pub(crate) fn last_words(&self) -> String {
        let said = self.said();
        let lines: Vec<&str> = said.lines().collect();
        lines[lines.len().saturating_sub(SHOWN)..].join("\n")
    }

    /// Does not wait for it: dropping does.
    pub(crate) fn ask_to_end(&self) {
        self.signal(Signal::SIGTERM);
    }

    fn signal(&self, signal: Signal) {
        if let Ok(group) = i32::try_from(self.child.id()) {
            // It may have ended by itself.
            let _ = killpg(Pid::from_raw(group), signal);
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.ask_to_end();
        // Not ours: that one may have been told already, and this has to be waited for all the same.
        let patience = Stop::default();
        let _ = patience.wait_for(STOP_LIMIT, || !matches!(self.child.try_wait(), Ok(None)));
        self.signal(Signal::SIGKILL);
        let _ = self.child.wait();
    }
}
