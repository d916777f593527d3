//! `/flavors` and `/availabilityzones`: everybody reads them, administrators write them.

use axum::body::Body;
use axum::http::{Response, StatusCode};
use lb_model::spec::{OfferCreate, OfferUpdate, parse_uuid};
use lb_model::{Fault, Offer, OfferId, OfferKind};
use lb_store::{Removal, StoreError};
use serde_json::json;

use crate::fault::{ApiFault, Result, answer, empty};
use crate::page::{self, Key, Page, list_fault};
use crate::request::Request;
use crate::{once, policy, view};

pub(super) async fn list(request: &Request, kind: OfferKind) -> Result<Response<Body>> {
    let (key, name) = match kind {
        OfferKind::Flavor => (Key::Id, "flavors"),
        OfferKind::AvailabilityZone => (Key::Name, "availability_zones"),
    };
    policy::allow_own(request)?;
    let page = Page::parse_shared(request, key)?;
    let rows = request
        .state
        .store
        .list_offers(kind, &page.query)
        .await
        .map_err(|error| list_fault(error, &page.query))?;
    let items = rows.iter().map(|row| view::offer(kind, row)).collect();
    Ok(answer(StatusCode::OK, &page.answer(request, name, items)))
}

pub(super) async fn show(request: &Request, kind: OfferKind, text: &str) -> Result<Response<Body>> {
    policy::allow_own(request)?;
    let named = named(kind, text)?;
    let found = request.state.store.offer(kind, &named).await?;
    let offer = found.ok_or_else(|| missing(kind, text))?;
    let body = page::show(request, kind.root(), view::offer(kind, &offer));
    Ok(answer(StatusCode::OK, &body))
}

pub(super) async fn create(request: &Request, kind: OfferKind) -> Result<Response<Body>> {
    policy::allow_own(request)?;
    let spec = OfferCreate::decode(kind, &request.json(kind.root())?)?;
    let offer = Offer {
        id: OfferId::random(),
        name: spec.name,
        description: spec.description,
        enabled: spec.enabled,
        profile_id: spec.profile_id,
    };
    let state = &request.state;
    let named = match kind {
        OfferKind::Flavor => offer.id.to_string(),
        OfferKind::AvailabilityZone => offer.name.clone(),
    };
    let receipt = once::receipt(request, kind.root(), named);
    let stored = state
        .store
        .insert_offer(kind, &offer, receipt.as_ref(), state.now())
        .await;
    stored.map_err(|error| match error {
        StoreError::BrokenReference => Fault::InvalidReference {
            resource: match kind {
                OfferKind::Flavor => "Flavor Profile",
                OfferKind::AvailabilityZone => "Availability Zone Profile",
            },
            id: offer.profile_id.to_string(),
        }
        .into(),
        error => taken(kind, &offer.name, error),
    })?;
    let body = json!({kind.root(): view::offer(kind, &offer)});
    Ok(answer(StatusCode::CREATED, &body))
}

pub(super) async fn update(
    request: &Request,
    kind: OfferKind,
    text: &str,
) -> Result<Response<Body>> {
    policy::allow_own(request)?;
    let spec = OfferUpdate::decode(kind, &request.json(kind.root())?)?;
    let named = named(kind, text)?;
    let changed = request
        .state
        .store
        .change_offer(kind, &named, |offer| offer.update(&spec))
        .await
        .map_err(|error| taken(kind, spec.name.as_deref().unwrap_or(text), error))?;
    let offer = changed.ok_or_else(|| missing(kind, text))?;
    let body = json!({kind.root(): view::offer(kind, &offer)});
    Ok(answer(StatusCode::OK, &body))
}

pub(super) async fn delete(
    request: &Request,
    kind: OfferKind,
    text: &str,
) -> Result<Response<Body>> {
    policy::allow_own(request)?;
    let named = named(kind, text)?;
    match request.state.store.delete_offer(kind, &named).await? {
        Removal::Removed => Ok(empty(StatusCode::NO_CONTENT)),
        Removal::Absent => Err(missing(kind, text).into()),
        Removal::InUse => Err(Fault::InUse {
            resource: kind.resource(),
            id: named,
        }
        .into()),
    }
}

/// What the store knows the offer by: ids come in two spellings, and what is none is the id of nothing.
fn named(kind: OfferKind, text: &str) -> std::result::Result<String, Fault> {
    match kind {
        OfferKind::Flavor => parse_uuid(text)
            .map(|id| id.to_string())
            .ok_or_else(|| missing(kind, text)),
        OfferKind::AvailabilityZone => Ok(text.to_owned()),
    }
}

fn missing(kind: OfferKind, text: &str) -> Fault {
    Fault::not_found(kind.resource(), text)
}

fn taken(kind: OfferKind, name: &str, error: StoreError) -> ApiFault {
    match error {
        StoreError::Duplicate => Fault::AlreadyExists {
            kind: match kind {
                OfferKind::Flavor => "flavor",
                OfferKind::AvailabilityZone => "availability zone",
            },
            name: name.to_owned(),
        }
        .into(),
        error => error.into(),
    }
}
