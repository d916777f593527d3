//! Processes that end, with all they started, when the value that stands for them goes.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// A process and its descendants, as one process group; killed when dropped.
#[derive(Debug)]
pub(crate) struct Group {
    child: Child,
    log: PathBuf,
}

impl Group {
    /// Starts it; what it says goes to the end of `log`. It is told to end when the calling thread dies, should that
    /// be killed and drop nothing.
    pub(crate) fn spawn(command: &Command, log: &Path) -> Result<Self> {
        let file = File::options()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("open {}", log.display()))?;
        let child = mortal(command)
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .process_group(0)
            .spawn()
            .with_context(|| format!("start {command:?}"))?;
        Ok(Self {
            child,
            log: log.to_owned(),
        })
    }

    /// How it ended, if it did.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// The last lines it said.
    pub(crate) fn log_tail(&self) -> String {
        tail(&self.log)
    }

    /// `kill -9` of all of it.
    pub(crate) fn kill(&mut self) {
        if let Ok(id) = i32::try_from(self.child.id()) {
            // It may have ended by itself.
            let _ = killpg(Pid::from_raw(id), Signal::SIGKILL);
        }
        let _ = self.child.wait();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The same command, which gets SIGTERM when the thread that starts it dies.
fn mortal(command: &Command) -> Command {
    let mut mortal = Command::new("setpriv");
    mortal
        .args(["--pdeathsig", "TERM", "--"])
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => mortal.env(name, value),
            None => mortal.env_remove(name),
        };
    }
    if let Some(directory) = command.get_current_dir() {
        mortal.current_dir(directory);
    }
    mortal
}

/// The last lines of a file, for messages of failing tests.
pub(crate) fn tail(file: &Path) -> String {
    let log = std::fs::read(file).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}
