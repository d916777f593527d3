//! Networks, subnets and ports as the network service would show them: read-only, for a stack that has none beside
//! it, so that the stock client finds names and ids at the one endpoint it is given.

use std::collections::BTreeSet;

use axum::body::Body;
use axum::http::{Response, StatusCode};
use lb_drivers::DriverError;
use lb_drivers::network::{Port, PortFilter, Subnet, TenantNetwork};
use lb_model::spec::parse_uuid;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::Route;
use crate::fault::{ApiFault, Result, answer};
use crate::request::Request;

/// Parameters that shape a list; every other one is a filter.
const CONTROL: [&str; 6] = [
    "limit",
    "marker",
    "page_reverse",
    "sort_key",
    "sort_dir",
    "fields",
];

/// Ids of one request: each is a question to the driver.
const MOST_IDS: usize = 100;

pub(crate) async fn handle(request: &Request, route: &Route) -> Result<Response<Body>> {
    let network = &request.state.network;
    let body = match route {
        Route::Networks => {
            let one = |id: Uuid| network.network(id.into());
            let found = find(request, network.list_networks(), one).await?;
            list(request, "networks", found.iter().map(view_network))?
        }
        Route::Network(id) => {
            let found = match parse_uuid(id) {
                Some(uuid) => network.network(uuid.into()).await?,
                None => None,
            };
            let view = found.as_ref().map(view_network);
            show(request, "network", "NetworkNotFound", id, view)?
        }
        Route::Subnets => {
            let one = |id: Uuid| network.subnet(id.into());
            let found = find(request, network.list_subnets(), one).await?;
            list(request, "subnets", found.iter().map(view_subnet))?
        }
        Route::Subnet(id) => {
            let found = match parse_uuid(id) {
                Some(uuid) => network.subnet(uuid.into()).await?,
                None => None,
            };
            let view = found.as_ref().map(view_subnet);
            show(request, "subnet", "SubnetNotFound", id, view)?
        }
        Route::Ports => {
            let filter = PortFilter::default();
            let one = |id: Uuid| network.port(id.into());
            let found = find(request, network.list_ports(&filter), one).await?;
            list(request, "ports", found.iter().map(view_port))?
        }
        Route::Port(id) => {
            let found = match parse_uuid(id) {
                Some(uuid) => network.port(uuid.into()).await?,
                None => None,
            };
            let view = found.as_ref().map(view_port);
            show(request, "port", "PortNotFound", id, view)?
        }
        // No extension of the network API is offered.
        _ => json!({"extensions": []}),
    };
    Ok(answer(StatusCode::OK, &body))
}

/// What a list is of: all there is, or the objects of the ids it is filtered by.
async fn find<T, F>(
    request: &Request,
    all: impl Future<Output = std::result::Result<Vec<T>, DriverError>>,
    one: impl Fn(Uuid) -> F,
) -> Result<Vec<T>>
where
    F: Future<Output = std::result::Result<Option<T>, DriverError>>,
{
    let Some(ids) = ids(request)? else {
        return Ok(all.await?);
    };
    let mut found = Vec::new();
    for id in ids {
        found.extend(one(id).await?);
    }
    Ok(found)
}

/// Another project's object is as good as absent; one without a project is everybody's.
fn sees(request: &Request, item: &Value) -> bool {
    let (owner, caller) = (&item["project_id"], &request.caller);
    owner == ""
        || caller.project_id.as_deref().is_some_and(|own| owner == own)
        || request.state.policy.is_admin(caller)
}

fn show(
    request: &Request,
    root: &str,
    kind: &'static str,
    id: &str,
    found: Option<Value>,
) -> Result<Value> {
    let id: String = id.chars().take(255).collect();
    let seen = found.filter(|item| sees(request, item));
    let item = seen.ok_or_else(|| ApiFault::network_not_found(kind, &id))?;
    Ok(json!({root: item}))
}

/// The ids that a list is filtered by, each once: these objects are asked for by id, which also finds what the driver
/// does not list. `None` without such a filter; what is no UUID is the id of nothing.
fn ids(request: &Request) -> Result<Option<BTreeSet<Uuid>>> {
    let given: Vec<&str> = request
        .query
        .iter()
        .filter(|(name, _)| name == "id")
        .map(|(_, value)| value.as_str())
        .collect();
    if given.is_empty() {
        return Ok(None);
    }
    let ids: BTreeSet<Uuid> = given.into_iter().filter_map(parse_uuid).collect();
    if ids.len() > MOST_IDS {
        return Err(ApiFault::network_invalid(format!(
            "More than {MOST_IDS} values of the filter id."
        )));
    }
    Ok(Some(ids))
}

