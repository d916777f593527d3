//! The run: every contender up at once and as full as the others; rounds in which each is measured in turn.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;

use super::client::Client;
use super::contender::{Contender, Cpu, Kind, Memory};
use super::octavia;
use super::workload::{
    Inventory, Limit, Run, Workload, ask, create, create_to_active, settle, show,
};
use crate::accounting::Machine;
use crate::stop::Stop;

/// Load runs so long before the first reading: connections are open, caches warm.
const WARM_UP: Duration = Duration::from_millis(500);
/// Creates of one measurement at most: tables shall not outgrow those of the others.
const CREATES: usize = 500;
/// Neighbours in this order of showing are far apart in the tables.
const STRIDE: usize = 1009;

#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) contenders: Vec<Kind>,
    pub(crate) rounds: usize,
    pub(crate) duration: Duration,
    pub(crate) load_balancers: usize,
    pub(crate) connections: usize,
}

/// One measurement of one contender under one workload.
#[derive(Debug, Serialize)]
pub(crate) struct Sample {
    pub(crate) round: usize,
    pub(crate) requests: usize,
    pub(crate) per_second: f64,
    /// CPU milliseconds per request: the control plane's processes.
    pub(crate) own_ms: f64,
    /// Of these, by service.
    pub(crate) service_ms: BTreeMap<&'static str, f64>,
    pub(crate) database_ms: f64,
    pub(crate) broker_ms: f64,
    pub(crate) all_ms: f64,
    /// Length of an answer.
    pub(crate) bytes: f64,
    pub(crate) errors: usize,
    /// CPUs that other programs of the machine kept busy meanwhile.
    pub(crate) other_cpus: f64,
    /// Of every request, milliseconds; the shortest first.
    #[serde(skip)]
    pub(crate) latencies_ms: Vec<f64>,
}

/// Everything that came out.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) environment: BTreeMap<&'static str, String>,
    pub(crate) samples: BTreeMap<(Workload, Kind), Vec<Sample>>,
    pub(crate) memory: Vec<Memory>,
    /// What was not answered as it should be: the first of each measurement.
    pub(crate) failures: Vec<String>,
}

/// A contender and what is in it.
struct Filled {
    contender: Contender,
    inventory: Inventory,
}

pub(crate) async fn run(plan: &Plan, stop: &Stop) -> Result<Outcome> {
    let mut outcome = Outcome {
        environment: environment(plan),
        ..Outcome::default()
    };
    let mut all = Vec::new();
    for kind in &plan.contenders {
        say(&format!("starting {}", kind.name()));
        let contender = Contender::start(*kind, stop)?;
        let filled = fill(contender, plan, stop);
        all.push(
            filled
                .await
                .with_context(|| format!("fill {}", kind.name()))?,
        );
    }
    ensure_alike(&all)?;
    // Whatever makes load balancers comes last, so that lists and shows all meet the same tables.
    for workloads in [
        [Workload::List, Workload::Show],
        [Workload::Create, Workload::CreateToActive],
    ] {
        for round in 1..=plan.rounds {
            for workload in workloads {
                say(&format!("round {round} of {}: {workload:?}", plan.rounds));
                for filled in &all {
                    let sample =
                        measure(filled, workload, round, plan, stop, &mut outcome.failures)
                            .await
                            .with_context(|| filled.contender.last_words())?;
                    let key = (workload, filled.contender.kind);
                    outcome.samples.entry(key).or_default().push(sample);
                }
            }
        }
    }
    for filled in &all {
        outcome.memory.extend(filled.contender.memory()?);
    }
    say("ending");
    Ok(outcome)
}

/// Progress goes where it does not meet the report.
fn say(what: &str) {
    eprintln!("{what}");
}

/// Makes as many load balancers as the plan says.
async fn fill(contender: Contender, plan: &Plan, stop: &Stop) -> Result<Filled> {
    let (address, count) = (contender.address, plan.load_balancers);
    if contender.kind == Kind::Octavia {
        let mut client = Client::new(address);
        let made = create_to_active(&mut client, 0).await;
        let (made, _) = made.with_context(|| contender.last_words())?;
        let id = made["id"].as_str().context("no id")?;
        let database = contender.database.as_ref().context("no database")?;
        octavia::multiply(database, id, count)?;
    } else {
        let limit = Limit {
            duration: Duration::MAX,
            requests: count,
        };
        let run = ask(address, create, 201, plan.connections, limit, stop).await?;
        if let Some(error) = run.first_error {
            bail!("{error}\n{}", contender.last_words());
        }
        settle(address, stop).await?;
    }
    let inventory = Inventory::take(address, stop).await?;
    ensure!(
        inventory.ids.len() == count,
        "{} load balancers in place of {count}",
        inventory.ids.len()
    );
    Ok(Filled {
        contender,
        inventory,
    })
}

