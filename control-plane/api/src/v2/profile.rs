//! `/flavorprofiles` and `/availabilityzoneprofiles`, for administrators.

use axum::body::Body;
use axum::http::{Response, StatusCode};
use lb_model::spec::{ProfileCreate, ProfileUpdate};
use lb_model::{Fault, FlavorData, OfferKind, Profile, ProfileId, ZoneData};
use lb_store::Removal;
use serde_json::json;

use crate::fault::{Result, answer, empty};
use crate::page::{self, Key, Page, list_fault};
use crate::request::{Request, id};
use crate::{ApiState, once, policy, view};

pub(super) async fn list(request: &Request, kind: OfferKind) -> Result<Response<Body>> {
    policy::allow_own(request)?;
    let page = Page::parse_shared(request, Key::Id)?;
    let rows = request
        .state
        .store
        .list_profiles(kind, &page.query)
        .await
        .map_err(|error| list_fault(error, &page.query))?;
    let items = rows.iter().map(|row| view::profile(kind, row)).collect();
    let root = kind.profile_root();
    let (name, links) = (format!("{root}s"), format!("{root}_links"));
    let body = page.answer_linked(request, &name, &links, items);
    Ok(answer(StatusCode::OK, &body))
}

pub(super) async fn show(request: &Request, kind: OfferKind, text: &str) -> Result<Response<Body>> {
    policy::allow_own(request)?;
    let id: ProfileId = id(kind.profile_resource(), text)?;
    let found = request.state.store.profile(kind, id).await?;
    let profile = found.ok_or_else(|| missing(kind, text))?;
    let body = page::show(request, kind.profile_root(), view::profile(kind, &profile));
    Ok(answer(StatusCode::OK, &body))
}

pub(super) async fn create(request: &Request, kind: OfferKind) -> Result<Response<Body>> {
    policy::allow_own(request)?;
    let spec = ProfileCreate::decode(kind, &request.json(kind.profile_root())?)?;
    let profile = Profile {
        id: ProfileId::random(),
        name: spec.name,
        provider_name: spec.provider_name,
        data: spec.data,
    };
    let state = &request.state;
    check(state, kind, &profile).await?;
    let receipt = once::receipt(request, kind.profile_root(), profile.id);
    state
        .store
        .insert_profile(kind, &profile, receipt.as_ref(), state.now())
        .await?;
    let body = json!({kind.profile_root(): view::profile(kind, &profile)});
    Ok(answer(StatusCode::CREATED, &body))
}

pub(super) async fn update(
    request: &Request,
    kind: OfferKind,
    text: &str,
) -> Result<Response<Body>> {
    policy::allow_own(request)?;
    let spec = ProfileUpdate::decode(kind, &request.json(kind.profile_root())?)?;
    let id: ProfileId = id(kind.profile_resource(), text)?;
    let state = &request.state;
    let found = state.store.profile(kind, id).await?;
    let mut wanted = found.ok_or_else(|| missing(kind, text))?;
    wanted.update(kind, &spec, false)?;
    check(state, kind, &wanted).await?;
    let changed = state
        .store
        .change_profile(kind, id, |profile, in_use| {
            profile.update(kind, &spec, in_use)
        })
        .await?;
    let profile = changed.ok_or_else(|| missing(kind, text))??;
    let body = json!({kind.profile_root(): view::profile(kind, &profile)});
    Ok(answer(StatusCode::OK, &body))
}

pub(super) async fn delete(
    request: &Request,
    kind: OfferKind,
    text: &str,
) -> Result<Response<Body>> {
    policy::allow_own(request)?;
    let id: ProfileId = id(kind.profile_resource(), text)?;
    match request.state.store.delete_profile(kind, id).await? {
        Removal::Removed => Ok(empty(StatusCode::NO_CONTENT)),
        Removal::Absent => Err(missing(kind, text).into()),
        Removal::InUse => Err(Fault::InUse {
            resource: kind.profile_resource(),
            id: id.to_string(),
        }
        .into()),
    }
}

fn missing(kind: OfferKind, text: &str) -> Fault {
    Fault::not_found(kind.profile_resource(), text)
}

/// That the provider is enabled, has the options, and that the networks they name exist.
async fn check(state: &ApiState, kind: OfferKind, profile: &Profile) -> Result<()> {
    let provider = super::provider::enabled(state, &profile.provider_name)?;
    match kind {
        OfferKind::Flavor => {
            FlavorData::parse(&profile.data, &provider.name)?.check(provider)?;
        }
        OfferKind::AvailabilityZone => {
            let data = ZoneData::parse(&profile.data, &provider.name)?;
            for network in data.networks() {
                if state.network.network(network).await?.is_none() {
                    return Err(Fault::UnsupportedOption {
                        provider: provider.name.clone(),
                        detail: format!("there is no network {network}"),
                    }
                    .into());
                }
            }
        }
    }
    Ok(())
}
