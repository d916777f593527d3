//! What listeners served: counted per amphora, summed for the API.
//!
//! Totals never go back: what an amphora that is gone has served is folded into the listener's nil row, and a listener's
//! rows go only with the listener. Absolute readings may be written again and again, and late; nothing is lost or
//! counted twice.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use lb_model::{AmphoraId, AmphoraStatus, ListenerId, LoadBalancerId};
use sea_orm::sea_query::{LockType, OnConflict};
use sea_orm::{
    ColumnTrait, ConnectionTrait, EntityTrait, IntoActiveModel, Iterable, PrimaryKeyToColumn,
    QueryFilter, QueryOrder, QuerySelect, QueryTrait,
};
use uuid::Uuid;

use crate::rows::CHUNK;
use crate::store::{End, in_transaction};
use crate::tables::convert::wide;
use crate::tables::listener_statistics::{Column, Entity, Model, PrimaryKey};
use crate::tables::{amphora, listener};
use crate::{Store, StoreError};

/// The five numbers of the API. `bytes_in` is what clients sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub active_connections: u64,
    pub total_connections: u64,
    pub request_errors: u64,
}

/// What one amphora reported of one listener. `active_connections` is always absolute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// Counters since `epoch`; a later epoch started from zero. Epoch 0: the sender has no epochs, and a counter that
    /// went down started from zero.
    Totals { epoch: u64, counters: Statistics },
    /// Counted since the sender's last report.
    Deltas(Statistics),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatsSample {
    pub listener_id: ListenerId,
    pub amphora_id: AmphoraId,
    pub reading: Reading,
}

impl Store {
    /// Adds a batch of samples. Those of amphorae or listeners that are gone are left out.
    pub async fn add_listener_stats(&self, samples: &[StatsSample]) -> Result<(), StoreError> {
        // In order of key, so that two writers meet in the same order.
        let mut by_key: BTreeMap<(String, String), Vec<Reading>> = BTreeMap::new();
        for sample in samples {
            by_key
                .entry((
                    sample.listener_id.to_string(),
                    sample.amphora_id.to_string(),
                ))
                .or_default()
                .push(sample.reading);
        }
        let keys: Vec<&(String, String)> = by_key.keys().collect();
        for chunk in keys.chunks(CHUNK) {
            in_transaction!(self, txn, unsure => {
                let chunk: Vec<&(String, String)> = known(&txn, chunk).await?;
                if chunk.is_empty() {
                    return Ok(End::Rollback(()));
                }
                // The rows are there from here on, and locked.
                insert_missing(&txn, &chunk).await?;
                let mut rows = load(&txn, chunk.iter().map(|key| key.0.as_str())).await?;
                let mut changed = Vec::new();
                for key in chunk {
                    let (Some(row), Some(readings)) = (rows.get_mut(key), by_key.get(key)) else {
                        continue;
                    };
                    // Deltas that may have been added already are better lost than counted twice.
                    for reading in readings
                        .iter()
                        .filter(|reading| !unsure || matches!(reading, Reading::Totals { .. }))
                    {
                        apply(row, *reading);
                    }
                    changed.push(row.clone());
                }
                store(&txn, changed).await?;
                Ok(End::Commit(()))
            })?;
        }
        Ok(())
    }

    pub async fn listener_stats(&self, id: ListenerId) -> Result<Statistics, StoreError> {
        let rows = Entity::find()
            .filter(Column::ListenerId.eq(id.to_string()))
            .all(&self.db)
            .await?;
        Ok(sum(&rows))
    }

    /// Sum over the listeners the load balancer has now.
    pub async fn load_balancer_stats(&self, id: LoadBalancerId) -> Result<Statistics, StoreError> {
        let listeners = listener::Entity::find()
            .filter(listener::Column::LoadBalancerId.eq(id.to_string()))
            .select_only()
            .column(listener::Column::Id)
            .into_query();
        let rows = Entity::find()
            .filter(Column::ListenerId.in_subquery(listeners))
            .all(&self.db)
            .await?;
        Ok(sum(&rows))
    }

    /// What one amphora served, by listener.
    pub async fn amphora_stats(
        &self,
        id: AmphoraId,
    ) -> Result<Vec<(ListenerId, Statistics)>, StoreError> {
        let rows = Entity::find()
            .filter(Column::AmphoraId.eq(id.to_string()))
            .order_by_asc(Column::ListenerId)
            .all(&self.db)
            .await?;
        rows.iter()
            .map(|row| {
                let listener =
                    crate::store::read_id("listener_statistics.listener_id", &row.listener_id)?;
                Ok((listener, total(row)))
            })
            .collect()
    }
}

