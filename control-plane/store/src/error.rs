//! Why a call to the store did not succeed.

use lb_model::Resource;
use sea_orm::sqlx::mysql::MySqlDatabaseError;
use sea_orm::sqlx::postgres::PgDatabaseError;
use sea_orm::{ConnAcquireErr, DbErr, RuntimeErr, SqlErr, SqlxError};

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("connect to the database")]
    Connect(#[source] DbErr),
    #[error("use the database")]
    Database(#[source] DbErr),
    /// The database was lost while it committed: what was to be written is there or is not.
    #[error("learn whether the database committed")]
    OutcomeUnknown(#[source] DbErr),
    /// The database undid the transaction, and told only when it was asked.
    #[error("the database ended the transaction before its commit")]
    Aborted,
    #[error("migrate the database")]
    Migrate(#[source] DbErr),
    /// A row holds what this program never writes.
    #[error("column {column} holds {value:?}")]
    Corrupt { column: &'static str, value: String },
    /// An object with this id exists already.
    #[error("an object with this id exists already")]
    Duplicate,
    /// Another request has created something under the key of the receipt.
    #[error("the idempotency key was used by another request")]
    KeyUsed,
    /// A row that is written names one that does not exist, or one that is removed is named by another.
    #[error("an object names one that does not exist")]
    BrokenReference,
    /// Lists: no such filter or sort key.
    #[error("no column {0:?} to filter or sort by")]
    UnknownColumn(String),
    /// Lists: a filter value that is none of this column's kind.
    #[error("{value:?} is no value of {column:?}")]
    InvalidFilter { column: String, value: String },
    /// Lists: the object a page was to start after does not exist.
    #[error("marker {0} does not exist")]
    UnknownMarker(String),
    /// The project would have more of these than it may.
    #[error("quota has been met for {0}")]
    QuotaReached(Resource),
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
                Failure::of(source) != Failure::Lasting
            }
            Self::OutcomeUnknown(_) | Self::Aborted => true,
            Self::Corrupt { .. }
            | Self::Duplicate
            | Self::KeyUsed
            | Self::BrokenReference
            | Self::UnknownColumn(_)
            | Self::InvalidFilter { .. }
            | Self::UnknownMarker(_)
            | Self::QuotaReached(_)
            | Self::SchemaBehind(_)
            | Self::SchemaAhead(_) => false,
        }
    }

    /// What an error in a transaction means for running it again.
    pub(crate) fn failure(&self) -> Failure {
        match self {
            Self::Database(source) => Failure::of(source),
            Self::OutcomeUnknown(_) => Failure::OutcomeUnknown,
            Self::Aborted => Failure::Conflict,
            _ => Failure::Lasting,
        }
    }

    /// An error that came when a commit was asked for. A conflict undid the transaction; after anything else nobody
    /// knows.
    pub(crate) fn of_commit(source: DbErr) -> Self {
        match Failure::of(&source) {
            Failure::Conflict => Self::Database(source),
            Failure::Outage | Failure::OutcomeUnknown | Failure::Lasting => {
                Self::OutcomeUnknown(source)
            }
        }
    }
}

impl From<DbErr> for StoreError {
    fn from(source: DbErr) -> Self {
        match source.sql_err() {
            Some(SqlErr::UniqueConstraintViolation(_)) => Self::Duplicate,
            Some(SqlErr::ForeignKeyConstraintViolation(_)) => Self::BrokenReference,
            // What is stored was checked before; only a filter may hold such text.
            _ if is_foreign_text(&source) => Self::InvalidFilter {
                column: "text".to_owned(),
                value: "\0".to_owned(),
            },
            _ => Self::Database(source),
        }
    }
}

/// PostgreSQL's character_not_in_repertoire: text with a NUL.
fn is_foreign_text(error: &DbErr) -> bool {
    let DbErr::Query(RuntimeErr::SqlxError(source)) = error else {
        return false;
    };
    matches!(
        source.as_ref(),
        SqlxError::Database(source) if source.code().as_deref() == Some("22021")
    )
}

/// Whether running again helps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// A deadlock, a serialisation or certification failure, a busy file: the transaction was undone and may run again
    /// at once.
    Conflict,
    /// The database is away, read-only or not part of its cluster. Nothing was written; it may be back soon, or another
    /// connection may lead to another server.
    Outage,
    /// As an outage, but what was written before may be committed.
    OutcomeUnknown,
    /// The same again would fail again.
    Lasting,
}

