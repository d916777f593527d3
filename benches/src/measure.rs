//! The run: every contender set up at once, each on its lane; rounds in which every one is measured in turn.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use serde_json::Value;

use crate::accounting::{self, Meter};
use crate::agent;
use crate::contender::{Contender, Running};
use crate::load::{Clients, Servers, Workload};
use crate::rig::{Links, Rig};
use crate::stop::Stop;

/// Load runs so long before the first reading: connections are open, caches warm.
const WARM_UP: Duration = Duration::from_millis(300);

#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) contenders: Vec<Contender>,
    /// Also measure what is no contender: the agent's memory, the eBPF programs alone.
    pub(crate) beside: bool,
    pub(crate) rounds: usize,
    pub(crate) duration: Duration,
}

/// One measurement of one contender under one workload.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Sample {
    pub(crate) round: usize,
    /// Units done: connections, requests, datagrams answered, gigabits.
    pub(crate) units: f64,
    pub(crate) units_per_second: f64,
    pub(crate) errors: u64,
    /// CPU microseconds per unit: the balancer's processes alone.
    pub(crate) process_us: f64,
    /// The balancer's processes and the NAPI threads of its links. Only where links are attributed.
    pub(crate) balancer_us: Option<f64>,
    /// Everything on the rig.
    pub(crate) rig_us: f64,
    /// CPUs that other programs of the machine kept busy meanwhile.
    pub(crate) other_cpus: f64,
}

/// Everything that came out.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) samples: BTreeMap<(Workload, Contender), Vec<Sample>>,
    pub(crate) memory: Vec<Memory>,
    /// Lines of the eBPF programs' test run.
    pub(crate) packets: Vec<Value>,
    /// What could not be measured, and why.
    pub(crate) failures: Vec<String>,
}

/// Resident memory of processes.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Memory {
    pub(crate) what: String,
    /// Set up, before any load.
    pub(crate) idle_kib: u64,
    /// The most that was seen while load ran.
    pub(crate) load_kib: u64,
}

impl Outcome {
    pub(crate) fn fail(&mut self, what: &str, error: &anyhow::Error) {
        eprintln!("{what}: {error:#}");
        self.failures.push(format!("{what}: {error:#}"));
    }
}

/// A contender that forwards.
struct Entrant {
    contender: Contender,
    lane: usize,
    running: Running,
    memory: Memory,
}

pub(crate) fn run(plan: &Plan, stop: &Stop) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut rig = Rig::create().context("set up the rig")?;
    let mut lanes = Vec::new();
    for contender in &plan.contenders {
        let lane = rig
            .add_lane(contender.is_xdp())
            .with_context(|| format!("set up the lane of {}", contender.name()))?;
        lanes.push((*contender, lane));
    }
    let members = rig.lanes.iter().flat_map(|lane| lane.member_addresses());
    let _servers = Servers::start(&rig.members, members.collect()).context("start the members")?;
    rig.set_links(Links::Attributed)
        .context("attribute the links' work")?;
    environment(&mut outcome, plan, &rig);
    let mut entrants = Vec::new();
    for (contender, lane) in lanes {
        match contender.start(&rig, lane, stop) {
            Ok(running) => {
                eprintln!("{}: ready {}", contender.name(), running.note);
                outcome
                    .environment
                    .insert(contender.name().to_owned(), running.note.clone());
                entrants.push(Entrant {
                    contender,
                    lane,
                    memory: Memory::idle(contender.name(), &running.processes()),
                    running,
                });
            }
            Err(error) if stop.told() => return Err(error),
            Err(error) => outcome.fail(contender.name(), &error),
        }
    }
    for workloads in [
        &[Workload::Connection, Workload::Request, Workload::Datagram][..],
        &[Workload::Bulk],
    ] {
        if workloads.contains(&Workload::Bulk) {
            rig.set_links(Links::Plain).context("set the links back")?;
        }
        for round in 0..plan.rounds {
            for workload in workloads {
                eprintln!("round {} of {}: {workload:?}", round + 1, plan.rounds);
                for entrant in &mut entrants {
                    if !entrant.contender.can(*workload) {
                        continue;
                    }
                    let sample =
                        measure(plan, &rig, entrant, *workload, round, stop).with_context(|| {
                            format!("measure {} under {workload:?}", entrant.contender.name())
                        });
                    match sample {
                        Ok(sample) => outcome
                            .samples
                            .entry((*workload, entrant.contender))
                            .or_default()
                            .push(sample),
                        Err(error) if stop.told() => return Err(error),
                        Err(error) => outcome.fail("skipped", &error),
                    }
                }
            }
        }
    }
    outcome.memory = entrants
        .into_iter()
        .map(|entrant| entrant.memory)
        .filter(|memory| memory.idle_kib > 0)
        .collect();
    if plan.beside {
        match agent::memory(&mut rig, stop) {
            Ok(memory) => outcome.memory.push(memory),
            Err(error) if stop.told() => return Err(error),
            Err(error) => outcome.fail("amphora-agent", &error),
        }
    }
    Ok(outcome)
}

