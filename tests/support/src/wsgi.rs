//! WSGI applications under gunicorn, on sockets they inherit.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};

use crate::group::Group;
use crate::venv::venv;

/// Starts the application of a virtual environment in `dir`, which keeps its log, with one worker of so many threads;
/// `environment` says where its configuration is. It may not answer yet.
pub(crate) fn serve(
    venv_name: &str,
    application: &str,
    threads: u32,
    dir: &Path,
    environment: (&str, &Path),
) -> Result<(SocketAddr, Group)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("bind an application")?;
    let address = listener.local_addr()?;
    // The server inherits the socket, so that nobody can take its port before it listens.
    fcntl(listener.as_fd(), FcntlArg::F_SETFD(FdFlag::empty()))?;
    // Its command line has to be empty: the applications read it, too.
    let settings = format!(
        "wsgi_app = \"{application}\"\nbind = \"fd://{}\"\nworkers = 1\nthreads = {threads}\n",
        listener.as_raw_fd()
    );
    std::fs::write(dir.join("gunicorn.conf.py"), settings)?;
    let mut command = Command::new(venv(venv_name)?.join("bin/gunicorn"));
    command.current_dir(dir).env(environment.0, environment.1);
    let group = Group::spawn(&command, &dir.join("gunicorn.log"))?;
    Ok((address, group))
}
