//! `Idempotency-Key`.

use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use futures_util::future::join_all;
use lb_store::testing::{FaultPlan, StoreFaults};
use serde_json::{Value, json};

use crate::log::Log;
use crate::support::{Answer, Api, MemberOf, PROJECT, SUBNET, id_of};

async fn post(api: &Api, path: &str, key: &str, body: &Value) -> Answer {
    let request = Request::post(path)
        .header("content-type", "application/json")
        .header("idempotency-key", key);
    api.send(request.body(Body::from(body.to_string())).unwrap())
        .await
}

fn full() -> Value {
    json!({"loadbalancer": {
        "vip_subnet_id": SUBNET,
        "listeners": [{
            "name": "l", "protocol": "HTTP", "protocol_port": 80,
            "default_pool": {
                "name": "p", "protocol": "HTTP", "lb_algorithm": "ROUND_ROBIN",
                "members": [{"address": "10.0.0.9", "protocol_port": 80}],
            },
        }],
    }})
}

// P18
#[tokio::test]
async fn a_load_balancer_asked_for_again_is_answered_again_in_full_and_made_once() {
    let api = Api::new().await;
    let path = "/v2/lbaas/loadbalancers";
    let first = post(&api, path, "a key", &full()).await;
    assert_eq!(first.status, 201, "{}", first.text);
    let again = post(&api, "/v2.0/loadbalancers/", "a key", &full()).await;
    assert_eq!(again.status, 201, "{}", again.text);
    assert_eq!(again.body, first.body);
    assert_eq!(api.network.ports().len(), 1);
    api.settle(id_of(&first.body["loadbalancer"])).await;
    let later = post(&api, path, "a key", &full()).await;
    assert_eq!(later.body["loadbalancer"]["provisioning_status"], "ACTIVE");
    let list = api.get(path).await;
    assert_eq!(list.body["loadbalancers"].as_array().unwrap().len(), 1);
    let other = post(&api, path, "another key", &full()).await;
    assert_ne!(
        other.body["loadbalancer"]["id"],
        first.body["loadbalancer"]["id"]
    );
}

