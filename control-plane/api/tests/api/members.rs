//! `/pools/{id}/members`.

use serde_json::{Value, json};

use crate::support::{ABSENT, Api, SUBNET, id_of, keys};

/// A load balancer with a pool; the pool's id and its members' path.
async fn pool(api: &Api) -> (String, String) {
    let lb = api.load_balancer(json!({})).await;
    let id = id_of(&lb).to_owned();
    let pool = json!({"loadbalancer_id": id, "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN"});
    let pool = api.create("/v2/lbaas/pools", "pool", &id, pool).await;
    (id, format!("/v2/lbaas/pools/{}/members", id_of(&pool)))
}

fn member(last: u8, fields: Value) -> Value {
    let mut object = json!({"address": format!("10.0.0.{last}"), "protocol_port": 80});
    crate::support::merge(&mut object, fields);
    object
}

#[tokio::test]
async fn a_member_is_created_shown_updated_and_deleted() {
    let api = Api::new().await;
    let (lb, path) = pool(&api).await;
    let answer = api
        .post(
            &path,
            json!({"member": member(21, json!({"weight": "7", "subnet_id": SUBNET}))}),
        )
        .await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    let object = answer.body["member"].clone();
    assert_eq!(
        keys(&object),
        [
            "address",
            "admin_state_up",
            "backup",
            "created_at",
            "id",
            "monitor_address",
            "monitor_port",
            "name",
            "operating_status",
            "project_id",
            "protocol_port",
            "provisioning_status",
            "subnet_id",
            "tags",
            "tenant_id",
            "updated_at",
            "vnic_type",
            "weight",
        ]
    );
    assert_eq!(
        (&object["weight"], &object["operating_status"]),
        (&json!(7), &json!("NO_MONITOR"))
    );
    let own = format!("{path}/{}", id_of(&object));
    assert_eq!(api.get(&own).await.body["member"], object);
    // The pool is locked now, and it is the pool that is named.
    let answer = api.put(&own, json!({"member": {}})).await;
    assert_eq!(answer.status, 409);
    assert!(
        answer.fault().starts_with("Pool ")
            && answer
                .fault()
                .ends_with(" is immutable and cannot be updated.")
    );
    api.settle(&lb).await;

    let answer = api
        .put(
            &own,
            json!({"member": {"weight": null, "admin_state_up": false, "name": "n"}}),
        )
        .await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.body["member"]["weight"], 1);
    assert_eq!(
        answer.body["member"]["provisioning_status"],
        "PENDING_UPDATE"
    );
    api.settle(&lb).await;
    assert_eq!(api.delete(&own).await.status, 204);
    assert_eq!(api.status_of(&own, "member").await, "PENDING_DELETE");
    api.settle(&lb).await;
    assert_eq!(api.get(&own).await.status, 404);
}

#[tokio::test]
async fn a_member_is_found_in_its_own_pool_only() {
    let api = Api::new().await;
    let (lb, path) = pool(&api).await;
    let object = api
        .create(&path, "member", &lb, member(21, json!({})))
        .await;
    let (_, other) = pool(&api).await;
    let answer = api.get(&format!("{other}/{}", id_of(&object))).await;
    assert_eq!(
        (answer.status.as_u16(), &answer.body["faultcode"]),
        (404, &json!("Client"))
    );
}

#[tokio::test]
async fn a_bad_member_is_refused() {
    let api = Api::new().await;
    let (lb, path) = pool(&api).await;
    api.create(&path, "member", &lb, member(21, json!({})))
        .await;
    for (object, status, fault) in [
        (
            member(21, json!({})),
            409,
            "Another member on this pool is already using ip 10.0.0.21 on protocol_port 80",
        ),
        (
            member(22, json!({"subnet_id": ABSENT})),
            400,
            "Subnet 99999999-9999-4999-8999-999999999999 not found.",
        ),
        (
            member(22, json!({"weight": 300})),
            400,
            "Invalid input for field/attribute weight. Value: '300'. Value should be lower or equal to 256",
        ),
        (
            json!({"address": "10.0.0.22"}),
            400,
            "Invalid input for field/attribute protocol_port. Value: 'None'. Mandatory field missing.",
        ),
    ] {
        let answer = api.post(&path, json!({"member": object})).await;
        assert_eq!((answer.status.as_u16(), answer.fault()), (status, fault));
    }
}

#[tokio::test]
async fn a_batch_creates_updates_and_deletes_in_one_step() {
    let api = Api::new().await;
    let (lb, path) = pool(&api).await;
    api.create(
        &path,
        "member",
        &lb,
        member(21, json!({"name": "keep", "weight": 5})),
    )
    .await;
    api.create(&path, "member", &lb, member(22, json!({})))
        .await;
    let answer = api
        .put(
            &path,
            json!({"members": [member(21, json!({})), member(23, json!({}))]}),
        )
        .await;
    assert_eq!((answer.status.as_u16(), answer.text.as_str()), (202, ""));
    let listed = api.get(&path).await.body;
    let seen: Vec<(&str, &str)> = listed["members"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| {
            (
                item["address"].as_str().unwrap(),
                item["provisioning_status"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            ("10.0.0.21", "PENDING_UPDATE"),
            ("10.0.0.22", "PENDING_DELETE"),
            ("10.0.0.23", "PENDING_CREATE")
        ]
    );
    assert_eq!(
        (
            &listed["members"][0]["name"],
            &listed["members"][0]["weight"]
        ),
        (&json!("keep"), &json!(1))
    );
    api.settle(&lb).await;

    let answer = api
        .put(
            &format!("{path}?additive_only=True"),
            json!({"members": [member(24, json!({}))]}),
        )
        .await;
    assert_eq!(answer.status, 202);
    api.settle(&lb).await;
    assert_eq!(
        api.get(&path).await.body["members"]
            .as_array()
            .unwrap()
            .len(),
        3
    );
    assert_eq!(api.put(&path, json!({"members": []})).await.status, 202);
    api.settle(&lb).await;
    assert_eq!(api.get(&path).await.body["members"], json!([]));
}

/// P06
#[tokio::test]
async fn a_batch_without_a_difference_or_with_a_fault_leaves_everything_active() {
    let api = Api::new().await;
    let (lb, path) = pool(&api).await;
    api.create(&path, "member", &lb, member(21, json!({})))
        .await;
    let id = lb.parse().unwrap();
    let before = api.store.load_graph(id).await.unwrap();
    for (body, status) in [
        (json!({"members": [member(21, json!({}))]}), 202),
        (
            json!({"members": [member(21, json!({})), member(21, json!({}))]}),
            400,
        ),
        (
            json!({"members": [member(30, json!({})), member(30, json!({}))]}),
            400,
        ),
        (
            json!({"members": [member(30, json!({"subnet_id": ABSENT}))]}),
            400,
        ),
        (json!({"members": [member(30, json!({"wieght": 1}))]}), 400),
        (json!({"members": {}}), 400),
        (json!({}), 400),
    ] {
        let answer = api.put(&path, body.clone()).await;
        assert_eq!(answer.status, status, "{body}: {}", answer.text);
        assert_eq!(api.store.load_graph(id).await.unwrap(), before, "{body}");
    }
}
