//! Lists of one kind of resource, filtered, sorted and cut into pages in SQL.
//!
//! Rows come in the order of `sort`, then of creation, then of id. A page starts after its marker by comparing the
//! sort keys (never by counting), so a page far down a long list costs what the first one does. A null sorts before
//! every value.

pub(crate) mod columns;
pub(crate) mod select;

use std::collections::HashMap;

use lb_model::{
    Amphora, AmphoraStatus, HealthMonitor, HealthMonitorId, L7Policy, L7PolicyId, L7Rule, L7RuleId,
    Listener, ListenerId, LoadBalancer, LoadBalancerId, Member, MemberId, Pool, PoolId,
    ProvisioningStatus,
};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder, QuerySelect, QueryTrait};

use crate::rows::CHUNK;
use crate::store::read_id;
use crate::tables::{
    amphora, health_monitor, l7policy, l7rule, listener, load_balancer, member, pool,
};
use crate::{Store, StoreError};

/// What a list asks for. Columns have the names of the API (`vip_address`, `admin_state_up`, `loadbalancer_id`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query {
    pub project_id: Option<String>,
    /// All must hold. A name the resource does not have is [`StoreError::UnknownColumn`].
    pub filters: Vec<Filter>,
    pub tags: TagFilter,
    pub sort: Vec<(String, Direction)>,
    /// `None`: everything.
    pub limit: Option<u64>,
    /// Start after this object (an id; a quota's project, a zone's name); [`StoreError::UnknownMarker`] when it does
    /// not exist.
    pub marker: Option<String>,
    /// The page before the marker, in the same order.
    pub reverse: bool,
}

/// A column that must equal a value, given as text of a query string.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    pub column: String,
    pub value: String,
}

/// The four tag filters of the API; empty ones do not filter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TagFilter {
    /// `tags`: has all of these.
    pub all: Vec<String>,
    /// `tags-any`: has at least one.
    pub any: Vec<String>,
    /// `not-tags`: does not have all of these.
    pub not_all: Vec<String>,
    /// `not-tags-any`: has none.
    pub not_any: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Ascending,
    Descending,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadBalancerRow {
    pub load_balancer: LoadBalancer,
    pub listener_ids: Vec<ListenerId>,
    pub pool_ids: Vec<PoolId>,
}

/// Policies are given by id, in the order of their positions; in `listener` itself they are left empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenerRow {
    pub listener: Listener,
    pub load_balancer_id: LoadBalancerId,
    pub l7policy_ids: Vec<L7PolicyId>,
}

/// Members and monitor are given by id; in `pool` itself they are left empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolRow {
    pub pool: Pool,
    pub load_balancer_id: LoadBalancerId,
    /// Listeners that send traffic here, by default or through a policy.
    pub listener_ids: Vec<ListenerId>,
    pub member_ids: Vec<MemberId>,
    pub health_monitor_id: Option<HealthMonitorId>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberRow {
    pub member: Member,
    pub pool_id: PoolId,
    pub load_balancer_id: LoadBalancerId,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthMonitorRow {
    pub health_monitor: HealthMonitor,
    pub pool_id: PoolId,
    pub load_balancer_id: LoadBalancerId,
}

/// Rules are given by id; in `l7policy` itself they are left empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct L7PolicyRow {
    pub l7policy: L7Policy,
    pub listener_id: ListenerId,
    pub rule_ids: Vec<L7RuleId>,
}

impl Store {
    /// Deleted ones are left out.
    pub async fn list_load_balancers(
        &self,
        query: &Query,
    ) -> Result<Vec<LoadBalancerRow>, StoreError> {
        let base = load_balancer::Entity::find().filter(
            load_balancer::Column::ProvisioningStatus.ne(ProvisioningStatus::Deleted.as_str()),
        );
        let rows = select::page(&self.db, base, &columns::LOAD_BALANCER, query).await?;
        let ids: Vec<&str> = rows.iter().map(|row| row.id.as_str()).collect();
        let mut listeners = {
            use listener::Column::{CreatedAt, Id, LoadBalancerId};
            self.children::<listener::Entity, _>(LoadBalancerId, Id, &[CreatedAt, Id], &ids)
                .await?
        };
        let mut pools = {
            use pool::Column::{CreatedAt, Id, LoadBalancerId};
            self.children::<pool::Entity, _>(LoadBalancerId, Id, &[CreatedAt, Id], &ids)
                .await?
        };
        rows.iter()
            .map(|row| {
                Ok(LoadBalancerRow {
                    load_balancer: row.load_balancer()?,
                    listener_ids: listeners.remove(&row.id).unwrap_or_default(),
                    pool_ids: pools.remove(&row.id).unwrap_or_default(),
                })
            })
            .collect()
    }

