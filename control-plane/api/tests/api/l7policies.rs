//! `/l7policies`.

use serde_json::{Value, json};

use crate::support::{ABSENT, Api, SUBNET, id_of, keys, merge};

const PATH: &str = "/v2/lbaas/l7policies";

/// A load balancer with an HTTP listener; their ids.
async fn listener(api: &Api) -> (String, String) {
    let lb = api.load_balancer(json!({})).await;
    let lb = id_of(&lb).to_owned();
    let object = json!({"loadbalancer_id": lb, "protocol": "HTTP", "protocol_port": 80});
    let listener = api
        .create("/v2/lbaas/listeners", "listener", &lb, object)
        .await;
    (lb, id_of(&listener).to_owned())
}

fn policy(listener: &str, fields: Value) -> Value {
    let mut object = json!({"listener_id": listener, "action": "REJECT"});
    merge(&mut object, fields);
    object
}

#[tokio::test]
async fn a_policy_is_created_shown_updated_and_deleted() {
    let api = Api::serving_everything().await;
    let (lb, listener) = listener(&api).await;
    let fields = json!({"action": "REDIRECT_TO_URL", "redirect_url": "http://localhost", "tags": ["a"], "description": "d"});
    let answer = api
        .post(PATH, json!({"l7policy": policy(&listener, fields)}))
        .await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    let object = answer.body["l7policy"].clone();
    assert_eq!(
        keys(&object),
        [
            "action",
            "admin_state_up",
            "created_at",
            "description",
            "id",
            "listener_id",
            "name",
            "operating_status",
            "position",
            "project_id",
            "provisioning_status",
            "redirect_http_code",
            "redirect_pool_id",
            "redirect_prefix",
            "redirect_url",
            "rules",
            "tags",
            "tenant_id",
            "updated_at",
        ]
    );
    let expected = json!({
        "action": "REDIRECT_TO_URL", "admin_state_up": true, "description": "d", "name": "",
        "listener_id": listener, "operating_status": "OFFLINE", "position": 1,
        "provisioning_status": "PENDING_CREATE", "redirect_http_code": 302, "redirect_pool_id": null,
        "redirect_prefix": null, "redirect_url": "http://localhost", "rules": [], "tags": ["a"],
        "updated_at": null,
    });
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(&object[key], value, "{key}");
    }
    let path = format!("{PATH}/{}", id_of(&object));
    assert_eq!(api.get(&path).await.body["l7policy"], object);
    let listener_path = format!("/v2/lbaas/listeners/{listener}");
    let parent = api.get(&listener_path).await;
    let parent = &parent.body["listener"];
    assert_eq!(parent["l7policies"], json!([{"id": object["id"]}]));
    assert_eq!(parent["provisioning_status"], "PENDING_UPDATE");
    let lb_path = format!("/v2/lbaas/loadbalancers/{lb}");
    assert_eq!(
        api.status_of(&lb_path, "loadbalancer").await,
        "PENDING_UPDATE"
    );
    // Locked.
    let answer = api.put(&path, json!({"l7policy": {"name": "x"}})).await;
    assert_eq!(
        (answer.status.as_u16(), answer.fault()),
        (
            409,
            format!("Load Balancer {lb} is immutable and cannot be updated.").as_str()
        )
    );
    api.settle(&lb).await;
    let settled = api.get(&path).await;
    assert_eq!(settled.body["l7policy"]["provisioning_status"], "ACTIVE");
    assert_eq!(settled.body["l7policy"]["operating_status"], "ONLINE");
    assert!(settled.body["l7policy"]["updated_at"].is_string());

    let fields = json!({"name": "n", "description": null, "admin_state_up": "no", "redirect_http_code": 308, "tags": null, "position": null});
    let answer = api.put(&path, json!({"l7policy": fields})).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let updated = &answer.body["l7policy"];
    let expected = json!({
        "name": "n", "description": "", "admin_state_up": false, "redirect_http_code": 308, "tags": ["a"],
        "position": 1, "redirect_url": "http://localhost", "provisioning_status": "PENDING_UPDATE",
    });
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(&updated[key], value, "{key}");
    }
    api.settle(&lb).await;

    assert_eq!(api.delete(&path).await.status, 204);
    assert_eq!(api.status_of(&path, "l7policy").await, "PENDING_DELETE");
    assert_eq!(
        api.status_of(&listener_path, "listener").await,
        "PENDING_UPDATE"
    );
    api.settle(&lb).await;
    assert_eq!(api.get(&path).await.status, 404);
}

