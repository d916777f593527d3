//! The connections, and how a transaction runs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lb_model::{PerResource, UNLIMITED};
use sea_orm::{
    AccessMode, ConnectionTrait, DatabaseConnection, DatabaseTransaction, DbBackend, DbErr,
    IsolationLevel, Statement, TransactionTrait,
};
use tokio::sync::{Mutex, OwnedMutexGuard, watch};
use uuid::Uuid;

use crate::StoreError;
use crate::error::Failure;
use crate::pool::{self, Suspicion};
use crate::reads::Reads;

/// A transaction that meets conflicts is run this often before the error is handed on.
const TRIES: u32 = 20;
/// For so long after the first failure the database may be away before that is handed on.
const PATIENCE: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The database. Clones share one pool.
#[derive(Clone)]
pub struct Store {
    /// For reading outside of transactions.
    pub(crate) db: Reads,
    suspicion: Suspicion,
    /// SQLite has one writer: those of this process queue here, in order, rather than poll its file lock.
    writer: Option<Arc<Mutex<()>>>,
    changed: Arc<watch::Sender<u64>>,
    pub(crate) default_quota: PerResource<i32>,
    #[cfg(any(test, feature = "testing"))]
    faults: crate::testing::StoreFaults,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("backend", &self.backend())
            .finish_non_exhaustive()
    }
}

impl Store {
    /// Connects to `sqlite://path`, `mysql://…` or `postgres://…`. A SQLite file is created if it is not there.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        let suspicion = Suspicion::default();
        let connection = pool::connect(url, &suspicion)
            .await
            .map_err(StoreError::Connect)?;
        let writer = (connection.get_database_backend() == DbBackend::Sqlite).then(Arc::default);
        Ok(Self {
            db: Reads::new(connection, suspicion.clone()),
            suspicion,
            writer,
            changed: Arc::new(watch::Sender::new(0)),
            default_quota: PerResource::all(UNLIMITED),
            #[cfg(any(test, feature = "testing"))]
            faults: crate::testing::StoreFaults::default(),
        })
    }

    /// Lets transactions of this store and its later clones go wrong as `faults` say.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn with_faults(mut self, faults: crate::testing::StoreFaults) -> Self {
        self.faults = faults;
        self
    }

    /// Changes whenever a call through this store (or a clone) made work for a worker. It only shortens the poll:
    /// work that another process makes is not told here.
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// That the database answers.
    pub async fn ping(&self) -> Result<(), StoreError> {
        Ok(self.connection().ping().await?)
    }

    /// Closes the pool; calls after this fail.
    pub async fn close(&self) {
        // A connection that does not close cleanly is closed by the system; nothing is lost, commits are durable.
        let _ = self.connection().close_by_ref().await;
    }

    pub(crate) fn connection(&self) -> &DatabaseConnection {
        self.db.connection()
    }

    pub(crate) fn backend(&self) -> DbBackend {
        self.connection().get_database_backend()
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
        #[cfg(any(test, feature = "testing"))]
        self.faults.before().await?;
        self.begin_with(None, None).await
    }

    /// A transaction that reads everything as it was at one moment.
    pub(crate) async fn begin_reading(&self) -> Result<DatabaseTransaction, StoreError> {
        match self.backend() {
            // A snapshot is what every transaction of SQLite sees.
            DbBackend::Sqlite => self.begin_with(None, None).await,
            _ => {
                let isolation = IsolationLevel::RepeatableRead;
                self.begin_with(Some(isolation), Some(AccessMode::ReadOnly))
                    .await
            }
        }
    }

    /// In a task of its own: a caller that is dropped while MariaDB begins would leave the pool a connection with an
    /// open transaction that nobody knows of.
    async fn begin_with(
        &self,
        isolation: Option<IsolationLevel>,
        access: Option<AccessMode>,
    ) -> Result<DatabaseTransaction, StoreError> {
        let connection = self.connection().clone();
        let begun = tokio::spawn(async move {
            match (isolation, access) {
                (None, None) => connection.begin().await,
                _ => connection.begin_with_config(isolation, access).await,
            }
        });
        match begun.await {
            Ok(transaction) => Ok(transaction?),
            Err(ended) => Err(StoreError::Database(DbErr::Custom(ended.to_string()))),
        }
    }

    pub(crate) async fn commit(&self, transaction: DatabaseTransaction) -> Result<(), StoreError> {
        ensure_open(&transaction).await?;
        let committed = transaction.commit().await.map_err(StoreError::of_commit);
        #[cfg(any(test, feature = "testing"))]
        let committed = match committed {
            Ok(()) => self.faults.after().await,
            refused => refused,
        };
        committed
    }

    /// To be asked between the runs of one transaction.
    pub(crate) fn retries(&self) -> Retries {
        Retries::new(self.suspicion.clone())
    }
}

