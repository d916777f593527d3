//! Every attribute of every resource as a filter and as a sort key.

use serde_json::{Value, json};

use crate::support::{ABSENT, Api, SUBNET, id_of};

/// One of everything, with a value in each attribute that can have one: lists' paths with the object in them.
async fn one_of_each(api: &Api) -> Vec<(String, &'static str, Value)> {
    let lb = api
        .load_balancer(json!({"name": "lb", "description": "d"}))
        .await;
    let lb = id_of(&lb).to_owned();
    let pool = json!({"loadbalancer_id": lb, "name": "p", "description": "d", "protocol": "HTTP",
        "lb_algorithm": "SOURCE_IP_PORT", "tls_enabled": true, "tls_container_ref": "c",
        "ca_tls_container_ref": "ca", "crl_container_ref": "crl"});
    let pool = api.create("/v2/lbaas/pools", "pool", &lb, pool).await;
    let listener = json!({"loadbalancer_id": lb, "name": "l", "description": "d", "protocol": "TERMINATED_HTTPS",
        "protocol_port": 443, "default_pool_id": pool["id"], "default_tls_container_ref": "d",
        "client_ca_tls_container_ref": "ca", "client_crl_container_ref": "crl", "client_authentication": "OPTIONAL",
        "hsts_max_age": 5, "hsts_preload": true});
    let listener = api
        .create("/v2/lbaas/listeners", "listener", &lb, listener)
        .await;
    let members = format!("/v2/lbaas/pools/{}/members", id_of(&pool));
    let member = json!({"name": "m", "address": "2001:db8::21", "protocol_port": 80, "weight": 7, "backup": true,
        "subnet_id": SUBNET, "monitor_address": "10.0.0.22", "monitor_port": 81});
    api.create(&members, "member", &lb, member).await;
    let monitor = json!({"pool_id": pool["id"], "name": "h", "type": "HTTPS", "delay": 5, "timeout": 4, "max_retries": 3,
        "http_version": 1.1, "domain_name": "a.example"});
    api.create("/v2/lbaas/healthmonitors", "healthmonitor", &lb, monitor)
        .await;
    let policy = json!({"listener_id": listener["id"], "name": "x", "description": "d", "action": "REDIRECT_TO_URL",
        "redirect_url": "http://a/b?c=d"});
    let policy = api
        .create("/v2/lbaas/l7policies", "l7policy", &lb, policy)
        .await;
    let rules = format!("/v2/lbaas/l7policies/{}/rules", id_of(&policy));
    let rule = json!({"type": "COOKIE", "compare_type": "REGEX", "key": "k", "value": "a+"});
    api.create(&rules, "rule", &lb, rule).await;

    let mut all = Vec::new();
    for (path, name) in [
        ("/v2/lbaas/loadbalancers", "loadbalancers"),
        ("/v2/lbaas/listeners", "listeners"),
        ("/v2/lbaas/pools", "pools"),
        (members.as_str(), "members"),
        ("/v2/lbaas/healthmonitors", "healthmonitors"),
        ("/v2/lbaas/l7policies", "l7policies"),
        (rules.as_str(), "rules"),
    ] {
        let answer = api.get(path).await;
        all.push((path.to_owned(), name, answer.body[name][0].clone()));
    }
    all
}

