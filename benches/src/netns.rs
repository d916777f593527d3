//! Network namespaces of the rig, made and removed with `ip`.

use std::fs::File;
use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use nix::sched::{CloneFlags, setns};

/// A namespace this process made; gone when dropped, with every link in it.
#[derive(Debug)]
pub(crate) struct Netns {
    name: String,
}

impl Netns {
    pub(crate) fn create(name: String) -> Result<Self> {
        run(Command::new("ip").args(["netns", "add", &name]))?;
        let netns = Netns { name };
        netns.ip(&["link set lo up"])?;
        Ok(netns)
    }

    /// One that somebody else will make; gone, if it is there, when dropped.
    pub(crate) fn adopt(name: String) -> Self {
        Netns { name }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Moves the calling thread into the namespace.
    pub(crate) fn enter(&self) -> Result<()> {
        enter(&self.name)
    }

    /// Runs `ip` commands inside, in one go.
    pub(crate) fn ip<S: AsRef<str>>(&self, lines: &[S]) -> Result<()> {
        let mut child = Command::new("ip")
            .args(["-n", &self.name, "-batch", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("start ip")?;
        let text: String = lines
            .iter()
            .flat_map(|line| [line.as_ref(), "\n"])
            .collect();
        if let Some(mut input) = child.stdin.take() {
            input.write_all(text.as_bytes()).context("write to ip")?;
        }
        let output = child.wait_with_output().context("wait for ip")?;
        if !output.status.success() {
            bail!(
                "ip in {}: {}in: {text}",
                self.name,
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(())
    }

    /// A command that runs inside, in its own process group, and dies with this process.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.name])
            .args(["setpriv", "--pdeathsig", "TERM"])
            .arg(program)
            .stdin(Stdio::null())
            .process_group(0);
        command
    }

    /// Writes kernel settings of the namespace: (path below /proc/sys, value).
    pub(crate) fn sysctl(&self, settings: &[(&str, &str)]) -> Result<()> {
        self.inside(|| {
            for (path, value) in settings {
                std::fs::write(format!("/proc/sys/{path}"), value)
                    .with_context(|| format!("set {path} to {value}"))?;
            }
            Ok(())
        })
    }

    /// Runs `work` on a thread of its own inside the namespace.
    pub(crate) fn inside<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    self.enter()?;
                    work()
                })
                .join()
                .unwrap_or_else(|_| bail!("the thread inside {} panicked", self.name))
        })
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        if !std::path::Path::new(&format!("/run/netns/{}", self.name)).exists() {
            return;
        }
        if let Err(error) = run(Command::new("ip").args(["netns", "del", &self.name])) {
            eprintln!("remove namespace {}: {error:#}", self.name);
        }
    }
}

/// Moves the calling thread into the namespace called `name`.
pub(crate) fn enter(name: &str) -> Result<()> {
    let file = File::open(format!("/run/netns/{name}"))
        .with_context(|| format!("open namespace {name}"))?;
    setns(file, CloneFlags::CLONE_NEWNET).with_context(|| format!("enter namespace {name}"))
}

/// Removes namespaces of earlier runs whose process is gone (`<prefix><pid>-...`).
pub(crate) fn sweep(prefix: &str) -> Result<()> {
    let Ok(entries) = std::fs::read_dir("/run/netns") else {
        return Ok(());
    };
    for entry in entries {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let Some(pid) = name
            .strip_prefix(prefix)
            .and_then(|rest| rest.split('-').next())
            .and_then(|pid| pid.parse::<u32>().ok())
        else {
            continue;
        };
        if !std::path::Path::new(&format!("/proc/{pid}")).exists() {
            run(Command::new("ip").args(["netns", "del", &name]))?;
        }
    }
    Ok(())
}

/// Runs to the end; failure is an error with what the program said.
pub(crate) fn run(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("start {command:?}"))?;
    if !output.status.success() {
        bail!(
            "{command:?}: {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