/// Answers that differ in what they hold do not compare.
fn ensure_alike(all: &[Filled]) -> Result<()> {
    let Some((first, others)) = all.split_first() else {
        bail!("nobody to measure");
    };
    for other in others {
        ensure!(
            first.inventory.fields == other.inventory.fields,
            "{} and {} fill other fields: {:?} and {:?}",
            first.contender.kind.name(),
            other.contender.kind.name(),
            first.inventory.fields,
            other.inventory.fields
        );
    }
    Ok(())
}

async fn measure(
    filled: &Filled,
    workload: Workload,
    round: usize,
    plan: &Plan,
    stop: &Stop,
    failures: &mut Vec<String>,
) -> Result<Sample> {
    let contender = &filled.contender;
    let load = |duration| load(filled, workload, plan, duration, stop);
    match workload {
        Workload::List | Workload::Show => drop(load(WARM_UP).await?),
        // What was made before is done, and every connection to the database is open.
        Workload::Create | Workload::CreateToActive => settle(contender.address, stop).await?,
    }
    let (begun, busy) = (Instant::now(), Machine::read()?.busy);
    let (before, client) = (contender.cpu()?, client_cpu()?);
    let run = load(plan.duration).await?;
    if workload == Workload::Create {
        // A create is done when the load balancer is.
        settle(contender.address, stop).await?;
    }
    let cpu = contender.cpu()?.since(&before);
    let client = client_cpu()?.saturating_sub(client);
    let busy = Machine::read()?.busy.saturating_sub(busy);
    let others = busy.saturating_sub(cpu.all() + client);
    if let Some(error) = &run.first_error {
        let name = contender.kind.name();
        failures.push(format!("{name}, {workload:?}: {error}"));
    }
    ensure!(!run.latencies.is_empty(), "nothing was answered");
    Ok(sample(
        round,
        &run,
        &cpu,
        others.as_secs_f64() / begun.elapsed().as_secs_f64(),
    ))
}

fn client_cpu() -> Result<Duration> {
    let own = nix::time::ClockId::CLOCK_PROCESS_CPUTIME_ID.now();
    Ok(own.context("read this process's CPU time")?.into())
}

async fn load(
    filled: &Filled,
    workload: Workload,
    plan: &Plan,
    duration: Duration,
    stop: &Stop,
) -> Result<Run> {
    let address = filled.contender.address;
    let limit = |requests| Limit { duration, requests };
    match workload {
        Workload::List => {
            let pages = filled.inventory.pages.clone();
            let call = move |turn: usize| pages[turn % pages.len()].clone();
            ask(
                address,
                call,
                200,
                plan.connections,
                limit(usize::MAX),
                stop,
            )
            .await
        }
        Workload::Show => {
            let ids = filled.inventory.ids.clone();
            let call = move |turn: usize| show(&ids[turn.wrapping_mul(STRIDE) % ids.len()]);
            ask(
                address,
                call,
                200,
                plan.connections,
                limit(usize::MAX),
                stop,
            )
            .await
        }
        Workload::Create => ask(address, create, 201, plan.connections, limit(CREATES), stop).await,
        Workload::CreateToActive => {
            let begun = Instant::now();
            let mut client = Client::new(address);
            let mut run = Run::default();
            while begun.elapsed() < duration && run.latencies.len() < CREATES {
                stop.pause(Duration::ZERO)?;
                let (made, time) = create_to_active(&mut client, run.latencies.len()).await?;
                run.bytes += made.to_string().len();
                run.latencies.push(time);
            }
            run.elapsed = begun.elapsed();
            Ok(run)
        }
    }
}

fn sample(round: usize, run: &Run, cpu: &Cpu, other_cpus: f64) -> Sample {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let (requests, bytes) = (run.latencies.len() as f64, run.bytes as f64);
    let each = |time: Duration| time.as_secs_f64() * 1e3 / requests;
    let mut latencies_ms: Vec<f64> = run
        .latencies
        .iter()
        .map(|time| time.as_secs_f64() * 1e3)
        .collect();
    latencies_ms.sort_by(f64::total_cmp);
    Sample {
        round,
        requests: run.latencies.len(),
        per_second: requests / run.elapsed.as_secs_f64(),
        own_ms: each(cpu.own()),
        service_ms: cpu
            .services
            .iter()
            .map(|(name, time)| (*name, each(*time)))
            .collect(),
        database_ms: each(cpu.database),
        broker_ms: each(cpu.broker),
        all_ms: each(cpu.all()),
        bytes: bytes / requests,
        errors: run.errors,
        other_cpus,
        latencies_ms,
    }
}

fn environment(plan: &Plan) -> BTreeMap<&'static str, String> {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cpus = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    BTreeMap::from([
        ("kernel", kernel.trim().to_owned()),
        ("cpus", cpus.to_string()),
        ("rounds", plan.rounds.to_string()),
        ("seconds", plan.duration.as_secs_f64().to_string()),
        ("load balancers", plan.load_balancers.to_string()),
        ("connections", plan.connections.to_string()),
    ])
}
