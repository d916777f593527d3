//! Our control plane: all roles in one process, no-op drivers.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use test_databases::{Kind as Database, Server};

use super::contender::{Contender, Kind};
use super::service::{Service, bound_to_us};
use crate::stop::Stop;

/// What it says, with its address, when it listens.
const LISTENING: &str = "listening on ";

pub(crate) fn start(kind: Kind, stop: &Stop) -> Result<Contender> {
    let scratch = tempfile::tempdir()?;
    let folder = scratch.path();
    let database = match kind {
        Kind::Mariadb => {
            let server = Server::start(Database::MariaDb)?;
            server.create_database("lb")?;
            Some(server)
        }
        Kind::Sqlite | Kind::Octavia => None,
    };
    // Without a URL it is a SQLite file in the state directory.
    let url = database.as_ref().map_or_else(String::new, |server| {
        format!("url = \"{}\"", server.database_url("lb"))
    });
    let state = folder.join("state");
    std::fs::create_dir(&state)?;
    let config = folder.join("control-plane.toml");
    let text = format!(
        r#"[database]
{url}
[api]
auth_strategy = "noauth"
[drivers]
compute = "compute_noop_driver"
network = "network_noop_driver"
amphora = "amphora_noop_driver"
[local]
state_dir = "{}"
"#,
        state.display()
    );
    std::fs::write(&config, text).context("write the configuration")?;
    let binary = binary()?;
    let output = std::process::Command::new(&binary)
        .arg("--config")
        .arg(&config)
        .args(["db", "upgrade"])
        .output()
        .with_context(|| format!("run {}", binary.display()))?;
    if !output.status.success() {
        bail!("db upgrade: {}", String::from_utf8_lossy(&output.stderr));
    }
    let mut command = bound_to_us(&binary);
    command
        .arg("--config")
        .arg(&config)
        .args(["all", "--bind", "127.0.0.1:0"]);
    let mut service = Service::start("control-plane", &mut command, folder)?;
    let address = |said: &str| -> Option<String> {
        let line = said.lines().find_map(|line| line.strip_prefix(LISTENING));
        Some(line?.trim().to_owned())
    };
    service.wait_for(stop, |said| address(said).is_some())?;
    let address = address(&service.said()).context("it does not tell its address")?;
    Ok(Contender {
        kind,
        address: address.parse().context("address of the API")?,
        services: vec![service],
        database,
        broker: None,
        _scratch: scratch,
    })
}

/// It is built beside this program.
fn binary() -> Result<PathBuf> {
    let binary = std::env::current_exe()?.with_file_name("control-plane");
    if !binary.exists() {
        bail!(
            "{} is not built: cargo build --release --workspace --bins --examples",
            binary.display()
        );
    }
    Ok(binary)
}
