//! The product's main job, shown: `lb-demo run` tells the whole story and cleans up, `up` leaves a stack running,
//! `down` removes it, also after a crash.

mod story;
mod up;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Shows a load balancer at work on this machine")]
struct Arguments {
    /// Where the stack keeps its database, keys and logs.
    #[arg(long)]
    state_dir: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Create, spread, member down, amphora down, planned failover, clean up.
    Run,
    /// Start a stack with three servers and a client, and leave it running.
    Up {
        /// The `openstack` command to show in the hints.
        #[arg(long, default_value = "openstack")]
        openstack: PathBuf,
    },
    /// Remove what `up` started.
    Down,
    /// One server of the stack, until it is killed; `up` starts these.
    #[command(hide = true)]
    Serve {
        netns: String,
        name: String,
        address: std::net::IpAddr,
    },
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    match arguments.command {
        Command::Run => story::tell(&arguments.state_dir.join("demo")).await,
        Command::Up { openstack } => up::up(&arguments.state_dir, &openstack).await,
        Command::Down => up::down(&arguments.state_dir).await,
        Command::Serve {
            netns,
            name,
            address,
        } => up::serve(&netns, &name, address).await,
    }
}
