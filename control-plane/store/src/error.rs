//! Why a call to the store did not succeed.

use sea_orm::{DbErr, RuntimeErr, SqlErr, SqlxError};
use uuid::Uuid;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("connect to the database")]
    Connect(#[source] DbErr),
    #[error("use the database")]
    Database(#[source] DbErr),
    #[error("migrate the database")]
    Migrate(#[source] DbErr),
    /// A row holds what this program never writes.
    #[error("column {column} holds {value:?}")]
    Corrupt { column: &'static str, value: String },
    /// An object with this id exists already.
    #[error("an object with this id exists already")]
    Duplicate,
    /// Lists: no such filter or sort key.
    #[error("no column {0:?} to filter or sort by")]
    UnknownColumn(String),
    /// Lists: a filter value that is none of this column's kind.
    #[error("{value:?} is no value of {column:?}")]
    InvalidFilter { column: String, value: String },
    /// Lists: the object a page was to start after does not exist.
    #[error("marker {0} does not exist")]
    UnknownMarker(Uuid),
    #[error("database schema lacks migrations: {0:?}")]
    SchemaBehind(Vec<String>),
    #[error("database schema has migrations this program does not know: {0:?}")]
    SchemaAhead(Vec<String>),
}

impl StoreError {
    /// The same call may succeed later: the database was away, busy or chose this transaction as a victim.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Connect(source) | Self::Database(source) | Self::Migrate(source) => {
                is_conflict(source) || is_outage(source)
            }
            Self::Corrupt { .. }
            | Self::Duplicate
            | Self::UnknownColumn(_)
            | Self::InvalidFilter { .. }
            | Self::UnknownMarker(_)
            | Self::SchemaBehind(_)
            | Self::SchemaAhead(_) => false,
        }
    }

    /// A deadlock, a serialisation failure or a busy file: the transaction was undone and may run again at once.
    pub(crate) fn is_conflict(&self) -> bool {
        match self {
            Self::Database(source) => is_conflict(source),
            _ => false,
        }
    }
}

impl From<DbErr> for StoreError {
    fn from(source: DbErr) -> Self {
        match source.sql_err() {
            Some(SqlErr::UniqueConstraintViolation(_)) => Self::Duplicate,
            _ => Self::Database(source),
        }
    }
}

fn sqlx_error(error: &DbErr) -> Option<&SqlxError> {
    match error {
        DbErr::Conn(RuntimeErr::SqlxError(source))
        | DbErr::Exec(RuntimeErr::SqlxError(source))
        | DbErr::Query(RuntimeErr::SqlxError(source)) => Some(source),
        _ => None,
    }
}

fn is_conflict(error: &DbErr) -> bool {
    let Some(SqlxError::Database(source)) = sqlx_error(error) else {
        return false;
    };
    let code = source.code().unwrap_or_default();
    match code.as_ref() {
        // SQLite: BUSY, LOCKED and their extended codes RECOVERY, SNAPSHOT, SHAREDCACHE.
        "5" | "6" | "261" | "517" | "262" => true,
        // PostgreSQL and MariaDB: serialisation failure, deadlock.
        "40001" | "40P01" => true,
        // MariaDB reports lock wait timeouts under the general state.
        "HY000" => source.message().contains("Lock wait timeout"),
        _ => false,
    }
}

fn is_outage(error: &DbErr) -> bool {
    if matches!(error, DbErr::ConnectionAcquire(_) | DbErr::Conn(_)) {
        return true;
    }
    matches!(
        sqlx_error(error),
        Some(
            SqlxError::Io(_)
                | SqlxError::PoolTimedOut
                | SqlxError::PoolClosed
                | SqlxError::WorkerCrashed
        )
    )
}
