//! One of several control planes on a database they share, with drivers that do nothing.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::{Api, binary};

/// For replicas without a Keystone.
const NO_IDENTITY: &str = "[api]\nauth_strategy = \"noauth\"";

/// A control plane with all roles as a process of its own. Dropping it ends it and removes what it kept.
#[derive(Debug)]
pub struct Replica {
    child: Child,
    api: Option<Api>,
    output: BufReader<std::process::ChildStdout>,
    directory: TempDir,
}

impl Replica {
    /// Starts it and returns when its API answers. Its database must have the schema.
    pub fn start(database: &str) -> Result<Self> {
        Self::start_with(database, NO_IDENTITY)
    }

    /// The same, with more configuration (TOML).
    pub fn start_with(database: &str, config: &str) -> Result<Self> {
        let mut replica = Self::launch_with(database, config)?;
        replica.wait_until_it_listens()?;
        Ok(replica)
    }

    /// Starts it and does not wait.
    pub fn launch(database: &str) -> Result<Self> {
        Self::launch_with(database, NO_IDENTITY)
    }

    fn launch_with(database: &str, config: &str) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let log = File::create(directory.path().join("log"))?;
        let mut child = command(database, config, &directory)?
            .args(["all", "--bind", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .context("start control-plane")?;
        let output = child.stdout.take().context("no standard output")?;
        Ok(Self {
            child,
            api: None,
            output: BufReader::new(output),
            directory,
        })
    }

    pub fn wait_until_it_listens(&mut self) -> Result<()> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        let Some(address) = line.trim().strip_prefix("listening on ") else {
            bail!("control-plane did not start:\n{}", self.log()?);
        };
        self.api = Some(Api::new(address.parse().context("address of the API")?));
        Ok(())
    }

    /// The API; an error while it is not known to listen.
    pub fn api(&self) -> Result<Api> {
        self.api.clone().context("the API does not listen yet")
    }

    /// `kill -9`.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill().context("kill control-plane")?;
        self.child.wait().context("wait for control-plane")?;
        Ok(())
    }

    /// Everything it logged so far.
    pub fn log(&self) -> Result<String> {
        std::fs::read_to_string(self.directory.path().join("log")).context("read log")
    }

    /// Returns when a line of the log contains `text`.
    pub async fn wait_for_log(&self, text: &str) -> Result<()> {
        let start = Instant::now();
        while !self.log()?.contains(text) {
            if start.elapsed() > Duration::from_secs(60) {
                bail!("waited 60 s for {text:?} in the log:\n{}", self.log()?);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("control plane's log:\n{}", self.log().unwrap_or_default());
        }
        // It has ended if it cannot be killed.
        let _ = self.kill();
    }
}

/// Runs `control-plane` with these arguments on a database, to its end.
pub fn control_plane(database: &str, arguments: &[&str]) -> Result<Output> {
    let directory = tempfile::tempdir()?;
    command(database, NO_IDENTITY, &directory)?
        .args(arguments)
        .output()
        .context("run control-plane")
}

fn command(database: &str, config: &str, directory: &TempDir) -> Result<Command> {
    let file: PathBuf = directory.path().join("control-plane.toml");
    let state = directory.path().join("state");
    std::fs::create_dir_all(&state)?;
    std::fs::write(
        &file,
        format!(
            r#"
[database]
url = "{database}"
[worker]
lease_ms = 3000
poll_ms = 100
[drivers]
compute = "compute_noop_driver"
network = "network_noop_driver"
amphora = "amphora_noop_driver"
[local]
state_dir = "{}"
{config}
"#,
            state.display()
        ),
    )?;
    let mut command = Command::new(binary("control-plane")?);
    command.arg("--config").arg(file).stdin(Stdio::null());
    Ok(command)
}
