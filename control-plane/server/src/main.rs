//! The control plane: one binary, one role or all of them in a process.
//!
//! Configuration, then build, then run: building binds sockets and reports every problem, running serves until a
//! signal. On standard output there is one line, once the API answers: `listening on ADDRESS`. The log goes to
//! standard error.

mod cloud;
mod config;
mod database;
mod http;
mod identity;
mod key;
mod policy;
mod roles;

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use lb_drivers::local::LocalStack;
use tracing_subscriber::EnvFilter;

use config::Config;
use policy::PolicyCommand;
use roles::{Role, Roles};

#[derive(Parser)]
#[command(
    version,
    about = "Control plane of an Octavia-compatible load balancer"
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// Configuration file (TOML).
    #[arg(long, global = true)]
    config: Option<PathBuf>,
    /// Amphorae and tenant networks are network namespaces of this machine.
    #[arg(long, global = true)]
    local: bool,
    /// Instead of `api.bind`.
    #[arg(long, global = true)]
    bind: Option<SocketAddr>,
    /// Instead of `local.state_dir`.
    #[arg(long, global = true)]
    state_dir: Option<PathBuf>,
    /// Instead of `local.networks`.
    #[arg(long, global = true)]
    networks: Option<PathBuf>,
    /// What is logged, e.g. `info` or `lb_controllers=debug`.
    #[arg(long, global = true, default_value = "info")]
    log: String,
}

#[derive(Subcommand)]
enum Command {
    /// Serve the REST API.
    Api,
    /// Reconcile load balancers.
    Worker,
    /// Receive heartbeats, replace silent amphorae.
    HealthManager,
    /// Remove rows deleted long ago.
    Housekeeping,
    /// All roles in one process.
    All,
    /// The database.
    #[command(subcommand)]
    Db(Db),
    /// The configuration.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Who may do what.
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// The local stack.
    #[command(subcommand)]
    Local(Local),
}

#[derive(Subcommand)]
enum Db {
    /// Bring the schema to this program's version.
    Upgrade,
    /// Print the migrations that were applied.
    Current,
    /// Fail unless the schema is this program's.
    Check,
}

#[derive(Subcommand)]
enum ConfigCommand {
    /// Report every problem.
    Check,
    /// Print every option with its value in force.
    Print,
}

#[derive(Subcommand)]
enum Local {
    /// Remove everything of the stack: processes, namespaces, mounts, pinned maps; also after a crash.
    Down,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::try_new(&arguments.log).context("--log")?)
        .with_writer(std::io::stderr)
        .init();
    // Another part of the process may have chosen already; it is the same choice.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let config = read(&arguments)?;
    match arguments.command {
        Command::Api => serve(config, arguments.local, &[Role::Api]).await,
        Command::Worker => serve(config, arguments.local, &[Role::Worker]).await,
        Command::HealthManager => serve(config, arguments.local, &[Role::HealthManager]).await,
        Command::Housekeeping => serve(config, arguments.local, &[Role::Housekeeping]).await,
        Command::All => serve(config, arguments.local, Role::ALL).await,
        Command::Db(Db::Upgrade) => database::upgrade(&config).await,
        Command::Db(Db::Current) => database::print_current(&config).await,
        Command::Db(Db::Check) => database::check(&config).await,
        Command::Config(ConfigCommand::Check) => Ok(()),
        Command::Config(ConfigCommand::Print) => {
            print!("{}", toml::to_string(&config.without_secrets())?);
            Ok(())
        }
        Command::Policy(command) => policy::run(&config.oslo_policy, &command),
        Command::Local(Local::Down) => {
            LocalStack::destroy(&config.local.name, &config.local.state_dir).await?;
            Ok(())
        }
    }
}

/// The file, with the command line over it, checked.
fn read(arguments: &Arguments) -> Result<Config> {
    let mut config = Config::read(arguments.config.as_deref(), arguments.local)?;
    if let Some(bind) = arguments.bind {
        config.api.bind = bind;
    }
    if let Some(state_dir) = &arguments.state_dir {
        config.local.state_dir.clone_from(state_dir);
    }
    if let Some(networks) = &arguments.networks {
        config.local.networks = Some(networks.clone());
    }
    config.check()?;
    Ok(config)
}

async fn serve(config: Config, local: bool, roles: &[Role]) -> Result<()> {
    Roles::build(config, local, roles).await?.run().await
}
