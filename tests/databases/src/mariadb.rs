//! One MariaDB server.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::process::{Home, Process, program};
use crate::{Kind, Server};

const PACKAGE: &str = "mariadb-server";

pub(crate) fn start() -> Result<Server> {
    let home = new_home()?;
    let mut command = server(&home)?;
    command.arg("--skip-networking");
    let process = Process::start(home, command, |home| {
        UnixStream::connect(home.join("socket")).is_ok()
    })?;
    let socket = process.home().join("socket");
    Ok(Server {
        kind: Kind::MariaDb,
        url: format!("mysql://root@localhost/?socket={}", socket.display()),
        process,
    })
}

/// A directory with the system tables; `root` needs no password.
pub(crate) fn new_home() -> Result<Home> {
    let home = Home::new("mysql", PACKAGE)?;
    let install = program("mariadb-install-db", &[], PACKAGE)?;
    let mut command = home.command(&install);
    command
        .args(["--no-defaults", "--skip-test-db", "--skip-name-resolve"])
        .arg("--auth-root-authentication-method=normal")
        .arg(format!("--datadir={}", home.join("data").display()));
    home.run(&mut command)?;
    Ok(home)
}

/// The server's command line, but for where it listens beside its socket.
pub(crate) fn server(home: &Home) -> Result<Command> {
    let folders = [PathBuf::from("/usr/sbin"), PathBuf::from("/usr/libexec")];
    let mut command = home.command(&program("mariadbd", &folders, PACKAGE)?);
    command
        .arg("--no-defaults")
        .arg(format!("--datadir={}", home.join("data").display()))
        .arg(format!("--socket={}", home.join("socket").display()))
        .arg(format!("--pid-file={}", home.join("pid").display()))
        .args(["--skip-name-resolve", "--skip-log-bin"])
        .args(["--character-set-server=utf8mb4", "--max-connections=500"])
        .args(["--performance-schema=0", "--innodb-buffer-pool-size=64M"])
        // What is committed has to survive the server, not the machine.
        .args(["--innodb-flush-method=nosync", "--innodb-doublewrite=0"])
        .args(["--innodb-flush-log-at-trx-commit=2", "--sync-frm=0"]);
    Ok(command)
}

/// Runs statements as administrator.
pub(crate) fn execute(home: &Home, statements: &str) -> Result<()> {
    let client = program("mariadb", &[], "mariadb-client")?;
    let mut command = home.command(&client);
    command
        .args(["--no-defaults", "-uroot", "-e", statements])
        .arg(format!("--socket={}", home.join("socket").display()));
    home.run(&mut command)
}