// P18
#[tokio::test]
async fn creates_sent_at_the_same_time_with_one_key_make_one_load_balancer() {
    let api = Api::new().await;
    let path = "/v2/lbaas/loadbalancers";
    let body = full();
    let (log, _guard) = Log::start("warn");
    let calls = (0..8).map(|_| post(&api, path, "key", &body));
    let answers = join_all(calls).await;
    let mut ids: Vec<&str> = answers
        .iter()
        .map(|answer| {
            assert_eq!(answer.status, 201, "{}", answer.text);
            id_of(&answer.body["loadbalancer"])
        })
        .collect();
    ids.dedup();
    assert_eq!(ids.len(), 1);
    assert_eq!(log.text(), "");
    assert_eq!(api.network.ports().len(), 1);
    let list = api.get(path).await;
    assert_eq!(list.body["loadbalancers"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_create_whose_commit_was_lost_keeps_its_port_and_is_answered_when_it_is_sent_again() {
    let api = Api::new().await;
    let faults = StoreFaults::default();
    let lossy = api.with_faults(&faults);
    let path = "/v2/lbaas/loadbalancers";
    faults.set(FaultPlan::LoseAfterForGood(1));
    let body = full();
    let unsure = lossy.post(path, body.clone()).await;
    assert_eq!(unsure.status, 503, "{}", unsure.text);
    let list = api.get(path).await;
    let stored = &list.body["loadbalancers"][0];
    let ports = api.network.ports();
    assert_eq!(ports.len(), 1);
    assert_eq!(stored["vip_port_id"], ports[0].id.to_string());

    faults.set(FaultPlan::LoseAfterForGood(1));
    let first = post(&lossy, path, "key", &body).await;
    assert_eq!(first.status, 201, "{}", first.text);
    let again = post(&api, path, "key", &body).await;
    assert_eq!((again.status.as_u16(), &again.body), (201, &first.body));
    assert_eq!(api.network.ports().len(), 2);
}

#[tokio::test]
async fn another_request_under_a_used_key_is_a_conflict() {
    let api = Api::new().await;
    let path = "/v2/lbaas/loadbalancers";
    let first = post(&api, path, "key", &full()).await;
    assert_eq!(first.status, 201);
    let mut other = full();
    other["loadbalancer"]["name"] = json!("other");
    for (path, body) in [(path, other), ("/v2/lbaas/pools", full())] {
        let refused = post(&api, path, "key", &body).await;
        assert_eq!(refused.status, 409, "{}", refused.text);
        assert_eq!(
            refused.fault(),
            "Idempotency-Key 'key' was used for another request."
        );
    }
}

#[tokio::test]
async fn every_kind_of_object_is_made_once() {
    let api = Api::serving_everything().await;
    let lb = api.load_balancer(json!({})).await;
    let lb = id_of(&lb);
    let listener = json!({"loadbalancer_id": lb, "protocol": "HTTP", "protocol_port": 80});
    let listener = made_once(&api, lb, "/v2/lbaas/listeners", "listener", listener).await;
    let pool = json!({"loadbalancer_id": lb, "protocol": "HTTP", "lb_algorithm": "ROUND_ROBIN"});
    let pool = made_once(&api, lb, "/v2/lbaas/pools", "pool", pool).await;
    let members = format!("/v2/lbaas/pools/{}/members", id_of(&pool));
    let member = json!({"address": "10.0.0.9", "protocol_port": 80});
    made_once(&api, lb, &members, "member", member).await;
    let monitor = json!({
        "pool_id": pool["id"], "type": "HTTP", "delay": 5, "timeout": 2, "max_retries": 3,
    });
    let monitors = "/v2/lbaas/healthmonitors";
    made_once(&api, lb, monitors, "healthmonitor", monitor).await;
    let policy = json!({"listener_id": listener["id"], "action": "REJECT"});
    let policy = made_once(&api, lb, "/v2/lbaas/l7policies", "l7policy", policy).await;
    let rules = format!("/v2/lbaas/l7policies/{}/rules", id_of(&policy));
    let rule = json!({"type": "PATH", "compare_type": "STARTS_WITH", "value": "/a"});
    made_once(&api, lb, &rules, "rule", rule).await;
    for (offers, offer, profiles, profile, data, profile_id) in [
        (
            "/v2/lbaas/flavors",
            "flavor",
            "/v2/lbaas/flavorprofiles",
            "flavorprofile",
            "flavor_data",
            "flavor_profile_id",
        ),
        (
            "/v2/lbaas/availabilityzones",
            "availability_zone",
            "/v2/lbaas/availabilityzoneprofiles",
            "availability_zone_profile",
            "availability_zone_data",
            "availability_zone_profile_id",
        ),
    ] {
        let object = json!({"name": "p", "provider_name": "amphora", data: "{}"});
        let made = made_once(&api, lb, profiles, profile, object).await;
        let object = json!({"name": "o", profile_id: made["id"]});
        made_once(&api, lb, offers, offer, object.clone()).await;
        let taken = post(&api, offers, "other key", &json!({ offer: object })).await;
        assert_eq!(taken.status, 409, "{}", taken.text);
    }
}

/// Asks twice, and lets the worker finish.
async fn made_once(api: &Api, lb: &str, path: &str, root: &str, object: Value) -> Value {
    let body = json!({ root: object });
    let first = post(api, path, path, &body).await;
    assert_eq!(first.status, 201, "{path}: {}", first.text);
    let again = post(api, path, path, &body).await;
    assert_eq!(again.status, 201, "{path}: {}", again.text);
    assert_eq!(again.body, first.body, "{path}");
    api.settle(lb).await;
    first.body[root].clone()
}

#[tokio::test]
async fn a_refused_request_leaves_its_key_free_and_an_object_that_is_gone_is_not_made_again() {
    let api = Api::new().await;
    let path = "/v2/lbaas/loadbalancers";
    let wrong = json!({"loadbalancer": {"vip_subnet_id": crate::support::ABSENT}});
    for body in [&wrong, &wrong] {
        assert_eq!(post(&api, path, "key", body).await.status, 400);
    }
    let made = post(&api, path, "key", &full()).await;
    assert_eq!(made.status, 201, "{}", made.text);
    let id = id_of(&made.body["loadbalancer"]);
    api.settle(id).await;
    api.delete(&format!("{path}/{id}?cascade=true")).await;
    api.settle(id).await;
    assert_eq!(post(&api, path, "key", &full()).await.status, 404);
    assert_eq!(api.get(path).await.body["loadbalancers"], json!([]));
}

#[tokio::test]
async fn keys_are_short_printable_text_and_only_posts_have_them() {
    let api = Api::new().await;
    let path = "/v2/lbaas/loadbalancers";
    for key in ["", &"k".repeat(256), "é"] {
        let answer = post(&api, path, key, &full()).await;
        assert_eq!(answer.status, 400, "{key}");
        assert!(
            answer.fault().contains("Idempotency-Key"),
            "{}",
            answer.text
        );
    }
    let get = Request::get(path).header("idempotency-key", "key");
    let answer = api.send(get.body(Body::empty()).unwrap()).await;
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn a_key_of_one_project_says_nothing_to_another() {
    let api = Api::with(|_| {}, Arc::new(MemberOf(PROJECT))).await;
    let path = "/v2/lbaas/loadbalancers";
    let first = post(&api, path, "key", &full()).await;
    assert_eq!(first.status, 201, "{}", first.text);
    let other = api.as_caller(Arc::new(MemberOf("other")));
    let second = post(&other, path, "key", &full()).await;
    assert_eq!(second.status, 201, "{}", second.text);
    assert_ne!(
        second.body["loadbalancer"]["id"],
        first.body["loadbalancer"]["id"]
    );
}
