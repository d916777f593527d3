//! When amphorae were last heard, for the health manager.

use std::collections::{BTreeMap, HashMap};

use lb_model::{AmphoraId, AmphoraStatus, LoadBalancerId, ProvisioningStatus, Timestamp};
use sea_orm::sea_query::{Alias, Expr, ExprTrait, Func, JoinType, OnConflict, Order, Query};
use sea_orm::{
    ColumnTrait, ConnectionTrait, EntityTrait, FromQueryResult, IntoActiveModel, QueryFilter,
    QuerySelect,
};

use crate::rows::CHUNK;
use crate::store::{End, in_transaction, read_id};
use crate::tables::amphora_health::{Column, Entity, Model};
use crate::tables::convert::{id, parsed, unsigned, wide};
use crate::tables::{amphora, load_balancer};
use crate::{Store, StoreError};

/// What the health manager must know of the sender of a heartbeat before it looks at the whole graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeartbeatTarget {
    pub amphora_id: AmphoraId,
    pub status: AmphoraStatus,
    pub load_balancer_id: LoadBalancerId,
    pub provisioning_status: ProvisioningStatus,
    /// Grows with every write to the load balancer or below it: same revision, same graph.
    pub revision: u64,
    /// Of the newest message on record; `None` before the first.
    pub newest: Option<MessageMark>,
}

/// What tells messages of one sender apart, by the sender's own count and clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageMark {
    pub seq: u64,
    /// Milliseconds since the epoch; upstream senders leave it out.
    pub sent_at_ms: Option<u64>,
}

/// A sign of life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heard {
    pub amphora_id: AmphoraId,
    /// By the receiver's clock.
    pub at: Timestamp,
    pub newest: MessageMark,
}

/// An amphora that should be heard and has not been.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StaleAmphora {
    pub amphora_id: AmphoraId,
    pub load_balancer_id: LoadBalancerId,
    pub status: AmphoraStatus,
    pub provisioning_status: ProvisioningStatus,
    /// `None`: it was never heard; silence counts from its last change of state.
    pub last_update: Option<Timestamp>,
    pub busy: bool,
}

#[derive(FromQueryResult)]
struct StaleRow {
    id: String,
    load_balancer_id: String,
    status: String,
    provisioning_status: String,
    last_update: Option<i64>,
    busy: Option<bool>,
}

#[derive(FromQueryResult)]
struct TargetRow {
    id: String,
    status: String,
    load_balancer_id: String,
    provisioning_status: String,
    revision: i64,
    newest_seq: Option<i64>,
    newest_sent_at_ms: Option<i64>,
}

impl Store {
    /// Senders of heartbeats by id, deleted ones too. An id that is not in the answer is unknown.
    pub async fn heartbeat_targets(
        &self,
        ids: &[AmphoraId],
    ) -> Result<HashMap<AmphoraId, HeartbeatTarget>, StoreError> {
        let mut targets = HashMap::with_capacity(ids.len());
        for chunk in ids.chunks(CHUNK) {
            let mut select = Query::select();
            select
                .column((amphora::Entity, amphora::Column::Id))
                .column((amphora::Entity, amphora::Column::Status))
                .column((amphora::Entity, amphora::Column::LoadBalancerId))
                .column((
                    load_balancer::Entity,
                    load_balancer::Column::ProvisioningStatus,
                ))
                .column((load_balancer::Entity, load_balancer::Column::Revision))
                .column((Entity, Column::NewestSeq))
                .column((Entity, Column::NewestSentAtMs))
                .from(amphora::Entity)
                .inner_join(load_balancer::Entity, owner())
                .join(JoinType::LeftJoin, Entity, of_amphora())
                .and_where(
                    Expr::col((amphora::Entity, amphora::Column::Id))
                        .is_in(chunk.iter().map(ToString::to_string)),
                );
            for row in self.db.query_all(&select).await? {
                let row = TargetRow::from_query_result(&row, "")?;
                let target = HeartbeatTarget {
                    amphora_id: id("amphora.id", &row.id)?,
                    status: parsed("amphora.status", &row.status)?,
                    load_balancer_id: id("amphora.load_balancer_id", &row.load_balancer_id)?,
                    provisioning_status: parsed(
                        "load_balancer.provisioning_status",
                        &row.provisioning_status,
                    )?,
                    revision: unsigned("load_balancer.revision", row.revision)?,
                    newest: mark(row.newest_seq, row.newest_sent_at_ms)?,
                };
                targets.insert(target.amphora_id, target);
            }
        }
        Ok(targets)
    }

