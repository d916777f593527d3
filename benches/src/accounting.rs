//! Whose CPU time was it.
//!
//! The kernel charges softirq work to whatever thread it interrupts, so "time of the process" says little
//! about a balancer that lives in the kernel. Two honest ways are used here (README.md):
//!
//! * *attributed*: the links' NAPI runs in kernel threads, and a balancer is its processes plus the NAPI
//!   threads of its two links: exactly what a machine of its own would spend.
//! * *difference*: everything the rig spends (load generator, member servers, balancer, NAPI, ksoftirqd) less
//!   what it spends in the same round with a plain router in the balancer's place.
//!
//! All readings are in nanoseconds of the scheduler's clock, not in ticks, and count threads of the rig
//! only: other load on the machine does not enter, except through shared caches.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::time::ClockId;
use nix::unistd::Pid;

/// The threads and processes to read for one measurement.
#[derive(Debug)]
pub(crate) struct Meter {
    processes: Vec<Pid>,
    balancer_threads: Vec<PathBuf>,
    other_threads: Vec<PathBuf>,
}

/// CPU time so far.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading {
    at: Instant,
    own: Duration,
    processes: Duration,
    balancer_threads: Duration,
    other_threads: Duration,
    machine: Machine,
}

/// CPU time between two readings.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spent {
    pub(crate) elapsed: Duration,
    /// The balancer's processes.
    pub(crate) processes: Duration,
    /// The balancer's processes and the NAPI threads of its links.
    pub(crate) balancer: Duration,
    /// Everything that belongs to the rig.
    pub(crate) rig: Duration,
    /// CPU time that other programs of the machine took (ticks; rough).
    pub(crate) others: Duration,
}

/// Busy and softirq ticks of the whole machine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Machine {
    pub(crate) busy: Duration,
}

impl Meter {
    /// Finds the NAPI threads by the names of their devices.
    pub(crate) fn new(processes: &[u32], balancer: &[&str], others: &[&str]) -> Result<Self> {
        let mut meter = Meter {
            processes: processes
                .iter()
                .map(|pid| Ok(Pid::from_raw(i32::try_from(*pid)?)))
                .collect::<Result<_>>()?,
            balancer_threads: Vec::new(),
            other_threads: Vec::new(),
        };
        for entry in std::fs::read_dir("/proc").context("list /proc")? {
            let path = entry?.path();
            let Ok(comm) = std::fs::read_to_string(path.join("comm")) else {
                continue;
            };
            let belongs = |devices: &[&str]| {
                comm.strip_prefix("napi/").is_some_and(|rest| {
                    devices.iter().any(|device| {
                        rest.strip_prefix(device)
                            .is_some_and(|rest| rest.starts_with('-'))
                    })
                })
            };
            if belongs(balancer) {
                meter.balancer_threads.push(path.join("schedstat"));
            } else if belongs(others) || comm.starts_with("ksoftirqd/") {
                meter.other_threads.push(path.join("schedstat"));
            }
        }
        Ok(meter)
    }

    /// How many NAPI threads of the balancer were found.
    pub(crate) fn balancer_threads(&self) -> usize {
        self.balancer_threads.len()
    }

    pub(crate) fn read(&self) -> Result<Reading> {
        Ok(Reading {
            at: Instant::now(),
            own: ClockId::CLOCK_PROCESS_CPUTIME_ID
                .now()
                .context("read this process's CPU time")?
                .into(),
            processes: self
                .processes
                .iter()
                .map(|pid| process(*pid))
                .sum::<Result<_>>()?,
            balancer_threads: threads(&self.balancer_threads)?,
            other_threads: threads(&self.other_threads)?,
            machine: Machine::read()?,
        })
    }
}

impl Reading {
    pub(crate) fn since(&self, before: &Reading) -> Spent {
        let processes = self.processes.saturating_sub(before.processes);
        let balancer = processes
            + self
                .balancer_threads
                .saturating_sub(before.balancer_threads);
        let rig = balancer
            + self.own.saturating_sub(before.own)
            + self.other_threads.saturating_sub(before.other_threads);
        let busy = self.machine.busy.saturating_sub(before.machine.busy);
        Spent {
            elapsed: self.at.duration_since(before.at),
            processes,
            balancer,
            rig,
            others: busy.saturating_sub(rig),
        }
    }
}

/// User and system time of all threads of a process, in nanoseconds.
pub(crate) fn process(pid: Pid) -> Result<Duration> {
    Ok(ClockId::pid_cpu_clock_id(pid)
        .and_then(ClockId::now)
        .with_context(|| format!("read the CPU time of process {pid}"))?
        .into())
}

/// The first field of `schedstat` is time on the CPU in nanoseconds.
fn threads(paths: &[PathBuf]) -> Result<Duration> {
    let mut sum = Duration::ZERO;
    for path in paths {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        let nanos = text
            .split_ascii_whitespace()
            .next()
            .and_then(|field| field.parse().ok())
            .with_context(|| format!("parse {}", path.display()))?;
        sum += Duration::from_nanos(nanos);
    }
    Ok(sum)
}

impl Machine {
    pub(crate) fn read() -> Result<Self> {
        let text = std::fs::read_to_string("/proc/stat").context("read /proc/stat")?;
        let line = text.lines().next().unwrap_or_default();
        let fields: Vec<u64> = line
            .split_ascii_whitespace()
            .skip(1)
            .map_while(|field| field.parse().ok())
            .collect();
        // user nice system idle iowait irq softirq, in hundredths of a second (USER_HZ is 100 everywhere).
        let [user, nice, system, _idle, _iowait, irq, softirq, ..] = fields[..] else {
            anyhow::bail!("parse /proc/stat: {line}");
        };
        Ok(Machine {
            busy: Duration::from_millis((user + nice + system + irq + softirq) * 10),
        })
    }
}

/// Resident memory of a process, in KiB.
pub(crate) fn resident_kib(pid: u32) -> Result<u64> {
    status_kib(pid, "VmRSS")
}

/// The most it ever held.
pub(crate) fn peak_kib(pid: u32) -> Result<u64> {
    status_kib(pid, "VmHWM")
}

fn status_kib(pid: u32, field: &str) -> Result<u64> {
    let path = format!("/proc/{pid}/status");
    let text = std::fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    text.lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))
        .and_then(|rest| rest.split_ascii_whitespace().next()?.parse().ok())
        .with_context(|| format!("find {field} in {path}"))
}
