//! Reading and changing whole load balancers.

use lb_model::{
    AmphoraId, AmphoraStatus, Graph, HealthMonitorId, L7PolicyId, L7RuleId, ListenerId,
    LoadBalancerId, MemberId, PoolId, ProvisioningStatus, QuotaDemand, QuotaUse, Timestamp,
};
use sea_orm::sea_query::{Expr, ExprTrait, LockType, Query};
use sea_orm::{ColumnTrait, ConnectionTrait, DbErr, EntityTrait, QueryFilter, QuerySelect};
use uuid::Uuid;

use crate::rows::Rows;
use crate::store::{End, in_transaction, read_id};
use crate::tables::load_balancer::Bookkeeping;
use crate::tables::{
    amphora, health_monitor, l7policy, l7rule, listener, load_balancer, member, pool,
};
use crate::{Receipt, Store, StoreError};
use crate::{quotas, receipts};

/// What [`Store::update_operating_statuses`] found and did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusUpdate {
    pub graph: Graph,
    /// Revision of the load balancer that `graph` is; compare with [`crate::HeartbeatTarget::revision`].
    pub revision: u64,
    pub changed: bool,
}

macro_rules! owners {
    ($($(#[$doc:meta])* $name:ident($id:ty) = $entity:ident;)+) => {$(
        $(#[$doc])*
        pub async fn $name(&self, id: $id) -> Result<Option<LoadBalancerId>, StoreError> {
            let owner: Option<String> = $entity::Entity::find_by_id(id.to_string())
                .select_only()
                .column($entity::Column::LoadBalancerId)
                .into_tuple()
                .one(&self.db)
                .await?;
            owner
                .map(|owner| read_id(concat!(stringify!($entity), ".load_balancer_id"), &owner))
                .transpose()
        }
    )+};
}

impl Store {
    /// Stores a new load balancer with all its children, and makes it due for a worker when it is pending.
    /// [`StoreError::QuotaReached`] when its project may not have as much.
    pub async fn insert_graph(&self, graph: &Graph) -> Result<(), StoreError> {
        self.insert_graph_once(graph, None).await
    }

    /// As [`Store::insert_graph`], with a receipt; [`StoreError::KeyUsed`] when its key is.
    pub async fn insert_graph_once(
        &self,
        graph: &Graph,
        receipt: Option<&Receipt>,
    ) -> Result<(), StoreError> {
        let bookkeeping = Bookkeeping {
            revision: 1,
            next_attempt_at: needs_work(graph).then(|| graph.load_balancer.created_at.as_micros()),
            ..Bookkeeping::default()
        };
        let rows = Rows::of(graph, bookkeeping);
        let lb = &graph.load_balancer;
        let demand = QuotaDemand::between(&QuotaUse::default(), &QuotaUse::of(graph));
        in_transaction!(self, txn, unsure => {
            if unsure && last_change(&txn, lb.id).await?.is_some() {
                return Ok(End::Rollback(()));
            }
            rows.insert(&txn).await?;
            quotas::charge(&txn, &lb.project_id, &self.default_quota, &demand, lb.created_at)
                .await?;
            receipts::write(&txn, receipt, lb.created_at).await?;
            Ok(End::Commit(()))
        })?;
        self.tell_changed();
        Ok(())
    }

    /// The load balancer with all its children; `None` when it is deleted or never was. Children come in the order
    /// of their creation (policies: of their position).
    pub async fn load_graph(&self, id: LoadBalancerId) -> Result<Option<Graph>, StoreError> {
        match self.read_rows(id).await? {
            Some(rows) => rows.graph().map(Some),
            None => Ok(None),
        }
    }

    /// Everything as it was at one moment: children that came or went meanwhile would make a graph that never was.
    async fn read_rows(&self, id: LoadBalancerId) -> Result<Option<Rows>, StoreError> {
        let mut retries = self.retries();
        loop {
            let attempt = async {
                let txn = self.begin_reading().await?;
                let rows = Rows::load(&txn, id).await?;
                // It wrote nothing: how it ends does not matter.
                let _ = txn.rollback().await;
                Ok(rows)
            }
            .await;
            match attempt {
                Err(error) if retries.again(StoreError::failure(&error)).await => {}
                attempt => break attempt,
            }
        }
    }

    /// Whether there is such a load balancer; false for a deleted one.
    pub async fn load_balancer_exists(&self, id: LoadBalancerId) -> Result<bool, StoreError> {
        let found: Option<String> = load_balancer::Entity::find_by_id(id.to_string())
            .filter(
                load_balancer::Column::ProvisioningStatus.ne(ProvisioningStatus::Deleted.as_str()),
            )
            .select_only()
            .column(load_balancer::Column::Id)
            .into_tuple()
            .one(&self.db)
            .await?;
        Ok(found.is_some())
    }

    /// Whose it is; `None` for a deleted one.
    pub async fn project_of_load_balancer(
        &self,
        id: LoadBalancerId,
    ) -> Result<Option<String>, StoreError> {
        let project_id = load_balancer::Entity::find_by_id(id.to_string())
            .filter(
                load_balancer::Column::ProvisioningStatus.ne(ProvisioningStatus::Deleted.as_str()),
            )
            .select_only()
            .column(load_balancer::Column::ProjectId)
            .into_tuple()
            .one(&self.db)
            .await?;
        Ok(project_id)
    }

    owners! {
        load_balancer_of_listener(ListenerId) = listener;
        load_balancer_of_pool(PoolId) = pool;
        load_balancer_of_member(MemberId) = member;
        load_balancer_of_health_monitor(HealthMonitorId) = health_monitor;
        load_balancer_of_l7policy(L7PolicyId) = l7policy;
        load_balancer_of_l7rule(L7RuleId) = l7rule;
    }

    /// `None` for a deleted amphora too.
    pub async fn load_balancer_of_amphora(
        &self,
        id: AmphoraId,
    ) -> Result<Option<LoadBalancerId>, StoreError> {
        let owner: Option<String> = amphora::Entity::find_by_id(id.to_string())
            .filter(amphora::Column::Status.ne(AmphoraStatus::Deleted.as_str()))
            .select_only()
            .column(amphora::Column::LoadBalancerId)
            .into_tuple()
            .one(&self.db)
            .await?;
        owner
            .map(|owner| read_id("amphora.load_balancer_id", &owner))
            .transpose()
    }

    /// A change of the intent: one transaction under the load balancer's lock. Loads the graph, runs `f`, writes what
    /// differs, raises the generation, and makes the load balancer due at `now` whatever back-off it was in.
    ///
    /// `Err(E)` changes nothing, and neither does [`StoreError::QuotaReached`]. `f` may run more than once, each time
    /// on a fresh graph. `None`: no such load balancer.
    pub async fn change_graph<T, E, F>(
        &self,
        id: LoadBalancerId,
        now: Timestamp,
        f: F,
    ) -> Result<Option<Result<(T, Graph), E>>, StoreError>
    where
        F: FnMut(&mut Graph) -> Result<T, E> + Send,
        T: Send,
        E: Send,
    {
        self.change_graph_once(id, now, None, f).await
    }

    /// As [`Store::change_graph`], with a receipt; [`StoreError::KeyUsed`] when its key is.
    pub async fn change_graph_once<T, E, F>(
        &self,
        id: LoadBalancerId,
        now: Timestamp,
        receipt: Option<&Receipt>,
        mut f: F,
    ) -> Result<Option<Result<(T, Graph), E>>, StoreError>
    where
        F: FnMut(&mut Graph) -> Result<T, E> + Send,
        T: Send,
        E: Send,
    {
        let change_id = Uuid::new_v4().to_string();
        let mut written = None;
        let end = in_transaction!(self, txn, unsure => {
            if unsure && let Some((_, graph)) = &written {
                match last_change(&txn, id).await? {
                    Some((_, last)) if last.as_deref() == Some(&change_id) => {
                        return Ok(End::Rollback(Ended::Written));
                    }
                    // Others came after ours, or instead of it.
                    Some((generation, _)) if generation > generation_of(graph) => {
                        return Ok(End::Rollback(Ended::Unknown));
                    }
                    _ => {}
                }
            }
            let Some((before, mut graph)) = lock(&txn, id).await? else {
                return Ok(End::Rollback(Ended::Absent));
            };
            let had = QuotaUse::of(&graph);
            match f(&mut graph) {
                Err(refusal) => Ok(End::Rollback(Ended::Refused(refusal))),
                Ok(value) => {
                    graph.load_balancer.generation =
                        before_generation(&before)?.saturating_add(1);
                    let mut bookkeeping = before.load_balancer.bookkeeping();
                    bookkeeping.next_attempt_at = Some(now.as_micros());
                    bookkeeping.change_id = Some(change_id.clone());
                    Rows::of(&graph, bookkeeping).replace(&txn, &before).await?;
                    let demand = QuotaDemand::between(&had, &QuotaUse::of(&graph));
                    let project = graph.load_balancer.project_id.as_str();
                    quotas::charge(&txn, project, &self.default_quota, &demand, now).await?;
                    receipts::write(&txn, receipt, now).await?;
                    written = Some((value, graph));
                    Ok(End::Commit(Ended::Written))
                }
            }
        })?;
        match end {
            Ended::Absent => Ok(None),
            Ended::Refused(refusal) => Ok(Some(Err(refusal))),
            Ended::Written => {
                self.tell_changed();
                Ok(written.map(Ok))
            }
            Ended::Unknown => {
                let reason = "the load balancer was changed again since".to_owned();
                Err(StoreError::OutcomeUnknown(DbErr::Custom(reason)))
            }
        }
    }

    /// What the data plane reports: written without a new generation and without work for a worker. Under the lock
    /// only when `f` changes something, so that the common case costs reads only. `f` may run more than once and must
    /// leave provisioning statuses alone.
    pub async fn update_operating_statuses<F>(
        &self,
        id: LoadBalancerId,
        mut f: F,
    ) -> Result<Option<StatusUpdate>, StoreError>
    where
        F: FnMut(&mut Graph) + Send,
    {
        let Some(rows) = self.read_rows(id).await? else {
            return Ok(None);
        };
        let as_it_was = rows.graph()?;
        let mut graph = as_it_was.clone();
        f(&mut graph);
        if graph == as_it_was {
            return Ok(Some(StatusUpdate {
                graph,
                revision: revision(&rows)?,
                changed: false,
            }));
        }
        in_transaction!(self, txn => {
            let Some((before, mut graph)) = lock(&txn, id).await? else {
                return Ok(End::Rollback(None));
            };
            f(&mut graph);
            Rows::of(&graph, before.load_balancer.bookkeeping())
                .replace(&txn, &before)
                .await?;
            Ok(End::Commit(Some(StatusUpdate {
                graph,
                revision: revision(&before)?,
                changed: true,
            })))
        })
    }

    /// Marks an amphora to be replaced, in one transaction: the load balancer goes to `PENDING_UPDATE` with a new
    /// generation, and the amphora is busy for the health manager. False when the load balancer is neither `ACTIVE`
    /// nor in `ERROR`, or the amphora is gone, going, or marked already.
    pub async fn request_failover(
        &self,
        id: AmphoraId,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let Some(load_balancer) = self.load_balancer_of_amphora(id).await? else {
            return Ok(false);
        };
        let requested = in_transaction!(self, txn => {
            let Some((before, mut graph)) = lock(&txn, load_balancer).await? else {
                return Ok(End::Rollback(false));
            };
            if !mark_for_failover(&mut graph, id, now) {
                return Ok(End::Rollback(false));
            }
            graph.load_balancer.generation = before_generation(&before)?.saturating_add(1);
            let mut bookkeeping = before.load_balancer.bookkeeping();
            bookkeeping.next_attempt_at = Some(now.as_micros());
            Rows::of(&graph, bookkeeping).replace(&txn, &before).await?;
            crate::health::write_busy(&txn, &[id], true).await?;
            Ok(End::Commit(true))
        })?;
        if requested {
            self.tell_changed();
        }
        Ok(requested)
    }
}

/// How a change of the intent ended.
enum Ended<E> {
    Absent,
    Refused(E),
    Written,
    /// A commit was lost, and so much came since that nobody can tell whether it happened.
    Unknown,
}

/// Generation of a load balancer, a deleted one too, and the change that made it. Waits for a writer that is at it.
async fn last_change<C: ConnectionTrait>(
    txn: &C,
    id: LoadBalancerId,
) -> Result<Option<(i64, Option<String>)>, StoreError> {
    Ok(load_balancer::Entity::find_by_id(id.to_string())
        .lock(LockType::Update)
        .select_only()
        .column(load_balancer::Column::Generation)
        .column(load_balancer::Column::ChangeId)
        .into_tuple()
        .one(txn)
        .await?)
}

fn generation_of(graph: &Graph) -> i64 {
    crate::tables::convert::wide(graph.load_balancer.generation)
}

/// Takes the lock of a load balancer and reads it. The write comes first: it is what locks.
pub(crate) async fn lock<C: ConnectionTrait>(
    txn: &C,
    id: LoadBalancerId,
) -> Result<Option<(Rows, Graph)>, StoreError> {
    let mut update = Query::update();
    update
        .table(load_balancer::Entity)
        .value(
            load_balancer::Column::Revision,
            Expr::col(load_balancer::Column::Revision).add(1),
        )
        .and_where(Expr::col(load_balancer::Column::Id).eq(id.to_string()))
        .and_where(
            Expr::col(load_balancer::Column::ProvisioningStatus)
                .ne(ProvisioningStatus::Deleted.as_str()),
        );
    if txn.execute(&update).await?.rows_affected() == 0 {
        return Ok(None);
    }
    let Some(rows) = Rows::load(txn, id).await? else {
        return Ok(None);
    };
    let graph = rows.graph()?;
    Ok(Some((rows, graph)))
}

/// Something a worker has to do is written in the graph itself.
pub(crate) fn needs_work(graph: &Graph) -> bool {
    graph.load_balancer.provisioning_status.is_pending()
        || graph.amphorae.iter().any(|amphora| {
            amphora.failover_requested || amphora.status == AmphoraStatus::PendingDelete
        })
}

pub(crate) fn before_generation(rows: &Rows) -> Result<u64, StoreError> {
    crate::tables::convert::unsigned("load_balancer.generation", rows.load_balancer.generation)
}

fn revision(rows: &Rows) -> Result<u64, StoreError> {
    crate::tables::convert::unsigned("load_balancer.revision", rows.load_balancer.revision)
}

fn mark_for_failover(graph: &mut Graph, id: AmphoraId, now: Timestamp) -> bool {
    if !graph.load_balancer.provisioning_status.may_fail_over() {
        return false;
    }
    let Some(amphora) = graph
        .amphorae
        .iter_mut()
        .find(|amphora| amphora.id == id && !amphora.failover_requested)
    else {
        return false;
    };
    match amphora.status {
        AmphoraStatus::PendingDelete | AmphoraStatus::Deleted => return false,
        AmphoraStatus::FailoverStopped => amphora.status = AmphoraStatus::Allocated,
        AmphoraStatus::Booting
        | AmphoraStatus::Allocated
        | AmphoraStatus::Ready
        | AmphoraStatus::PendingCreate
        | AmphoraStatus::PendingUpdate
        | AmphoraStatus::Error => {}
    }
    amphora.failover_requested = true;
    amphora.updated_at = Some(now);
    graph.load_balancer.provisioning_status = ProvisioningStatus::PendingUpdate;
    true
}
