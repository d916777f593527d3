//! Every chore of this repository that takes more than one step. README, `make` and CI all come here, so they
//! say the same command.

mod check;
mod lab;
mod run;
mod setup;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Chores of this repository")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Install what building, running and testing need (Debian packages as root, tools by cargo).
    Setup,
    /// Build, then show the whole story: create, spread, member down, amphora down, fail over, clean up.
    Demo,
    /// Start a local stack with two tenant servers and a client, and leave it running.
    Up,
    /// Remove the local stack, also what a crash left of it.
    Down,
    /// Formatting, lints and every test.
    Test,
    /// Tests on a server that is started for them instead of on SQLite files.
    TestOn {
        database: check::Database,
        /// Of nextest; without any, everything of the store, the API and the controllers.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// The long forms of the tests.
    Soak,
    /// Measure the hot paths beside their peers.
    Bench,
    /// Measure the API beside Octavia's.
    BenchApi,
    /// Formatting, lints, documentation and dependencies.
    Lint,
}

fn main() -> Result<()> {
    match Arguments::parse().task {
        Task::Setup => setup::everything(),
        Task::Demo => lab::demo(),
        Task::Up => lab::up(),
        Task::Down => lab::down(),
        Task::Test => check::test(),
        Task::TestOn {
            database,
            arguments,
        } => check::on_database(database, &arguments),
        Task::Soak => check::soak(),
        Task::Bench => lab::bench(),
        Task::BenchApi => lab::bench_api(),
        Task::Lint => check::lint(),
    }
}
