//! The pool of connections, and how each one is set up.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sea_orm::sqlx::mysql::{MySqlConnectOptions, MySqlConnection};
use sea_orm::sqlx::pool::{PoolConnectionMetadata, PoolOptions};
use sea_orm::sqlx::postgres::{PgConnectOptions, PgConnection};
use sea_orm::sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sea_orm::sqlx::{
    self, ConnectOptions as _, Connection as _, Executor as _, MySql, Postgres, Row as _, Sqlite,
};
use sea_orm::{DatabaseConnection, DbErr, RuntimeErr};

/// How long SQLite waits for another process that writes.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECTIONS: u32 = 16;
/// Memory in which each connection to SQLite keeps pages of its own, in the words of its `PRAGMA cache_size`: 512 KiB.
/// Little: the system's page cache has them all, and once.
const SQLITE_CACHE: &str = "-512";
/// How long a call waits for a connection, new ones included.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);
/// Connections are replaced after this, so that those to a node that came back are shared out again.
const LIFETIME: Duration = Duration::from_secs(1800);
/// A connection that was not used for this long is tested before it is.
const IDLE: Duration = Duration::from_secs(2);
/// For so long after a failure every connection is tested.
const DOUBT: Duration = Duration::from_secs(5);

/// Whether connections of a pool are to be doubted: some call found the database away, so others lead there, too.
#[derive(Debug, Clone)]
pub(crate) struct Suspicion {
    start: Instant,
    /// Milliseconds after `start`.
    until: Arc<AtomicU64>,
}

impl Default for Suspicion {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            until: Arc::default(),
        }
    }
}

impl Suspicion {
    pub(crate) fn raise(&self) {
        self.until.store(self.millis(DOUBT), Ordering::Relaxed);
    }

    fn is_raised(&self) -> bool {
        self.millis(Duration::ZERO) < self.until.load(Ordering::Relaxed)
    }

    fn millis(&self, more: Duration) -> u64 {
        u64::try_from((self.start.elapsed() + more).as_millis()).unwrap_or(u64::MAX)
    }

    fn doubts(&self, meta: &PoolConnectionMetadata) -> bool {
        meta.idle_for >= IDLE || self.is_raised()
    }
}

