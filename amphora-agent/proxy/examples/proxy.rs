//! The proxy by itself, for benchmarks beside other proxies.
//!
//! `proxy --listen 127.0.0.1:8080 --member 127.0.0.1:9001 --member 127.0.0.1:9002=2 --threads 1`

use std::net::SocketAddr;
use std::time::Duration;

use amphora_proxy::{
    Algorithm, InsertHeaders, Listener, Member, Options, Pool, Protocol, Proxy, Snapshot,
};
use clap::Parser;
use uuid::Uuid;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
struct Arguments {
    /// Address and port to listen on; may be given several times.
    #[arg(long, required = true)]
    listen: Vec<SocketAddr>,
    /// A member's address and port, with `=weight` when it is not 1; may be given several times.
    #[arg(long, required = true, value_parser = parse_member)]
    member: Vec<(SocketAddr, u16)>,
    /// 0: one for each core.
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Pass bytes on without reading HTTP.
    #[arg(long)]
    tcp: bool,
    /// Add X-Forwarded-For, -Port and -Proto.
    #[arg(long)]
    forwarded: bool,
    /// Idle time-out of both sides, in seconds.
    #[arg(long, default_value_t = 50)]
    timeout: u64,
}

fn parse_member(text: &str) -> Result<(SocketAddr, u16), String> {
    let (address, weight) = text.split_once('=').unwrap_or((text, "1"));
    Ok((
        address.parse().map_err(|error| format!("{error}"))?,
        weight.parse().map_err(|error| format!("{error}"))?,
    ))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::parse();
    let pool = Uuid::from_u128(1);
    let proxy = Proxy::start(Options {
        threads: arguments.threads,
        on_thread_start: None,
    })?;
    let report = proxy.apply(Snapshot {
        listeners: vec![Listener {
            id: Uuid::from_u128(2),
            binds: arguments.listen,
            protocol: if arguments.tcp {
                Protocol::Tcp
            } else {
                Protocol::Http
            },
            default_pool: Some(pool),
            connection_limit: None,
            insert_headers: InsertHeaders {
                x_forwarded_for: arguments.forwarded,
                x_forwarded_port: arguments.forwarded,
                x_forwarded_proto: arguments.forwarded,
            },
            timeout_client_data: Duration::from_secs(arguments.timeout),
            timeout_member_connect: Duration::from_secs(5),
            timeout_member_data: Duration::from_secs(arguments.timeout),
            draining: false,
        }],
        pools: vec![Pool {
            id: pool,
            algorithm: Algorithm::RoundRobin,
            members: (100..)
                .zip(arguments.member)
                .map(|(id, (address, weight))| Member {
                    id: Uuid::from_u128(id),
                    address,
                    weight,
                    backup: false,
                    up: true,
                })
                .collect(),
        }],
    });
    if let Some(error) = report.errors.into_iter().next() {
        return Err(error.into());
    }
    println!("ready");
    loop {
        std::thread::park();
    }
}
