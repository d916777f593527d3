//! `/quotas`. They are enforced in the store, with the write that they limit.

use axum::body::Body;
use axum::http::{Response, StatusCode};
use lb_model::spec::QuotaUpdate;
use lb_model::{Fault, PerResource, Quota, Resource};
use serde_json::json;

use crate::fault::{Result, answer, empty};
use crate::page::{Key, Page, list_fault};
use crate::request::Request;
use crate::{policy, view};

/// Only projects that have created something or that were given limits are listed.
pub(super) async fn list(request: &Request) -> Result<Response<Body>> {
    let page = Page::parse_by(request, Key::ProjectId)?;
    let store = &request.state.store;
    let rows = store
        .list_quotas(&page.query)
        .await
        .map_err(|error| list_fault(error, &page.query))?;
    let items = rows
        .iter()
        .map(|row| view::quota(&row.project_id, &row.quota.effective(store.default_quota())))
        .collect();
    let body = page.answer(request, "quotas", items);
    Ok(answer(StatusCode::OK, &body))
}

/// The defaults stand for the limits of a project that has none, so there is always an answer.
pub(super) async fn show(request: &Request, project: &str) -> Result<Response<Body>> {
    policy::allow(request, project)?;
    let store = &request.state.store;
    let quota = store.quota(project).await?.unwrap_or_default();
    let limits = quota.effective(store.default_quota());
    Ok(quota_answer(StatusCode::OK, project, &limits))
}

pub(super) fn defaults(request: &Request) -> Result<Response<Body>> {
    policy::allow_own(request)?;
    Ok(default_answer(request, "defaults"))
}

pub(super) fn default_of(request: &Request, project: &str) -> Result<Response<Body>> {
    policy::allow(request, project)?;
    Ok(default_answer(request, project))
}

pub(super) async fn update(request: &Request, project: &str) -> Result<Response<Body>> {
    policy::allow(request, project)?;
    let spec = QuotaUpdate::decode(&request.json("quota")?)?;
    let project = project_id(project)?;
    let state = &request.state;
    let quota: Quota = state
        .store
        .change_quota(project, state.now(), |quota| quota.update(&spec))
        .await?;
    let limits = quota.effective(state.store.default_quota());
    Ok(quota_answer(StatusCode::ACCEPTED, project, &limits))
}

/// Gives every limit back to the default.
pub(super) async fn delete(request: &Request, project: &str) -> Result<Response<Body>> {
    policy::allow(request, project)?;
    if request.state.store.reset_quota(project).await? {
        Ok(empty(StatusCode::ACCEPTED))
    } else {
        Err(Fault::not_found(Resource::Quotas, project).into())
    }
}

fn default_answer(request: &Request, project: &str) -> Response<Body> {
    quota_answer(StatusCode::OK, project, request.state.store.default_quota())
}

fn quota_answer(status: StatusCode, project: &str, limits: &PerResource<i32>) -> Response<Body> {
    answer(status, &json!({"quota": view::quota(project, limits)}))
}

/// A project's id as it is stored with what the project owns.
fn project_id(text: &str) -> std::result::Result<&str, Fault> {
    if text.chars().count() <= 36 {
        return Ok(text);
    }
    Err(Fault::InvalidInput {
        field: "project_id".to_owned(),
        value: text.chars().take(255).collect(),
        reason: "Value should have a maximum character requirement of 36".to_owned(),
    })
}
