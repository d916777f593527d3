//! A graph as rows: reading them, and writing only what differs.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

use lb_model::{AmphoraStatus, Graph, L7Policy, L7Rule, LoadBalancerId, Member};
use sea_orm::sea_query::{Expr, ExprTrait, Query};
use sea_orm::{
    ColumnTrait, ConnectionTrait, EntityTrait, IntoActiveModel, Iterable, QueryFilter, QueryOrder,
};

use crate::StoreError;
use crate::tables::load_balancer::Bookkeeping;
use crate::tables::{
    Row, amphora, health_monitor, l7policy, l7rule, listener, load_balancer, member, pool, tag,
};

/// Rows in one statement; SQLite takes 32,766 values a statement, and the widest table has fewer than 40 columns.
pub(crate) const CHUNK: usize = 500;

/// Everything the database holds of one load balancer, except deleted amphorae.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rows {
    pub(crate) load_balancer: load_balancer::Model,
    pools: Vec<pool::Model>,
    members: Vec<member::Model>,
    health_monitors: Vec<health_monitor::Model>,
    listeners: Vec<listener::Model>,
    l7policies: Vec<l7policy::Model>,
    l7rules: Vec<l7rule::Model>,
    amphorae: Vec<amphora::Model>,
}

impl Rows {
    /// `None` when there is no such load balancer, or it is deleted.
    pub(crate) async fn load<C: ConnectionTrait>(
        db: &C,
        id: LoadBalancerId,
    ) -> Result<Option<Self>, StoreError> {
        let key = id.to_string();
        let Some(load_balancer) = load_balancer::Entity::find_by_id(key.as_str())
            .filter(load_balancer::Column::ProvisioningStatus.ne("DELETED"))
            .one(db)
            .await?
        else {
            return Ok(None);
        };
        let pools = pool::Entity::find()
            .filter(pool::Column::LoadBalancerId.eq(key.as_str()))
            .order_by_asc(pool::Column::CreatedAt)
            .order_by_asc(pool::Column::Id)
            .all(db)
            .await?;
        let (members, health_monitors) = if pools.is_empty() {
            (Vec::new(), Vec::new())
        } else {
            let members = member::Entity::find()
                .filter(member::Column::LoadBalancerId.eq(key.as_str()))
                .order_by_asc(member::Column::CreatedAt)
                .order_by_asc(member::Column::Id)
                .all(db)
                .await?;
            let health_monitors = health_monitor::Entity::find()
                .filter(health_monitor::Column::LoadBalancerId.eq(key.as_str()))
                .all(db)
                .await?;
            (members, health_monitors)
        };
        let listeners = listener::Entity::find()
            .filter(listener::Column::LoadBalancerId.eq(key.as_str()))
            .order_by_asc(listener::Column::CreatedAt)
            .order_by_asc(listener::Column::Id)
            .all(db)
            .await?;
        let l7policies = if listeners.is_empty() {
            Vec::new()
        } else {
            l7policy::Entity::find()
                .filter(l7policy::Column::LoadBalancerId.eq(key.as_str()))
                .order_by_asc(l7policy::Column::Position)
                .order_by_asc(l7policy::Column::Id)
                .all(db)
                .await?
        };
        let l7rules = if l7policies.is_empty() {
            Vec::new()
        } else {
            l7rule::Entity::find()
                .filter(l7rule::Column::LoadBalancerId.eq(key.as_str()))
                .order_by_asc(l7rule::Column::CreatedAt)
                .order_by_asc(l7rule::Column::Id)
                .all(db)
                .await?
        };
        let amphorae = amphora::Entity::find()
            .filter(amphora::Column::LoadBalancerId.eq(key.as_str()))
            .filter(amphora::Column::Status.ne(AmphoraStatus::Deleted.as_str()))
            .order_by_asc(amphora::Column::CreatedAt)
            .order_by_asc(amphora::Column::Id)
            .all(db)
            .await?;
        Ok(Some(Self {
            load_balancer,
            pools,
            members,
            health_monitors,
            listeners,
            l7policies,
            l7rules,
            amphorae,
        }))
    }

