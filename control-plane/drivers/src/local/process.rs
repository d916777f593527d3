//! Processes that outlive us: started detached, found again by process id and start time, killed by descriptor.
//!
//! A process id alone is never trusted: it may be another process by now. Start time (clock ticks since boot) and
//! the boot's id make it unique.

use std::fs;
use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{Pid, setsid};
use serde::{Deserialize, Serialize};

use super::netns::Netns;
use super::record;
use crate::DriverError;

/// How long a killed process may take to be gone.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// A process, told from any other that ever has its id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessRecord {
    pub(crate) pid: i32,
    pub(crate) start_time_ticks: u64,
    pub(crate) boot_id: String,
}

impl ProcessRecord {
    /// The process that now has this id; `None` when there is none, or only its remains.
    pub(crate) fn of(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name is in parentheses and may hold anything; fields are counted after its end.
        let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
        let state = fields.next()?;
        if matches!(state, "Z" | "X" | "x") {
            return None;
        }
        // Field 22 of proc_pid_stat(5); the state is field 3.
        let start_time_ticks = fields.nth(18)?.parse().ok()?;
        Some(Self {
            pid,
            start_time_ticks,
            boot_id: boot_id()?,
        })
    }

    pub(crate) fn is_running(&self) -> bool {
        Self::of(self.pid).as_ref() == Some(self)
    }

    /// Kills the process and waits until it is gone; one that is gone already is fine.
    pub(crate) fn kill(&self) -> Result<(), DriverError> {
        let operation = || format!("kill process {}", self.pid);
        let Some(descriptor) = pidfd_open(self.pid).map_err(DriverError::errno(operation()))?
        else {
            return Ok(());
        };
        // With the descriptor open the id cannot go to another process, so this check holds from here on.
        if !self.is_running() {
            return Ok(());
        }
        match pidfd_kill(&descriptor) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(errno) => return Err(DriverError::errno(operation())(errno)),
        }
        let deadline = Instant::now() + KILL_TIMEOUT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(DriverError::io(operation())(io::ErrorKind::TimedOut.into()));
            }
            let mut wanted = [PollFd::new(descriptor.as_fd(), PollFlags::POLLIN)];
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            match poll(&mut wanted, timeout) {
                Ok(0) | Err(Errno::EINTR) => {}
                Ok(_) => return Ok(()),
                Err(errno) => return Err(DriverError::errno(operation())(errno)),
            }
        }
    }
}

/// Starts a program inside a namespace, in a session of its own, with its output appended to a file. It goes on when
/// this process ends.
pub(crate) fn spawn_detached(
    netns: &Netns,
    program: &Path,
    arguments: &[&std::ffi::OsStr],
    log: &Path,
) -> Result<ProcessRecord, DriverError> {
    let operation = || format!("start {}", program.display());
    let output = fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(log)
        .map_err(DriverError::io(format!("open {}", log.display())))?;
    let errors = output.try_clone().map_err(DriverError::io(operation()))?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .current_dir("/");
    #[expect(
        unsafe_code,
        reason = "the standard library has no stable way to start a child in a session of its own"
    )]
    // SAFETY: the closure runs between fork and exec and makes one async-signal-safe call; it allocates nothing.
    unsafe {
        command.pre_exec(|| setsid().map(drop).map_err(io::Error::from));
    }
    // A child starts in the namespace of the thread that starts it.
    let child = netns
        .run_in(|| command.spawn())?
        .map_err(DriverError::io(operation()))?;
    let pid = i32::try_from(child.id())
        .map_err(|_| DriverError::io(operation())(io::Error::other("process id out of range")))?;
    ProcessRecord::of(pid).ok_or_else(|| {
        DriverError::io(operation())(io::Error::other(format!(
            "it ended at once; see {}",
            log.display()
        )))
    })
}

/// Processes whose network namespace is this one, whoever started them.
pub(crate) fn processes_in(netns: &Netns) -> Result<Vec<ProcessRecord>, DriverError> {
    let Some(identity) = netns.identity() else {
        return Ok(Vec::new());
    };
    // Never a namespace that a mistake made the host's own.
    if net_identity("/proc/self/ns/net") == Some(identity)
        || net_identity("/proc/1/ns/net") == Some(identity)
    {
        return Ok(Vec::new());
    }
    let entries = fs::read_dir("/proc").map_err(DriverError::io("list processes"))?;
    Ok(entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| net_identity(&format!("/proc/{pid}/ns/net")) == Some(identity))
        .filter_map(ProcessRecord::of)
        .collect())
}

