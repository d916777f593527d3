//! `/openapi.json`: the API described by itself, as OpenAPI 3.1.
//!
//! Paths and methods come from the table of routes, bodies from one table of attributes a resource; tests hold both
//! against what the API does. Needs no token.

mod schema;

use std::sync::LazyLock;

use axum::body::{Body, Bytes};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, Method, Response};
use lb_model::OfferKind;
use serde_json::{Map, Value, json};

use self::schema::{Form, Resource, resources};
use crate::Route;

/// The answer to `GET /openapi.json`.
pub(crate) fn answer() -> Response<Body> {
    static TEXT: LazyLock<Bytes> = LazyLock::new(|| Bytes::from(document().to_string()));
    let mut response = Response::new(Body::from(TEXT.clone()));
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// What a path is about.
enum Subject {
    /// Objects of a resource.
    Collection(&'static str),
    /// One object.
    Item(&'static str),
    /// A list that only answers.
    List(&'static str),
    /// An object of its own shape; the text says what it is.
    Other(&'static str, Value),
    /// Asks for something to be done.
    Action(&'static str),
}

fn subject(route: &Route) -> Option<Subject> {
    let numbers = |names: &[&str]| {
        let properties: Map<String, Value> = names
            .iter()
            .map(|name| ((*name).to_owned(), json!({"type": "integer"})))
            .collect();
        json!({"type": "object", "properties": properties})
    };
    let stats = || {
        let names = [
            "bytes_in",
            "bytes_out",
            "active_connections",
            "total_connections",
            "request_errors",
        ];
        json!({"type": "object", "properties": {"stats": numbers(&names)}})
    };
    let object = || json!({"type": "object"});
    Some(match route {
        Route::Discovery => Subject::Other("Versions, oldest first", object()),
        Route::Healthcheck => Subject::Other("Health of this process", json!({})),
        Route::OpenApi => Subject::Other("This document", object()),
        Route::V2 => Subject::Other("The name of the version", json!({"const": "v2"})),
        Route::LoadBalancers => Subject::Collection("loadbalancer"),
        Route::LoadBalancer(_) => Subject::Item("loadbalancer"),
        Route::LoadBalancerStats(_) => Subject::Other("Statistics of a load balancer", stats()),
        Route::LoadBalancerStatus(_) => {
            Subject::Other("Statuses of a load balancer and all below it", object())
        }
        Route::LoadBalancerFailover(_) => Subject::Action("Replace every amphora"),
        Route::LoadBalancerReconcile(_) => Subject::Other(
            "What the control plane last did for a load balancer",
            object(),
        ),
        Route::Listeners => Subject::Collection("listener"),
        Route::Listener(_) => Subject::Item("listener"),
        Route::ListenerStats(_) => Subject::Other("Statistics of a listener", stats()),
        Route::Pools => Subject::Collection("pool"),
        Route::Pool(_) => Subject::Item("pool"),
        Route::Members(_) => Subject::Collection("member"),
        Route::Member(..) => Subject::Item("member"),
        Route::HealthMonitors => Subject::Collection("healthmonitor"),
        Route::HealthMonitor(_) => Subject::Item("healthmonitor"),
        Route::L7Policies => Subject::Collection("l7policy"),
        Route::L7Policy(_) => Subject::Item("l7policy"),
        Route::L7Rules(_) => Subject::Collection("rule"),
        Route::L7Rule(..) => Subject::Item("rule"),
        Route::Amphorae => Subject::List("amphora"),
        Route::Amphora(_) => Subject::Item("amphora"),
        Route::AmphoraStats(_) => Subject::Other("Statistics of an amphora by listener", object()),
        Route::AmphoraFailover(_) => Subject::Action("Replace an amphora"),
        Route::AmphoraConfig(_) => Subject::Action("Hand an amphora its settings again"),
        Route::Quotas => Subject::List("quota"),
        Route::QuotaDefaults => Subject::Item("quota"),
        Route::Quota(_) => Subject::Item("quota"),
        Route::QuotaDefault(_) => Subject::Item("quota"),
        Route::Providers => Subject::List("provider"),
        Route::ProviderOptions(_, OfferKind::Flavor) => Subject::List("flavor_capability"),
        Route::ProviderOptions(_, OfferKind::AvailabilityZone) => {
            Subject::List("availability_zone_capability")
        }
        Route::Offers(kind) => Subject::Collection(kind.root()),
        Route::Offer(kind, _) => Subject::Item(kind.root()),
        Route::Profiles(kind) => Subject::Collection(kind.profile_root()),
        Route::Profile(kind, _) => Subject::Item(kind.profile_root()),
        // Of another service, where the API stands in for it.
        Route::Networks
        | Route::Network(_)
        | Route::Subnets
        | Route::Subnet(_)
        | Route::Ports
        | Route::Port(_)
        | Route::Extensions => return None,
    })
}

fn document() -> Value {
    let resources = resources();
    let mut paths = Map::new();
    for (route, path) in Route::samples("{id}") {
        let Some(subject) = subject(&route) else {
            continue;
        };
        let (path, parameters) = template(&path);
        let mut item = Map::new();
        for method in route.methods() {
            let operation = operation(&route, &subject, method, &resources, &path);
            item.insert(method.as_str().to_ascii_lowercase(), operation);
        }
        if !parameters.is_empty() {
            item.insert("parameters".to_owned(), Value::Array(parameters));
        }
        paths.insert(path, Value::Object(item));
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Load balancing API, version 2",
            "version": "2.30",
            "description": "Compatible with Octavia. Each path below /v2/lbaas is also at /v2, /v2.0 and /v2.0/lbaas.",
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "token": {"type": "apiKey", "in": "header", "name": "X-Auth-Token"},
            },
            "schemas": schemas(&resources),
            "responses": {"Fault": {
                "description": "Refused",
                "content": {"application/json": {"schema": {"anyOf": [
                    {"$ref": "#/components/schemas/Fault"},
                    {"$ref": "#/components/schemas/RoutingFault"},
                    {"$ref": "#/components/schemas/IdentityFault"},
                ]}}},
            }},
        },
    })
}

/// A path with its parameters named, and the parameters.
fn template(sample: &str) -> (String, Vec<Value>) {
    let parts: Vec<&str> = sample.split("{id}").collect();
    let names: &[&str] = match parts.len() {
        3 => &["parent_id", "id"],
        2 => &["id"],
        _ => &[],
    };
    let mut path = String::new();
    for (index, part) in parts.iter().enumerate() {
        path.push_str(part);
        if let Some(name) = names.get(index) {
            path.push_str(&format!("{{{name}}}"));
        }
    }
    let parameters = names
        .iter()
        .map(|name| {
            json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}})
        })
        .collect();
    (path, parameters)
}