pub(crate) async fn forget_listeners<C: ConnectionTrait>(
    db: &C,
    ids: &[String],
) -> Result<(), StoreError> {
    for chunk in ids.chunks(CHUNK) {
        Entity::delete_many()
            .filter(Column::ListenerId.is_in(chunk))
            .exec(db)
            .await?;
    }
    Ok(())
}

/// Moves the counts of amphorae that are gone to the nil rows of their listeners.
pub(crate) async fn fold_amphorae<C: ConnectionTrait>(
    db: &C,
    ids: &[String],
) -> Result<(), StoreError> {
    if ids.is_empty() {
        return Ok(());
    }
    let gone = Entity::find()
        .filter(Column::AmphoraId.is_in(ids))
        .all(db)
        .await?;
    if gone.is_empty() {
        return Ok(());
    }
    let listeners: BTreeSet<&str> = gone.iter().map(|row| row.listener_id.as_str()).collect();
    let mut folded: Vec<Model> = load(db, listeners.iter().copied())
        .await?
        .into_values()
        .filter(|row| row.amphora_id == nil())
        .collect();
    for listener in listeners {
        if !folded.iter().any(|row| row.listener_id == listener) {
            folded.push(empty(listener, &nil()));
        }
    }
    for row in &mut folded {
        for part in gone
            .iter()
            .filter(|part| part.listener_id == row.listener_id)
        {
            grow(&mut row.base_bytes_in, part.base_bytes_in);
            grow(&mut row.base_bytes_in, part.current_bytes_in);
            grow(&mut row.base_bytes_out, part.base_bytes_out);
            grow(&mut row.base_bytes_out, part.current_bytes_out);
            grow(&mut row.base_total_connections, part.base_total_connections);
            grow(
                &mut row.base_total_connections,
                part.current_total_connections,
            );
            grow(&mut row.base_request_errors, part.base_request_errors);
            grow(&mut row.base_request_errors, part.current_request_errors);
        }
    }
    store(db, folded).await?;
    Entity::delete_many()
        .filter(Column::AmphoraId.is_in(ids))
        .exec(db)
        .await?;
    Ok(())
}

/// Of the keys those whose amphora and listener exist. The amphorae stay locked, so that none is folded meanwhile.
async fn known<'a, C: ConnectionTrait>(
    db: &C,
    keys: &[&'a (String, String)],
) -> Result<Vec<&'a (String, String)>, StoreError> {
    let amphorae: HashSet<String> = amphora::Entity::find()
        .filter(amphora::Column::Id.is_in(keys.iter().map(|key| key.1.as_str())))
        .filter(amphora::Column::Status.ne(AmphoraStatus::Deleted.as_str()))
        .order_by_asc(amphora::Column::Id)
        .lock(LockType::Update)
        .select_only()
        .column(amphora::Column::Id)
        .into_tuple::<String>()
        .all(db)
        .await?
        .into_iter()
        .collect();
    let listeners: HashSet<String> = listener::Entity::find()
        .filter(listener::Column::Id.is_in(keys.iter().map(|key| key.0.as_str())))
        .select_only()
        .column(listener::Column::Id)
        .into_tuple::<String>()
        .all(db)
        .await?
        .into_iter()
        .collect();
    Ok(keys
        .iter()
        .filter(|key| listeners.contains(&key.0) && amphorae.contains(&key.1))
        .copied()
        .collect())
}

async fn insert_missing<C: ConnectionTrait>(
    db: &C,
    keys: &[&(String, String)],
) -> Result<(), StoreError> {
    Entity::insert_many(
        keys.iter()
            .map(|(listener, amphora)| empty(listener, amphora).into_active_model()),
    )
    .on_conflict(
        OnConflict::columns(PrimaryKey::iter().map(PrimaryKeyToColumn::into_column))
            .do_nothing_on(PrimaryKey::iter().map(PrimaryKeyToColumn::into_column))
            .to_owned(),
    )
    .try_insert()
    .exec_without_returning(db)
    .await?;
    Ok(())
}

