//! `/providers`, and what their flavors and availability zones may set.

use axum::body::Body;
use axum::http::{Response, StatusCode};
use lb_model::{Fault, OfferKind, Provider};
use serde_json::{Value, json};

use crate::fault::{Result, answer};
use crate::request::Request;
use crate::{ApiState, page, policy};

pub(super) fn list(request: &Request) -> Result<Response<Body>> {
    policy::allow_own(request)?;
    let providers = request.state.config.rules.providers.iter();
    let items = providers.map(|item| (item.name.as_str(), item.description.as_str()));
    Ok(described(request, "providers", items))
}

/// `name` and `description` filter; nothing else does.
pub(super) fn options(request: &Request, name: &str, kind: OfferKind) -> Result<Response<Body>> {
    policy::allow_own(request)?;
    enabled(&request.state, name)?;
    let asked = |parameter: &str, value: &str| {
        request
            .parameter(parameter)
            .is_none_or(|asked| asked == value)
    };
    let items = kind
        .options()
        .iter()
        .map(|option| (option.name, option.description))
        .filter(|(name, description)| asked("name", name) && asked("description", description));
    let root = match kind {
        OfferKind::Flavor => "flavor_capabilities",
        OfferKind::AvailabilityZone => "availability_zone_capabilities",
    };
    Ok(described(request, root, items))
}

/// A provider that may be asked for.
pub(crate) fn enabled<'a>(
    state: &'a ApiState,
    name: &str,
) -> std::result::Result<&'a Provider, Fault> {
    let found = state.config.rules.provider(name);
    found.ok_or_else(|| Fault::ProviderNotEnabled(name.to_owned()))
}

/// A list without pages and links.
fn described<'a>(
    request: &Request,
    root: &str,
    items: impl Iterator<Item = (&'a str, &'a str)>,
) -> Response<Body> {
    let items: Vec<Value> = items
        .map(|(name, description)| {
            page::fields_of(request, json!({"name": name, "description": description}))
        })
        .collect();
    answer(StatusCode::OK, &json!({ root: items }))
}
