//! Benchmarks beside our peers, each in one run: the data path (`make bench`) and the API (`make bench-api`).
//!
//! The README tells what each number contains and what it does not.

mod accounting;
mod agent;
mod api;
mod contender;
mod load;
mod measure;
mod netns;
mod process;
mod report;
mod rig;
mod stop;
mod test_run;

use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};

use contender::{Contender, Serve};
use stop::Stop;

/// The agent's, as our proxy runs in this program here.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// CPU per connection, request, datagram and gigabit of our data path, HAProxy, nftables and nginx.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Arguments {
    /// Three rounds of one second each; for a first look.
    #[arg(long)]
    quick: bool,
    /// Print JSON, with every sample, in place of tables.
    #[arg(long)]
    json: bool,
    /// Measure only this contender (may be repeated), and neither the agent's memory nor the eBPF programs alone.
    /// `direct`, the floor, is always measured.
    #[arg(long, value_name = "NAME")]
    only: Vec<Contender>,
    /// Rounds; each measures every contender once.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Seconds of one measurement.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    Api(api::Arguments),
    /// What the program starts itself as, inside a balancer.
    #[command(hide = true)]
    Serve {
        what: String,
    },
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    match &arguments.command {
        Some(Command::Api(arguments)) => return api::run(arguments, &Stop::on_signals()?),
        Some(Command::Serve { what }) => {
            return serde_json::from_str::<Serve>(what)
                .context("read what to serve")?
                .run();
        }
        None => {}
    }
    if !nix::unistd::geteuid().is_root() {
        bail!("the benchmarks make network namespaces and load eBPF programs: run them as root");
    }
    let stop = Stop::on_signals()?;
    let plan = measure::Plan {
        contenders: contenders(&arguments.only),
        beside: arguments.only.is_empty(),
        rounds: if arguments.quick {
            3
        } else {
            arguments.rounds.max(1)
        },
        duration: if arguments.quick {
            Duration::from_secs(1)
        } else {
            Duration::try_from_secs_f64(arguments.seconds).context("--seconds")?
        },
    };
    let mut outcome = measure::run(&plan, &stop)?;
    if plan.beside {
        match test_run::run() {
            Ok(figures) => outcome.packets = figures,
            Err(error) => outcome.fail("test run of the eBPF programs", &error),
        }
    }
    if arguments.json {
        println!("{}", report::json(&outcome)?);
    } else {
        print!("{}", report::tables(&outcome));
    }
    if !outcome.failures.is_empty() {
        bail!(
            "not everything could be measured:\n{}",
            outcome.failures.join("\n")
        );
    }
    Ok(())
}

/// All contenders, or the wanted ones and the floor.
fn contenders(only: &[Contender]) -> Vec<Contender> {
    use clap::ValueEnum;
    Contender::value_variants()
        .iter()
        .copied()
        .filter(|it| only.is_empty() || *it == Contender::Direct || only.contains(it))
        .collect()
}
