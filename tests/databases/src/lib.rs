//! Private servers for tests and benchmarks: MariaDB, a Galera cluster of it, PostgreSQL; and RabbitMQ, which a peer
//! needs.
//!
//! Each is a process in a temporary directory, on a Unix socket or on loopback, as the user its package made when we
//! are root. It is stopped and removed when the value is dropped, also on panic, and dies with the process that
//! started it. Nothing is synced to disk: a server here lives as long as its tests.
//!
//! A server that is not installed is an error that names its package.

mod galera;
mod mariadb;
mod postgresql;
mod process;
mod rabbitmq;

pub use galera::Galera;
pub use rabbitmq::RabbitMq;

use anyhow::Result;

use process::Process;

/// The environment variable that says on which server the tests of the store, the API and the controllers make their
/// databases: a URL such as [`Server::url`]. SQLite when it is absent.
pub const VARIABLE: &str = "LB_TEST_DATABASE";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    MariaDb,
    PostgreSql,
}

/// A running server without a database of its own.
#[derive(Debug)]
pub struct Server {
    kind: Kind,
    url: String,
    process: Process,
}

impl Server {
    /// Starts one and returns when it answers. To be called from a thread that outlives the server.
    pub fn start(kind: Kind) -> Result<Self> {
        match kind {
            Kind::MariaDb => mariadb::start(),
            Kind::PostgreSql => postgresql::start(),
        }
    }

    /// Without a database: its name belongs before the question mark.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The URL of one of its databases.
    pub fn database_url(&self, name: &str) -> String {
        self.url.replacen("/?", &format!("/{name}?"), 1)
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Ends it at once, without a word to its clients and without writing back what it holds in memory.
    pub fn kill(&mut self) {
        match self.kind {
            Kind::MariaDb => self.process.kill(),
            // Its other processes would outlive the first one for a while, and hold its memory.
            Kind::PostgreSql => self.process.stop(),
        }
    }

    /// Starts it after [`Server::kill`], with all that was committed.
    pub fn start_again(&mut self) -> Result<()> {
        self.process.start_again()
    }

    /// Makes a database.
    pub fn create_database(&self, name: &str) -> Result<()> {
        self.execute(&format!("CREATE DATABASE {name}"))
    }

    /// Runs statements as administrator.
    pub fn execute(&self, statements: &str) -> Result<()> {
        match self.kind {
            Kind::MariaDb => mariadb::execute(self.process.home(), statements),
            Kind::PostgreSql => postgresql::execute(self.process.home(), statements),
        }
    }
}
