//! One PostgreSQL server.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::Result;

use crate::process::{Home, Process, program};
use crate::{Kind, Server};

const PACKAGE: &str = "postgresql";

pub(crate) fn start() -> Result<Server> {
    let folders = folders();
    let initdb = program("initdb", &folders, PACKAGE)?;
    let postgres = program("postgres", &folders, PACKAGE)?;
    let pg_isready = program("pg_isready", &folders, PACKAGE)?;
    let home = Home::new("postgres", PACKAGE)?;
    let mut command = home.command(&initdb);
    command
        .arg("-D")
        .arg(home.join("data"))
        .args(["--no-sync", "--username=lb", "--auth=trust"])
        // Not C: text must compare as the schema says, whatever the database's locale is.
        .args(["--encoding=UTF8", "--locale=C.UTF-8"]);
    home.run(&mut command)?;
    let mut command = home.command(&postgres);
    command
        .arg("-D")
        .arg(home.join("data"))
        .arg("-k")
        .arg(home.path())
        .args(["-c", "listen_addresses=", "-c", "max_connections=500"])
        // What is committed has to survive the server, not the machine.
        .args(["-c", "fsync=off"])
        .args(["-c", "full_page_writes=off", "-c", "shared_buffers=64MB"]);
    let process = Process::start(home, command, move |home| {
        Command::new(&pg_isready)
            .args(["-q", "-h"])
            .arg(home.path())
            .stdin(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    })?;
    let directory = process.home().path().display();
    Ok(Server {
        kind: Kind::PostgreSql,
        url: format!("postgres://lb@localhost/?host={directory}"),
        process,
    })
}

/// Runs a statement as administrator.
pub(crate) fn execute(home: &Home, statement: &str) -> Result<()> {
    let client = program("psql", &folders(), "postgresql-client")?;
    let mut command = home.command(&client);
    command
        .args([
            "--no-psqlrc",
            "-q",
            "-U",
            "lb",
            "-d",
            "postgres",
            "-c",
            statement,
        ])
        .arg("-h")
        .arg(home.path());
    home.run(&mut command)
}

/// Where Debian puts the servers, the newest first.
fn folders() -> Vec<PathBuf> {
    let mut versions: Vec<(u32, PathBuf)> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let version = path.file_name()?.to_str()?.parse().ok()?;
            Some((version, path.join("bin")))
        })
        .collect();
    versions.sort_by(|a, b| b.cmp(a));
    versions.into_iter().map(|(_, path)| path).collect()
}
