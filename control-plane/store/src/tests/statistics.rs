use std::convert::Infallible;

use lb_model::{AmphoraId, AmphoraStatus, Graph, ListenerId, ProvisioningStatus};

use super::fixtures::{amphora, at, database, listener, plain_graph};
use crate::{Reading, Statistics, StatsSample, Store};

fn counters(n: u64) -> Statistics {
    Statistics {
        bytes_in: n * 10,
        bytes_out: n * 100,
        active_connections: n % 7,
        total_connections: n,
        request_errors: n / 10,
    }
}

async fn served(store: &Store) -> (Graph, ListenerId, AmphoraId) {
    let mut graph = plain_graph(ProvisioningStatus::Active);
    graph.listeners.push(listener(80, at(0)));
    store.insert_graph(&graph).await.unwrap();
    let ids = (graph.listeners[0].id, graph.amphorae[0].id);
    (graph, ids.0, ids.1)
}

async fn totals(store: &Store, listener_id: ListenerId, amphora_id: AmphoraId, epoch: u64, n: u64) {
    let reading = Reading::Totals {
        epoch,
        counters: counters(n),
    };
    store
        .add_listener_stats(&[StatsSample {
            listener_id,
            amphora_id,
            reading,
        }])
        .await
        .unwrap();
}

async fn connections(store: &Store, listener: ListenerId) -> u64 {
    store
        .listener_stats(listener)
        .await
        .unwrap()
        .total_connections
}

#[tokio::test]
async fn absolute_readings_may_repeat_come_late_and_start_anew() {
    let database = database().await;
    let store = database.store;
    let (graph, listener, amphora) = served(&store).await;
    // epoch, reading, expected total
    for (epoch, reading, expected) in [
        (5, 10, 10),
        (5, 10, 10),
        (5, 25, 25),
        (5, 20, 25),
        (9, 3, 28),
        (5, 30, 28),
        (9, 4, 29),
    ] {
        totals(&store, listener, amphora, epoch, reading).await;
        assert_eq!(
            connections(&store, listener).await,
            expected,
            "{epoch}, {reading}"
        );
    }
    let sum = store
        .load_balancer_stats(graph.load_balancer.id)
        .await
        .unwrap();
    assert_eq!(
        (sum.total_connections, sum.bytes_in, sum.bytes_out),
        (29, 290, 2900)
    );
    assert_eq!(
        store.amphora_stats(amphora).await.unwrap(),
        vec![(listener, sum)]
    );
}

#[tokio::test]
async fn a_sender_without_epochs_that_starts_anew_loses_nothing() {
    let database = database().await;
    let store = database.store;
    let (_, listener, amphora) = served(&store).await;
    for (reading, expected) in [(10, 10), (12, 12), (3, 15), (5, 17)] {
        totals(&store, listener, amphora, 0, reading).await;
        assert_eq!(connections(&store, listener).await, expected);
    }
}

#[tokio::test]
async fn deltas_of_one_batch_all_count() {
    let database = database().await;
    let store = database.store;
    let (_, listener_id, amphora_id) = served(&store).await;
    let samples: Vec<StatsSample> = (1..=4)
        .map(|n| StatsSample {
            listener_id,
            amphora_id,
            reading: Reading::Deltas(counters(n)),
        })
        .collect();
    store.add_listener_stats(&samples).await.unwrap();
    let stats = store.listener_stats(listener_id).await.unwrap();
    assert_eq!((stats.total_connections, stats.active_connections), (10, 4));
}

#[tokio::test]
async fn totals_do_not_go_back_when_an_amphora_is_replaced() {
    let database = database().await;
    let store = database.store;
    let (graph, listener, old) = served(&store).await;
    let id = graph.load_balancer.id;
    totals(&store, listener, old, 1, 40).await;
    let new = amphora(id, AmphoraStatus::Allocated, at(5));
    store
        .change_graph(id, at(6), |graph| {
            graph.amphorae.push(new.clone());
            Ok::<(), Infallible>(())
        })
        .await
        .unwrap();
    totals(&store, listener, new.id, 2, 2).await;
    store
        .change_graph(id, at(7), |graph| {
            graph
                .amphorae
                .iter_mut()
                .find(|amphora| amphora.id == old)
                .unwrap()
                .status = AmphoraStatus::Deleted;
            Ok::<(), Infallible>(())
        })
        .await
        .unwrap();
    assert_eq!(connections(&store, listener).await, 42);
    let stats = store.listener_stats(listener).await.unwrap();
    assert_eq!(stats.active_connections, counters(2).active_connections);
    // A last reading that arrives after the end was counted already.
    totals(&store, listener, old, 1, 41).await;
    assert_eq!(connections(&store, listener).await, 42);
    assert_eq!(store.amphora_stats(old).await.unwrap(), vec![]);
}

#[tokio::test]
async fn statistics_go_with_their_listener() {
    let database = database().await;
    let store = database.store;
    let (graph, listener, amphora) = served(&store).await;
    totals(&store, listener, amphora, 1, 40).await;
    store
        .change_graph(graph.load_balancer.id, at(7), |graph| {
            graph.listeners.clear();
            Ok::<(), Infallible>(())
        })
        .await
        .unwrap();
    totals(&store, listener, amphora, 1, 41).await;
    assert_eq!(
        store.listener_stats(listener).await.unwrap(),
        Statistics::default()
    );
    assert_eq!(store.amphora_stats(amphora).await.unwrap(), vec![]);
}