/// A node of a Galera cluster ends a transaction when another node's conflicts with it, and does not always say so: what
/// follows runs by itself, and the commit commits nothing.
async fn ensure_open(transaction: &DatabaseTransaction) -> Result<(), StoreError> {
    let backend = transaction.get_database_backend();
    if backend != DbBackend::MySql {
        return Ok(());
    }
    let question =
        Statement::from_string(backend, "SELECT CAST(@@in_transaction AS SIGNED) AS open");
    let row = transaction.query_one_raw(question).await?;
    match row.map(|row| row.try_get::<i64>("", "open")).transpose()? {
        Some(1) => Ok(()),
        _ => Err(StoreError::Aborted),
    }
}

/// What a transaction that ran to its end wants done with it.
pub(crate) enum End<T> {
    Commit(T),
    Rollback(T),
}

/// Counts the runs of one transaction or of one read, and waits between them.
#[derive(Debug)]
pub(crate) struct Retries {
    suspicion: Suspicion,
    /// When the database was first found away.
    begun: Option<Instant>,
    conflicts: u32,
    outages: u32,
    unsure: bool,
}

impl Retries {
    pub(crate) fn new(suspicion: Suspicion) -> Self {
        Self {
            suspicion,
            begun: None,
            conflicts: 0,
            outages: 0,
            unsure: false,
        }
    }

    /// An earlier run may have been committed: its end is not known.
    pub(crate) fn unsure(&self) -> bool {
        self.unsure
    }

    /// True, after a pause, when what failed may run again: it met a conflict, or the database is away for a moment.
    pub(crate) async fn again(&mut self, failure: Failure) -> bool {
        let tries = match failure {
            Failure::Conflict => {
                self.conflicts += 1;
                if self.conflicts >= TRIES {
                    return false;
                }
                self.conflicts
            }
            Failure::Outage | Failure::OutcomeUnknown => {
                self.unsure |= failure == Failure::OutcomeUnknown;
                self.suspicion.raise();
                let begun = *self.begun.get_or_insert_with(Instant::now);
                if begun.elapsed() >= PATIENCE {
                    return false;
                }
                self.outages += 1;
                self.outages.saturating_add(2)
            }
            Failure::Lasting => return false,
        };
        tracing::debug!(
            tries,
            ?failure,
            "running again what the database did not take"
        );
        tokio::time::sleep(pause(tries)).await;
        true
    }

    /// What is to be told of a last error.
    pub(crate) fn verdict(&self, error: StoreError) -> StoreError {
        match error {
            StoreError::Database(source) if self.unsure => StoreError::OutcomeUnknown(source),
            error => error,
        }
    }
}

/// Grows with each try; half of it is chance, so that rivals do not meet again.
fn pause(tries: u32) -> Duration {
    let longest = FIRST_PAUSE
        .saturating_mul(2_u32.saturating_pow(tries.min(10)))
        .min(LONGEST_PAUSE);
    let (chance, ..) = Uuid::new_v4().as_fields();
    longest / 2 + longest.mul_f64(f64::from(chance) / f64::from(u32::MAX) / 2.0)
}

/// Runs a block in a transaction, and again when it meets a conflict or the database is away for a moment. The block
/// yields `Result<End<T>, StoreError>`; an error, a panic or a dropped future rolls back. Its first statement must be
/// a write, so that SQLite takes its write lock before it reads.
///
/// A connection that is lost in a commit leaves it open whether that happened. The block runs again all the same: it
/// must come to the same end when its work is done already, or ask the third argument, which is true from then on.
macro_rules! in_transaction {
    ($store:expr, $txn:ident => $body:block) => {
        $crate::store::in_transaction!($store, $txn, _unsure => $body)
    };
    ($store:expr, $txn:ident, $unsure:ident => $body:block) => {{
        let _turn = $store.writer_turn().await;
        let mut retries = $store.retries();
        loop {
            let $unsure = retries.unsure();
            let attempt: Result<_, $crate::StoreError> = async {
                let $txn = $store.begin().await?;
                let end: Result<$crate::store::End<_>, $crate::StoreError> = async { $body }.await;
                match end? {
                    $crate::store::End::Commit(value) => {
                        $store.commit($txn).await?;
                        Ok(value)
                    }
                    $crate::store::End::Rollback(value) => {
                        // Without an answer it is rolled back, too.
                        let _ = $txn.rollback().await;
                        Ok(value)
                    }
                }
            }
            .await;
            match attempt {
                Err(error) if retries.again(error.failure()).await => {}
                attempt => break attempt.map_err(|error| retries.verdict(error)),
            }
        }
    }};
}

pub(crate) use in_transaction;

/// As `FromStr`, for ids kept in rows.
pub(crate) fn read_id<T: std::str::FromStr>(
    column: &'static str,
    text: &str,
) -> Result<T, StoreError> {
    crate::tables::convert::id(column, text)
}