#[tokio::test]
async fn positions_are_contiguous_from_one() {
    let api = Api::serving_everything().await;
    let (lb, listener) = listener(&api).await;
    for (name, position) in [
        ("a", json!(null)),
        ("b", json!(1)),
        ("c", json!(2_147_483_647)),
        ("d", json!("2")),
    ] {
        let fields = json!({"name": name, "position": position});
        api.create(PATH, "l7policy", &lb, policy(&listener, fields))
            .await;
    }
    assert_eq!(order(&api, &listener).await, "b1 d2 a3 c4");
    move_to(&api, &lb, "c", 1).await;
    assert_eq!(order(&api, &listener).await, "c1 b2 d3 a4");
    move_to(&api, &lb, "c", 99).await;
    assert_eq!(order(&api, &listener).await, "b1 d2 a3 c4");
    move_to(&api, &lb, "d", 2).await;
    assert_eq!(order(&api, &listener).await, "b1 d2 a3 c4");
    let path = path_of(&api, "d").await;
    assert_eq!(api.delete(&path).await.status, 204);
    api.settle(&lb).await;
    assert_eq!(order(&api, &listener).await, "b1 a2 c3");
}

async fn path_of(api: &Api, name: &str) -> String {
    let answer = api.get(&format!("{PATH}?name={name}")).await;
    format!("{PATH}/{}", id_of(&answer.body["l7policies"][0]))
}

async fn move_to(api: &Api, lb: &str, name: &str, position: u32) {
    let path = path_of(api, name).await;
    let answer = api
        .put(&path, json!({"l7policy": {"position": position}}))
        .await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    api.settle(lb).await;
}

/// Names and positions, in the order of the listener.
async fn order(api: &Api, listener: &str) -> String {
    let answer = api.get(&format!("/v2/lbaas/listeners/{listener}")).await;
    let mut words = Vec::new();
    for policy in answer.body["listener"]["l7policies"].as_array().unwrap() {
        let answer = api.get(&format!("{PATH}/{}", id_of(policy))).await;
        let policy = &answer.body["l7policy"];
        words.push(format!(
            "{}{}",
            policy["name"].as_str().unwrap(),
            policy["position"]
        ));
    }
    words.join(" ")
}

#[tokio::test]
async fn parents_and_pools_that_do_not_exist_are_404() {
    let api = Api::serving_everything().await;
    let answer = api
        .post(PATH, json!({"l7policy": policy(ABSENT, json!({}))}))
        .await;
    assert_eq!(
        (answer.status.as_u16(), answer.fault()),
        (404, format!("Listener {ABSENT} not found.").as_str())
    );
    let (_, listener) = listener(&api).await;
    let fields = json!({"action": "REDIRECT_TO_POOL", "redirect_pool_id": ABSENT});
    let answer = api
        .post(PATH, json!({"l7policy": policy(&listener, fields)}))
        .await;
    assert_eq!(
        (answer.status.as_u16(), answer.fault()),
        (404, format!("Pool {ABSENT} not found.").as_str())
    );
}

#[tokio::test]
async fn a_provider_without_l7_policies_says_so() {
    let api = Api::new().await;
    let (lb, listener) = listener(&api).await;
    let answer = api
        .post(PATH, json!({"l7policy": policy(&listener, json!({}))}))
        .await;
    assert_eq!(
        (answer.status.as_u16(), answer.fault()),
        (
            501,
            "Provider 'amphora' does not support a requested option: REJECT L7 policy"
        )
    );
    let lb = format!("/v2/lbaas/loadbalancers/{lb}");
    assert_eq!(api.status_of(&lb, "loadbalancer").await, "ACTIVE");
}

