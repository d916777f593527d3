//! Flavors, availability zones, their profiles, and what a create makes of them.

use std::sync::Arc;

use lb_drivers::identity::NoIdentity;
use serde_json::{Value, json};

use crate::support::{Api, MemberOf, NETWORK, OTHER_NETWORK, PROJECT, SUBNET, id_of, keys};

/// One of the two kinds.
struct Kind {
    offers: &'static str,
    profiles: &'static str,
    offer: &'static str,
    profile: &'static str,
    data: &'static str,
    profile_id: &'static str,
    key: &'static str,
}

const FLAVOR: Kind = Kind {
    offers: "/v2/lbaas/flavors",
    profiles: "/v2/lbaas/flavorprofiles",
    offer: "flavor",
    profile: "flavorprofile",
    data: "flavor_data",
    profile_id: "flavor_profile_id",
    key: "id",
};

const ZONE: Kind = Kind {
    offers: "/v2/lbaas/availabilityzones",
    profiles: "/v2/lbaas/availabilityzoneprofiles",
    offer: "availability_zone",
    profile: "availability_zone_profile",
    data: "availability_zone_data",
    profile_id: "availability_zone_profile_id",
    key: "name",
};

impl Kind {
    async fn new_profile(&self, api: &Api, data: &str) -> Value {
        let profile = json!({"name": "p", "provider_name": "amphora", self.data: data});
        let answer = api
            .post(self.profiles, json!({self.profile: profile}))
            .await;
        assert_eq!(answer.status, 201, "{}", answer.text);
        answer.body[self.profile].clone()
    }

    async fn new_offer(&self, api: &Api, name: &str, data: &str) -> Value {
        let profile = self.new_profile(api, data).await;
        let offer = json!({"name": name, self.profile_id: profile["id"]});
        let answer = api.post(self.offers, json!({self.offer: offer})).await;
        assert_eq!(answer.status, 201, "{}", answer.text);
        answer.body[self.offer].clone()
    }

    fn path_of(&self, offer: &Value) -> String {
        format!("{}/{}", self.offers, offer[self.key].as_str().unwrap())
    }

    fn profile_path_of(&self, offer: &Value) -> String {
        format!(
            "{}/{}",
            self.profiles,
            offer[self.profile_id].as_str().unwrap()
        )
    }
}

#[tokio::test]
async fn an_offer_and_its_profile_live_from_create_to_delete() {
    let api = Api::new().await;
    for kind in [FLAVOR, ZONE] {
        let offer = kind.new_offer(&api, "small", "{}").await;
        let mut expected = vec!["description", "enabled", "name", kind.profile_id];
        if kind.key == "id" {
            expected.push("id");
        }
        expected.sort_unstable();
        assert_eq!(keys(&offer), expected);
        assert_eq!(offer["description"], "");
        assert_eq!(offer["enabled"], true);
        let path = kind.path_of(&offer);
        assert_eq!(api.get(&path).await.body[kind.offer], offer);
        let update = json!({kind.offer: {"description": "d", "enabled": false}});
        let changed = api.put(&path, update).await;
        assert_eq!(changed.status, 200, "{}", changed.text);
        assert_eq!(changed.body[kind.offer]["description"], "d");
        let cleared = api
            .put(&path, json!({kind.offer: {"description": null}}))
            .await;
        assert_eq!(cleared.body[kind.offer]["description"], "");
        assert_eq!(cleared.body[kind.offer]["enabled"], false);
        let refused = api
            .put(&path, json!({kind.offer: {kind.profile_id: null}}))
            .await;
        assert_eq!(refused.status, 400);

        let profile_path = kind.profile_path_of(&offer);
        let profile = api.get(&profile_path).await.body[kind.profile].clone();
        let mut expected = vec!["id", "name", "provider_name", kind.data];
        expected.sort_unstable();
        assert_eq!(keys(&profile), expected);
        assert_eq!(api.delete(&profile_path).await.status, 409);
        for (fields, status) in [
            (json!({"name": "q"}), 200),
            (json!({"provider_name": "octavia"}), 409),
            (json!({kind.data: "{ }"}), 409),
            (json!({"provider_name": "other"}), 400),
            (json!({"name": null}), 400),
        ] {
            let changed = api
                .put(&profile_path, json!({kind.profile: fields.clone()}))
                .await;
            assert_eq!(changed.status, status, "{fields}: {}", changed.text);
        }
        let deleted = api.delete(&path).await;
        assert_eq!((deleted.status.as_u16(), deleted.text.as_str()), (204, ""));
        for answer in [api.get(&path).await, api.delete(&path).await] {
            assert_eq!(answer.status, 404);
            assert!(answer.fault().ends_with(" not found."), "{}", answer.text);
        }
        let other = api
            .put(
                &profile_path,
                json!({kind.profile: {"provider_name": "octavia"}}),
            )
            .await;
        assert_eq!(other.status, 200, "{}", other.text);
        assert_eq!(api.delete(&profile_path).await.status, 204);
        assert_eq!(api.get(&profile_path).await.status, 404);
    }
}