async fn load<C: ConnectionTrait>(
    db: &C,
    listeners: impl Iterator<Item = &str>,
) -> Result<HashMap<(String, String), Model>, StoreError> {
    let rows = Entity::find()
        .filter(Column::ListenerId.is_in(listeners))
        .order_by_asc(Column::ListenerId)
        .order_by_asc(Column::AmphoraId)
        .lock(LockType::Update)
        .all(db)
        .await?;
    Ok(rows
        .into_iter()
        .map(|row| ((row.listener_id.clone(), row.amphora_id.clone()), row))
        .collect())
}

async fn store<C: ConnectionTrait>(db: &C, rows: Vec<Model>) -> Result<(), StoreError> {
    if rows.is_empty() {
        return Ok(());
    }
    let counters =
        Column::iter().filter(|column| !matches!(column, Column::ListenerId | Column::AmphoraId));
    Entity::insert_many(rows.into_iter().map(IntoActiveModel::into_active_model))
        .on_conflict(
            OnConflict::columns(PrimaryKey::iter().map(PrimaryKeyToColumn::into_column))
                .update_columns(counters)
                .to_owned(),
        )
        .exec_without_returning(db)
        .await?;
    Ok(())
}

fn apply(row: &mut Model, reading: Reading) {
    match reading {
        Reading::Totals { epoch, counters } => {
            let epoch = wide(epoch);
            if epoch < row.epoch {
                return;
            }
            let went_down = wide(counters.total_connections) < row.current_total_connections
                || wide(counters.bytes_in) < row.current_bytes_in
                || wide(counters.bytes_out) < row.current_bytes_out;
            if epoch > row.epoch || (epoch == 0 && went_down) {
                let current = std::mem::take(&mut row.current_bytes_in);
                grow(&mut row.base_bytes_in, current);
                let current = std::mem::take(&mut row.current_bytes_out);
                grow(&mut row.base_bytes_out, current);
                let current = std::mem::take(&mut row.current_total_connections);
                grow(&mut row.base_total_connections, current);
                let current = std::mem::take(&mut row.current_request_errors);
                grow(&mut row.base_request_errors, current);
                row.epoch = epoch;
            }
            row.active_connections = wide(counters.active_connections);
            row.current_bytes_in = row.current_bytes_in.max(wide(counters.bytes_in));
            row.current_bytes_out = row.current_bytes_out.max(wide(counters.bytes_out));
            row.current_total_connections = row
                .current_total_connections
                .max(wide(counters.total_connections));
            row.current_request_errors = row
                .current_request_errors
                .max(wide(counters.request_errors));
        }
        Reading::Deltas(counters) => {
            row.active_connections = wide(counters.active_connections);
            grow(&mut row.base_bytes_in, wide(counters.bytes_in));
            grow(&mut row.base_bytes_out, wide(counters.bytes_out));
            grow(
                &mut row.base_total_connections,
                wide(counters.total_connections),
            );
            grow(&mut row.base_request_errors, wide(counters.request_errors));
        }
    }
}

fn grow(counter: &mut i64, by: i64) {
    *counter = counter.saturating_add(by);
}

fn total(row: &Model) -> Statistics {
    let both =
        |base: i64, current: i64| u64::try_from(base.saturating_add(current)).unwrap_or_default();
    Statistics {
        bytes_in: both(row.base_bytes_in, row.current_bytes_in),
        bytes_out: both(row.base_bytes_out, row.current_bytes_out),
        active_connections: both(row.active_connections, 0),
        total_connections: both(row.base_total_connections, row.current_total_connections),
        request_errors: both(row.base_request_errors, row.current_request_errors),
    }
}

fn sum(rows: &[Model]) -> Statistics {
    rows.iter()
        .map(total)
        .fold(Statistics::default(), |a, b| Statistics {
            bytes_in: a.bytes_in.saturating_add(b.bytes_in),
            bytes_out: a.bytes_out.saturating_add(b.bytes_out),
            active_connections: a.active_connections.saturating_add(b.active_connections),
            total_connections: a.total_connections.saturating_add(b.total_connections),
            request_errors: a.request_errors.saturating_add(b.request_errors),
        })
}

fn empty(listener: &str, amphora: &str) -> Model {
    Model {
        listener_id: listener.to_owned(),
        amphora_id: amphora.to_owned(),
        epoch: 0,
        active_connections: 0,
        base_bytes_in: 0,
        base_bytes_out: 0,
        base_total_connections: 0,
        base_request_errors: 0,
        current_bytes_in: 0,
        current_bytes_out: 0,
        current_total_connections: 0,
        current_request_errors: 0,
    }
}

fn nil() -> String {
    Uuid::nil().to_string()
}