#[tokio::test]
async fn a_pool_that_a_policy_redirects_to_stays_and_is_in_the_status_tree() {
    let api = Api::serving_everything().await;
    let (lb, listener) = listener(&api).await;
    let pool = json!({"loadbalancer_id": lb, "protocol": "HTTP", "lb_algorithm": "ROUND_ROBIN", "name": "p"});
    let pool = api.create("/v2/lbaas/pools", "pool", &lb, pool).await;
    let fields = json!({"action": "REDIRECT_TO_POOL", "redirect_pool_id": pool["id"], "redirect_url": "http://dropped"});
    let created = api
        .create(PATH, "l7policy", &lb, policy(&listener, fields))
        .await;
    assert_eq!(
        (
            &created["redirect_pool_id"],
            &created["redirect_url"],
            &created["redirect_http_code"]
        ),
        (&pool["id"], &json!(null), &json!(null))
    );
    let pool_path = format!("/v2/lbaas/pools/{}", id_of(&pool));
    assert_eq!(
        api.get(&pool_path).await.body["pool"]["listeners"],
        json!([{"id": listener}])
    );
    let answer = api.delete(&pool_path).await;
    assert_eq!(
        (answer.status.as_u16(), answer.fault()),
        (
            409,
            format!(
                "Pool {} is in use by L7 policy {}",
                id_of(&pool),
                id_of(&created)
            )
            .as_str()
        )
    );
    let tree = format!("/v2/lbaas/loadbalancers/{lb}/status");
    let pools = "/statuses/loadbalancer/listeners/0/pools";
    // A policy without an enabled rule matches nothing, so its pool is not used.
    assert_eq!(api.get(&tree).await.body.pointer(pools), Some(&json!([])));
    let rules = format!("{PATH}/{}/rules", id_of(&created));
    let rule = json!({"type": "PATH", "compare_type": "STARTS_WITH", "value": "/"});
    let rule = api.create(&rules, "rule", &lb, rule).await;
    let answer = api.get(&tree).await;
    assert_eq!(answer.body.pointer(pools).unwrap()[0]["name"], "p");
    let rule = format!("{rules}/{}", id_of(&rule));
    let answer = api
        .put(&rule, json!({"rule": {"admin_state_up": false}}))
        .await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(api.get(&tree).await.body.pointer(pools), Some(&json!([])));
}

