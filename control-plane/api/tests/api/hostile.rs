//! Bodies that are wrong in one or two places, ten thousand of them: each is refused with a fault, or was not wrong.

use lb_drivers::Network;
use serde_json::{Map, Value, json};

use crate::support::{Api, SUBNET, id_of};

/// Values that fit nowhere, or only here and there.
fn odd_values() -> Vec<Value> {
    vec![
        json!(null),
        json!(true),
        json!(-1),
        json!(0),
        json!(1.5),
        json!(65536),
        json!(9_223_372_036_854_775_807_i64),
        json!(18_446_744_073_709_551_615_u64),
        json!(1e300),
        json!(""),
        json!("\u{0}"),
        json!("a\r\nX-Injected: b"),
        json!("\u{fffd}é\u{1f600}"),
        json!("x".repeat(3000)),
        json!("00000000-0000-0000-0000-000000000000"),
        json!("::ffff:169.254.169.254"),
        json!([]),
        json!([null]),
        json!([[1]]),
        json!({}),
        json!({"id": {"id": 1}}),
    ]
}

/// Every place of a body, as pointers.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    if !at.is_empty() {
        found.push(at.to_owned());
    }
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                places(value, &format!("{at}/{key}"), found);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                places(value, &format!("{at}/{index}"), found);
            }
        }
        _ => {}
    }
}

struct Request {
    method: &'static str,
    path: String,
    body: Value,
}

/// One request of each kind that would be taken as it is.
async fn requests(api: &Api) -> (String, Vec<Request>) {
    let lb = api.load_balancer(json!({})).await;
    let lb = id_of(&lb).to_owned();
    let pool = json!({"loadbalancer_id": lb, "name": "p", "description": "d", "protocol": "HTTP",
        "lb_algorithm": "ROUND_ROBIN", "tags": ["t"],
        "session_persistence": {"type": "APP_COOKIE", "cookie_name": "c"}, "tls_enabled": true,
        "tls_ciphers": "AES128-SHA", "tls_versions": ["TLSv1.2"], "alpn_protocols": ["h2"]});
    let pool_object = api
        .create("/v2/lbaas/pools", "pool", &lb, pool.clone())
        .await;
    let pool_path = format!("/v2/lbaas/pools/{}", id_of(&pool_object));
    let mut listener = json!({"loadbalancer_id": lb, "name": "l", "protocol": "HTTP", "protocol_port": 80,
        "connection_limit": 5, "default_pool_id": pool_object["id"], "insert_headers": {"X-Forwarded-For": "true"},
        "timeout_client_data": 1, "allowed_cidrs": ["10.0.0.0/8"], "tags": ["t"]});
    let listener_object = api
        .create("/v2/lbaas/listeners", "listener", &lb, listener.clone())
        .await;
    listener["protocol_port"] = json!(81);
    let member = json!({"address": "10.0.0.21", "protocol_port": 80, "weight": 1, "backup": false, "subnet_id": SUBNET,
        "monitor_address": "10.0.0.22", "monitor_port": 81, "name": "m", "tags": ["t"]});
    let monitor = json!({"pool_id": pool_object["id"], "type": "HTTP", "delay": 5, "timeout": 5, "max_retries": 3,
        "max_retries_down": 3, "http_method": "GET", "url_path": "/", "expected_codes": "200-204", "http_version": 1.1,
        "domain_name": "a.example", "name": "h", "tags": ["t"]});
    let policy = json!({"listener_id": listener_object["id"], "name": "x", "action": "REDIRECT_TO_URL",
        "redirect_url": "http://a/", "redirect_http_code": 301, "position": 1, "tags": ["t"]});
    let policy_object = api
        .create("/v2/lbaas/l7policies", "l7policy", &lb, policy.clone())
        .await;
    let policy_path = format!("/v2/lbaas/l7policies/{}", id_of(&policy_object));
    let rule = json!({"type": "HEADER", "compare_type": "REGEX", "key": "X-A", "value": "^a$", "invert": true, "tags": ["t"]});

    let mut another_listener = without(&listener, &["loadbalancer_id", "default_pool_id"]);
    another_listener["default_pool"] = {
        let mut pool = without(&pool, &["loadbalancer_id"]);
        pool["members"] = json!([member]);
        pool["healthmonitor"] = without(&monitor, &["pool_id"]);
        pool
    };
    another_listener["l7policies"] = {
        let mut policy = without(&policy, &["listener_id"]);
        policy["rules"] = json!([rule]);
        json!([policy])
    };
    let populated = json!({"name": "n", "description": "d", "vip_subnet_id": SUBNET, "vip_address": "10.0.0.200",
        "project_id": "demo", "provider": "everything", "admin_state_up": true, "tags": ["t"],
        "additional_vips": [{"subnet_id": crate::support::SUBNET6}], "listeners": [another_listener]});

    let fixed = [
        "loadbalancer_id",
        "pool_id",
        "listener_id",
        "protocol",
        "protocol_port",
        "type",
        "address",
        "subnet_id",
    ];
    let post = |path: &str, root: &str, object: &Value| Request {
        method: "POST",
        path: path.to_owned(),
        body: json!({root: object}),
    };
    let put = |path: String, root: &str, object: &Value| Request {
        method: "PUT",
        path,
        body: json!({root: without(object, &fixed)}),
    };
    let requests = vec![
        post("/v2/lbaas/loadbalancers", "loadbalancer", &populated),
        put(
            format!("/v2/lbaas/loadbalancers/{lb}"),
            "loadbalancer",
            &json!({"name": "n", "description": "d", "admin_state_up": false, "tags": ["t"]}),
        ),
        post("/v2/lbaas/listeners", "listener", &listener),
        put(
            format!("/v2/lbaas/listeners/{}", id_of(&listener_object)),
            "listener",
            &listener,
        ),
        post("/v2/lbaas/pools", "pool", &pool),
        put(pool_path.clone(), "pool", &pool),
        post(&format!("{pool_path}/members"), "member", &member),
        Request {
            method: "PUT",
            path: format!("{pool_path}/members"),
            body: json!({"members": [member, {"address": "10.0.0.23", "protocol_port": 80}]}),
        },
        post("/v2/lbaas/healthmonitors", "healthmonitor", &monitor),
        post("/v2/lbaas/l7policies", "l7policy", &policy),
        put(policy_path.clone(), "l7policy", &policy),
        post(&format!("{policy_path}/rules"), "rule", &rule),
    ];
    (lb, requests)
}

