//! What every resource does alike: list, show, and writes that are one change of a load balancer's graph.

use std::fmt::Display;
use std::future::Future;

use axum::body::Body;
use axum::http::{Response, StatusCode};
use lb_model::{Fault, Graph, LoadBalancerId, Resource, Rules, Timestamp};
use lb_store::{Filter, Query, Receipt, Store, StoreError};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::fault::{ApiFault, Result, answer, empty};
use crate::page::{self, Page, list_fault};
use crate::request::{self, Request};
use crate::{once, policy};

/// What reading the store gives.
pub(super) type Stored<T> = std::result::Result<T, StoreError>;

/// A kind of object that is listed and shown.
pub(super) trait Collection: Sync {
    type Row: Send + Sync;
    const RESOURCE: Resource;
    /// Root key of one object.
    const ONE: &'static str;
    /// Root key of a list.
    const MANY: &'static str;

    fn rows(
        &self,
        store: &Store,
        query: &Query,
    ) -> impl Future<Output = Stored<Vec<Self::Row>>> + Send;

    /// `None`: belongs to the deployment.
    fn project_id(row: &Self::Row) -> Option<&str>;

    fn view(row: &Self::Row) -> Value;
}

pub(super) async fn list<C: Collection>(
    request: &Request,
    collection: &C,
    page: Page,
) -> Result<Response<Body>> {
    let rows = collection
        .rows(&request.state.store, &page.query)
        .await
        .map_err(|error| list_fault(error, &page.query))?;
    let items = rows.iter().map(C::view).collect();
    let body = page.answer(request, C::MANY, items);
    Ok(answer(StatusCode::OK, &body))
}

pub(super) async fn show<C: Collection>(
    request: &Request,
    collection: &C,
    text: &str,
) -> Result<Response<Body>> {
    let row = find(request, collection, text).await?;
    let body = page::show(request, C::ONE, C::view(&row));
    Ok(answer(StatusCode::OK, &body))
}

/// An object that is there and that the caller may see.
pub(super) async fn find<C: Collection>(
    request: &Request,
    collection: &C,
    text: &str,
) -> Result<C::Row> {
    let id: Uuid = request::id(C::RESOURCE, text)?;
    let rows = collection.rows(&request.state.store, &by_id(id)).await?;
    let row = rows
        .into_iter()
        .next()
        .ok_or_else(|| Fault::not_found(C::RESOURCE, text))?;
    match C::project_id(&row) {
        Some(project) => policy::allow(request, project)?,
        None => policy::allow_own(request)?,
    }
    Ok(row)
}

/// The query for one object by its id.
fn by_id(id: Uuid) -> Query {
    Query {
        filters: vec![Filter {
            column: "id".to_owned(),
            value: id.to_string(),
        }],
        limit: Some(1),
        ..Query::default()
    }
}

/// A resource that is part of a load balancer's graph.
pub(super) trait Child: Collection {
    type Id: From<Uuid> + Copy + Display + Send + Sync;

    fn owner(
        store: &Store,
        id: Self::Id,
    ) -> impl Future<Output = Stored<Option<LoadBalancerId>>> + Send;

    /// As `POST` and `PUT` answer it.
    fn view_in(graph: &Graph, id: Self::Id) -> Option<Value>;
}

/// An object that an earlier request created, as `POST` answers it.
pub(super) async fn show_created<C: Child>(
    request: &Request,
    text: &str,
) -> Result<Response<Body>> {
    let target = existing::<C>(request, text).await?;
    let graph = request.state.store.load_graph(target.load_balancer).await?;
    let object = graph.and_then(|graph| C::view_in(&graph, target.id));
    let object = object.ok_or(target.missing)?;
    Ok(answer(StatusCode::CREATED, &json!({C::ONE: object})))
}

/// What a write is about.
pub(super) struct Target<I> {
    pub(super) load_balancer: LoadBalancerId,
    pub(super) id: I,
    /// The answer when the load balancer is gone by the time of the write.
    pub(super) missing: Fault,
}

