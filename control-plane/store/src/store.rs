//! The connection, the schema's version, and how a transaction runs.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use sea_orm::sqlx::sqlite::{SqliteJournalMode, SqliteSynchronous};
use sea_orm::{
    ConnectOptions, Database, DatabaseConnection, DatabaseTransaction, DbBackend, TransactionTrait,
};
use sea_orm_migration::MigratorTrait;
use tokio::sync::{Mutex, OwnedMutexGuard, watch};

use crate::StoreError;
use crate::migrations::Migrator;

/// How long SQLite waits for another process that writes.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECTIONS: u32 = 16;
/// A transaction that meets conflicts is run this often before the error is handed on.
const TRIES: u32 = 20;

/// The database. Clones share one pool.
#[derive(Clone)]
pub struct Store {
    pub(crate) db: DatabaseConnection,
    /// SQLite has one writer: those of this process queue here, in order, rather than poll its file lock.
    writer: Option<Arc<Mutex<()>>>,
    changed: Arc<watch::Sender<u64>>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("backend", &self.db.get_database_backend())
            .finish_non_exhaustive()
    }
}

impl Store {
    /// Connects to `sqlite://path`, `mysql://…` or `postgres://…`. A SQLite file is created if it is not there.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        let mut options = ConnectOptions::new(url);
        options
            .max_connections(CONNECTIONS)
            .acquire_timeout(Duration::from_secs(10))
            .sqlx_logging(false)
            .map_sqlx_sqlite_opts(|options| {
                options
                    .create_if_missing(true)
                    .foreign_keys(true)
                    .journal_mode(SqliteJournalMode::Wal)
                    .synchronous(SqliteSynchronous::Full)
                    .busy_timeout(BUSY_TIMEOUT)
            });
        let db = Database::connect(options)
            .await
            .map_err(StoreError::Connect)?;
        let writer = (db.get_database_backend() == DbBackend::Sqlite).then(Arc::default);
        Ok(Self {
            db,
            writer,
            changed: Arc::new(watch::Sender::new(0)),
        })
    }

    /// Brings the schema to this program's version. Does nothing when it is there.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        let _turn = self.writer_turn().await;
        Migrator::up(&self.db, None)
            .await
            .map_err(StoreError::Migrate)
    }

    /// That the database answers and has exactly this program's schema.
    pub async fn check(&self) -> Result<(), StoreError> {
        self.db.ping().await?;
        let known: Vec<String> = Migrator::migrations()
            .iter()
            .map(|migration| migration.name().to_owned())
            .collect();
        let applied = self.schema_version().await?;
        let missing: Vec<String> = known
            .iter()
            .filter(|name| !applied.contains(name))
            .cloned()
            .collect();
        if !missing.is_empty() {
            return Err(StoreError::SchemaBehind(missing));
        }
        let unknown: Vec<String> = applied
            .into_iter()
            .filter(|name| !known.contains(name))
            .collect();
        if !unknown.is_empty() {
            return Err(StoreError::SchemaAhead(unknown));
        }
        Ok(())
    }

    /// Names of the migrations the database has, in order.
    pub async fn schema_version(&self) -> Result<Vec<String>, StoreError> {
        let models = Migrator::get_migration_models(&self.db)
            .await
            .map_err(StoreError::Migrate)?;
        Ok(models.into_iter().map(|model| model.version).collect())
    }

    /// Changes whenever a call through this store (or a clone) made work for a worker. It only shortens the poll:
    /// work that another process makes is not told here.
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Closes the pool; calls after this fail.
    pub async fn close(&self) {
        // A connection that does not close cleanly is closed by the system; nothing is lost, commits are durable.
        let _ = self.db.close_by_ref().await;
    }

    pub(crate) fn tell_changed(&self) {
        self.changed
            .send_modify(|count| *count = count.wrapping_add(1));
    }

    pub(crate) async fn writer_turn(&self) -> Option<OwnedMutexGuard<()>> {
        match &self.writer {
            Some(writer) => Some(writer.clone().lock_owned().await),
            None => None,
        }
    }

    pub(crate) async fn begin(&self) -> Result<DatabaseTransaction, StoreError> {
        Ok(self.db.begin().await?)
    }
}

/// What a transaction that ran to its end wants done with it.
pub(crate) enum End<T> {
    Commit(T),
    Rollback(T),
}

/// Counts the runs of one transaction, and waits between them.
#[derive(Default)]
pub(crate) struct Retries(u32);

impl Retries {
    /// True when the transaction met a conflict and may run again.
    pub(crate) async fn again(&mut self, error: &StoreError) -> bool {
        if !error.is_conflict() || self.0 + 1 >= TRIES {
            return false;
        }
        self.0 += 1;
        tracing::debug!(tries = self.0, %error, "transaction met a conflict, running it again");
        tokio::time::sleep(Duration::from_millis(u64::from(self.0) * 5)).await;
        true
    }
}

/// Runs a block in a transaction, again when it meets a conflict. The block yields `Result<End<T>, StoreError>`;
/// an error, a panic or a dropped future rolls back. Its first statement must be a write, so that SQLite takes its
/// write lock before it reads.
macro_rules! in_transaction {
    ($store:expr, $txn:ident => $body:block) => {{
        let _turn = $store.writer_turn().await;
        let mut retries = $crate::store::Retries::default();
        loop {
            let attempt = async {
                let $txn = $store.begin().await?;
                let end: Result<$crate::store::End<_>, $crate::StoreError> = async { $body }.await;
                match end? {
                    $crate::store::End::Commit(value) => {
                        $txn.commit().await?;
                        Ok(value)
                    }
                    $crate::store::End::Rollback(value) => {
                        $txn.rollback().await?;
                        Ok(value)
                    }
                }
            }
            .await;
            match attempt {
                Err(error) if retries.again(&error).await => {}
                attempt => break attempt,
            }
        }
    }};
}

pub(crate) use in_transaction;

/// As `FromStr`, for ids kept in rows.
pub(crate) fn read_id<T: FromStr>(column: &'static str, text: &str) -> Result<T, StoreError> {
    crate::tables::convert::id(column, text)
}
