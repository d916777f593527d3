//! nginx as an HTTP reverse proxy with keep-alive to the members, one worker a core.

use std::fmt::Write;
use std::process::Command;

use anyhow::{Context, Result};

use super::{Place, Process, threads};

pub(super) fn start(place: &Place<'_>) -> Result<(Option<Process>, String)> {
    let scratch = place.scratch.path().display();
    let mut servers = String::new();
    for member in place.lane.member_addresses() {
        writeln!(servers, "        server {member};")?;
    }
    let config = format!(
        "daemon off;
user root;
worker_processes {threads};
pid {scratch}/nginx.pid;
error_log stderr;
events {{ worker_connections 4000; }}
http {{
    access_log off;
    client_body_temp_path {scratch}/body;
    proxy_temp_path {scratch}/proxy;
    fastcgi_temp_path {scratch}/fastcgi;
    uwsgi_temp_path {scratch}/uwsgi;
    scgi_temp_path {scratch}/scgi;
    keepalive_requests 1000000000;
    upstream pool {{
{servers}        keepalive 64;
        keepalive_requests 1000000000;
    }}
    server {{
        listen {vip} reuseport;
        location / {{
            proxy_pass http://pool;
            proxy_http_version 1.1;
            proxy_set_header Connection \"\";
        }}
    }}
}}
",
        threads = threads(),
        vip = place.vip
    );
    let path = place.write("nginx.conf", &config)?;
    let output = Command::new("nginx")
        .arg("-v")
        .output()
        .context("nginx is needed: apt-get install nginx-light")?;
    let process = place.spawn(
        place
            .lane
            .balancer
            .command("nginx")
            .args(["-e", "stderr", "-c"])
            .arg(path),
    )?;
    Ok((
        Some(process),
        String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    ))
}