/// A filter that is given more than once holds when one of its values does.
fn list(request: &Request, root: &str, found: impl Iterator<Item = Value>) -> Result<Value> {
    let mut items: Vec<Value> = found.filter(|item| sees(request, item)).collect();
    let known: Vec<String> = items
        .first()
        .and_then(Value::as_object)
        .map(|item| item.keys().cloned().collect())
        .unwrap_or_default();
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in &request.query {
        if !CONTROL.contains(&name.as_str()) && !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    for name in names {
        if !items.is_empty() && !known.iter().any(|key| key == name) {
            let name: String = name.chars().take(255).collect();
            return Err(ApiFault::network_invalid(format!("Unknown filter {name}.")));
        }
        let values: Vec<&str> = request
            .query
            .iter()
            .filter(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
            .collect();
        items.retain(|item| values.iter().any(|value| matches(&item[name], value)));
    }
    items.sort_by(|a, b| a["id"].as_str().cmp(&b["id"].as_str()));
    if let Some(marker) = request.parameter("marker") {
        match items.iter().position(|item| item["id"] == marker) {
            Some(position) => drop(items.drain(..=position)),
            None => items.clear(),
        }
    }
    let limit = request
        .parameter("limit")
        .and_then(|text| text.parse().ok())
        .filter(|limit| *limit > 0);
    if let Some(limit) = limit {
        items.truncate(limit);
    }
    let fields: Vec<&str> = request
        .query
        .iter()
        .filter(|(name, _)| name == "fields")
        .map(|(_, value)| value.as_str())
        .collect();
    let items: Vec<Value> = items
        .into_iter()
        .map(|item| select(item, &fields))
        .collect();
    Ok(json!({root: items}))
}

fn select(item: Value, fields: &[&str]) -> Value {
    match item {
        Value::Object(map) if !fields.is_empty() => Value::Object(
            map.into_iter()
                .filter(|(key, _)| fields.contains(&key.as_str()))
                .collect::<Map<_, _>>(),
        ),
        item => item,
    }
}

/// `fixed_ips=subnet_id=X` and `fixed_ips=ip_address=X` look into the addresses of a port.
fn matches(value: &Value, text: &str) -> bool {
    match value {
        Value::String(own) => own == text,
        Value::Bool(own) => lb_model::spec::lenient_bool(text) == Some(*own),
        Value::Number(own) => own.to_string() == text,
        Value::Null => text.is_empty(),
        Value::Array(items) => items.iter().any(|item| match (item, text.split_once('=')) {
            (Value::Object(map), Some((key, text))) => map.get(key).is_some_and(|own| own == text),
            (item, _) => item == text,
        }),
        Value::Object(_) => false,
    }
}

fn view_network(item: &TenantNetwork) -> Value {
    json!({
        "id": item.id,
        "name": item.name,
        "description": "",
        "admin_state_up": true,
        "status": "ACTIVE",
        "mtu": item.mtu_bytes,
        "project_id": item.project_id.as_deref().unwrap_or_default(),
        "tenant_id": item.project_id.as_deref().unwrap_or_default(),
        "shared": item.project_id.is_none(),
        "router:external": false,
        "port_security_enabled": true,
        "subnets": item.subnets,
        "tags": [],
    })
}

fn view_subnet(item: &Subnet) -> Value {
    let pools: Vec<Value> = item
        .allocation_pools
        .iter()
        .map(|(start, end)| json!({"start": start, "end": end}))
        .collect();
    json!({
        "id": item.id,
        "name": item.name,
        "description": "",
        "network_id": item.network_id,
        "project_id": item.project_id.as_deref().unwrap_or_default(),
        "tenant_id": item.project_id.as_deref().unwrap_or_default(),
        "cidr": item.cidr,
        "ip_version": item.ip_version(),
        "gateway_ip": item.gateway_ip,
        "enable_dhcp": false,
        "allocation_pools": pools,
        "host_routes": item.host_routes,
        "dns_nameservers": [],
        "tags": [],
    })
}

fn view_port(item: &Port) -> Value {
    let pairs: Vec<Value> = item
        .allowed_address_pairs
        .iter()
        .map(|address| json!({"ip_address": address, "mac_address": item.mac_address}))
        .collect();
    json!({
        "id": item.id,
        "name": item.name,
        "description": "",
        "network_id": item.network_id,
        "mac_address": item.mac_address,
        "fixed_ips": item.fixed_ips,
        "device_id": item.device_id,
        "device_owner": item.device_owner,
        "project_id": item.project_id.as_deref().unwrap_or_default(),
        "tenant_id": item.project_id.as_deref().unwrap_or_default(),
        "allowed_address_pairs": pairs,
        "admin_state_up": item.admin_state_up,
        "status": if item.admin_state_up { "ACTIVE" } else { "DOWN" },
        "port_security_enabled": true,
        "security_groups": [],
        "tags": [],
    })
}