    pub(crate) fn of(graph: &Graph, bookkeeping: Bookkeeping) -> Self {
        let id = graph.load_balancer.id;
        let mut rows = Self {
            load_balancer: load_balancer::Model::of(&graph.load_balancer, bookkeeping),
            pools: Vec::new(),
            members: Vec::new(),
            health_monitors: Vec::new(),
            listeners: Vec::new(),
            l7policies: Vec::new(),
            l7rules: Vec::new(),
            amphorae: graph.amphorae.iter().map(amphora::Model::of).collect(),
        };
        for pool in &graph.pools {
            rows.pools.push(pool::Model::of(pool, id));
            rows.members.extend(
                pool.members
                    .iter()
                    .map(|member| member::Model::of(member, id, pool.id)),
            );
            rows.health_monitors.extend(
                pool.health_monitor
                    .iter()
                    .map(|monitor| health_monitor::Model::of(monitor, id, pool.id)),
            );
        }
        for listener in &graph.listeners {
            rows.listeners.push(listener::Model::of(listener, id));
            for policy in &listener.l7policies {
                rows.l7policies
                    .push(l7policy::Model::of(policy, id, listener.id));
                rows.l7rules.extend(
                    policy
                        .rules
                        .iter()
                        .map(|rule| l7rule::Model::of(rule, id, policy.id)),
                );
            }
        }
        rows
    }

    pub(crate) fn graph(&self) -> Result<Graph, StoreError> {
        let mut members = grouped(&self.members, |row| row.pool_id.clone());
        let mut monitors = grouped(&self.health_monitors, |row| row.pool_id.clone());
        let mut pools = Vec::with_capacity(self.pools.len());
        for row in &self.pools {
            let members = members
                .remove(&row.id)
                .unwrap_or_default()
                .into_iter()
                .map(member::Model::member)
                .collect::<Result<Vec<Member>, _>>()?;
            let monitor = monitors
                .remove(&row.id)
                .unwrap_or_default()
                .into_iter()
                .map(health_monitor::Model::health_monitor)
                .next()
                .transpose()?;
            pools.push(row.pool(members, monitor)?);
        }
        let mut policies = policies_of(&self.l7policies, &self.l7rules)?;
        let listeners = self
            .listeners
            .iter()
            .map(|row| row.listener(policies.remove(&row.id).unwrap_or_default()))
            .collect::<Result<_, _>>()?;
        Ok(Graph {
            load_balancer: self.load_balancer.load_balancer()?,
            listeners,
            pools,
            amphorae: self
                .amphorae
                .iter()
                .map(amphora::Model::amphora)
                .collect::<Result<_, _>>()?,
        })
    }

    pub(crate) async fn insert<C: ConnectionTrait>(&self, db: &C) -> Result<(), StoreError> {
        upsert(db, &[], std::slice::from_ref(&self.load_balancer)).await?;
        self.upsert_children(db, None).await
    }

    /// Makes the database hold `self`, given that it holds `before`: only columns that differ are written.
    pub(crate) async fn replace<C: ConnectionTrait>(
        &self,
        db: &C,
        before: &Self,
    ) -> Result<(), StoreError> {
        upsert(
            db,
            std::slice::from_ref(&before.load_balancer),
            std::slice::from_ref(&self.load_balancer),
        )
        .await?;
        // What nothing refers to goes first (its place may be taken again); the rest goes when no reference is left.
        remove(db, &before.l7rules, &self.l7rules).await?;
        remove(db, &before.members, &self.members).await?;
        remove(db, &before.health_monitors, &self.health_monitors).await?;
        self.upsert_children(db, Some(before)).await?;
        remove(db, &before.l7policies, &self.l7policies).await?;
        let listeners = remove(db, &before.listeners, &self.listeners).await?;
        crate::statistics::forget_listeners(db, &listeners).await?;
        remove(db, &before.pools, &self.pools).await?;
        let mut gone = remove(db, &before.amphorae, &self.amphorae).await?;
        gone.extend(
            self.amphorae
                .iter()
                .filter(|row| row.status == AmphoraStatus::Deleted.as_str())
                .map(|row| row.id.clone()),
        );
        crate::health::forget_amphorae(db, &gone).await?;
        crate::statistics::fold_amphorae(db, &gone).await
    }

    async fn upsert_children<C: ConnectionTrait>(
        &self,
        db: &C,
        before: Option<&Self>,
    ) -> Result<(), StoreError> {
        macro_rules! upsert_each {
            ($($field:ident),+) => {$(
                upsert(db, before.map_or(&[][..], |rows| &rows.$field), &self.$field).await?;
            )+};
        }
        upsert_each!(
            pools,
            members,
            health_monitors,
            listeners,
            l7policies,
            l7rules,
            amphorae
        );
        Ok(())
    }
}

