//! What may go wrong around a transaction, at a chosen one.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use sea_orm::{ConnAcquireErr, DbErr, RuntimeErr, SqlxError};
use tokio::sync::Notify;

use crate::StoreError;

/// When a transaction goes wrong. They are counted from 1 over all stores with the same faults; each run of one counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FaultPlan {
    #[default]
    None,
    /// The store gives up before the transaction begins, with an error that may pass.
    FailBefore(u64),
    /// The transaction is committed, and the store gives up all the same.
    FailAfter(u64),
    /// The connection is lost before the transaction begins; the store may try again.
    LoseBefore(u64),
    /// The connection is lost with the commit made and not acknowledged; the store may try again.
    LoseAfter(u64),
    /// As [`FaultPlan::LoseAfter`], and no further transaction begins.
    LoseAfterForGood(u64),
    /// The caller dies before: it never returns, and [`StoreFaults::died`] tells.
    DieBefore(u64),
    /// The caller dies with the transaction committed.
    DieAfter(u64),
}

/// Clones share their plan.
#[derive(Debug, Clone, Default)]
pub struct StoreFaults(Arc<State>);

#[derive(Debug, Default)]
struct State {
    begun: AtomicU64,
    plan: Mutex<FaultPlan>,
    died: Notify,
}

impl StoreFaults {
    /// Sets what goes wrong from now on, and counts anew.
    pub fn set(&self, plan: FaultPlan) {
        *self.plan() = plan;
        self.0.begun.store(0, Ordering::SeqCst);
    }

    /// Transactions since [`StoreFaults::set`].
    pub fn transactions(&self) -> u64 {
        self.0.begun.load(Ordering::SeqCst)
    }

    /// Returns when a caller died.
    pub async fn died(&self) {
        self.0.died.notified().await;
    }

    pub(crate) async fn before(&self) -> Result<(), StoreError> {
        let number = self.0.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let plan = *self.plan();
        match plan {
            FaultPlan::FailBefore(n) if n == number => Err(StoreError::Connect(lost())),
            FaultPlan::LoseBefore(n) if n == number => Err(StoreError::Database(lost())),
            FaultPlan::LoseAfterForGood(n) if n < number => Err(StoreError::Database(closed())),
            FaultPlan::DieBefore(n) if n == number => self.die().await,
            _ => Ok(()),
        }
    }

    /// After a commit. With several callers at once the latest that began is meant.
    pub(crate) async fn after(&self) -> Result<(), StoreError> {
        let number = self.transactions();
        let plan = *self.plan();
        match plan {
            FaultPlan::FailAfter(n) if n == number => Err(StoreError::Connect(lost())),
            FaultPlan::LoseAfter(n) | FaultPlan::LoseAfterForGood(n) if n == number => {
                Err(StoreError::of_commit(lost()))
            }
            FaultPlan::DieAfter(n) if n == number => self.die().await,
            _ => Ok(()),
        }
    }

    async fn die(&self) -> Result<(), StoreError> {
        self.0.died.notify_one();
        std::future::pending().await
    }

    fn plan(&self) -> std::sync::MutexGuard<'_, FaultPlan> {
        self.0.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// There is no pool of connections any more.
fn closed() -> DbErr {
    DbErr::ConnectionAcquire(ConnAcquireErr::ConnectionClosed)
}

fn lost() -> DbErr {
    let source = SqlxError::Io(ErrorKind::UnexpectedEof.into());
    DbErr::Conn(RuntimeErr::SqlxError(source.into()))
}