/// Answers when one connection stands, or says why none does.
pub(crate) async fn connect(url: &str, suspicion: &Suspicion) -> Result<DatabaseConnection, DbErr> {
    if url.starts_with("mysql:") {
        let options: MySqlConnectOptions = url.parse().map_err(refused)?;
        let options = options.disable_statement_logging();
        probe(&options).await?;
        let suspicion = suspicion.clone();
        let pool = pool_options::<MySql>()
            .after_connect(|connection, _| Box::pin(set_up_mariadb(connection)))
            .before_acquire(move |connection, meta| {
                let doubted = suspicion.doubts(&meta);
                let idle = is_idle(connection);
                Box::pin(async move {
                    Ok(idle && (!doubted || mariadb_takes_writes(connection).await?))
                })
            })
            .connect_lazy_with(options);
        return Ok(pool.into());
    }
    if url.starts_with("postgres:") || url.starts_with("postgresql:") {
        let options: PgConnectOptions = url.parse().map_err(refused)?;
        let options = options.disable_statement_logging();
        probe(&options).await?;
        let suspicion = suspicion.clone();
        let pool = pool_options::<Postgres>()
            .before_acquire(move |connection, meta| {
                let doubted = suspicion.doubts(&meta);
                let idle = is_idle(connection);
                Box::pin(async move {
                    Ok(idle && (!doubted || postgresql_takes_writes(connection).await?))
                })
            })
            .connect_lazy_with(options);
        return Ok(pool.into());
    }
    let options: SqliteConnectOptions = url.parse().map_err(refused)?;
    let options = options
        .create_if_missing(true)
        .foreign_keys(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(BUSY_TIMEOUT)
        .pragma("cache_size", SQLITE_CACHE)
        .disable_statement_logging();
    let pool = pool_options::<Sqlite>()
        .acquire_timeout(BUSY_TIMEOUT)
        .before_acquire(|connection, _| {
            let idle = is_idle(connection);
            Box::pin(async move { Ok(idle) })
        })
        .connect_with(options)
        .await
        .map_err(refused)?;
    Ok(pool.into())
}

/// What pools have in common. Connections are tested by each pool's own rule: every test costs a message, to SQLite a
/// switch to the connection's thread and back.
fn pool_options<DB: sqlx::Database>() -> PoolOptions<DB> {
    PoolOptions::new()
        .max_connections(CONNECTIONS)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .max_lifetime(LIFETIME)
        .test_before_acquire(false)
}

/// Not after a rollback that failed: a database that is away for a moment refuses it, and SQLite on a full disk has
/// rolled back by itself. The next transaction would be nested in the old one, see what that saw, and commit nothing.
fn is_idle<C: sqlx::Connection>(connection: &C) -> bool {
    !connection.is_in_transaction()
}

/// Connects once: a pool keeps trying, and its error says only that this took too long.
async fn probe<O: sqlx::ConnectOptions<Connection: Sized>>(options: &O) -> Result<(), DbErr> {
    match tokio::time::timeout(ACQUIRE_TIMEOUT, options.connect()).await {
        // How it ends does not matter.
        Ok(Ok(connection)) => {
            let _ = connection.close().await;
            Ok(())
        }
        Ok(Err(error)) => Err(refused(error)),
        Err(_) => Err(refused(sqlx::Error::Io(ErrorKind::TimedOut.into()))),
    }
}

fn refused(error: sqlx::Error) -> DbErr {
    DbErr::Conn(RuntimeErr::SqlxError(Arc::new(error)))
}

/// Values that do not fit are errors; a transaction sees what others commit, as in PostgreSQL, so that ranges are not
/// locked; and on a Galera cluster nothing is read that is older than what any node has committed (decision 7).
async fn set_up_mariadb(connection: &mut MySqlConnection) -> Result<(), sqlx::Error> {
    connection
        .execute("SET SESSION sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES')")
        .await?;
    connection
        .execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        .await?;
    if Variables::read(connection).await?.clustered {
        // At SELECT outside of transactions, and at BEGIN.
        connection
            .execute("SET SESSION wsrep_sync_wait = 1")
            .await?;
    }
    Ok(())
}

/// What a MariaDB server says of itself.
#[derive(Debug, Default)]
struct Variables {
    clustered: bool,
    read_only: bool,
}

impl Variables {
    async fn read(connection: &mut MySqlConnection) -> Result<Self, sqlx::Error> {
        let mut variables = Self::default();
        let rows = connection
            .fetch_all("SHOW VARIABLES WHERE Variable_name IN ('wsrep_on', 'read_only')")
            .await?;
        for row in rows {
            let (name, value): (String, String) = (row.try_get(0)?, row.try_get(1)?);
            match name.as_str() {
                "wsrep_on" => variables.clustered = value == "ON",
                _ => variables.read_only = value != "OFF",
            }
        }
        Ok(variables)
    }
}

/// That the server is not read-only and, in a cluster, belongs to the part that goes on.
async fn mariadb_takes_writes(connection: &mut MySqlConnection) -> Result<bool, sqlx::Error> {
    let variables = Variables::read(connection).await?;
    if variables.read_only || !variables.clustered {
        return Ok(!variables.read_only);
    }
    let ready = connection
        .fetch_one("SHOW STATUS LIKE 'wsrep_ready'")
        .await?;
    Ok(ready.try_get::<String, _>(1)? == "ON")
}

async fn postgresql_takes_writes(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    let row = connection
        .fetch_one("SELECT current_setting('transaction_read_only') = 'off'")
        .await?;
    row.try_get(0)
}