    pub async fn list_listeners(&self, query: &Query) -> Result<Vec<ListenerRow>, StoreError> {
        let rows = select::page(
            &self.db,
            listener::Entity::find(),
            &columns::LISTENER,
            query,
        )
        .await?;
        let ids: Vec<&str> = rows.iter().map(|row| row.id.as_str()).collect();
        let mut policies = {
            use l7policy::Column::{Id, ListenerId, Position};
            self.children::<l7policy::Entity, _>(ListenerId, Id, &[Position, Id], &ids)
                .await?
        };
        rows.iter()
            .map(|row| {
                Ok(ListenerRow {
                    listener: row.listener(Vec::new())?,
                    load_balancer_id: read_id("listener.load_balancer_id", &row.load_balancer_id)?,
                    l7policy_ids: policies.remove(&row.id).unwrap_or_default(),
                })
            })
            .collect()
    }

    pub async fn list_pools(&self, query: &Query) -> Result<Vec<PoolRow>, StoreError> {
        let rows = select::page(&self.db, pool::Entity::find(), &columns::POOL, query).await?;
        let ids: Vec<&str> = rows.iter().map(|row| row.id.as_str()).collect();
        let mut members = {
            use member::Column::{CreatedAt, Id, PoolId};
            self.children::<member::Entity, _>(PoolId, Id, &[CreatedAt, Id], &ids)
                .await?
        };
        let mut monitors: HashMap<String, Vec<HealthMonitorId>> = {
            use health_monitor::Column::{Id, PoolId};
            self.children::<health_monitor::Entity, _>(PoolId, Id, &[Id], &ids)
                .await?
        };
        let mut listeners: HashMap<String, Vec<ListenerId>> = HashMap::new();
        for chunk in ids.chunks(CHUNK) {
            collect(&mut listeners, "listener.id", self.users_of(chunk).await?)?;
        }
        rows.iter()
            .map(|row| {
                Ok(PoolRow {
                    pool: row.pool(Vec::new(), None)?,
                    load_balancer_id: read_id("pool.load_balancer_id", &row.load_balancer_id)?,
                    listener_ids: listeners.remove(&row.id).unwrap_or_default(),
                    member_ids: members.remove(&row.id).unwrap_or_default(),
                    health_monitor_id: monitors
                        .remove(&row.id)
                        .and_then(|ids| ids.into_iter().next()),
                })
            })
            .collect()
    }

    /// Members of one pool.
    pub async fn list_members(
        &self,
        pool: PoolId,
        query: &Query,
    ) -> Result<Vec<MemberRow>, StoreError> {
        let base = member::Entity::find().filter(member::Column::PoolId.eq(pool.to_string()));
        select::page(&self.db, base, &columns::MEMBER, query)
            .await?
            .iter()
            .map(|row| {
                Ok(MemberRow {
                    member: row.member()?,
                    pool_id: pool,
                    load_balancer_id: read_id("member.load_balancer_id", &row.load_balancer_id)?,
                })
            })
            .collect()
    }

    pub async fn list_health_monitors(
        &self,
        query: &Query,
    ) -> Result<Vec<HealthMonitorRow>, StoreError> {
        select::page(
            &self.db,
            health_monitor::Entity::find(),
            &columns::HEALTH_MONITOR,
            query,
        )
        .await?
        .iter()
        .map(|row| {
            Ok(HealthMonitorRow {
                health_monitor: row.health_monitor()?,
                pool_id: read_id("health_monitor.pool_id", &row.pool_id)?,
                load_balancer_id: read_id(
                    "health_monitor.load_balancer_id",
                    &row.load_balancer_id,
                )?,
            })
        })
        .collect()
    }

    pub async fn list_l7policies(&self, query: &Query) -> Result<Vec<L7PolicyRow>, StoreError> {
        let base = l7policy::Entity::find();
        let rows = select::page(&self.db, base, &columns::L7POLICY, query).await?;
        let ids: Vec<&str> = rows.iter().map(|row| row.id.as_str()).collect();
        let mut rules = {
            use l7rule::Column::{CreatedAt, Id, L7policyId};
            self.children::<l7rule::Entity, _>(L7policyId, Id, &[CreatedAt, Id], &ids)
                .await?
        };
        rows.iter()
            .map(|row| {
                Ok(L7PolicyRow {
                    l7policy: row.l7policy(Vec::new())?,
                    listener_id: read_id("l7policy.listener_id", &row.listener_id)?,
                    rule_ids: rules.remove(&row.id).unwrap_or_default(),
                })
            })
            .collect()
    }

    /// Rules of one policy.
    pub async fn list_l7rules(
        &self,
        policy: L7PolicyId,
        query: &Query,
    ) -> Result<Vec<L7Rule>, StoreError> {
        let base = l7rule::Entity::find().filter(l7rule::Column::L7policyId.eq(policy.to_string()));
        select::page(&self.db, base, &columns::L7RULE, query)
            .await?
            .iter()
            .map(l7rule::Model::l7rule)
            .collect()
    }

