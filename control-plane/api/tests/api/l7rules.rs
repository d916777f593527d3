//! `/l7policies/{id}/rules`.

use serde_json::{Value, json};

use crate::support::{ABSENT, Api, id_of, keys, merge};

/// A load balancer's id and the path of the rules of a policy on it.
async fn policy(api: &Api) -> (String, String) {
    let lb = api.load_balancer(json!({})).await;
    let lb = id_of(&lb).to_owned();
    let object = json!({"loadbalancer_id": lb, "protocol": "HTTP", "protocol_port": 80});
    let listener = api
        .create("/v2/lbaas/listeners", "listener", &lb, object)
        .await;
    let object = json!({"listener_id": listener["id"], "action": "REJECT"});
    let policy = api
        .create("/v2/lbaas/l7policies", "l7policy", &lb, object)
        .await;
    let path = format!("/v2/lbaas/l7policies/{}/rules", id_of(&policy));
    (lb, path)
}

fn rule(fields: Value) -> Value {
    let mut object =
        json!({"type": "HEADER", "compare_type": "EQUAL_TO", "key": "X-A", "value": "b"});
    merge(&mut object, fields);
    object
}

#[tokio::test]
async fn a_rule_is_created_shown_updated_and_deleted() {
    let api = Api::serving_everything().await;
    let (lb, path) = policy(&api).await;
    let answer = api
        .post(&path, json!({"rule": rule(json!({"tags": ["t"]}))}))
        .await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    let object = answer.body["rule"].clone();
    assert_eq!(
        keys(&object),
        [
            "admin_state_up",
            "compare_type",
            "created_at",
            "id",
            "invert",
            "key",
            "operating_status",
            "project_id",
            "provisioning_status",
            "tags",
            "tenant_id",
            "type",
            "updated_at",
            "value",
        ]
    );
    assert_eq!(
        (
            &object["invert"],
            &object["operating_status"],
            &object["provisioning_status"]
        ),
        (&json!(false), &json!("OFFLINE"), &json!("PENDING_CREATE"))
    );
    let own = format!("{path}/{}", id_of(&object));
    assert_eq!(api.get(&own).await.body["rule"], object);
    let policy_path = path.trim_end_matches("/rules");
    assert_eq!(
        api.get(policy_path).await.body["l7policy"]["rules"],
        json!([{"id": object["id"]}])
    );
    // The policy is locked now, and it is the policy that is named.
    let answer = api.put(&own, json!({"rule": {}})).await;
    let id = policy_path.rsplit_once('/').unwrap().1;
    assert_eq!(
        (answer.status.as_u16(), answer.fault()),
        (
            409,
            format!("L7 Policy {id} is immutable and cannot be updated.").as_str()
        )
    );
    api.settle(&lb).await;
    assert_eq!(
        api.get(&own).await.body["rule"]["operating_status"],
        "ONLINE"
    );

    let fields = json!({"type": "COOKIE", "compare_type": "CONTAINS", "value": "c", "invert": true, "tags": []});
    let answer = api.put(&own, json!({"rule": fields})).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let updated = &answer.body["rule"];
    let expected = json!({"type": "COOKIE", "key": "X-A", "value": "c", "invert": true, "tags": [], "provisioning_status": "PENDING_UPDATE"});
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(&updated[key], value, "{key}");
    }
    api.settle(&lb).await;
    let answer = api
        .put(
            &own,
            json!({"rule": {"invert": null, "admin_state_up": null, "type": "PATH"}}),
        )
        .await;
    let updated = &answer.body["rule"];
    let expected = json!({"type": "PATH", "key": null, "invert": false, "admin_state_up": false});
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(&updated[key], value, "{key}");
    }
    api.settle(&lb).await;
    let answer = api.put(&own, json!({"rule": {"value": null}})).await;
    assert_eq!(answer.status, 400, "{}", answer.text);

    assert_eq!(api.delete(&own).await.status, 204);
    assert_eq!(api.status_of(&own, "rule").await, "PENDING_DELETE");
    assert_eq!(
        api.status_of(policy_path, "l7policy").await,
        "PENDING_UPDATE"
    );
    api.settle(&lb).await;
    assert_eq!(api.get(&own).await.status, 404);
}