/// P14
#[tokio::test]
async fn a_fully_populated_create_has_policies_with_rules_and_pools_by_name_or_in_full() {
    let api = Api::serving_everything().await;
    let answer = api
        .post(
            "/v2/lbaas/loadbalancers",
            json!({"loadbalancer": populated()}),
        )
        .await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    let lb = &answer.body["loadbalancer"];
    let policies = lb["listeners"][0]["l7policies"].as_array().unwrap();
    let summary: Vec<(&str, i64, &str)> = policies
        .iter()
        .map(|policy| {
            (
                policy["name"].as_str().unwrap(),
                policy["position"].as_i64().unwrap(),
                policy["provisioning_status"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        summary,
        [
            ("prefix", 1, "PENDING_CREATE"),
            ("by name", 2, "PENDING_CREATE"),
            ("in full", 3, "PENDING_CREATE"),
        ]
    );
    let pools: Vec<&str> = lb["pools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pool| pool["name"].as_str().unwrap())
        .collect();
    assert_eq!(pools, ["shared", "static"]);
    assert_eq!(policies[0]["redirect_http_code"], 301);
    assert_eq!(policies[1]["redirect_pool_id"], lb["pools"][0]["id"]);
    assert_eq!(policies[2]["redirect_pool_id"], lb["pools"][1]["id"]);
    let rules = policies[2]["rules"].as_array().unwrap();
    assert_eq!(
        (&rules[0]["type"], &rules[0]["value"]),
        (&json!("FILE_TYPE"), &json!("css"))
    );
    assert_eq!(rules[1]["invert"], true);

    let id = id_of(lb);
    api.settle(id).await;
    let listed = api.get(PATH).await;
    for policy in listed.body["l7policies"].as_array().unwrap() {
        assert_eq!(policy["provisioning_status"], "ACTIVE");
    }
    let answer = api
        .delete(&format!("/v2/lbaas/loadbalancers/{id}?cascade=true"))
        .await;
    assert_eq!(answer.status, 204);
    api.settle(id).await;
    assert_eq!(api.get(PATH).await.body["l7policies"], json!([]));
}

fn populated() -> Value {
    json!({
        "vip_subnet_id": SUBNET,
        "pools": [{"name": "shared", "protocol": "HTTP", "lb_algorithm": "ROUND_ROBIN"}],
        "listeners": [{
            "protocol": "HTTP", "protocol_port": 80, "default_pool": {"name": "shared"},
            "l7policies": [
                {"name": "by name", "action": "REDIRECT_TO_POOL", "redirect_pool": {"name": "shared"}},
                {"name": "in full", "action": "REDIRECT_TO_POOL",
                    "redirect_pool": {"name": "static", "protocol": "HTTP", "lb_algorithm": "SOURCE_IP"},
                    "rules": [
                        {"type": "FILE_TYPE", "compare_type": "EQUAL_TO", "value": "css"},
                        {"type": "HEADER", "compare_type": "REGEX", "key": "X-A", "value": "^a+$", "invert": true},
                    ]},
                {"name": "prefix", "action": "REDIRECT_PREFIX", "redirect_prefix": "https://example.org",
                    "redirect_http_code": 301, "position": 1},
            ],
        }],
    })
}

/// P14
#[tokio::test]
async fn one_bad_policy_or_rule_refuses_the_whole_create() {
    let api = Api::serving_everything().await;
    let policy = "/listeners/0/l7policies/1";
    let cases = [
        (
            format!("{policy}/redirect_pool"),
            json!({"name": "nowhere"}),
            400,
            "Validation failure: Pool nowhere is referenced by name and defined nowhere in the request.",
        ),
        (
            format!("{policy}/redirect_pool"),
            json!({"name": "shared", "protocol": "HTTP", "lb_algorithm": "ROUND_ROBIN"}),
            400,
            "Validation failure: Pool name \"shared\" is used for more than one pool definition",
        ),
        (
            format!("{policy}/redirect_pool/protocol"),
            json!("TCP"),
            400,
            "Validation failure: The pool protocol 'TCP' is invalid while the listener protocol is 'HTTP'.",
        ),
        (
            format!("{policy}/rules/0/value"),
            json!("a b"),
            400,
            "Error parsing L7Rule: Invalid characters in value",
        ),
        (
            format!("{policy}/rules/1/colour"),
            json!(1),
            400,
            "Unknown attribute for argument loadbalancer.listeners.l7policies.rules: colour",
        ),
        (
            format!("{policy}/listener_id"),
            json!(ABSENT),
            400,
            "Unknown attribute for argument loadbalancer.listeners.l7policies: listener_id",
        ),
        (
            "/listeners/0/protocol".to_owned(),
            json!("PROMETHEUS"),
            400,
            "Protocol PROMETHEUS listeners can not have child objects.",
        ),
    ];
    for (pointer, value, status, fault) in cases {
        let mut body = json!({"loadbalancer": populated()});
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        body["loadbalancer"].pointer_mut(parent).unwrap()[key] = value;
        let answer = api.post("/v2/lbaas/loadbalancers", body).await;
        assert_eq!(answer.status, status, "{pointer}: {}", answer.text);
        assert!(
            answer.fault().starts_with(fault),
            "{pointer}: {}",
            answer.text
        );
    }
    assert!(api.network.ports().is_empty());
    for path in ["/v2/lbaas/loadbalancers", PATH, "/v2/lbaas/pools"] {
        let answer = api.get(path).await;
        let name = path.rsplit_once('/').unwrap().1;
        assert_eq!(answer.body[name], json!([]), "{path}");
    }
}
