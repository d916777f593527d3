//! The API beside Octavia's, in one run on one machine: `make bench-api`.
//!
//! The README tells what each number contains and what it does not.

mod client;
mod contender;
mod measure;
mod octavia;
mod ours;
mod report;
mod service;
mod workload;

use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::stop::Stop;
use contender::Kind;

/// Requests per CPU-second, latency and memory of our control plane and of Octavia.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// One round of two seconds a measurement, 500 load balancers; for a first look.
    #[arg(long)]
    quick: bool,
    /// Print JSON, with every sample, in place of tables.
    #[arg(long)]
    json: bool,
    /// Measure only this contender (may be repeated).
    #[arg(long, value_name = "NAME")]
    only: Vec<Kind>,
    /// Rounds; each measures every contender once.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds of one measurement.
    #[arg(long, default_value_t = 8.0)]
    seconds: f64,
    /// Load balancers there are when it begins.
    #[arg(long, default_value_t = 5000)]
    load_balancers: usize,
    /// Connections of the load generator; each asks again as soon as it was answered.
    #[arg(long, default_value_t = 2)]
    connections: usize,
}

pub(crate) fn run(arguments: &Arguments, stop: &Stop) -> Result<()> {
    let mut plan = measure::Plan {
        contenders: contenders(&arguments.only),
        rounds: arguments.rounds.max(1),
        duration: Duration::try_from_secs_f64(arguments.seconds).context("--seconds")?,
        load_balancers: arguments.load_balancers,
        connections: arguments.connections.max(1),
    };
    if arguments.quick {
        plan.rounds = 1;
        plan.duration = Duration::from_secs(2);
        plan.load_balancers = plan.load_balancers.min(500);
    }
    if plan.load_balancers < workload::PAGE {
        bail!(
            "--load-balancers: {}: lists of {} are asked for",
            plan.load_balancers,
            workload::PAGE
        );
    }
    // One thread: the load generator must not take the servers' cores.
    let outcome = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("make a runtime")?
        .block_on(measure::run(&plan, stop))?;
    if arguments.json {
        println!("{}", report::json(&outcome)?);
    } else {
        print!("{}", report::tables(&outcome));
    }
    if !outcome.failures.is_empty() {
        bail!(
            "not everything was answered as it should be:\n{}",
            outcome.failures.join("\n")
        );
    }
    Ok(())
}

/// All contenders, or the wanted ones.
fn contenders(only: &[Kind]) -> Vec<Kind> {
    use clap::ValueEnum;
    Kind::value_variants()
        .iter()
        .copied()
        .filter(|it| only.is_empty() || only.contains(it))
        .collect()
}
