//! What the log says of writes, and which ids its lines carry.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use lb_api::RemoteAddress;
use serde_json::{Value, json};

use crate::log::Log;
use crate::support::{Answer, Api, MemberOf, SUBNET, id_of};

const LOAD_BALANCERS: &str = "/v2/lbaas/loadbalancers";
const GLOBAL: &str = "req-8f2b7a4e-1c3d-4e5f-8a9b-0c1d2e3f4a5b";

async fn send(api: &Api, method: &str, path: &str, token: &str, body: Value) -> Answer {
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header("x-auth-token", token)
        .header("x-openstack-request-id", GLOBAL)
        .body(Body::from(body.to_string()))
        .unwrap();
    let from: SocketAddr = "192.0.2.7:4711".parse().unwrap();
    request.extensions_mut().insert(RemoteAddress(from));
    api.send(request).await
}

#[tokio::test]
async fn every_write_is_recorded_once_with_who_what_and_outcome_and_nothing_of_the_body() {
    let api = Api::with(|_| {}, Arc::new(MemberOf("blue"))).await;
    let (log, _guard) = Log::start("error,audit=info");
    let object = json!({"vip_subnet_id": SUBNET, "name": "hunter2"});
    let body = json!({"loadbalancer": object});
    let created = send(&api, "POST", LOAD_BALANCERS, "t0ken", body).await;
    assert_eq!(created.status, 201, "{}", created.text);
    let id = id_of(&created.body["loadbalancer"]).to_owned();
    let path = format!("{LOAD_BALANCERS}/{id}");
    send(&api, "GET", &path, "t0ken", Value::Null).await;
    let conflict = json!({"loadbalancer": {"name": "hunter2"}});
    send(&api, "PUT", &path, "t0ken", conflict).await;
    let failover = format!("{path}/failover");
    send(&api, "PUT", &failover, "t0ken", Value::Null).await;
    send(&api, "DELETE", &path, "bad", Value::Null).await;
    send(&api, "POST", "/nowhere", "t0ken", Value::Null).await;

    let found: Vec<Value> = log
        .records()
        .iter()
        .map(|record| {
            let fields = &record["fields"];
            assert_eq!(fields["target_id"], id);
            assert_eq!(fields["initiator_address"], "192.0.2.7");
            assert_eq!(record["span"]["global_request_id"], GLOBAL);
            json!([
                fields["action"],
                fields["target_type_uri"],
                fields["outcome"],
                fields["reason_code"],
                fields["initiator_id"],
                fields["initiator_project_id"],
                fields["initiator_roles"],
            ])
        })
        .collect();
    let what = "service/load-balancer/loadbalancer";
    assert_eq!(
        found,
        [
            json!(["create", what, "success", 201, "user", "blue", 1]),
            json!(["update", what, "failure", 409, "user", "blue", 1]),
            json!(["update/failover", what, "failure", 403, "user", "blue", 1]),
            json!(["delete", what, "failure", 401, null, null, null]),
        ]
    );
    let request_id = created.headers["x-openstack-request-id"].to_str().unwrap();
    assert_eq!(log.records()[0]["span"]["request_id"], request_id);
    for secret in ["hunter2", "t0ken"] {
        assert!(!log.text().contains(secret), "{}", log.text());
    }
}

// P16
#[tokio::test]
async fn a_failover_is_one_record() {
    let api = Api::new().await;
    let lb = api.load_balancer(json!({})).await;
    let (log, _guard) = Log::start("error,audit=info");
    let path = format!("{LOAD_BALANCERS}/{}/failover", id_of(&lb));
    assert_eq!(api.call("PUT", &path, None).await.status, 202);
    let records = log.records();
    assert_eq!(records.len(), 1, "{}", log.text());
    assert_eq!(records[0]["fields"]["action"], "update/failover");
    assert_eq!(records[0]["fields"]["outcome"], "success");
}

#[tokio::test]
async fn an_availability_zone_is_recorded_by_its_name_from_create_to_delete() {
    let api = Api::new().await;
    let profile = json!({
        "name": "p", "provider_name": "amphora", "availability_zone_data": "{}",
    });
    let body = json!({"availability_zone_profile": profile});
    let profile = api.post("/v2/lbaas/availabilityzoneprofiles", body).await;
    let profile_id = id_of(&profile.body["availability_zone_profile"]);
    let (log, _guard) = Log::start("error,audit=info");
    let zones = "/v2/lbaas/availabilityzones";
    let zone = json!({"name": "west", "availability_zone_profile_id": profile_id});
    let created = api.post(zones, json!({"availability_zone": zone})).await;
    assert_eq!(created.status, 201, "{}", created.text);
    api.delete(&format!("{zones}/west")).await;
    let found: Vec<Value> = log
        .records()
        .iter()
        .map(|record| json!([record["fields"]["action"], record["fields"]["target_id"]]))
        .collect();
    assert_eq!(
        found,
        [json!(["create", "west"]), json!(["delete", "west"])]
    );
}

#[tokio::test]
async fn only_an_id_of_the_right_form_is_taken_over_and_every_line_has_ids_whatever_is_logged() {
    let api = Api::new().await;
    let (log, _guard) = Log::start("warn");
    for (given, expected) in [
        (GLOBAL, json!(GLOBAL)),
        ("req-", Value::Null),
        ("8f2b7a4e-1c3d-4e5f-8a9b-0c1d2e3f4a5b", Value::Null),
        ("req-8f2b7a4e1c3d4e5f8a9b0c1d2e3f4a5b", Value::Null),
        ("req-8f2b7a4e-1c3d-4e5f-8a9b-0c1d2e3f4a5b x=1", Value::Null),
    ] {
        // The network service is away: that is a warning.
        api.network
            .away
            .store(true, std::sync::atomic::Ordering::SeqCst);
        let body = json!({"loadbalancer": {"vip_subnet_id": SUBNET}});
        let request = Request::builder()
            .method("POST")
            .uri(LOAD_BALANCERS)
            .header("x-openstack-request-id", given)
            .body(Body::from(body.to_string()))
            .unwrap();
        let answer = api.send(request).await;
        assert_eq!(answer.status, 503, "{}", answer.text);
        let lines = log.lines();
        let span = &lines.last().unwrap()["span"];
        assert_eq!(span["global_request_id"], expected, "{given}");
        let own = answer.headers["x-openstack-request-id"].to_str().unwrap();
        assert_eq!(span["request_id"], own);
        assert_ne!(own, given);
    }
}

#[tokio::test]
async fn a_write_whose_caller_hangs_up_is_finished_and_recorded() {
    let api = Api::new().await;
    let (log, _guard) = Log::start("error,audit=info");
    let body = json!({"loadbalancer": {"vip_subnet_id": SUBNET}});
    tokio::select! {
        biased;
        answer = api.post(LOAD_BALANCERS, body) => panic!("answered at once: {}", answer.text),
        () = std::future::ready(()) => {}
    }
    let recorded = async {
        while log.records().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), recorded)
        .await
        .unwrap();
    assert_eq!(log.records()[0]["fields"]["outcome"], "success");
    let listed = api.get(LOAD_BALANCERS).await;
    assert_eq!(
        listed.body["loadbalancers"].as_array().map(Vec::len),
        Some(1)
    );
}
