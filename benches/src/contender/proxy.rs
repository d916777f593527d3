//! Our proxy, in a process of its own, one thread a core.

use std::net::SocketAddr;
use std::time::Duration;

use amphora_proxy::{
    Algorithm, InsertHeaders, Listener, Member, Options, Pool, Protocol, Proxy, Snapshot,
};
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Place, Process, Serve, threads};
use crate::stop::Stop;

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum Mode {
    Tcp,
    Http,
}

/// What the process is told.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Setup {
    mode: Mode,
    listen: SocketAddr,
    members: Vec<SocketAddr>,
}

pub(super) fn start(place: &Place<'_>, mode: Mode) -> Result<(Option<Process>, String)> {
    Serve::Proxy(Setup {
        mode,
        listen: place.vip,
        members: place.lane.member_addresses(),
    })
    .start(place)
}

impl Setup {
    pub(super) fn run(self, stop: &Stop) -> Result<()> {
        let proxy = Proxy::start(Options {
            threads: threads(),
            on_thread_start: None,
        })
        .context("start the proxy")?;
        let pool = Uuid::new_v4();
        let report = proxy.apply(Snapshot {
            listeners: vec![Listener {
                id: Uuid::new_v4(),
                binds: vec![self.listen],
                protocol: match self.mode {
                    Mode::Tcp => Protocol::Tcp,
                    Mode::Http => Protocol::Http,
                },
                default_pool: Some(pool),
                connection_limit: None,
                insert_headers: InsertHeaders::default(),
                timeout_client_data: Duration::from_secs(50),
                timeout_member_connect: Duration::from_secs(5),
                timeout_member_data: Duration::from_secs(50),
                draining: false,
            }],
            pools: vec![Pool {
                id: pool,
                algorithm: Algorithm::RoundRobin,
                members: self
                    .members
                    .iter()
                    .map(|member| Member {
                        id: Uuid::new_v4(),
                        address: *member,
                        weight: 1,
                        backup: false,
                        up: true,
                    })
                    .collect(),
            }],
        });
        if let Some(error) = report.errors.into_iter().next() {
            bail!(anyhow::Error::from(error));
        }
        println!("{} threads", threads());
        while stop.pause(Duration::from_secs(3600)).is_ok() {}
        proxy.shutdown(Duration::ZERO);
        Ok(())
    }
}
