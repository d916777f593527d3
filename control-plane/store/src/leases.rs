//! Who reconciles which load balancer: leases that run out, with a fencing number.
//!
//! A claim raises the load balancer's `fence`. Every write of a worker carries the fence of its lease and is refused
//! when the row has moved on, so a worker that slept through the end of its lease can do no harm.

use std::time::Duration;

use lb_model::{Graph, LoadBalancerId, ProvisioningStatus, Timestamp};
use sea_orm::sea_query::{Condition, Expr, ExprTrait, Query, UpdateStatement};
use sea_orm::{
    ColumnTrait, ConnectionTrait, DatabaseTransaction, EntityTrait, QueryFilter, QueryOrder,
    QuerySelect,
};

use crate::graphs::{before_generation, needs_work};
use crate::rows::Rows;
use crate::store::{End, in_transaction};
use crate::tables::convert::{unsigned, wide};
use crate::tables::load_balancer::{Column, Entity};
use crate::{Outcome, Store, StoreError};

/// Candidates looked at in one go; rivals may take some of them first.
const CANDIDATES: u64 = 8;

/// Work that a finished reconcile left in the graph is due again after this, unless [`Store::release`] says when.
const LEFTOVER_MILLIS: i64 = 1000;

/// The right to reconcile one load balancer, until it runs out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    pub load_balancer_id: LoadBalancerId,
    /// Generation at the time of the claim. A holder that goes on with a newer one sets it here, so that
    /// [`Store::release`] delays that one and not an intent the holder has not seen.
    pub generation: u64,
    pub fence: u64,
    pub owner: String,
    pub expires_at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    Written(Box<Graph>),
    LeaseLost,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    Written,
    /// The intent has changed since; nothing was written, the lease still holds.
    Superseded,
    LeaseLost,
}

impl Store {
    /// Takes the load balancer whose work is due longest and that nobody holds. `None`: nothing is due.
    pub async fn claim(
        &self,
        owner: &str,
        ttl: Duration,
        now: Timestamp,
    ) -> Result<Option<Lease>, StoreError> {
        loop {
            let candidates = Entity::find()
                .filter(due(now))
                .order_by_asc(Column::NextAttemptAt)
                .order_by_asc(Column::Id)
                .limit(CANDIDATES)
                .all(&self.db)
                .await?;
            if candidates.is_empty() {
                return Ok(None);
            }
            for row in candidates {
                let expires_at = after(now, ttl);
                let fence = row.fence.saturating_add(1);
                let mut update = Query::update();
                update
                    .table(Entity)
                    .value(Column::LeaseOwner, owner)
                    .value(Column::LeaseExpiresAt, expires_at.as_micros())
                    .value(Column::Fence, fence)
                    .and_where(Expr::col(Column::Id).eq(row.id.as_str()))
                    .and_where(Expr::col(Column::Fence).eq(row.fence))
                    .and_where(Expr::col(Column::Generation).eq(row.generation))
                    .cond_where(due(now));
                let taken = in_transaction!(self, txn, unsure => {
                    let taken = txn.execute(&update).await?.rows_affected() == 1;
                    Ok(End::Commit(taken || (unsure && holds(&txn, &row.id, owner, fence).await?)))
                })?;
                if taken {
                    return Ok(Some(Lease {
                        load_balancer_id: row.load_balancer_id()?,
                        generation: unsigned("load_balancer.generation", row.generation)?,
                        fence: unsigned("load_balancer.fence", fence)?,
                        owner: owner.to_owned(),
                        expires_at,
                    }));
                }
            }
        }
    }

    /// Holds on to a lease for `ttl` from `now`. False when it is lost.
    pub async fn renew(
        &self,
        lease: &Lease,
        ttl: Duration,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let mut update = fenced(lease);
        update.value(Column::LeaseExpiresAt, after(now, ttl).as_micros());
        in_transaction!(self, txn => {
            Ok(End::Commit(txn.execute(&update).await?.rows_affected() == 1))
        })
    }

    /// Gives a lease back. With `next_attempt_at` the load balancer is due then, unless its intent is newer than
    /// `lease.generation`: that is due at once. Without, it is due if and when it was before. Giving back a lost
    /// lease does nothing.
    pub async fn release(
        &self,
        lease: &Lease,
        next_attempt_at: Option<Timestamp>,
    ) -> Result<(), StoreError> {
        let mut update = fenced(lease);
        update
            .value(Column::LeaseOwner, Option::<String>::None)
            .value(Column::LeaseExpiresAt, Option::<i64>::None);
        if let Some(next) = next_attempt_at {
            update.value(
                Column::NextAttemptAt,
                Expr::case(
                    Expr::col(Column::Generation).eq(wide(lease.generation)),
                    next.as_micros(),
                )
                .finally(Expr::col(Column::NextAttemptAt)),
            );
        }
        in_transaction!(self, txn => {
            txn.execute(&update).await?;
            Ok(End::Commit(()))
        })
    }

