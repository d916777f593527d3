//! A server process in a directory of its own.
#![allow(
    clippy::disallowed_methods,
    reason = "there is no runtime here: xtask starts servers, too"
)]

use std::fmt;
use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid, User};
use tempfile::TempDir;

const START_LIMIT: Duration = Duration::from_secs(90);
const STOP_LIMIT: Duration = Duration::from_secs(20);

/// Where a server keeps everything, owned by the user it runs as.
#[derive(Debug)]
pub(crate) struct Home {
    directory: TempDir,
    /// Set when we are root: servers refuse to be.
    user: Option<&'static str>,
}

impl Home {
    /// `user`: the one that the Debian package `package` makes.
    pub(crate) fn new(user: &'static str, package: &str) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("lb-db-").tempdir()?;
        if !Uid::effective().is_root() {
            return Ok(Self {
                directory,
                user: None,
            });
        }
        let Some(found) = User::from_name(user)? else {
            bail!("there is no user {user}: apt-get install {package}");
        };
        chown(
            directory.path(),
            Some(found.uid.as_raw()),
            Some(found.gid.as_raw()),
        )?;
        Ok(Self {
            directory,
            user: Some(user),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// A program that runs as the server's user and dies with us.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("setpriv");
        if let Some(user) = self.user {
            command.args([
                &format!("--reuid={user}"),
                &format!("--regid={user}"),
                "--init-groups",
            ]);
        }
        command
            .args(["--pdeathsig", "KILL", "--"])
            .arg(program)
            .current_dir(self.path())
            .stdin(Stdio::null());
        command
    }

    /// Runs a program to its end.
    pub(crate) fn run(&self, command: &mut Command) -> Result<()> {
        let output = command
            .output()
            .with_context(|| format!("run {command:?}"))?;
        if !output.status.success() {
            bail!(
                "{command:?}: {}\n{}{}",
                output.status,
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(())
    }

    fn log(&self) -> PathBuf {
        self.join("log")
    }
}

/// A server that runs. Dropping it ends it.
pub(crate) struct Process {
    child: Child,
    home: Home,
    command: Command,
    ready: Box<dyn Fn(&Home) -> bool + Send + Sync>,
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process")
            .field("command", &self.command)
            .finish_non_exhaustive()
    }
}

impl Process {
    /// Starts `command` and returns when `ready` holds.
    pub(crate) fn start(
        home: Home,
        mut command: Command,
        ready: impl Fn(&Home) -> bool + Send + Sync + 'static,
    ) -> Result<Self> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(home.log())
            .context("open log")?;
        command.stdout(log.try_clone()?).stderr(log);
        let child = spawn(&mut command)?;
        let mut process = Self {
            child,
            home,
            command,
            ready: Box::new(ready),
        };
        process.wait_until_ready()?;
        Ok(process)
    }

    /// After [`Process::kill`], with all it had written.
    pub(crate) fn start_again(&mut self) -> Result<()> {
        self.child = spawn(&mut self.command)?;
        self.wait_until_ready()
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        while !(self.ready)(&self.home) {
            if let Some(status) = self.child.try_wait()? {
                bail!("{:?} ended: {status}\n{}", self.command, self.log_tail());
            }
            if Instant::now() >= deadline {
                bail!(
                    "{:?} is not ready after {START_LIMIT:?}\n{}",
                    self.command,
                    self.log_tail()
                );
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    pub(crate) fn home(&self) -> &Home {
        &self.home
    }

    /// Of the server itself: what starts it becomes it.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// `kill -9`. Once it is dead this does nothing.
    pub(crate) fn kill(&mut self) {
        // What cannot be killed or waited for has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn log_tail(&self) -> String {
        let log = std::fs::read(self.home.log()).unwrap_or_default();
        let text = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    /// Asks with SIGQUIT, on which both servers end whoever is connected, PostgreSQL at once; then insists.
    pub(crate) fn stop(&mut self) {
        let pid = i32::try_from(self.child.id()).map(Pid::from_raw);
        if let Ok(pid) = pid
            && matches!(self.child.try_wait(), Ok(None))
            && kill(pid, Signal::SIGQUIT).is_ok()
        {
            let deadline = Instant::now() + STOP_LIMIT;
            while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        self.kill();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop();
    }
}

fn spawn(command: &mut Command) -> Result<Child> {
    command
        .spawn()
        .with_context(|| format!("start {command:?}"))
}

/// A port of loopback that was free a moment ago.
pub(crate) fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("find a free port")?;
    Ok(listener.local_addr()?.port())
}

/// A program from the search path or one of the folders that packages use for daemons.
pub(crate) fn program(name: &str, folders: &[PathBuf], package: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(folders.iter().cloned())
        .map(|folder| folder.join(name))
        .find(|file| file.exists())
        .with_context(|| format!("{name} is missing: apt-get install {package}"))
}