    /// Writes when amphorae were heard. The caller leaves out those it does not know.
    pub async fn record_heartbeats(&self, heartbeats: &[Heard]) -> Result<(), StoreError> {
        // One row an amphora, in order of id, so that two writers meet in the same order.
        let mut latest: BTreeMap<AmphoraId, &Heard> = BTreeMap::new();
        for heard in heartbeats {
            let entry = latest.entry(heard.amphora_id).or_insert(heard);
            if entry.at < heard.at {
                *entry = heard;
            }
        }
        let rows: Vec<Model> = latest
            .into_iter()
            .map(|(id, heard)| Model {
                amphora_id: id.to_string(),
                last_update: heard.at.as_micros(),
                busy: false,
                newest_seq: Some(wide(heard.newest.seq)),
                newest_sent_at_ms: heard.newest.sent_at_ms.map(wide),
            })
            .collect();
        if rows.is_empty() {
            return Ok(());
        }
        in_transaction!(self, txn => {
            for chunk in rows.chunks(CHUNK) {
                Entity::insert_many(chunk.iter().cloned().map(IntoActiveModel::into_active_model))
                    .on_conflict(
                        OnConflict::column(Column::AmphoraId)
                            .update_columns([
                                Column::LastUpdate,
                                Column::NewestSeq,
                                Column::NewestSentAtMs,
                            ])
                            .to_owned(),
                    )
                    .exec_without_returning(&txn)
                    .await?;
            }
            Ok(End::Commit(()))
        })
    }

    /// Amphorae in `ALLOCATED` or `FAILOVER_STOPPED` that were not heard since `before`. One that was never heard
    /// counts from its last change of state.
    pub async fn stale_amphorae(&self, before: Timestamp) -> Result<Vec<StaleAmphora>, StoreError> {
        let mut select = Query::select();
        select
            .column((amphora::Entity, amphora::Column::Id))
            .column((amphora::Entity, amphora::Column::LoadBalancerId))
            .column((amphora::Entity, amphora::Column::Status))
            .column((
                load_balancer::Entity,
                load_balancer::Column::ProvisioningStatus,
            ))
            .column((Entity, Column::LastUpdate))
            .column((Entity, Column::Busy))
            .from(amphora::Entity)
            .inner_join(load_balancer::Entity, owner())
            .join(JoinType::LeftJoin, Entity, of_amphora())
            .and_where(Expr::col((amphora::Entity, amphora::Column::Status)).is_in(watched()))
            .and_where(
                Expr::expr(Func::coalesce([
                    Expr::col((Entity, Column::LastUpdate)),
                    Expr::col((amphora::Entity, amphora::Column::UpdatedAt)),
                    Expr::col((amphora::Entity, amphora::Column::CreatedAt)),
                ]))
                .lt(before.as_micros()),
            )
            .order_by((amphora::Entity, amphora::Column::Id), Order::Asc);
        let mut stale = Vec::new();
        for row in self.db.query_all(&select).await? {
            let row = StaleRow::from_query_result(&row, "")?;
            stale.push(StaleAmphora {
                amphora_id: id("amphora.id", &row.id)?,
                load_balancer_id: id("amphora.load_balancer_id", &row.load_balancer_id)?,
                status: parsed("amphora.status", &row.status)?,
                provisioning_status: parsed(
                    "load_balancer.provisioning_status",
                    &row.provisioning_status,
                )?,
                last_update: row.last_update.map(Timestamp::from_micros),
                busy: row.busy.unwrap_or(false),
            });
        }
        Ok(stale)
    }