fn escape(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// The path says it already; openstacksdk says it again when it lists the rules of a policy.
#[tokio::test]
async fn members_and_rules_are_filtered_by_what_they_belong_to() {
    let api = Api::serving_everything().await;
    let mut asked = 0;
    for (path, name, object) in one_of_each(&api).await {
        let parent = match name {
            "members" => "pool_id",
            "rules" => "l7policy_id",
            _ => continue,
        };
        let own = path.rsplit('/').nth(1).unwrap();
        let found = api.get(&format!("{path}?{parent}={own}")).await;
        assert_eq!(found.body[name], json!([object]), "{}", found.text);
        let none = api.get(&format!("{path}?{parent}={ABSENT}")).await;
        assert_eq!(none.body[name], json!([]), "{}", none.text);
        asked += 1;
    }
    assert_eq!(asked, 2);
}

#[tokio::test]
async fn every_attribute_with_one_value_filters_and_sorts_and_no_other_does() {
    let api = Api::serving_everything().await;
    for (path, name, object) in one_of_each(&api).await {
        for (key, value) in object.as_object().unwrap() {
            let text = match value {
                Value::Null => continue,
                Value::Array(_) | Value::Object(_) => {
                    // Lists, except the tags, which have filters of their own.
                    if key != "tags" {
                        let answer = api.get(&format!("{path}?{key}=x")).await;
                        assert_eq!(answer.status, 400, "{name} {key}: {}", answer.text);
                    }
                    continue;
                }
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            if key == "tenant_id" || key == "healthmonitor_id" {
                let answer = api.get(&format!("{path}?{key}={text}")).await;
                assert_eq!(answer.status, 400, "{name} {key}: {}", answer.text);
                continue;
            }
            let answer = api.get(&format!("{path}?{key}={}", escape(&text))).await;
            assert_eq!(answer.status, 200, "{name} {key}={text}: {}", answer.text);
            assert_eq!(answer.body[name], json!([object]), "{name} {key}={text}");
            let other = match value {
                Value::Bool(flag) => (!flag).to_string(),
                _ if key.ends_with("_at") => "2001-01-01T00:00:00".to_owned(),
                _ => "12345".to_owned(),
            };
            let answer = api.get(&format!("{path}?{key}={other}")).await;
            assert_eq!(answer.status, 200, "{name} {key}={other}: {}", answer.text);
            assert_eq!(answer.body[name], json!([]), "{name} {key}={other}");
            for direction in ["asc", "DESC"] {
                let answer = api.get(&format!("{path}?sort={key}:{direction}")).await;
                assert_eq!(answer.status, 200, "{name} sort {key}: {}", answer.text);
            }
        }
        // One field, one key.
        let answer = api.get(&format!("{path}?fields=project_id")).await;
        assert_eq!(
            answer.body[name],
            json!([{"project_id": object["project_id"]}]),
            "{name}"
        );
    }
}

#[tokio::test]
async fn parents_by_either_of_their_names_and_other_relations_by_none() {
    let api = Api::serving_everything().await;
    let all = one_of_each(&api).await;
    let id = |name: &str| {
        let (_, _, object) = all.iter().find(|(_, other, _)| *other == name).unwrap();
        id_of(object).to_owned()
    };
    let (lb, listener, pool) = (id("loadbalancers"), id("listeners"), id("pools"));
    let found = [
        format!("listeners?loadbalancer_id={lb}"),
        format!("listeners?load_balancer_id={lb}"),
        format!("listeners?default_pool_id={pool}"),
        format!("pools?loadbalancer_id={lb}"),
        format!("healthmonitors?pool_id={pool}"),
        format!("l7policies?listener_id={listener}"),
    ];
    for query in found {
        let name = query.split_once('?').unwrap().0;
        let answer = api.get(&format!("/v2/lbaas/{query}")).await;
        assert_eq!(answer.body[name].as_array().unwrap().len(), 1, "{query}");
        let other = query.split_once('=').unwrap().0;
        let answer = api.get(&format!("/v2/lbaas/{other}={ABSENT}")).await;
        assert_eq!(answer.body[name], json!([]), "{query}");
    }
    for query in [
        "pools?listener_id=x",
        "pools?session_persistence=x",
        "healthmonitors?pools=x",
        "healthmonitors?loadbalancer_id=x",
        "l7policies?rules=x",
        "listeners?allowed_cidrs=x",
        "listeners?sni_container_refs=x",
        "loadbalancers?listeners=x",
    ] {
        let answer = api.get(&format!("/v2/lbaas/{query}")).await;
        assert_eq!(
            (answer.status.as_u16(), answer.fault()),
            (400, "One or more arguments are either duplicate or invalid"),
            "{query}"
        );
    }
}

#[tokio::test]
async fn tags_filter_every_resource() {
    let api = Api::serving_everything().await;
    for (path, name, object) in one_of_each(&api).await {
        let root = match name {
            "l7policies" => "l7policy",
            other => other.trim_end_matches('s'),
        };
        let own = format!("{path}/{}", id_of(&object));
        let answer = api.put(&own, json!({root: {"tags": ["a", "b"]}})).await;
        assert_eq!(answer.status, 200, "{name}: {}", answer.text);
        let lb = api.get("/v2/lbaas/loadbalancers").await;
        api.settle(id_of(&lb.body["loadbalancers"][0])).await;
        for (query, expected) in [
            ("tags=a", 1),
            ("tags=a,c", 0),
            ("tags-any=a,c", 1),
            ("not-tags=a,b", 0),
            ("not-tags=a,c", 1),
            ("not-tags-any=a", 0),
            ("not-tags-any=c", 1),
        ] {
            let answer = api.get(&format!("{path}?{query}")).await;
            let found = answer.body[name].as_array().unwrap().len();
            assert_eq!(found, expected, "{name} {query}");
        }
    }
}

#[tokio::test]
async fn what_lists_are_not_allowed_is_ignored() {
    let api = Api::with(
        |config| {
            config.lists.filtering = false;
            config.lists.sorting = false;
            config.lists.pagination = false;
            config.lists.field_selection = false;
        },
        std::sync::Arc::new(lb_drivers::identity::NoIdentity),
    )
    .await;
    for name in ["a", "b"] {
        api.load_balancer(json!({"name": name})).await;
    }
    let query = "name=b&colour=red&tags=x&sort=name:desc&sort_key=nothing&limit=1&marker=x&page_reverse=True&fields=id";
    let answer = api.get(&format!("/v2/lbaas/loadbalancers?{query}")).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let names: Vec<&Value> = answer.body["loadbalancers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|lb| &lb["name"])
        .collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(answer.body["loadbalancers_links"], json!([]));
}