fn measure(
    plan: &Plan,
    rig: &Rig,
    entrant: &mut Entrant,
    workload: Workload,
    round: usize,
    stop: &Stop,
) -> Result<Sample> {
    let lane = rig.lanes.get(entrant.lane).context("find the lane")?;
    let attributed = workload != Workload::Bulk;
    let processes = entrant.running.processes();
    let meter = Meter::new(&processes, &lane.balancer_devices(), &lane.host_devices())?;
    ensure!(
        !attributed || meter.balancer_threads() == 2,
        "found {} NAPI threads of the balancer's two links",
        meter.balancer_threads()
    );
    let clients = Clients::start(&rig.client, workload, entrant.running.targets.clone())
        .context("start the clients")?;
    stop.pause(WARM_UP)?;
    let (done, errors) = (&clients.counters.done, &clients.counters.errors);
    let begin = (meter.read()?, done.load(Relaxed), errors.load(Relaxed));
    stop.pause(plan.duration)?;
    let end = (meter.read()?, done.load(Relaxed), errors.load(Relaxed));
    entrant.memory.see(&processes);
    let spent = end.0.since(&begin.0);
    let first_error = clients
        .counters
        .first_error
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
        .take();
    let done = end.1 - begin.1;
    #[expect(
        clippy::cast_precision_loss,
        reason = "counts of seconds are far below 2^52"
    )]
    let done = done as f64;
    let units = match workload {
        Workload::Bulk => done * 8.0 / 1e9,
        Workload::Connection | Workload::Request | Workload::Datagram => done,
    };
    ensure!(
        units > 0.0,
        "nothing was done: {}",
        first_error.unwrap_or_else(|| "no error either".into())
    );
    if let Some(error) = first_error {
        eprintln!(
            "{} under {workload:?}: {} errors, the first: {error}",
            entrant.contender.name(),
            end.2
        );
    }
    let per_unit = |time: Duration| time.as_secs_f64() * 1e6 / units;
    Ok(Sample {
        round,
        units,
        units_per_second: units / spent.elapsed.as_secs_f64(),
        errors: end.2 - begin.2,
        process_us: per_unit(spent.processes),
        balancer_us: attributed.then(|| per_unit(spent.balancer)),
        rig_us: per_unit(spent.rig),
        other_cpus: spent.others.as_secs_f64() / spent.elapsed.as_secs_f64(),
    })
}

impl Memory {
    pub(crate) fn idle(what: &str, processes: &[u32]) -> Self {
        Memory {
            what: what.to_owned(),
            idle_kib: resident(processes),
            load_kib: 0,
        }
    }

    pub(crate) fn see(&mut self, processes: &[u32]) {
        self.load_kib = self.load_kib.max(resident(processes));
    }
}

/// One that ended has none.
fn resident(processes: &[u32]) -> u64 {
    processes
        .iter()
        .filter_map(|pid| accounting::resident_kib(*pid).ok())
        .sum()
}

fn environment(outcome: &mut Outcome, plan: &Plan, rig: &Rig) {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cpus = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    for (key, value) in [
        ("kernel", kernel.trim().to_owned()),
        ("cpus", cpus.to_string()),
        ("rounds", plan.rounds.to_string()),
        ("seconds", plan.duration.as_secs_f64().to_string()),
        ("congestion control", rig.congestion_control.to_owned()),
    ] {
        outcome.environment.insert(key.to_owned(), value);
    }
}
