use std::convert::Infallible;

use lb_model::{Graph, PerResource, ProvisioningStatus, Resource, UNLIMITED};

use super::fixtures::{at, database, listener, plain_graph};
use crate::{Query, RECEIPT_LIFE, Receipt, Store, StoreError};

fn receipt(key: &str, location: &str) -> Receipt {
    Receipt {
        project_id: "project".to_owned(),
        key: key.to_owned(),
        fingerprint: "f".repeat(64),
        location: location.to_owned(),
    }
}

async fn add_listener(
    store: &Store,
    graph: &Graph,
    receipt: &Receipt,
    port: u16,
) -> Result<(), StoreError> {
    store
        .change_graph_once(graph.load_balancer.id, at(1), Some(receipt), |graph| {
            graph.listeners.push(listener(port, at(1)));
            Ok::<(), Infallible>(())
        })
        .await
        .map(|_| ())
}

#[tokio::test]
async fn a_receipt_is_there_when_its_object_is_and_only_then() {
    let database = database().await;
    let store = database.store.with_default_quota(PerResource {
        listener: 1,
        ..PerResource::all(UNLIMITED)
    });
    let find = async |key: &str| store.receipt("project", key, at(1)).await.unwrap();
    let graph = plain_graph(ProvisioningStatus::Active);
    let first = receipt("first", "listeners/1");
    store.insert_graph_once(&graph, Some(&first)).await.unwrap();
    assert_eq!(find("first").await, Some(first));
    assert_eq!(store.receipt("other", "first", at(1)).await.unwrap(), None);
    let second = receipt("second", "listeners/2");
    add_listener(&store, &graph, &second, 80).await.unwrap();
    assert_eq!(find("second").await, Some(second));
    let third = receipt("third", "listeners/3");
    assert!(matches!(
        add_listener(&store, &graph, &third, 81).await,
        Err(StoreError::QuotaReached(Resource::Listener))
    ));
    assert_eq!(find("third").await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_creates_with_one_key_at_once_one_succeeds() {
    let database = database().await;
    let other = Store::connect(&database.url).await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..16 {
        let store = if number % 2 == 0 {
            database.store.clone()
        } else {
            other.clone()
        };
        tasks.spawn(async move {
            let graph = plain_graph(ProvisioningStatus::Active);
            let location = format!("loadbalancers/{}", graph.load_balancer.id);
            let created = store
                .insert_graph_once(&graph, Some(&receipt("key", &location)))
                .await;
            match created {
                Ok(()) => Some(location),
                Err(StoreError::KeyUsed) => None,
                Err(error) => panic!("{error}"),
            }
        });
    }
    let results = tasks.join_all().await;
    let created: Vec<String> = results.into_iter().flatten().collect();
    let stored = database.store.receipt("project", "key", at(0)).await;
    assert_eq!(created, [stored.unwrap().unwrap().location]);
    let rows = database.store.list_load_balancers(&Query::default()).await;
    assert_eq!(rows.unwrap().len(), 1);
}

#[tokio::test]
async fn a_key_may_be_used_again_after_its_time_and_its_receipt_is_purged() {
    let database = database().await;
    let store = &database.store;
    let graph = plain_graph(ProvisioningStatus::Active);
    store
        .insert_graph_once(&graph, Some(&receipt("key", "loadbalancers/old")))
        .await
        .unwrap();
    let born = graph.load_balancer.created_at;
    let life = i64::try_from(RECEIPT_LIFE.as_millis()).unwrap();
    let (still, over) = (born.plus_millis(life - 1), born.plus_millis(life));
    assert!(
        store
            .receipt("project", "key", still)
            .await
            .unwrap()
            .is_some()
    );
    assert_eq!(store.receipt("project", "key", over).await.unwrap(), None);
    let mut again = plain_graph(ProvisioningStatus::Active);
    again.load_balancer.created_at = over;
    let new = receipt("key", "loadbalancers/new");
    store.insert_graph_once(&again, Some(&new)).await.unwrap();
    assert_eq!(
        store.receipt("project", "key", over).await.unwrap(),
        Some(new)
    );
    assert_eq!(store.purge_receipts(over).await.unwrap(), 0);
    let end = over.plus_millis(life);
    assert_eq!(store.purge_receipts(end).await.unwrap(), 1);
    assert_eq!(store.receipt("project", "key", over).await.unwrap(), None);
}