fn without(object: &Value, keys: &[&str]) -> Value {
    let map: Map<String, Value> = object
        .as_object()
        .unwrap()
        .iter()
        .filter(|(key, _)| !keys.contains(&key.as_str()))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    Value::Object(map)
}

#[tokio::test]
async fn ten_thousand_bodies_with_something_odd_in_them_give_faults_and_nothing_else() {
    let api = Api::serving_everything().await;
    let (lb, requests) = requests(&api).await;
    let odd = odd_values();
    let mut refused = 0;
    let mut sent = 0;
    // A second place, chosen by a fixed sequence.
    let mut state = 1_u64;
    let mut next = |below: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % below
    };
    let mut round = 0;
    while sent < 10_000 {
        for request in &requests {
            let mut pointers = Vec::new();
            places(&request.body, "", &mut pointers);
            for pointer in &pointers {
                for value in &odd {
                    // Once each alone, and then some with company.
                    if round > 0 && next(8) > 0 {
                        continue;
                    }
                    let mut body = request.body.clone();
                    *body.pointer_mut(pointer).unwrap() = value.clone();
                    if round > 0 {
                        let other = &pointers[next(pointers.len())];
                        if let Some(place) = body.pointer_mut(other) {
                            *place = odd[next(odd.len())].clone();
                        }
                    }
                    let taken = send(&api, &lb, request, body).await;
                    refused += usize::from(!taken);
                    sent += 1;
                }
            }
        }
        round += 1;
    }
    assert!(refused > sent / 2, "{refused} of {sent} were refused");
}

/// Whether it was taken.
async fn send(api: &Api, lb: &str, request: &Request, body: Value) -> bool {
    let answer = api
        .call(request.method, &request.path, Some(body.clone()))
        .await;
    let what = || {
        format!(
            "{} {} {body}: {}",
            request.method, request.path, answer.text
        )
    };
    if answer.status.is_client_error() {
        assert_eq!(answer.body["faultcode"], "Client", "{}", what());
        assert_eq!(answer.body["debuginfo"], json!(null), "{}", what());
        assert!(!answer.fault().is_empty(), "{}", what());
        assert!(answer.text.len() < 2000, "{}", what());
        return false;
    }
    assert!(answer.status.is_success(), "{}", what());
    if request.path.ends_with("/loadbalancers") {
        let made = answer.body["loadbalancer"].clone();
        for port in api.network.ports() {
            if made["vip_port_id"] == json!(port.id) {
                api.network.delete_port(port.id).await.unwrap();
            }
        }
        api.edit(id_of(&made), |graph| {
            graph.load_balancer.provisioning_status = lb_model::ProvisioningStatus::PendingDelete;
        })
        .await;
        api.settle(id_of(&made)).await;
    } else {
        undo(api, lb, request, &answer.body).await;
    }
    true
}

/// Removes what a `POST` made, so that the next one finds the place as it was.
async fn undo(api: &Api, lb: &str, request: &Request, made: &Value) {
    api.settle(lb).await;
    if request.method != "POST" {
        return;
    }
    let object = made.as_object().unwrap().values().next().unwrap();
    let path = format!("{}/{}", request.path, id_of(object));
    assert_eq!(api.delete(&path).await.status, 204, "{path}");
    api.settle(lb).await;
}
