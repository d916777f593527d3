//! Filters, tags, sorting, pages and field selection.

use serde_json::{Value, json};

use crate::support::{ABSENT, Api, id_of};

const PATH: &str = "/v2/lbaas/loadbalancers";

/// a (tags x, y), b (x), c (none, disabled), d (z; description "last").
async fn four(api: &Api) -> Vec<Value> {
    let mut all = Vec::new();
    for fields in [
        json!({"name": "a", "tags": ["x", "y"]}),
        json!({"name": "b", "tags": ["x"]}),
        json!({"name": "c", "admin_state_up": false}),
        json!({"name": "d", "tags": ["z"], "description": "last"}),
    ] {
        all.push(api.load_balancer(fields).await);
    }
    all
}

async fn names(api: &Api, query: &str) -> String {
    let answer = api.get(&format!("{PATH}?{query}")).await;
    assert_eq!(answer.status, 200, "{query}: {}", answer.text);
    answer.body["loadbalancers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["name"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn filters_tags_and_sorting() {
    let api = Api::new().await;
    let all = four(&api).await;
    let id = id_of(&all[1]);
    let undashed = id.replace('-', "");
    let cases = [
        ("", "abcd"),
        ("name=b", "b"),
        ("name=B", ""),
        (&format!("id={id}"), "b"),
        (&format!("id={undashed}"), "b"),
        ("id=nonsense", ""),
        ("description=last", "d"),
        ("admin_state_up=false", "c"),
        ("admin_state_up=TRUE&name=a", "a"),
        ("enabled=false", "c"),
        ("project_id=demo", "abcd"),
        ("project_id=other", ""),
        ("provisioning_status=ACTIVE", "abcd"),
        ("vip_address=10.0.0.3", "b"),
        ("tags=x", "ab"),
        ("tags=x,y", "a"),
        ("tags=x&tags=y", "a"),
        ("tags-any=y,z", "ad"),
        ("not-tags=x,y", "bcd"),
        ("not-tags-any=x,y", "cd"),
        ("tags=x&not-tags=y", "b"),
        ("sort=name:desc", "dcba"),
        ("sort=admin_state_up,name:desc", "cdba"),
        ("sort_key=name&sort_dir=desc", "dcba"),
        ("sort_key=admin_state_up,name&sort_dir=desc,desc", "dbac"),
        ("limit=2", "ab"),
        ("limit=0", "abcd"),
        ("limit=-1", "abcd"),
        ("limit=infinite", "abcd"),
    ];
    for (query, expected) in cases {
        assert_eq!(names(&api, query).await, expected, "{query}");
    }
}

#[tokio::test]
async fn bad_list_arguments_are_400_in_their_shape() {
    let api = Api::new().await;
    let cases = [
        (
            "colour=red",
            'A',
            "One or more arguments are either duplicate or invalid",
        ),
        (
            "tenant_id=x",
            'A',
            "One or more arguments are either duplicate or invalid",
        ),
        (
            "name=a&name=b",
            'A',
            "One or more arguments are either duplicate or invalid",
        ),
        (
            "name=%00",
            'A',
            "One or more arguments are either duplicate or invalid",
        ),
        (
            "tags=%00",
            'A',
            "One or more arguments are either duplicate or invalid",
        ),
        (
            "admin_state_up=maybe",
            'A',
            "One or more arguments are either duplicate or invalid",
        ),
        (
            "sort=colour",
            'A',
            "Supplied sort key 'colour' is not valid.",
        ),
        (
            "sort=name:up",
            'B',
            "Supplied sort direction 'up' is not valid.",
        ),
        (
            "sort=name:asc:desc",
            'B',
            "Supplied sort direction 'asc:desc' is not valid.",
        ),
        ("limit=many", 'B', "Supplied pagination limit is not valid."),
        ("marker=x", 'A', "Supplied pagination marker is not valid."),
        (
            &format!("marker={ABSENT}"),
            'A',
            "Supplied pagination marker is not valid.",
        ),
    ];
    for (query, shape, expected) in cases {
        let answer = api.get(&format!("{PATH}?{query}")).await;
        assert_eq!(answer.status, 400, "{query}");
        let text = match shape {
            'A' => answer.fault(),
            _ => answer.body["description"].as_str().unwrap_or_default(),
        };
        assert_eq!(text, expected, "{query}: {}", answer.text);
    }
    for resource in ["listeners", "healthmonitors", "pools"] {
        let answer = api
            .get(&format!("/v2/lbaas/{resource}?loadbalancer_id={ABSENT}"))
            .await;
        let expected = if resource == "healthmonitors" {
            400
        } else {
            200
        };
        assert_eq!(answer.status, expected, "{resource}: {}", answer.text);
    }
}

/// P82
#[tokio::test]
async fn following_the_links_gives_each_match_once_and_in_order() {
    let api = Api::new().await;
    four(&api).await;
    let mut path = format!("{PATH}?limit=1&tags-any=x,z&sort_key=name&sort_dir=desc");
    let mut seen = String::new();
    loop {
        let answer = api.get(&path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        for item in answer.body["loadbalancers"].as_array().unwrap() {
            seen.push_str(item["name"].as_str().unwrap());
        }
        let links = answer.body["loadbalancers_links"].as_array().unwrap();
        let next = links.iter().find(|link| link["rel"] == "next");
        match next {
            Some(next) => {
                let href = next["href"].as_str().unwrap();
                path = href
                    .strip_prefix("http://lb.example:9876")
                    .unwrap()
                    .to_owned();
            }
            None => break,
        }
    }
    assert_eq!(seen, "dba");
}

#[tokio::test]
async fn the_previous_link_leads_to_the_page_before() {
    let api = Api::new().await;
    let all = four(&api).await;
    let answer = api
        .get(&format!("{PATH}?limit=2&marker={}", id_of(&all[1])))
        .await;
    let links = answer.body["loadbalancers_links"].as_array().unwrap();
    assert_eq!(links[0]["rel"], "previous");
    assert_eq!(links[1]["rel"], "next");
    let href = links[0]["href"].as_str().unwrap();
    let query = href.split_once('?').unwrap().1;
    assert!(query.ends_with("page_reverse=True"), "{query}");
    assert_eq!(names(&api, query).await, "ab");
    let beyond = api
        .get(&format!("{PATH}?limit=2&marker={}", id_of(&all[3])))
        .await;
    assert_eq!(
        beyond.body,
        json!({"loadbalancers": [], "loadbalancers_links": []})
    );
}

#[tokio::test]
async fn fields_select_keys_and_comma_lists_select_nothing() {
    let api = Api::new().await;
    let all = four(&api).await;
    let one = format!("{PATH}/{}", id_of(&all[0]));
    let answer = api.get(&format!("{one}?fields=name&fields=id")).await;
    assert_eq!(
        answer.body,
        json!({"loadbalancer": {"name": "a", "id": all[0]["id"]}})
    );
    assert_eq!(
        api.get(&format!("{one}?fields=name,id")).await.body,
        json!({"loadbalancer": {}})
    );
    // Arguments a show does not know are not its business.
    assert_eq!(api.get(&format!("{one}?colour=red")).await.status, 200);
    let answer = api.get(&format!("{PATH}?fields=name&limit=1")).await;
    assert_eq!(answer.body["loadbalancers"], json!([{"name": "a"}]));
    assert_eq!(answer.body["loadbalancers_links"][0]["rel"], "next");
}

#[tokio::test]
async fn links_start_at_the_configured_base() {
    let api = Api::with(
        |config| config.base_uri = Some("https://cloud.example/load-balancer/".to_owned()),
        std::sync::Arc::new(lb_drivers::identity::NoIdentity),
    )
    .await;
    api.load_balancer(json!({"name": "a"})).await;
    let answer = api.get(&format!("{PATH}?limit=1")).await;
    let href = answer.body["loadbalancers_links"][0]["href"]
        .as_str()
        .unwrap();
    assert!(
        href.starts_with(
            "https://cloud.example/load-balancer/v2/lbaas/loadbalancers?limit=1&marker="
        ),
        "{href}"
    );
    let discovery = api.get("/").await;
    assert_eq!(
        discovery.body["versions"][0]["links"][0]["href"],
        "https://cloud.example/load-balancer/v2"
    );
}