impl Failure {
    pub(crate) fn of(error: &DbErr) -> Self {
        let source = match error {
            DbErr::ConnectionAcquire(ConnAcquireErr::Timeout) => return Self::Outage,
            DbErr::Conn(RuntimeErr::SqlxError(source))
            | DbErr::Exec(RuntimeErr::SqlxError(source))
            | DbErr::Query(RuntimeErr::SqlxError(source)) => source,
            _ => return Self::Lasting,
        };
        match source.as_ref() {
            SqlxError::Io(_) | SqlxError::PoolTimedOut | SqlxError::WorkerCrashed => Self::Outage,
            SqlxError::Database(source) => {
                if let Some(error) = source.try_downcast_ref::<MySqlDatabaseError>() {
                    mariadb(error.number())
                } else if let Some(error) = source.try_downcast_ref::<PgDatabaseError>() {
                    postgresql(error.code())
                } else {
                    sqlite(source.code().as_deref().unwrap_or_default())
                }
            }
            _ => Self::Lasting,
        }
    }
}

fn mariadb(number: u16) -> Failure {
    match number {
        // ER_LOCK_WAIT_TIMEOUT (also a wait for the cluster), ER_LOCK_DEADLOCK (also a lost certification),
        // ER_CHECKREAD (the snapshot is too old).
        1205 | 1213 | 1020 => Failure::Conflict,
        // ER_CON_COUNT_ERROR, ER_UNKNOWN_COM_ERROR (the node is not part of its cluster), ER_SERVER_SHUTDOWN,
        // ER_ABORTING_CONNECTION, ER_NET_READ_ERROR, ER_NET_READ_INTERRUPTED, ER_NEW_ABORTING_CONNECTION,
        // ER_TOO_MANY_USER_CONNECTIONS, ER_OPTION_PREVENTS_STATEMENT (read-only), ER_QUERY_INTERRUPTED,
        // ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION, ER_READ_ONLY_MODE, ER_CONNECTION_KILLED, and ER_DISK_FULL,
        // ER_RECORD_FILE_FULL.
        1040 | 1047 | 1053 | 1152 | 1158 | 1159 | 1184 | 1203 | 1290 | 1317 | 1792 | 1836
        | 1927 | 1021 | 1114 => Failure::Outage,
        _ => Failure::Lasting,
    }
}

fn postgresql(code: &str) -> Failure {
    match code {
        // serialization_failure, deadlock_detected, lock_not_available.
        "40001" | "40P01" | "55P03" => Failure::Conflict,
        // read_only_sql_transaction, too_many_connections, admin_shutdown, crash_shutdown, cannot_connect_now,
        // query_canceled (by a shutdown), disk_full, and connection exceptions.
        "25006" | "53300" | "53100" | "57P01" | "57P02" | "57P03" | "57014" => Failure::Outage,
        code if code.starts_with("08") => Failure::Outage,
        _ => Failure::Lasting,
    }
}

fn sqlite(code: &str) -> Failure {
    // The lowest byte is the kind of an extended code.
    match code.parse::<u32>().map(|code| code & 0xff) {
        // BUSY, LOCKED.
        Ok(5 | 6) => Failure::Conflict,
        // READONLY, IOERR, FULL, CANTOPEN: the disk is full, or not as it should be.
        Ok(8 | 10 | 13 | 14) => Failure::Outage,
        _ => Failure::Lasting,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_say_whether_running_again_helps() {
        use Failure::{Conflict, Lasting, Outage};
        for (found, expected) in [
            (mariadb(1213), Conflict),
            (mariadb(1205), Conflict),
            (mariadb(1047), Outage),
            (mariadb(1290), Outage),
            (mariadb(1114), Outage),
            (mariadb(1062), Lasting),
            (mariadb(1045), Lasting),
            (postgresql("40001"), Conflict),
            (postgresql("40P01"), Conflict),
            (postgresql("57P01"), Outage),
            (postgresql("08006"), Outage),
            (postgresql("25006"), Outage),
            (postgresql("53100"), Outage),
            (postgresql("28P01"), Lasting),
            (sqlite("5"), Conflict),
            (sqlite("517"), Conflict),
            (sqlite("13"), Outage),
            (sqlite("1032"), Outage),
            (sqlite("266"), Outage),
            (sqlite("14"), Outage),
            (sqlite("11"), Lasting),
            (sqlite("2067"), Lasting),
        ] {
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn a_lost_connection_is_an_outage_and_in_a_commit_it_leaves_the_outcome_open() {
        let lost = || {
            let source = std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
            DbErr::Exec(RuntimeErr::SqlxError(SqlxError::Io(source).into()))
        };
        assert_eq!(StoreError::from(lost()).failure(), Failure::Outage);
        let error = StoreError::of_commit(lost());
        assert_eq!(error.failure(), Failure::OutcomeUnknown);
        assert!(error.is_transient());
    }
}
