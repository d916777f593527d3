//! Limits of projects, and counting what a project has.
//!
//! Nothing counts along: a transaction that creates objects of a limited kind raises the `revision` of its project's
//! row, which makes rivals wait (or, on another node of a cluster, lose), and then counts. It is taken after the lock
//! of the load balancer, never before. Counting must see what was committed while this transaction waited: it relies
//! on READ COMMITTED, or on a single writer.

use lb_model::{PerResource, Quota, QuotaDemand, Timestamp};
use sea_orm::sea_query::{Alias, Expr, ExprTrait, Func, OnConflict, Query as Sql, SelectStatement};
use sea_orm::{ConnectionTrait, EntityTrait, IntoActiveModel};

use crate::list::{columns, select};
use crate::store::{End, in_transaction};
use crate::tables::convert::narrow;
use crate::tables::quota::{Column, Entity, Model};
use crate::{Query, Store, StoreError};

/// A project that has created something, or that was given limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaRow {
    pub project_id: String,
    pub quota: Quota,
}

/// Tables of what is counted, in the order of [`PerResource::each`].
const TABLES: [&str; 7] = [
    "load_balancer",
    "listener",
    "pool",
    "member",
    "health_monitor",
    "l7policy",
    "l7rule",
];

impl Store {
    /// Limits of projects that have none of their own.
    pub fn with_default_quota(mut self, defaults: PerResource<i32>) -> Self {
        self.default_quota = defaults;
        self
    }

    pub fn default_quota(&self) -> &PerResource<i32> {
        &self.default_quota
    }

    /// `None`: the project has no row.
    pub async fn quota(&self, project_id: &str) -> Result<Option<Quota>, StoreError> {
        Ok(find(&self.db, project_id).await?.map(|row| row.quota()))
    }

    /// Projects that have a row. The marker is a project id.
    pub async fn list_quotas(&self, query: &Query) -> Result<Vec<QuotaRow>, StoreError> {
        Ok(
            select::page(&self.db, Entity::find(), &columns::QUOTA, query)
                .await?
                .into_iter()
                .map(|row| QuotaRow {
                    quota: row.quota(),
                    project_id: row.project_id,
                })
                .collect(),
        )
    }

    /// Changes the limits of a project and returns what they are now. `f` may run more than once.
    pub async fn change_quota<F>(
        &self,
        project_id: &str,
        now: Timestamp,
        mut f: F,
    ) -> Result<Quota, StoreError>
    where
        F: FnMut(&mut Quota) + Send,
    {
        in_transaction!(self, txn => {
            ensure(&txn, project_id, now).await?;
            lock(&txn, project_id).await?;
            let mut quota = find(&txn, project_id).await?.map_or_else(Quota::default, |row| row.quota());
            f(&mut quota);
            write(&txn, project_id, &quota).await?;
            Ok(End::Commit(quota))
        })
    }

    /// Gives every limit back to the default. False when the project has no row.
    pub async fn reset_quota(&self, project_id: &str) -> Result<bool, StoreError> {
        in_transaction!(self, txn => {
            let found = lock(&txn, project_id).await?;
            if found {
                write(&txn, project_id, &Quota::default()).await?;
            }
            Ok(End::Commit(found))
        })
    }
}

/// Refuses a change that would leave the project with more than its limit. To be called when the rows are written:
/// they are counted with the others.
pub(crate) async fn charge<C: ConnectionTrait>(
    txn: &C,
    project_id: &str,
    defaults: &PerResource<i32>,
    demand: &QuotaDemand,
    now: Timestamp,
) -> Result<(), StoreError> {
    if !demand.grows() {
        return Ok(());
    }
    let known = find(txn, project_id).await?;
    if known.is_none() {
        ensure(txn, project_id, now).await?;
    }
    let quota = known.map_or_else(Quota::default, |row| row.quota());
    let unlimited = PerResource::all(false);
    if demand.limited(&quota.effective(defaults)) == unlimited {
        return Ok(());
    }
    lock(txn, project_id).await?;
    let quota = find(txn, project_id)
        .await?
        .map_or_else(Quota::default, |row| row.quota());
    let limits = quota.effective(defaults);
    let limited = demand.limited(&limits);
    let mut counted = PerResource::all(0);
    let slots = counted.each_mut().into_iter().zip(limited.each());
    for ((slot, limited), table) in slots.zip(TABLES) {
        if *limited {
            *slot = count(txn, table, project_id).await?;
        }
    }
    demand
        .check(&limits, &counted)
        .map_err(StoreError::QuotaReached)
}

async fn find<C: ConnectionTrait>(db: &C, project_id: &str) -> Result<Option<Model>, StoreError> {
    Ok(Entity::find_by_id(project_id).one(db).await?)
}

/// Makes the row exist, without limits of its own.
async fn ensure<C: ConnectionTrait>(
    txn: &C,
    project_id: &str,
    now: Timestamp,
) -> Result<(), StoreError> {
    let row = Model {
        project_id: project_id.to_owned(),
        load_balancer: None,
        listener: None,
        pool: None,
        member: None,
        health_monitor: None,
        l7policy: None,
        l7rule: None,
        created_at: now.as_micros(),
        revision: 0,
    };
    Entity::insert(row.into_active_model())
        .on_conflict(
            // Writes what is there: all three databases know this form.
            OnConflict::column(Column::ProjectId)
                .update_column(Column::ProjectId)
                .to_owned(),
        )
        .exec_without_returning(txn)
        .await?;
    Ok(())
}

/// False when there is no row.
async fn lock<C: ConnectionTrait>(txn: &C, project_id: &str) -> Result<bool, StoreError> {
    let mut update = Sql::update();
    update
        .table(Entity)
        .value(Column::Revision, Expr::col(Column::Revision).add(1))
        .and_where(Expr::col(Column::ProjectId).eq(project_id));
    Ok(txn.execute(&update).await?.rows_affected() > 0)
}

async fn write<C: ConnectionTrait>(
    txn: &C,
    project_id: &str,
    quota: &Quota,
) -> Result<(), StoreError> {
    let mut update = Sql::update();
    update
        .table(Entity)
        .and_where(Expr::col(Column::ProjectId).eq(project_id));
    for (column, limit) in Model::columns().each().into_iter().zip(quota.0.each()) {
        update.value(*column, *limit);
    }
    txn.execute(&update).await?;
    Ok(())
}

/// Objects of a project in one table; a load balancer that is deleted is none.
async fn count<C: ConnectionTrait>(
    txn: &C,
    table: &'static str,
    project_id: &str,
) -> Result<u64, StoreError> {
    let mut select: SelectStatement = Sql::select();
    select
        .expr_as(Func::count(Expr::val(1)), Alias::new("objects"))
        .from(table)
        .and_where(Expr::col("project_id").eq(project_id))
        .and_where(Expr::col("provisioning_status").ne("DELETED"));
    let row = txn.query_one(&select).await?;
    let objects: i64 = row.map_or(Ok(0), |row| row.try_get("", "objects"))?;
    narrow("count", objects)
}