#[tokio::test]
async fn profiles_are_checked_against_what_their_provider_can_do() {
    let api = Api::new().await;
    let zone_with = |network: &str| format!(r#"{{"management_network": "{network}"}}"#);
    for (kind, provider, data, status) in [
        (
            FLAVOR,
            "amphora",
            r#"{"loadbalancer_topology": "SINGLE"}"#.to_owned(),
            201,
        ),
        (
            FLAVOR,
            "octavia",
            r#"{"compute_flavor": "m1"}"#.to_owned(),
            201,
        ),
        (FLAVOR, "none", "{}".to_owned(), 400),
        (FLAVOR, "amphora", "{".to_owned(), 400),
        (FLAVOR, "amphora", r#"{"colour": "red"}"#.to_owned(), 501),
        (FLAVOR, "amphora", r#"{"sriov_vip": true}"#.to_owned(), 501),
        (
            ZONE,
            "amphora",
            r#"{"compute_zone": "nova"}"#.to_owned(),
            201,
        ),
        (ZONE, "amphora", zone_with(NETWORK), 201),
        (ZONE, "amphora", zone_with(crate::support::ABSENT), 501),
        (
            ZONE,
            "amphora",
            r#"{"valid_vip_networks": "x"}"#.to_owned(),
            501,
        ),
    ] {
        let profile = json!({"name": "p", "provider_name": provider, kind.data: data});
        let answer = api
            .post(kind.profiles, json!({kind.profile: profile}))
            .await;
        assert_eq!(answer.status, status, "{data}: {}", answer.text);
    }
}

#[tokio::test]
async fn names_are_unique_and_profiles_must_be_there() {
    let api = Api::new().await;
    for kind in [FLAVOR, ZONE] {
        let offer = kind.new_offer(&api, "small", "{}").await;
        let again = json!({"name": "small", kind.profile_id: offer[kind.profile_id]});
        let refused = api.post(kind.offers, json!({kind.offer: again})).await;
        assert_eq!(refused.status, 409);
        assert_eq!(
            refused.fault(),
            format!(
                "A {} of small already exists.",
                kind.offer.replace('_', " ")
            )
        );
        let orphan = json!({"name": "x", kind.profile_id: crate::support::ABSENT});
        assert_eq!(
            api.post(kind.offers, json!({kind.offer: orphan}))
                .await
                .status,
            400
        );
    }
    let other = FLAVOR.new_offer(&api, "large", "{}").await;
    let renamed = api
        .put(
            &FLAVOR.path_of(&other),
            json!({"flavor": {"name": "small"}}),
        )
        .await;
    assert_eq!(renamed.status, 409, "{}", renamed.text);
}

#[tokio::test]
async fn lists_have_filters_pages_and_fields() {
    let api = Api::new().await;
    for kind in [FLAVOR, ZONE] {
        for name in ["a", "b", "c"] {
            kind.new_offer(&api, name, "{}").await;
        }
        let root = format!("{}s", kind.offer);
        let names = |body: &Value| -> Vec<String> {
            let items = body[&root].as_array().unwrap().iter();
            items
                .map(|item| item["name"].as_str().unwrap().to_owned())
                .collect()
        };
        let page = api
            .get(&format!("{}?limit=2&sort=name:desc", kind.offers))
            .await;
        assert_eq!(names(&page.body), ["c", "b"], "{}", page.text);
        let links = &page.body[format!("{root}_links")];
        let next = links[0]["href"].as_str().unwrap();
        let next = next.strip_prefix("http://lb.example:9876").unwrap();
        assert_eq!(names(&api.get(next).await.body), ["a"]);
        let one = api
            .get(&format!("{}?name=b&fields=name", kind.offers))
            .await;
        assert_eq!(one.body[&root], json!([{"name": "b"}]));
        let disabled = api.get(&format!("{}?enabled=false", kind.offers)).await;
        assert_eq!(names(&disabled.body), [""; 0]);
        let project = api.get(&format!("{}?project_id=p", kind.offers)).await;
        assert_eq!(project.status, 400, "{}", project.text);
        let profiles = api.get(kind.profiles).await;
        let mut expected = vec![
            format!("{}s", kind.profile),
            format!("{}_links", kind.profile),
        ];
        expected.sort();
        assert_eq!(keys(&profiles.body), expected);
    }
}

#[tokio::test]
async fn a_load_balancer_takes_provider_and_topology_from_its_flavor() {
    let api = Api::new().await;
    let profile = json!({"name": "p", "provider_name": "octavia", "flavor_data": "{}"});
    let profile = api
        .post(FLAVOR.profiles, json!({"flavorprofile": profile}))
        .await;
    let flavor = json!({
        "name": "f", "flavor_profile_id": profile.body["flavorprofile"]["id"],
    });
    let flavor = api.post(FLAVOR.offers, json!({ "flavor": flavor })).await;
    let flavor = flavor.body["flavor"].clone();
    let lb = api.load_balancer(json!({"flavor_id": flavor["id"]})).await;
    assert_eq!(lb["flavor_id"], flavor["id"]);
    assert_eq!(lb["provider"], "octavia");
    let path = FLAVOR.path_of(&flavor);
    assert_eq!(api.delete(&path).await.status, 409);
    let mut create = json!({"loadbalancer": {
        "vip_subnet_id": SUBNET, "flavor_id": flavor["id"], "provider": "amphora",
    }});
    let mismatch = api.post("/v2/lbaas/loadbalancers", create.clone()).await;
    assert_eq!(mismatch.status, 400);
    create["loadbalancer"]["provider"] = json!("octavia");
    api.put(&path, json!({"flavor": {"enabled": false}})).await;
    let disabled = api.post("/v2/lbaas/loadbalancers", create.clone()).await;
    assert_eq!(disabled.status, 400);
    assert!(disabled.fault().contains("not allowed in this deployment"));
    create["loadbalancer"]["flavor_id"] = json!(crate::support::ABSENT);
    let unknown = api.post("/v2/lbaas/loadbalancers", create).await;
    assert_eq!(unknown.status, 400);
    api.delete(&format!("/v2/lbaas/loadbalancers/{}", id_of(&lb)))
        .await;
    assert_eq!(api.delete(&path).await.status, 409);
    api.settle(id_of(&lb)).await;
    assert_eq!(api.delete(&path).await.status, 204);
}

#[tokio::test]
async fn a_zone_limits_the_networks_of_a_vip() {
    let api = Api::new().await;
    let data = format!(r#"{{"valid_vip_networks": ["{OTHER_NETWORK}"]}}"#);
    let zone = ZONE.new_offer(&api, "west side", &data).await;
    let create = json!({"loadbalancer": {
        "vip_subnet_id": SUBNET, "availability_zone": "west side",
    }});
    let refused = api.post("/v2/lbaas/loadbalancers", create).await;
    assert_eq!(refused.status, 400, "{}", refused.text);
    let data = format!(r#"{{"valid_vip_networks": ["{NETWORK}"]}}"#);
    ZONE.new_offer(&api, "east", &data).await;
    let lb = api
        .load_balancer(json!({"availability_zone": "east"}))
        .await;
    assert_eq!(lb["availability_zone"], "east");
    assert_eq!(
        api.delete("/v2/lbaas/availabilityzones/east").await.status,
        409
    );
    let unknown = json!({"loadbalancer": {"vip_subnet_id": SUBNET, "availability_zone": "x"}});
    assert_eq!(
        api.post("/v2/lbaas/loadbalancers", unknown).await.status,
        400
    );
    let path = "/v2/lbaas/availabilityzones/west%20side";
    assert_eq!(api.get(path).await.body["availability_zone"], zone);
    assert_eq!(api.delete(path).await.status, 204);
}

#[tokio::test]
async fn a_zone_that_names_no_networks_leaves_it_to_the_deployment() {
    let configure = |config: &mut lb_api::ApiConfig| {
        config.valid_vip_networks = vec![OTHER_NETWORK.parse().unwrap()];
    };
    let api = Api::with(configure, Arc::new(NoIdentity)).await;
    for (zone, networks, status) in [
        ("silent", "{}".to_owned(), 400),
        ("none", r#"{"valid_vip_networks": []}"#.to_owned(), 400),
        (
            "own",
            format!(r#"{{"valid_vip_networks": ["{NETWORK}"]}}"#),
            201,
        ),
    ] {
        ZONE.new_offer(&api, zone, &networks).await;
        let create = json!({"vip_subnet_id": SUBNET, "availability_zone": zone});
        let path = "/v2/lbaas/loadbalancers";
        let answer = api.post(path, json!({ "loadbalancer": create })).await;
        assert_eq!(answer.status, status, "{zone}: {}", answer.text);
    }
}

#[tokio::test]
async fn providers_say_what_their_profiles_may_set() {
    let api = Api::new().await;
    for (path, root, first, count) in [
        (
            "flavor_capabilities",
            "flavor_capabilities",
            "loadbalancer_topology",
            5,
        ),
        (
            "availability_zone_capabilities",
            "availability_zone_capabilities",
            "compute_zone",
            4,
        ),
    ] {
        let path = format!("/v2/lbaas/providers/amphora/{path}");
        let answer = api.get(&path).await;
        assert_eq!(answer.status, 200);
        let items = answer.body[root].as_array().unwrap();
        assert_eq!(
            (items.len(), items[0]["name"].as_str()),
            (count, Some(first))
        );
        let one = api.get(&format!("{path}?name={first}&fields=name")).await;
        assert_eq!(one.body, json!({root: [{"name": first}]}));
        let other = path.replace("amphora", "nobody");
        let unknown = api.get(&other).await;
        assert_eq!(unknown.status, 400);
        assert_eq!(unknown.fault(), "Provider 'nobody' is not enabled.");
    }
}

#[tokio::test]
async fn a_member_of_a_project_reads_offers_and_nothing_more() {
    let api = Api::with(|_| {}, Arc::new(MemberOf(PROJECT))).await;
    for kind in [FLAVOR, ZONE] {
        assert_eq!(api.get(kind.offers).await.status, 200);
        let missing = format!("{}/{}", kind.offers, crate::support::ABSENT);
        assert_eq!(api.get(&missing).await.status, 404);
        assert_eq!(api.delete(&missing).await.status, 403);
        assert_eq!(api.get(kind.profiles).await.status, 403);
        let profile = json!({"name": "p", "provider_name": "amphora", kind.data: "{}"});
        let create = json!({kind.profile: profile});
        assert_eq!(api.post(kind.profiles, create).await.status, 403);
    }
    let capabilities = "/v2/lbaas/providers/amphora/flavor_capabilities";
    assert_eq!(api.get(capabilities).await.status, 403);
}