impl<I> Target<I> {
    /// Something of the same load balancer.
    pub(super) fn with<J>(self, id: J) -> Target<J> {
        Target {
            load_balancer: self.load_balancer,
            id,
            missing: self.missing,
        }
    }
}

/// A load balancer the caller may change, as the parent of an object to be.
pub(super) async fn in_load_balancer<I>(
    request: &Request,
    load_balancer: LoadBalancerId,
    id: I,
) -> Result<Target<I>> {
    policy::allow_load_balancer(request, load_balancer).await?;
    Ok(Target {
        load_balancer,
        id,
        missing: Fault::not_found(Resource::LoadBalancer, load_balancer),
    })
}

/// A resource whose load balancer the caller may change.
pub(super) async fn existing<C: Child>(request: &Request, text: &str) -> Result<Target<C::Id>> {
    locate::<C>(request, text)
        .await?
        .ok_or_else(|| Fault::not_found(C::RESOURCE, text).into())
}

/// As [`existing`], for the parent in a nested path: when it is missing, that is a routing error.
pub(super) async fn parent<C: Child>(
    request: &Request,
    name: &str,
    text: &str,
) -> Result<Target<C::Id>> {
    locate::<C>(request, text)
        .await?
        .ok_or_else(|| ApiFault::missing_parent(name, text))
}

async fn locate<C: Child>(request: &Request, text: &str) -> Result<Option<Target<C::Id>>> {
    let Ok(id) = request::id::<C::Id>(C::RESOURCE, text) else {
        return Ok(None);
    };
    let Some(load_balancer) = C::owner(&request.state.store, id).await? else {
        return Ok(None);
    };
    policy::allow_load_balancer(request, load_balancer).await?;
    Ok(Some(Target {
        load_balancer,
        id,
        missing: Fault::not_found(C::RESOURCE, text),
    }))
}

/// One transaction; answers the object as it is then.
pub(super) async fn write<C: Child>(
    request: &Request,
    status: StatusCode,
    target: Target<C::Id>,
    mut change: impl FnMut(&mut Graph, C::Id, &Rules, Timestamp) -> std::result::Result<(), Fault>
    + Send,
) -> Result<Response<Body>> {
    let id = target.id;
    let rules = &request.state.config.rules;
    let receipt = match status {
        StatusCode::CREATED => once::receipt(request, C::MANY, id),
        _ => None,
    };
    let change = |graph: &mut Graph, now| change(graph, id, rules, now);
    let graph = commit(request, &target, receipt.as_ref(), change).await?;
    let object = C::view_in(&graph, id).ok_or_else(|| {
        ApiFault::resource(
            StatusCode::INTERNAL_SERVER_ERROR,
            "The object was removed while it was written.",
        )
    })?;
    Ok(answer(status, &json!({C::ONE: object})))
}

/// As [`write`], for what is answered without a body.
pub(super) async fn write_silently<I: Copy + Send + Sync>(
    request: &Request,
    status: StatusCode,
    target: Target<I>,
    mut change: impl FnMut(&mut Graph, I, Timestamp) -> std::result::Result<(), Fault> + Send,
) -> Result<Response<Body>> {
    let id = target.id;
    let change = |graph: &mut Graph, now| change(graph, id, now);
    commit(request, &target, None, change).await?;
    Ok(empty(status))
}

/// One transaction under the load balancer's lock.
pub(super) async fn commit<I: Sync>(
    request: &Request,
    target: &Target<I>,
    receipt: Option<&Receipt>,
    mut change: impl FnMut(&mut Graph, Timestamp) -> std::result::Result<(), Fault> + Send,
) -> Result<Graph> {
    let now = request.state.now();
    let store = &request.state.store;
    let answer = store
        .change_graph_once(target.load_balancer, now, receipt, |graph| {
            change(graph, now)
        })
        .await?;
    match answer {
        None => Err(target.missing.clone().into()),
        Some(answer) => Ok(answer?.1),
    }
}
