//! Receipts: which object a request with an idempotency key created, so that the same request again creates none.
//!
//! A receipt is written in the transaction that creates the object: there is never one without the other, and of two
//! such transactions at once only one commits.

use std::time::Duration;

use lb_model::Timestamp;
use sea_orm::{
    ColumnTrait, ConnectionTrait, EntityTrait, IntoActiveModel, QueryFilter, QuerySelect,
};

use crate::rows::CHUNK;
use crate::store::{End, in_transaction};
use crate::tables::receipt::{Column, Entity, Model};
use crate::{Store, StoreError};

/// How long a key is remembered.
pub const RECEIPT_LIFE: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// Keys of different projects do not meet.
    pub project_id: String,
    /// At most 255 characters.
    pub key: String,
    /// Tells requests apart.
    pub fingerprint: String,
    /// What kind of object was created, and what it is known by.
    pub location: String,
}

impl Store {
    /// `None`: the key was not used, or long ago.
    pub async fn receipt(
        &self,
        project_id: &str,
        key: &str,
        now: Timestamp,
    ) -> Result<Option<Receipt>, StoreError> {
        let row = Entity::find_by_id((project_id.to_owned(), key.to_owned()))
            .filter(Column::CreatedAt.gt(oldest(now)))
            .one(&self.db)
            .await?;
        Ok(row.map(|row| Receipt {
            project_id: row.project_id,
            key: row.idempotency_key,
            fingerprint: row.fingerprint,
            location: row.location,
        }))
    }

    /// Removes those that are no longer remembered.
    pub async fn purge_receipts(&self, now: Timestamp) -> Result<u64, StoreError> {
        let mut purged = 0_u64;
        loop {
            let old: Vec<(String, String)> = Entity::find()
                .filter(Column::CreatedAt.lte(oldest(now)))
                .limit(CHUNK as u64)
                .select_only()
                .column(Column::ProjectId)
                .column(Column::IdempotencyKey)
                .into_tuple()
                .all(&self.db)
                .await?;
            if old.is_empty() {
                return Ok(purged);
            }
            let removed = in_transaction!(self, txn => {
                let mut removed = 0_u64;
                for (project_id, key) in &old {
                    removed += forget(&txn, project_id, key, now).await?;
                }
                Ok(End::Commit(removed))
            })?;
            purged = purged.saturating_add(removed);
        }
    }
}

/// [`StoreError::KeyUsed`] when another request had the key first.
pub(crate) async fn write<C: ConnectionTrait>(
    txn: &C,
    receipt: Option<&Receipt>,
    now: Timestamp,
) -> Result<(), StoreError> {
    let Some(receipt) = receipt else {
        return Ok(());
    };
    forget(txn, &receipt.project_id, &receipt.key, now).await?;
    let row = Model {
        project_id: receipt.project_id.clone(),
        idempotency_key: receipt.key.clone(),
        fingerprint: receipt.fingerprint.clone(),
        location: receipt.location.clone(),
        created_at: now.as_micros(),
    };
    let written = Entity::insert(row.into_active_model())
        .exec_without_returning(txn)
        .await;
    match written.map_err(StoreError::from) {
        Ok(_) => Ok(()),
        Err(StoreError::Duplicate) => Err(StoreError::KeyUsed),
        Err(error) => Err(error),
    }
}

/// Removes a receipt that is no longer remembered.
async fn forget<C: ConnectionTrait>(
    txn: &C,
    project_id: &str,
    key: &str,
    now: Timestamp,
) -> Result<u64, StoreError> {
    let removed = Entity::delete_many()
        .filter(Column::ProjectId.eq(project_id))
        .filter(Column::IdempotencyKey.eq(key))
        .filter(Column::CreatedAt.lte(oldest(now)))
        .exec(txn)
        .await?;
    Ok(removed.rows_affected)
}

fn oldest(now: Timestamp) -> i64 {
    let life = i64::try_from(RECEIPT_LIFE.as_millis()).unwrap_or(i64::MAX);
    now.plus_millis(-life).as_micros()
}
