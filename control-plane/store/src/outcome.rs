//! The last outcome of reconciling a load balancer, as data for operators and tests.

use std::collections::BTreeMap;

use lb_model::{LoadBalancerId, Timestamp};
use sea_orm::sea_query::OnConflict;
use sea_orm::{ConnectionTrait, EntityTrait, IntoActiveModel};
use serde::{Deserialize, Serialize};

use crate::tables::convert::{read_json, unsigned, wide, write_json};
use crate::tables::reconcile_outcome::{Column, Entity, Model};
use crate::{Store, StoreError};

/// What one reconcile meant to do, saw, planned and did, and what is in its way.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Outcome {
    pub intended: String,
    pub observed: Vec<String>,
    pub planned: Vec<String>,
    pub done: Vec<String>,
    pub blocked_by: Vec<String>,
    pub error: Option<String>,
    /// Milliseconds by phase.
    pub durations_ms: BTreeMap<String, u64>,
}

/// An [`Outcome`] as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredOutcome {
    pub generation: u64,
    /// Attempts made for this generation.
    pub attempts: u64,
    pub finished_at: Timestamp,
    pub outcome: Outcome,
}

impl Store {
    /// The last outcome; also of a load balancer that is deleted, until it is purged.
    pub async fn outcome(&self, id: LoadBalancerId) -> Result<Option<StoredOutcome>, StoreError> {
        let Some(row) = Entity::find_by_id(id.to_string()).one(&self.db).await? else {
            return Ok(None);
        };
        Ok(Some(StoredOutcome {
            generation: unsigned("reconcile_outcome.generation", row.generation)?,
            attempts: unsigned("reconcile_outcome.attempts", row.attempts)?,
            finished_at: Timestamp::from_micros(row.finished_at),
            outcome: read_json("reconcile_outcome.document", &row.document)?,
        }))
    }
}

pub(crate) async fn write<C: ConnectionTrait>(
    txn: &C,
    id: LoadBalancerId,
    generation: u64,
    outcome: &Outcome,
    now: Timestamp,
) -> Result<(), StoreError> {
    let generation = wide(generation);
    let earlier = Entity::find_by_id(id.to_string())
        .one(txn)
        .await?
        .filter(|row| row.generation == generation)
        .map_or(0, |row| row.attempts);
    let row = Model {
        load_balancer_id: id.to_string(),
        generation,
        attempts: earlier.saturating_add(1),
        finished_at: now.as_micros(),
        document: write_json(outcome),
    };
    Entity::insert(row.into_active_model())
        .on_conflict(
            OnConflict::column(Column::LoadBalancerId)
                .update_columns([
                    Column::Generation,
                    Column::Attempts,
                    Column::FinishedAt,
                    Column::Document,
                ])
                .to_owned(),
        )
        .exec_without_returning(txn)
        .await?;
    Ok(())
}