    /// Deleted ones are left out. `project_id` is that of the load balancer.
    pub async fn list_amphorae(&self, query: &Query) -> Result<Vec<Amphora>, StoreError> {
        let mut base = amphora::Entity::find()
            .filter(amphora::Column::Status.ne(AmphoraStatus::Deleted.as_str()));
        if let Some(project) = &query.project_id {
            let owned = load_balancer::Entity::find()
                .filter(load_balancer::Column::ProjectId.eq(project.as_str()))
                .select_only()
                .column(load_balancer::Column::Id)
                .into_query();
            base = base.filter(amphora::Column::LoadBalancerId.in_subquery(owned));
        }
        let query = Query {
            project_id: None,
            ..query.clone()
        };
        select::page(&self.db, base, &columns::AMPHORA, &query)
            .await?
            .iter()
            .map(amphora::Model::amphora)
            .collect()
    }

    /// Ids of the rows that belong to each of the owners, in the order given.
    async fn children<E, T>(
        &self,
        owner: E::Column,
        id: E::Column,
        order: &[E::Column],
        owners: &[&str],
    ) -> Result<HashMap<String, Vec<T>>, StoreError>
    where
        E: EntityTrait,
        T: std::str::FromStr,
    {
        let mut children = HashMap::new();
        for chunk in owners.chunks(CHUNK) {
            let mut select = E::find()
                .filter(owner.is_in(chunk.iter().copied()))
                .select_only()
                .column(owner)
                .column(id);
            for column in order {
                select = select.order_by_asc(*column);
            }
            let found: Vec<(String, String)> = select.into_tuple().all(&self.db).await?;
            collect(&mut children, "id", found)?;
        }
        Ok(children)
    }

    /// (pool, listener) for each listener that uses one of the pools, each once.
    async fn users_of(&self, pools: &[&str]) -> Result<Vec<(String, String)>, StoreError> {
        let mut users: Vec<(String, String)> = listener::Entity::find()
            .filter(listener::Column::DefaultPoolId.is_in(pools.iter().copied()))
            .order_by_asc(listener::Column::CreatedAt)
            .order_by_asc(listener::Column::Id)
            .select_only()
            .column(listener::Column::DefaultPoolId)
            .column(listener::Column::Id)
            .into_tuple()
            .all(&self.db)
            .await?;
        let through_policies: Vec<(String, String)> = l7policy::Entity::find()
            .filter(l7policy::Column::RedirectPoolId.is_in(pools.iter().copied()))
            .order_by_asc(l7policy::Column::ListenerId)
            .select_only()
            .column(l7policy::Column::RedirectPoolId)
            .column(l7policy::Column::ListenerId)
            .into_tuple()
            .all(&self.db)
            .await?;
        let seen: std::collections::HashSet<(String, String)> = users.iter().cloned().collect();
        let mut added = std::collections::HashSet::new();
        users.extend(
            through_policies
                .into_iter()
                .filter(|user| !seen.contains(user) && added.insert(user.clone())),
        );
        Ok(users)
    }
}

fn collect<T: std::str::FromStr>(
    into: &mut HashMap<String, Vec<T>>,
    column: &'static str,
    found: Vec<(String, String)>,
) -> Result<(), StoreError> {
    for (owner, id) in found {
        into.entry(owner).or_default().push(read_id(column, &id)?);
    }
    Ok(())
}

/// The statements of one page of each list in default order, by table, for the test that looks at their plans.
#[cfg(test)]
pub(crate) fn page_statements(
    query: &Query,
    pool: PoolId,
    created_at: lb_model::Timestamp,
    id: uuid::Uuid,
) -> Vec<(&'static str, String)> {
    let mut statements = Vec::new();
    macro_rules! statement {
        ($resource:ident, $base:expr) => {{
            let resource = &columns::$resource;
            let keys = select::sort_keys(resource, query).expect("default order");
            let marker = [created_at.as_micros().into(), id.to_string().into()];
            let select = select::build($base, resource, query, &keys, Some(&marker))
                .expect("no filters")
                .build(sea_orm::DbBackend::Sqlite);
            statements.push((resource.table, select.to_string()));
        }};
    }
    statement!(LOAD_BALANCER, load_balancer::Entity::find());
    statement!(LISTENER, listener::Entity::find());
    statement!(POOL, pool::Entity::find());
    statement!(HEALTH_MONITOR, health_monitor::Entity::find());
    statement!(L7POLICY, l7policy::Entity::find());
    statement!(
        MEMBER,
        member::Entity::find().filter(member::Column::PoolId.eq(pool.to_string()))
    );
    statements
}
