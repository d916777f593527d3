//! Who is measured: a control plane with the servers it needs, up until it is dropped.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::unistd::Pid;
use serde::Serialize;
use tempfile::TempDir;
use test_databases::{RabbitMq, Server};

use super::service::Service;
use super::{octavia, ours};
use crate::accounting;
use crate::process::family;
use crate::stop::Stop;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// Octavia, on MariaDB and RabbitMQ.
    Octavia,
    /// Our control plane on SQLite.
    Sqlite,
    /// Our control plane on MariaDB.
    Mariadb,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Octavia => "Octavia",
            Kind::Sqlite => "ours, SQLite",
            Kind::Mariadb => "ours, MariaDB",
        }
    }
}

/// Fields are dropped in this order: who serves before what it needs.
#[derive(Debug)]
pub(crate) struct Contender {
    pub(crate) kind: Kind,
    pub(crate) address: SocketAddr,
    pub(crate) services: Vec<Service>,
    pub(crate) database: Option<Server>,
    pub(crate) broker: Option<RabbitMq>,
    pub(crate) _scratch: TempDir,
}

/// CPU time, by whom.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cpu {
    /// Each service of the control plane.
    pub(crate) services: Vec<(&'static str, Duration)>,
    pub(crate) database: Duration,
    pub(crate) broker: Duration,
}

impl Cpu {
    /// The control plane without what it needs.
    pub(crate) fn own(&self) -> Duration {
        self.services.iter().map(|(_, time)| *time).sum()
    }

    pub(crate) fn all(&self) -> Duration {
        self.own() + self.database + self.broker
    }

    pub(crate) fn since(&self, before: &Self) -> Self {
        let services = self.services.iter().zip(&before.services);
        Self {
            services: services
                .map(|((name, now), (_, then))| (*name, now.saturating_sub(*then)))
                .collect(),
            database: self.database.saturating_sub(before.database),
            broker: self.broker.saturating_sub(before.broker),
        }
    }
}

/// Resident memory of one service's processes.
#[derive(Debug, Serialize)]
pub(crate) struct Memory {
    pub(crate) contender: Kind,
    pub(crate) service: &'static str,
    /// Whether it is a part of the control plane, not something that it needs.
    pub(crate) own: bool,
    /// Each of its processes.
    pub(crate) resident_kib: Vec<u64>,
    /// The most they ever held, together.
    pub(crate) peak_kib: u64,
}

impl Contender {
    pub(crate) fn start(kind: Kind, stop: &Stop) -> Result<Self> {
        match kind {
            Kind::Octavia => octavia::start(stop),
            Kind::Sqlite | Kind::Mariadb => ours::start(kind, stop),
        }
        .with_context(|| format!("start {}", kind.name()))
    }

    pub(crate) fn cpu(&self) -> Result<Cpu> {
        let mut cpu = Cpu::default();
        for service in &self.services {
            cpu.services.push((service.name, time(&service.pids())?));
        }
        if let Some(server) = &self.database {
            cpu.database = time(&family(server.pid()))?;
        }
        if let Some(server) = &self.broker {
            cpu.broker = time(&family(server.pid()))?;
        }
        Ok(cpu)
    }

    pub(crate) fn memory(&self) -> Result<Vec<Memory>> {
        let services = self.services.iter().map(|it| (it.name, true, it.pids()));
        let database = self.database.iter();
        let database = database.map(|it| ("MariaDB", false, family(it.pid())));
        let broker = self.broker.iter();
        let broker = broker.map(|it| ("RabbitMQ", false, family(it.pid())));
        services
            .chain(database)
            .chain(broker)
            .map(|(service, own, pids)| {
                let kib = |of: fn(u32) -> Result<u64>| pids.iter().map(move |pid| of(*pid));
                Ok(Memory {
                    contender: self.kind,
                    service,
                    own,
                    resident_kib: kib(accounting::resident_kib).collect::<Result<_>>()?,
                    peak_kib: kib(accounting::peak_kib).sum::<Result<_>>()?,
                })
            })
            .collect()
    }

    /// The last lines of every log, for an error that has to be explained.
    pub(crate) fn last_words(&self) -> String {
        self.services
            .iter()
            .map(|it| format!("{}:\n{}\n", it.name, it.last_words()))
            .collect()
    }
}

impl Drop for Contender {
    /// All at once, rather than one after the other.
    fn drop(&mut self) {
        for service in &self.services {
            service.ask_to_end();
        }
    }
}

fn time(pids: &[u32]) -> Result<Duration> {
    pids.iter()
        .map(|pid| accounting::process(Pid::from_raw(i32::try_from(*pid)?)))
        .sum()
}