fn operation(
    route: &Route,
    subject: &Subject,
    method: &Method,
    resources: &[Resource],
    path: &str,
) -> Value {
    let mut operation = json!({
        "operationId": operation_id(method, path),
        "responses": {"default": {"$ref": "#/components/responses/Fault"}},
    });
    if !route.needs_authentication() {
        operation["security"] = json!([]);
    }
    let (status, description, content) = match (subject, method.as_str()) {
        (Subject::Collection(name) | Subject::List(name), "GET") => {
            operation["parameters"] = list_parameters(name, resources);
            (
                "200",
                format!("Objects: {name}"),
                Some(list_of(name, resources)),
            )
        }
        (Subject::Collection(name), "POST") => {
            operation["requestBody"] = body(name, Form::Create);
            operation["parameters"] = json!([{
                "name": "Idempotency-Key", "in": "header", "schema": {"type": "string", "maxLength": 255},
                "description": "The same request again under the same key within a day creates nothing more",
            }]);
            ("201", format!("The new {name}"), Some(one(name)))
        }
        (Subject::Collection(_), _) => {
            let items = json!({"$ref": "#/components/schemas/member_create"});
            operation["requestBody"] = json!({"required": true, "content": {"application/json": {
                "schema": {"type": "object", "properties": {"members": {"type": "array", "items": items}},
                    "required": ["members"]},
            }}});
            operation["parameters"] = json!([{
                "name": "additive_only", "in": "query", "schema": {"type": "boolean"},
            }]);
            ("202", "The members become these".to_owned(), None)
        }
        (Subject::Item(name), "GET") => {
            operation["parameters"] = fields_of(name);
            ("200", format!("The {name}"), Some(one(name)))
        }
        (Subject::Item(name), "PUT") => {
            operation["requestBody"] = body(name, Form::Update);
            let status = if *name == "quota" { "202" } else { "200" };
            (
                status,
                format!("The {name} as it is to be"),
                Some(one(name)),
            )
        }
        (Subject::Item(name), _) => {
            if *name == "loadbalancer" {
                operation["parameters"] = json!([{
                    "name": "cascade", "in": "query", "schema": {"type": "boolean"},
                }]);
            }
            let status = if *name == "quota" { "202" } else { "204" };
            (status, format!("The {name} goes"), None)
        }
        (Subject::Action(what), _) => ("202", (*what).to_owned(), None),
        (Subject::Other(what, _), "HEAD") => ("204", (*what).to_owned(), None),
        (Subject::Other(what, schema), _) => ("200", (*what).to_owned(), Some(schema.clone())),
        (Subject::List(name), _) => ("200", format!("Objects: {name}"), None),
    };
    let mut response = json!({"description": description});
    if let Some(schema) = content {
        response["content"] = json!({"application/json": {"schema": schema}});
    }
    operation["responses"][status] = response;
    operation
}

fn operation_id(method: &Method, path: &str) -> String {
    let words: Vec<&str> = path
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .collect();
    format!(
        "{}_{}",
        method.as_str().to_ascii_lowercase(),
        words.join("_")
    )
}

fn one(name: &str) -> Value {
    json!({"type": "object", "properties": {name: {"$ref": format!("#/components/schemas/{name}")}}})
}

