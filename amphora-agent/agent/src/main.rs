//! `amphora-agent --config FILE`: reads the file, builds the agent, runs it until SIGTERM or SIGINT.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use amphora_agent::agent::{Agent, Settings};
use amphora_agent::config::Config;
use amphora_agent::heartbeat;
use amphora_agent::kernel::Kernel;
use amphora_agent::rest::{Server, tls};
use anyhow::Context;
use clap::{Parser, Subcommand};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

// The system's allocator: with mimalloc the memory that loading the programs takes for a moment (the kernel's type
// information) stays resident, 60 MiB instead of 5.

/// Agent of an amphora: puts the control plane's documents into force.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Configuration file (Octavia's amphora-agent.conf).
    #[arg(long, default_value = "/etc/octavia/amphora-agent.conf", global = true)]
    config: PathBuf,
    /// What to log to stderr: a level, or a filter as tracing-subscriber takes it.
    #[arg(long, default_value = "info", global = true)]
    log: String,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Work on the configuration file instead of running.
    Config {
        #[command(subcommand)]
        action: ConfigAction,
    },
}

#[derive(Debug, Clone, Copy, Subcommand)]
enum ConfigAction {
    /// Say whether the agent could run with it.
    Check,
    /// Show what is in force, defaults included and secrets left out.
    Print,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("amphora-agent: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let config = Config::load(&arguments.config)?;
    match &arguments.command {
        Some(Command::Config { action }) => {
            tls::server_config(&config.server_cert, &config.client_ca, config.min_tls)?;
            match action {
                ConfigAction::Check => println!("{} is fine", arguments.config.display()),
                ConfigAction::Print => print!("{config}"),
            }
            Ok(())
        }
        None => {
            let filter = EnvFilter::try_new(&arguments.log).context("read --log")?;
            tracing_subscriber::fmt()
                .with_env_filter(filter)
                .with_writer(std::io::stderr)
                .with_ansi(false)
                .init();
            raise_file_limit();
            tokio::runtime::Builder::new_current_thread()
                .max_blocking_threads(4)
                .enable_all()
                .build()
                .context("make the runtime")?
                .block_on(serve(config))
        }
    }
}

async fn serve(config: Config) -> anyhow::Result<()> {
    let tls = tls::server_config(&config.server_cert, &config.client_ca, config.min_tls)?;
    let kernel = Kernel::start(&config).await?;
    let settings = Settings {
        amphora_id: config.amphora_id,
        state_dir: config.state_dir,
        controllers: config.controllers,
        heartbeat_interval: config.heartbeat_interval,
        heartbeat_key: config.heartbeat_key,
    };
    let agent = Agent::new(settings, Arc::new(kernel))?;
    let server = Server::bind(config.bind, tls, Arc::clone(&agent))
        .await
        .with_context(|| format!("listen on {}", config.bind))?;
    let mut terminate = signal(SignalKind::terminate()).context("wait for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("wait for SIGINT")?;
    tracing::info!(
        amphora_id = %config.amphora_id,
        address = %server.local_addr()?,
        version = env!("CARGO_PKG_VERSION"),
        "agent runs"
    );

    let resuming = Arc::clone(&agent);
    tokio::spawn(async move {
        resuming.resume().await;
        // Not before: a heartbeat says that listeners are served.
        tokio::join!(
            Arc::clone(&resuming).keep_in_force(),
            heartbeat::run(resuming)
        );
    });
    tokio::spawn(server.run());
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("agent ends; the fast path goes on");
    agent.stop().await;
    Ok(())
}

/// Every connection of the proxy takes two descriptors.
fn raise_file_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(error) = raised {
        tracing::warn!(%error, "limit of open files not raised");
    }
}