#[tokio::test]
async fn rules_are_found_below_their_own_policy_only() {
    let api = Api::serving_everything().await;
    let (lb, path) = policy(&api).await;
    let (_, other) = policy(&api).await;
    let created = api.create(&path, "rule", &lb, rule(json!({}))).await;
    let id = id_of(&created);
    let elsewhere = format!("{other}/{id}");
    for method in ["GET", "PUT", "DELETE"] {
        let body = (method == "PUT").then(|| json!({"rule": {}}));
        let answer = api.call(method, &elsewhere, body).await;
        assert_eq!(
            (answer.status.as_u16(), answer.fault()),
            (404, format!("L7 Rule {id} not found.").as_str()),
            "{method}"
        );
    }
    let answer = api
        .get(&format!("/v2/lbaas/l7policies/{ABSENT}/rules/{id}"))
        .await;
    assert_eq!(answer.status, 404);
    assert_eq!(
        answer.body,
        json!({"code": 404, "title": "Bad Request", "description": format!("L7Policy {ABSENT} not found.")})
    );
}

#[tokio::test]
async fn rules_are_listed_with_filters_sorting_and_pages() {
    let api = Api::serving_everything().await;
    let (lb, path) = policy(&api).await;
    for (value, fields) in [
        ("2", json!({"key": "k1", "tags": ["x", "y"]})),
        ("1", json!({"key": "k2", "invert": true, "tags": ["x"]})),
        (
            "3",
            json!({"type": "PATH", "key": null, "compare_type": "STARTS_WITH"}),
        ),
    ] {
        let mut object = rule(fields);
        object["value"] = json!(value);
        api.create(&path, "rule", &lb, object).await;
    }
    let cases = [
        ("", "213"),
        ("value=1", "1"),
        ("type=PATH", "3"),
        ("compare_type=EQUAL_TO", "21"),
        ("key=k1", "2"),
        ("invert=true", "1"),
        ("admin_state_up=true&invert=false", "23"),
        ("project_id=demo", "213"),
        ("l7policy_id=x", ""),
        ("tags=x", "21"),
        ("tags=x,y", "2"),
        ("not-tags-any=x", "3"),
        ("sort=value:desc", "321"),
        ("sort_key=key&sort_dir=desc", "123"),
        ("limit=2", "21"),
    ];
    for (query, expected) in cases {
        let answer = api.get(&format!("{path}?{query}")).await;
        assert_eq!(answer.status, 200, "{query}: {}", answer.text);
        let found: String = answer.body["rules"]
            .as_array()
            .unwrap()
            .iter()
            .map(|rule| rule["value"].as_str().unwrap())
            .collect();
        assert_eq!(found, expected, "{query}");
        assert!(answer.body["rules_links"].is_array());
    }
    for query in ["name=x", "tenant_id=demo"] {
        assert_eq!(
            api.get(&format!("{path}?{query}")).await.status,
            400,
            "{query}"
        );
    }
    let answer = api.get(&format!("{path}?fields=value&limit=1")).await;
    assert_eq!(answer.body["rules"], json!([{"value": "2"}]));
}

#[tokio::test]
async fn a_policy_has_fifty_rules_at_most() {
    let api = Api::serving_everything().await;
    let (lb, path) = policy(&api).await;
    api.edit(&lb, |graph| {
        let policy = &mut graph.listeners[0].l7policies[0];
        policy.rules = (0..50).map(lb_model::sample::l7rule).collect();
        for rule in &mut policy.rules {
            rule.provisioning_status = lb_model::ProvisioningStatus::Active;
        }
    })
    .await;
    let answer = api.post(&path, json!({"rule": rule(json!({}))})).await;
    let policy = path.split('/').nth(4).unwrap();
    assert_eq!(
        (answer.status.as_u16(), answer.fault()),
        (
            409,
            format!("Too many rules on L7 policy {policy}").as_str()
        )
    );
}
