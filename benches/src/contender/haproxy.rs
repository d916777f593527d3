//! HAProxy, set as Octavia sets it, one thread a core.

use std::fmt::Write;
use std::process::Command;

use anyhow::{Context, Result};

use super::{Place, Process, threads};
use crate::netns;

pub(super) fn start(place: &Place<'_>, mode: &str) -> Result<(Option<Process>, String)> {
    let mut config = format!(
        "global
    # Each connection takes two descriptors, and the limit of them cannot always be raised.
    maxconn 4000
    nbthread {threads}
defaults
    mode {mode}
    timeout connect 5s
    timeout client 50s
    timeout server 50s
frontend listener
    bind {vip}
    default_backend pool
backend pool
    balance roundrobin
",
        threads = threads(),
        vip = place.vip
    );
    for (index, member) in place.lane.member_addresses().iter().enumerate() {
        writeln!(config, "    server member{index} {member} weight 1")?;
    }
    let path = place.write("haproxy.cfg", &config)?;
    let version = netns::run(Command::new("haproxy").arg("-v"))
        .context("HAProxy is needed: apt-get install haproxy")?;
    let process = place.spawn(
        place
            .lane
            .balancer
            .command("haproxy")
            .arg("-db")
            .arg("-f")
            .arg(path),
    )?;
    let version = version.lines().next().unwrap_or_default();
    Ok((Some(process), version.to_owned()))
}