    /// Writes what was learnt or done on the way (rows of amphorae, addresses) without touching the generation.
    pub async fn save_progress<F>(
        &self,
        lease: &Lease,
        now: Timestamp,
        mut f: F,
    ) -> Result<Progress, StoreError>
    where
        F: FnMut(&mut Graph) + Send,
    {
        let _ = now;
        in_transaction!(self, txn => {
            let Some(before) = lock_fenced(&txn, lease).await? else {
                return Ok(End::Rollback(Progress::LeaseLost));
            };
            let mut graph = before.graph()?;
            f(&mut graph);
            graph.load_balancer.generation = before_generation(&before)?;
            Rows::of(&graph, before.load_balancer.bookkeeping())
                .replace(&txn, &before)
                .await?;
            Ok(End::Commit(Progress::Written(Box::new(graph))))
        })
    }

    /// Writes the end of a reconcile, if the intent is still `generation`. Children that `f` takes out of the graph
    /// are deleted; a load balancer in `DELETED` keeps its row. Work that `f` leaves in the graph (a pending status,
    /// an amphora to replace or to remove) stays due.
    pub async fn finish<F>(
        &self,
        lease: &Lease,
        generation: u64,
        outcome: &Outcome,
        now: Timestamp,
        mut f: F,
    ) -> Result<Finish, StoreError>
    where
        F: FnMut(&mut Graph) + Send,
    {
        in_transaction!(self, txn => {
            let Some(before) = lock_fenced(&txn, lease).await? else {
                return Ok(End::Rollback(Finish::LeaseLost));
            };
            if before_generation(&before)? != generation {
                return Ok(End::Rollback(Finish::Superseded));
            }
            let mut graph = before.graph()?;
            f(&mut graph);
            graph.load_balancer.generation = generation;
            let mut bookkeeping = before.load_balancer.bookkeeping();
            bookkeeping.next_attempt_at =
                needs_work(&graph).then(|| now.plus_millis(LEFTOVER_MILLIS).as_micros());
            Rows::of(&graph, bookkeeping).replace(&txn, &before).await?;
            crate::outcome::write(&txn, lease.load_balancer_id, generation, outcome, now).await?;
            Ok(End::Commit(Finish::Written))
        })
    }

    /// Stores what an attempt did that did not reach its end and will be made again. False when the lease is lost.
    pub async fn note_attempt(
        &self,
        lease: &Lease,
        generation: u64,
        outcome: &Outcome,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        in_transaction!(self, txn => {
            let mut touch = fenced(lease);
            touch.value(Column::Fence, wide(lease.fence));
            if txn.execute(&touch).await?.rows_affected() == 0 {
                return Ok(End::Rollback(false));
            }
            crate::outcome::write(&txn, lease.load_balancer_id, generation, outcome, now).await?;
            Ok(End::Commit(true))
        })
    }
}

/// Whether this very claim was made.
async fn holds(
    txn: &DatabaseTransaction,
    id: &str,
    owner: &str,
    fence: i64,
) -> Result<bool, StoreError> {
    let row = Entity::find_by_id(id).one(txn).await?;
    Ok(row.is_some_and(|row| row.fence == fence && row.lease_owner.as_deref() == Some(owner)))
}

fn due(now: Timestamp) -> Condition {
    Condition::all()
        .add(Column::NextAttemptAt.lte(now.as_micros()))
        .add(Column::ProvisioningStatus.ne(ProvisioningStatus::Deleted.as_str()))
        .add(
            Condition::any()
                .add(Column::LeaseExpiresAt.is_null())
                .add(Column::LeaseExpiresAt.lte(now.as_micros())),
        )
}

/// An update that hits only while `lease` is the last claim.
fn fenced(lease: &Lease) -> UpdateStatement {
    let mut update = Query::update();
    update
        .table(Entity)
        .and_where(Expr::col(Column::Id).eq(lease.load_balancer_id.to_string()))
        .and_where(Expr::col(Column::Fence).eq(wide(lease.fence)))
        .and_where(Expr::col(Column::LeaseOwner).eq(lease.owner.as_str()));
    update
}

async fn lock_fenced(txn: &DatabaseTransaction, lease: &Lease) -> Result<Option<Rows>, StoreError> {
    let mut update = fenced(lease);
    update.value(Column::Revision, Expr::col(Column::Revision).add(1));
    if txn.execute(&update).await?.rows_affected() == 0 {
        return Ok(None);
    }
    Rows::load(txn, lease.load_balancer_id).await
}

fn after(now: Timestamp, ttl: Duration) -> Timestamp {
    now.plus_millis(i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX))
}