/// Policies with their rules, by listener.
fn policies_of(
    policies: &[l7policy::Model],
    rules: &[l7rule::Model],
) -> Result<HashMap<String, Vec<L7Policy>>, StoreError> {
    let mut rules = grouped(rules, |row| row.l7policy_id.clone());
    let mut by_listener: HashMap<String, Vec<L7Policy>> = HashMap::new();
    for row in policies {
        let rules = rules
            .remove(&row.id)
            .unwrap_or_default()
            .into_iter()
            .map(l7rule::Model::l7rule)
            .collect::<Result<Vec<L7Rule>, _>>()?;
        by_listener
            .entry(row.listener_id.clone())
            .or_default()
            .push(row.l7policy(rules)?);
    }
    Ok(by_listener)
}

fn grouped<'a, M, K: Eq + Hash>(rows: &'a [M], key: impl Fn(&M) -> K) -> HashMap<K, Vec<&'a M>> {
    let mut groups: HashMap<K, Vec<&'a M>> = HashMap::new();
    for row in rows {
        groups.entry(key(row)).or_default().push(row);
    }
    groups
}

async fn upsert<C, M>(db: &C, before: &[M], after: &[M]) -> Result<(), StoreError>
where
    C: ConnectionTrait,
    M: Row,
    <<M::Entity as EntityTrait>::Column as Iterable>::Iterator: Send,
    <M::Entity as EntityTrait>::ActiveModel: Send,
{
    let known: HashMap<&str, &M> = before.iter().map(|row| (row.id(), row)).collect();
    let mut fresh = Vec::new();
    for row in after {
        match known.get(row.id()) {
            None => fresh.push(row),
            Some(old) if *old == row => {}
            Some(old) => {
                let mut update = Query::update();
                update
                    .table(M::Entity::default())
                    .and_where(Expr::col("id").eq(row.id()));
                for column in <M::Entity as EntityTrait>::Column::iter() {
                    let value = row.get(column);
                    if old.get(column) != value {
                        update.value(column, Expr::val(value));
                    }
                }
                db.execute(&update).await?;
                if old.tags() != row.tags() {
                    forget_tags(db, &[row.id().to_owned()]).await?;
                    index_tags(db, &[row]).await?;
                }
            }
        }
    }
    for chunk in fresh.chunks(CHUNK) {
        <M::Entity as EntityTrait>::insert_many(
            chunk.iter().map(|row| (*row).clone().into_active_model()),
        )
        .exec_without_returning(db)
        .await?;
        index_tags(db, chunk).await?;
    }
    Ok(())
}

/// Deletes the rows `after` lacks, and returns their ids.
async fn remove<C, M>(db: &C, before: &[M], after: &[M]) -> Result<Vec<String>, StoreError>
where
    C: ConnectionTrait,
    M: Row,
{
    if before.is_empty() {
        return Ok(Vec::new());
    }
    let kept: BTreeSet<&str> = after.iter().map(Row::id).collect();
    let gone: Vec<String> = before
        .iter()
        .map(Row::id)
        .filter(|id| !kept.contains(id))
        .map(str::to_owned)
        .collect();
    for chunk in gone.chunks(CHUNK) {
        let mut delete = Query::delete();
        delete
            .from_table(M::Entity::default())
            .and_where(Expr::col("id").is_in(chunk));
        db.execute(&delete).await?;
    }
    forget_tags(db, &gone).await?;
    Ok(gone)
}

async fn index_tags<C: ConnectionTrait, M: Row>(db: &C, rows: &[&M]) -> Result<(), StoreError> {
    let mut entries = Vec::new();
    for row in rows {
        let Some(text) = row.tags().filter(|text| *text != "[]") else {
            continue;
        };
        let tags: BTreeSet<String> = crate::tables::convert::read_json("tags", text)?;
        entries.extend(tags.into_iter().map(|tag| {
            tag::Model {
                resource_id: row.id().to_owned(),
                tag,
            }
            .into_active_model()
        }));
    }
    for chunk in entries.chunks(CHUNK) {
        tag::Entity::insert_many(chunk.iter().cloned())
            .exec_without_returning(db)
            .await?;
    }
    Ok(())
}

async fn forget_tags<C: ConnectionTrait>(db: &C, ids: &[String]) -> Result<(), StoreError> {
    for chunk in ids.chunks(CHUNK) {
        tag::Entity::delete_many()
            .filter(tag::Column::ResourceId.is_in(chunk))
            .exec(db)
            .await?;
    }
    Ok(())
}