/// Kills all processes of a namespace, those too that they start meanwhile.
pub(crate) fn kill_all_in(netns: &Netns) -> Result<(), DriverError> {
    let deadline = Instant::now() + KILL_TIMEOUT;
    loop {
        let found = processes_in(netns)?;
        if found.is_empty() {
            return Ok(());
        }
        for process in &found {
            process.kill()?;
        }
        if Instant::now() > deadline {
            return Err(DriverError::io(format!(
                "kill the processes of namespace {}",
                netns.name()
            ))(io::ErrorKind::TimedOut.into()));
        }
    }
}

/// The process a pid file names, when it still runs.
pub(crate) fn recorded(pid_file: &Path) -> Result<Option<ProcessRecord>, DriverError> {
    match record::read::<ProcessRecord>(pid_file) {
        Ok(Some(process)) => {
            reap(process.pid);
            Ok(process.is_running().then_some(process))
        }
        // Nothing we could trust; the namespace tells what is left.
        Ok(None) | Err(DriverError::Invalid { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Records this process in a directory.
pub(crate) fn record_own(dir: &Path) -> Result<(), DriverError> {
    record::ensure_private_dir(dir)?;
    let pid = std::process::id();
    let own = i32::try_from(pid).ok().and_then(ProcessRecord::of);
    record::write(&dir.join(pid.to_string()), &own)
}

/// Kills every other process recorded in a directory that still is that process, and removes the directory.
pub(crate) fn kill_all_recorded(dir: &Path) -> Result<(), DriverError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(DriverError::io(format!("list {}", dir.display()))(error)),
    };
    let own = std::process::id().to_string();
    for entry in entries.flatten() {
        if entry.file_name() != own.as_str() {
            kill_recorded(&entry.path())?;
        }
    }
    record::remove_tree(dir)
}

/// Kills the process a pid file names, when it still is that process.
pub(crate) fn kill_recorded(pid_file: &Path) -> Result<(), DriverError> {
    match recorded(pid_file)? {
        Some(process) => {
            process.kill()?;
            reap(process.pid);
            Ok(())
        }
        None => Ok(()),
    }
}

fn net_identity(path: &str) -> Option<(u64, u64)> {
    let found = fs::metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

fn boot_id() -> Option<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned())
}

/// Takes the remains of an agent that was a child of ours and ended; nothing for any other process. Only for
/// processes started here: whoever else starts a child waits for it.
fn reap(pid: i32) {
    // The error says that it is no child of ours.
    let _ = waitpid(Pid::from_raw(pid), Some(WaitPidFlag::WNOHANG));
}

#[expect(unsafe_code, reason = "nix has no pidfd_open")]
fn pidfd_open(pid: i32) -> Result<Option<OwnedFd>, Errno> {
    // SAFETY: the call takes two integers and touches no memory of ours.
    let result = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    match Errno::result(result) {
        Ok(descriptor) => {
            let descriptor = i32::try_from(descriptor).map_err(|_| Errno::EBADF)?;
            // SAFETY: the kernel just gave us this descriptor and nobody else owns it.
            Ok(Some(unsafe { OwnedFd::from_raw_fd(descriptor) }))
        }
        Err(Errno::ESRCH) => Ok(None),
        Err(errno) => Err(errno),
    }
}

#[expect(unsafe_code, reason = "nix has no pidfd_send_signal")]
fn pidfd_kill(descriptor: &OwnedFd) -> Result<(), Errno> {
    use std::os::fd::AsRawFd;
    // SAFETY: the descriptor is open for the time of the call; a null siginfo is allowed.
    let result = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            descriptor.as_raw_fd(),
            libc::SIGKILL,
            std::ptr::null::<libc::siginfo_t>(),
            0,
        )
    };
    Errno::result(result).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper() -> std::process::Child {
        Command::new("sleep").arg("600").spawn().unwrap()
    }

    #[test]
    fn a_killed_process_is_gone_and_killing_it_again_is_fine() {
        let mut child = sleeper();
        let process = ProcessRecord::of(i32::try_from(child.id()).unwrap()).unwrap();
        assert!(process.is_running());
        process.kill().unwrap();
        assert!(!process.is_running());
        process.kill().unwrap();
        assert!(!child.wait().unwrap().success());
    }

    #[test]
    fn a_process_that_only_has_the_same_id_is_left_alone() {
        let mut child = sleeper();
        let process = ProcessRecord::of(i32::try_from(child.id()).unwrap()).unwrap();
        let other = ProcessRecord {
            start_time_ticks: process.start_time_ticks + 1,
            ..process.clone()
        };
        let of_last_boot = ProcessRecord {
            boot_id: "another".to_owned(),
            ..process.clone()
        };
        other.kill().unwrap();
        of_last_boot.kill().unwrap();
        assert!(process.is_running());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!process.is_running());
    }

    #[test]
    fn a_pid_file_of_garbage_kills_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.pid");
        kill_recorded(&path).unwrap();
        fs::write(&path, "{\"pid\": 1").unwrap();
        kill_recorded(&path).unwrap();
    }
}