fn list_of(name: &str, resources: &[Resource]) -> Value {
    let mut properties = Map::new();
    if let Some(resource) = resources.iter().find(|resource| resource.name == name) {
        let items = json!({"$ref": format!("#/components/schemas/{name}")});
        let list = json!({"type": "array", "items": items});
        properties.insert(resource.plural.to_owned(), list);
        if let Some(links) = resource.links {
            let link = json!({"$ref": "#/components/schemas/Link"});
            properties.insert(links.to_owned(), json!({"type": "array", "items": link}));
        }
    }
    json!({"type": "object", "properties": properties})
}

fn body(name: &str, form: Form) -> Value {
    let schema = format!("#/components/schemas/{name}_{}", suffix(form));
    json!({"required": true, "content": {"application/json": {"schema": {
        "type": "object",
        "properties": {name: {"$ref": schema}},
        "required": [name],
        "additionalProperties": false,
    }}}})
}

const fn suffix(form: Form) -> &'static str {
    match form {
        Form::Create => "create",
        Form::Update => "update",
        Form::Answer => "answer",
    }
}

/// A parameter of its own for what selects fields; quotas are shown whole.
fn fields_of(name: &str) -> Value {
    if name == "quota" {
        return json!([]);
    }
    json!([{
        "name": "fields", "in": "query", "explode": true,
        "schema": {"type": "array", "items": {"type": "string"}},
        "description": "Only these attributes",
    }])
}

fn list_parameters(name: &str, resources: &[Resource]) -> Value {
    let text = |name: &str, description: &str| json!({"name": name, "in": "query", "description": description, "schema": {"type": "string"}});
    let mut parameters = fields_of(name);
    let paged = resources
        .iter()
        .any(|resource| resource.name == name && resource.links.is_some());
    if let Some(list) = parameters.as_array_mut().filter(|_| paged) {
        list.extend([
            text("limit", "Objects of a page at most"),
            text("marker", "The object the page starts after"),
            text("page_reverse", "`True`: the page before the marker"),
            text("sort", "key[:asc|desc], several with commas"),
            json!({
                "name": "filters", "in": "query", "style": "form", "explode": true,
                "description": "Any attribute and the value it must have; tags, tags-any, not-tags, not-tags-any",
                "schema": {"type": "object", "additionalProperties": {"type": "string"}},
            }),
        ]);
    }
    parameters
}

fn schemas(resources: &[Resource]) -> Map<String, Value> {
    let mut schemas = Map::new();
    for resource in resources {
        schemas.insert(resource.name.to_owned(), resource.schema(Form::Answer));
        for form in [Form::Create, Form::Update] {
            let name = format!("{}_{}", resource.name, suffix(form));
            schemas.insert(name, resource.schema(form));
        }
    }
    let text = || json!({"type": "string"});
    for (name, schema) in [
        (
            "Fault",
            json!({"type": "object", "required": ["faultcode", "faultstring", "debuginfo"], "properties": {
                "faultcode": {"enum": ["Client", "Server"]}, "faultstring": text(),
                "debuginfo": {"type": "null"},
            }}),
        ),
        (
            "RoutingFault",
            json!({"type": "object", "required": ["code", "title", "description"], "properties": {
                "code": {"type": "integer"}, "title": text(), "description": text(),
            }}),
        ),
        (
            "IdentityFault",
            json!({"type": "object", "required": ["error"], "properties": {"error": {"type": "object"}}}),
        ),
        (
            "Link",
            json!({"type": "object", "properties": {
                "rel": {"enum": ["next", "previous"]}, "href": text(),
            }}),
        ),
    ] {
        schemas.insert(name.to_owned(), schema);
    }
    schemas
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_route_and_method_is_described() {
        let document = document();
        let mut described = 0;
        for (route, path) in Route::samples("{id}") {
            if route.is_network_service() {
                continue;
            }
            let (path, _) = template(&path);
            let item = document["paths"][&path].as_object().expect(&path);
            let methods: BTreeSet<String> = item
                .keys()
                .filter(|key| *key != "parameters")
                .cloned()
                .collect();
            let expected: BTreeSet<String> = route
                .methods()
                .iter()
                .map(|method| method.as_str().to_ascii_lowercase())
                .collect();
            assert_eq!(methods, expected, "{path}");
            described += 1;
        }
        assert_eq!(described, document["paths"].as_object().map_or(0, Map::len));
    }

    #[test]
    fn every_reference_has_its_target_and_every_operation_a_name_of_its_own() {
        fn walk(value: &Value, found: &mut Vec<(String, String)>) {
            match value {
                Value::Object(map) => {
                    for (key, value) in map {
                        if let ("$ref" | "operationId", Value::String(text)) = (key.as_str(), value)
                        {
                            found.push((key.clone(), text.clone()));
                        }
                        walk(value, found);
                    }
                }
                Value::Array(items) => items.iter().for_each(|item| walk(item, found)),
                _ => {}
            }
        }
        let document = document();
        let mut found = Vec::new();
        walk(&document, &mut found);
        let mut ids = BTreeSet::new();
        for (key, text) in found {
            if key == "$ref" {
                let pointer = text.strip_prefix('#').expect("a local reference");
                assert!(document.pointer(pointer).is_some(), "{text}");
            } else {
                assert!(ids.insert(text.clone()), "{text}");
            }
        }
        assert!(ids.len() > 60, "{}", ids.len());
    }
}
