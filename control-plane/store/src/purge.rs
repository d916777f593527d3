//! Removing what is deleted and old.

use lb_model::{AmphoraStatus, ProvisioningStatus, Timestamp};
use sea_orm::sea_query::{Expr, ExprTrait, Func, Query, SelectStatement};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QuerySelect};

use crate::rows::CHUNK;
use crate::store::{End, in_transaction};
use crate::tables::{
    amphora, amphora_health, listener_statistics, load_balancer, reconcile_outcome, tag,
};
use crate::{Store, StoreError};

/// How many rows went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Purged {
    pub load_balancers: u64,
    pub amphorae: u64,
}

impl Store {
    /// Removes rows of load balancers and amphorae that are `DELETED` since before `older_than`. An amphora that was
    /// heard since then keeps its row, so that it is recognised.
    pub async fn purge_deleted(&self, older_than: Timestamp) -> Result<Purged, StoreError> {
        let mut purged = Purged::default();
        loop {
            let amphorae = self.deleted_amphorae(older_than).await?;
            let load_balancers = self.deleted_load_balancers(older_than).await?;
            if amphorae.is_empty() && load_balancers.is_empty() {
                return Ok(purged);
            }
            let removed = in_transaction!(self, txn => {
                amphora_health::Entity::delete_many()
                    .filter(amphora_health::Column::AmphoraId.is_in(&amphorae))
                    .exec(&txn)
                    .await?;
                listener_statistics::Entity::delete_many()
                    .filter(listener_statistics::Column::AmphoraId.is_in(&amphorae))
                    .exec(&txn)
                    .await?;
                let gone = amphora::Entity::delete_many()
                    .filter(amphora::Column::Id.is_in(&amphorae))
                    .exec(&txn)
                    .await?;
                let mut removed = Purged {
                    amphorae: gone.rows_affected,
                    load_balancers: 0,
                };
                if amphorae.is_empty() {
                    tag::Entity::delete_many()
                        .filter(tag::Column::ResourceId.is_in(&load_balancers))
                        .exec(&txn)
                        .await?;
                    reconcile_outcome::Entity::delete_many()
                        .filter(reconcile_outcome::Column::LoadBalancerId.is_in(&load_balancers))
                        .exec(&txn)
                        .await?;
                    removed.load_balancers = load_balancer::Entity::delete_many()
                        .filter(load_balancer::Column::Id.is_in(&load_balancers))
                        .exec(&txn)
                        .await?
                        .rows_affected;
                }
                Ok(End::Commit(removed))
            })?;
            purged.amphorae = purged.amphorae.saturating_add(removed.amphorae);
            purged.load_balancers = purged.load_balancers.saturating_add(removed.load_balancers);
        }
    }

    async fn deleted_amphorae(&self, older_than: Timestamp) -> Result<Vec<String>, StoreError> {
        let mut heard: SelectStatement = Query::select();
        heard
            .column(amphora_health::Column::AmphoraId)
            .from(amphora_health::Entity)
            .and_where(Expr::col(amphora_health::Column::LastUpdate).gte(older_than.as_micros()));
        Ok(amphora::Entity::find()
            .filter(amphora::Column::Status.eq(AmphoraStatus::Deleted.as_str()))
            .filter(
                Expr::expr(Func::coalesce([
                    Expr::col(amphora::Column::UpdatedAt),
                    Expr::col(amphora::Column::CreatedAt),
                ]))
                .lt(older_than.as_micros()),
            )
            .filter(amphora::Column::Id.not_in_subquery(heard))
            .limit(CHUNK as u64)
            .select_only()
            .column(amphora::Column::Id)
            .into_tuple()
            .all(&self.db)
            .await?)
    }

    /// Those whose rows nothing refers to any more.
    async fn deleted_load_balancers(
        &self,
        older_than: Timestamp,
    ) -> Result<Vec<String>, StoreError> {
        let mut amphorae: SelectStatement = Query::select();
        amphorae
            .column(amphora::Column::LoadBalancerId)
            .from(amphora::Entity);
        Ok(load_balancer::Entity::find()
            .filter(
                load_balancer::Column::ProvisioningStatus.eq(ProvisioningStatus::Deleted.as_str()),
            )
            .filter(
                Expr::expr(Func::coalesce([
                    Expr::col(load_balancer::Column::UpdatedAt),
                    Expr::col(load_balancer::Column::CreatedAt),
                ]))
                .lt(older_than.as_micros()),
            )
            .filter(load_balancer::Column::Id.not_in_subquery(amphorae))
            .limit(CHUNK as u64)
            .select_only()
            .column(load_balancer::Column::Id)
            .into_tuple()
            .all(&self.db)
            .await?)
    }
}
