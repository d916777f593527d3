//! `/openapi.json`, held against what the API does.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

use crate::support::{ABSENT, Api, MemberOf, PROJECT, id_of};

async fn document(api: &Api) -> Value {
    let answer = api.get("/openapi.json").await;
    assert_eq!(answer.status, 200);
    answer.body
}

fn properties(document: &Value, schema: &str) -> BTreeSet<String> {
    document["components"]["schemas"][schema]["properties"]
        .as_object()
        .unwrap_or_else(|| panic!("schema {schema}"))
        .keys()
        .cloned()
        .collect()
}

#[tokio::test]
async fn the_document_needs_no_token() {
    let api = Api::with(|_| {}, Arc::new(MemberOf(PROJECT))).await;
    let request = Request::get("/openapi.json").header("x-auth-token", "bad");
    let answer = api.send(request.body(Body::empty()).unwrap()).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.headers["content-type"], "application/json");
    assert_eq!(answer.body["openapi"], "3.1.0");
    assert_eq!(api.call("POST", "/openapi.json", None).await.status, 405);
}

/// Every resource with a path of its collection; parents need not exist where bodies are read first.
fn collections() -> Vec<(&'static str, String)> {
    vec![
        ("loadbalancer", "/v2/lbaas/loadbalancers".to_owned()),
        ("listener", "/v2/lbaas/listeners".to_owned()),
        ("pool", "/v2/lbaas/pools".to_owned()),
        ("member", format!("/v2/lbaas/pools/{ABSENT}/members")),
        ("healthmonitor", "/v2/lbaas/healthmonitors".to_owned()),
        ("l7policy", "/v2/lbaas/l7policies".to_owned()),
        ("rule", format!("/v2/lbaas/l7policies/{ABSENT}/rules")),
        ("flavor", "/v2/lbaas/flavors".to_owned()),
        ("flavorprofile", "/v2/lbaas/flavorprofiles".to_owned()),
        (
            "availability_zone",
            "/v2/lbaas/availabilityzones".to_owned(),
        ),
        (
            "availability_zone_profile",
            "/v2/lbaas/availabilityzoneprofiles".to_owned(),
        ),
    ]
}

#[tokio::test]
async fn bodies_may_have_what_the_document_says_and_nothing_else() {
    let api = Api::new().await;
    let document = document(&api).await;
    let all: BTreeSet<String> = collections()
        .iter()
        .flat_map(|(name, _)| properties(&document, name))
        .chain(["colour".to_owned()])
        .collect();
    for (name, path) in collections() {
        for (form, method) in [("create", "POST"), ("update", "PUT")] {
            let path = match form {
                "create" => path.clone(),
                _ => format!("{path}/{ABSENT}"),
            };
            let known = properties(&document, &format!("{name}_{form}"));
            for attribute in &all {
                let body = json!({name: {attribute: []}});
                let answer = api.call(method, &path, Some(body)).await;
                // Some attributes are known, for a fully populated load balancer only.
                let unknown = answer.fault().starts_with("Unknown attribute")
                    || answer.fault().contains("within a fully populated");
                assert_eq!(
                    unknown,
                    !known.contains(attribute),
                    "{method} {path} {attribute}: {}",
                    answer.text
                );
            }
        }
    }
}

#[tokio::test]
async fn answers_have_what_the_document_says() {
    let api = Api::new().await;
    let document = document(&api).await;
    let lb = api.load_balancer(json!({})).await;
    let lb = id_of(&lb);
    let listener = json!({"loadbalancer_id": lb, "protocol": "HTTP", "protocol_port": 80});
    let pool = json!({"loadbalancer_id": lb, "protocol": "HTTP", "lb_algorithm": "ROUND_ROBIN"});
    api.create("/v2/lbaas/listeners", "listener", lb, listener)
        .await;
    let pool = api.create("/v2/lbaas/pools", "pool", lb, pool).await;
    let members = format!("/v2/lbaas/pools/{}/members", id_of(&pool));
    let member = json!({"address": "10.0.0.9", "protocol_port": 80});
    api.create(&members, "member", lb, member).await;
    let monitor = json!({
        "pool_id": pool["id"], "type": "HTTP", "delay": 5, "timeout": 2, "max_retries": 3,
    });
    api.create("/v2/lbaas/healthmonitors", "healthmonitor", lb, monitor)
        .await;
    for (kind, profiles, data) in [
        ("flavor", "flavorprofile", "flavor_data"),
        (
            "availability_zone",
            "availability_zone_profile",
            "availability_zone_data",
        ),
    ] {
        let paths: Vec<String> = [kind, profiles]
            .iter()
            .map(|name| {
                let found = collections().into_iter().find(|(known, _)| known == name);
                found.unwrap().1
            })
            .collect();
        let profile = json!({"name": "p", "provider_name": "amphora", data: "{}"});
        let profile = api.post(&paths[1], json!({ profiles: profile })).await;
        let profile_id = profile.body[profiles]["id"].clone();
        let id_name = match kind {
            "flavor" => "flavor_profile_id",
            _ => "availability_zone_profile_id",
        };
        let offer = json!({"name": "o", id_name: profile_id});
        let made = api.post(&paths[0], json!({ kind: offer })).await;
        assert_eq!(made.status, 201, "{}", made.text);
    }
    api.put("/v2/lbaas/quotas/p", json!({"quota": {}})).await;
    let mut lists: Vec<(&str, String)> = collections()
        .into_iter()
        .filter(|(name, _)| !["member", "rule", "l7policy"].contains(name))
        .collect();
    lists.push(("member", members));
    lists.push(("quota", "/v2/lbaas/quotas".to_owned()));
    lists.push(("provider", "/v2/lbaas/providers".to_owned()));
    let capabilities = "/v2/lbaas/providers/amphora/flavor_capabilities";
    lists.push(("flavor_capability", capabilities.to_owned()));
    for (name, path) in lists {
        let answer = api.get(&path).await;
        assert_eq!(answer.status, 200, "{path}");
        let list = answer.body.as_object().unwrap();
        let described = &document["paths"][path
            .replace(id_of(&pool), "{id}")
            .replace("/amphora/", "/{id}/")]["get"]["responses"]["200"]["content"]["application/json"]
            ["schema"]["properties"];
        let described: BTreeSet<&String> = described.as_object().unwrap().keys().collect();
        assert_eq!(list.keys().collect::<BTreeSet<_>>(), described, "{path}");
        let items = list.iter().find(|(key, _)| !key.ends_with("_links"));
        let object = items.unwrap().1[0].as_object().unwrap();
        let shown: BTreeSet<String> = object.keys().cloned().collect();
        assert_eq!(shown, properties(&document, name), "{path}");
    }
}