    /// How many amphorae should be heard.
    pub async fn watched_amphorae(&self) -> Result<u64, StoreError> {
        let mut select = Query::select();
        select
            .expr_as(
                Func::count(Expr::col(amphora::Column::Id)),
                Alias::new("watched"),
            )
            .from(amphora::Entity)
            .and_where(Expr::col(amphora::Column::Status).is_in(watched()));
        let count: i64 = match self.db.query_one(&select).await? {
            Some(row) => row.try_get("", "watched")?,
            None => 0,
        };
        unsigned("count of amphorae", count)
    }

    /// Marks that a failover of these amphorae is under way, or no longer is.
    pub async fn set_busy(&self, ids: &[AmphoraId], busy: bool) -> Result<(), StoreError> {
        in_transaction!(self, txn => {
            write_busy(&txn, ids, busy).await?;
            Ok(End::Commit(()))
        })
    }

    /// Moves amphorae from one status to another, whatever else is written to their load balancers meanwhile;
    /// those in another status stay. Returns how many were moved.
    pub async fn move_amphorae(
        &self,
        ids: &[AmphoraId],
        from: AmphoraStatus,
        to: AmphoraStatus,
    ) -> Result<u64, StoreError> {
        in_transaction!(self, txn => {
            let mut moved = 0_u64;
            for chunk in ids.chunks(CHUNK) {
                let mut update = Query::update();
                update
                    .table(amphora::Entity)
                    .value(amphora::Column::Status, to.as_str())
                    .and_where(
                        Expr::col(amphora::Column::Id).is_in(chunk.iter().map(ToString::to_string)),
                    )
                    .and_where(Expr::col(amphora::Column::Status).eq(from.as_str()));
                moved = moved.saturating_add(txn.execute(&update).await?.rows_affected());
            }
            Ok(End::Commit(moved))
        })
    }

    /// Amphorae that automatic failover is held back for.
    pub async fn stopped_amphorae(&self) -> Result<Vec<AmphoraId>, StoreError> {
        let ids: Vec<String> = amphora::Entity::find()
            .filter(amphora::Column::Status.eq(AmphoraStatus::FailoverStopped.as_str()))
            .select_only()
            .column(amphora::Column::Id)
            .into_tuple()
            .all(&self.db)
            .await?;
        ids.iter().map(|id| read_id("amphora.id", id)).collect()
    }
}

/// Sets the mark of amphorae that were heard. One that was never heard has no row to mark; `failover_requested` keeps
/// it from being asked for twice.
pub(crate) async fn write_busy<C: ConnectionTrait>(
    db: &C,
    ids: &[AmphoraId],
    busy: bool,
) -> Result<(), StoreError> {
    for chunk in ids.chunks(CHUNK) {
        let mut update = Query::update();
        update
            .table(Entity)
            .value(Column::Busy, busy)
            .and_where(Expr::col(Column::AmphoraId).is_in(chunk.iter().map(ToString::to_string)));
        db.execute(&update).await?;
    }
    Ok(())
}

pub(crate) async fn forget_amphorae<C: ConnectionTrait>(
    db: &C,
    ids: &[String],
) -> Result<(), StoreError> {
    for chunk in ids.chunks(CHUNK) {
        Entity::delete_many()
            .filter(Column::AmphoraId.is_in(chunk))
            .exec(db)
            .await?;
    }
    Ok(())
}

fn watched() -> [&'static str; 2] {
    [
        AmphoraStatus::Allocated.as_str(),
        AmphoraStatus::FailoverStopped.as_str(),
    ]
}

fn mark(seq: Option<i64>, sent_at_ms: Option<i64>) -> Result<Option<MessageMark>, StoreError> {
    let Some(seq) = seq else {
        return Ok(None);
    };
    let sent_at_ms = sent_at_ms
        .map(|ms| unsigned("amphora_health.newest_sent_at_ms", ms))
        .transpose()?;
    Ok(Some(MessageMark {
        seq: unsigned("amphora_health.newest_seq", seq)?,
        sent_at_ms,
    }))
}

fn of_amphora() -> Expr {
    Expr::col((Entity, Column::AmphoraId)).equals((amphora::Entity, amphora::Column::Id))
}

fn owner() -> Expr {
    Expr::col((load_balancer::Entity, load_balancer::Column::Id))
        .equals((amphora::Entity, amphora::Column::LoadBalancerId))
}
