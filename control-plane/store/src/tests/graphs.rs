use std::convert::Infallible;
use std::pin::pin;
use std::task::Poll;

use lb_model::{AmphoraStatus, Graph, LoadBalancerId, ProvisioningStatus};

use super::fixtures::{
    Choices, any_graph, at, change_anything, database, heard_at, listener, member, plain_graph,
    pool,
};
use crate::{Store, StoreError};

fn keep(graph: &mut Graph) -> Result<(), Infallible> {
    graph.load_balancer.name.push('x');
    Ok(())
}

#[tokio::test]
async fn a_graph_comes_back_as_it_went_in_and_as_it_was_changed() {
    let database = database().await;
    for seed in 1..=40 {
        let mut choices = Choices(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        let graph = any_graph(&mut choices);
        let id = graph.load_balancer.id;
        database.store.insert_graph(&graph).await.unwrap();
        assert_eq!(
            database.store.load_graph(id).await.unwrap().as_ref(),
            Some(&graph),
            "seed {seed}"
        );
        for round in 0..3 {
            let mut changed = graph.clone();
            let ((), written) = database
                .store
                .change_graph(id, at(round), |graph| {
                    let mut choices = Choices(seed + 77 + round as u64);
                    change_anything(graph, &mut choices);
                    changed = graph.clone();
                    Ok::<(), Infallible>(())
                })
                .await
                .unwrap()
                .unwrap()
                .unwrap();
            let loaded = database.store.load_graph(id).await.unwrap().unwrap();
            assert_eq!(loaded, written, "seed {seed}, round {round}");
            assert_eq!(
                loaded.load_balancer.generation,
                graph.load_balancer.generation + round as u64 + 1
            );
            changed.load_balancer.generation = loaded.load_balancer.generation;
            assert_eq!(loaded, changed, "seed {seed}, round {round}");
        }
    }
}

#[tokio::test]
async fn children_name_their_load_balancer() {
    let database = database().await;
    let store = database.store;
    let mut graph = plain_graph(ProvisioningStatus::Active);
    graph.listeners.push(listener(80, at(0)));
    let mut with_members = pool(at(0));
    with_members.members.push(member(at(0)));
    with_members.health_monitor = Some(super::fixtures::health_monitor(at(0)));
    graph.pools.push(with_members);
    store.insert_graph(&graph).await.unwrap();
    let id = Some(graph.load_balancer.id);
    let pool = &graph.pools[0];
    assert_eq!(
        store
            .load_balancer_of_listener(graph.listeners[0].id)
            .await
            .unwrap(),
        id
    );
    assert_eq!(store.load_balancer_of_pool(pool.id).await.unwrap(), id);
    assert_eq!(
        store
            .load_balancer_of_member(pool.members[0].id)
            .await
            .unwrap(),
        id
    );
    let monitor = pool.health_monitor.as_ref().unwrap().id;
    assert_eq!(
        store
            .load_balancer_of_health_monitor(monitor)
            .await
            .unwrap(),
        id
    );
    let amphora = graph.amphorae[0].id;
    assert_eq!(store.load_balancer_of_amphora(amphora).await.unwrap(), id);
    assert_eq!(
        store
            .load_balancer_of_listener(lb_model::ListenerId::random())
            .await
            .unwrap(),
        None
    );
}

#[tokio::test]
async fn a_refused_change_leaves_everything_as_it_was() {
    let database = database().await;
    let store = database.store;
    let graph = plain_graph(ProvisioningStatus::Active);
    store.insert_graph(&graph).await.unwrap();
    let id = graph.load_balancer.id;
    let answer = store
        .change_graph(id, at(1), |graph| {
            graph.listeners.push(listener(80, at(1)));
            Err::<(), &str>("immutable")
        })
        .await
        .unwrap();
    assert_eq!(answer, Some(Err("immutable")));
    assert_eq!(store.load_graph(id).await.unwrap(), Some(graph));
}

#[tokio::test]
async fn a_load_balancer_that_is_not_there_or_deleted_is_none() {
    let database = database().await;
    let store = database.store;
    let graph = plain_graph(ProvisioningStatus::Deleted);
    store.insert_graph(&graph).await.unwrap();
    for id in [LoadBalancerId::random(), graph.load_balancer.id] {
        assert_eq!(store.load_graph(id).await.unwrap(), None);
        assert_eq!(store.change_graph(id, at(0), keep).await.unwrap(), None);
        assert_eq!(
            store.update_operating_statuses(id, |_| {}).await.unwrap(),
            None
        );
    }
}

#[tokio::test]
async fn the_same_load_balancer_twice_is_a_duplicate() {
    let database = database().await;
    let store = database.store;
    let graph = plain_graph(ProvisioningStatus::Active);
    store.insert_graph(&graph).await.unwrap();
    assert!(matches!(
        store.insert_graph(&graph).await,
        Err(StoreError::Duplicate)
    ));
}

#[tokio::test]
async fn changes_through_two_pools_at_once_are_all_kept() {
    let database = database().await;
    let graph = plain_graph(ProvisioningStatus::Active);
    database.store.insert_graph(&graph).await.unwrap();
    let id = graph.load_balancer.id;
    // A second store has its own pool and its own queue of writers, as another process would.
    let other = Store::connect(&database.url).await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..40 {
        let store = if number % 2 == 0 {
            database.store.clone()
        } else {
            other.clone()
        };
        tasks.spawn(async move {
            store
                .change_graph(id, at(number), |graph| {
                    graph
                        .listeners
                        .push(listener(100 + number as u16, at(number)));
                    Ok::<(), Infallible>(())
                })
                .await
                .unwrap()
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let graph = database.store.load_graph(id).await.unwrap().unwrap();
    assert_eq!(graph.listeners.len(), 40);
    assert_eq!(graph.load_balancer.generation, 41);
}

#[tokio::test]
async fn a_change_dropped_at_any_point_happens_wholly_or_not_at_all() {
    let database = database().await;
    let store = database.store;
    let graph = plain_graph(ProvisioningStatus::Active);
    store.insert_graph(&graph).await.unwrap();
    let id = graph.load_balancer.id;
    let mut finished = false;
    for polls in 1.. {
        let before = store.load_graph(id).await.unwrap().unwrap();
        {
            let mut change = pin!(store.change_graph(id, at(polls), |graph| {
                graph.listeners.push(listener(80, at(polls)));
                graph.pools.push(pool(at(polls)));
                Ok::<(), Infallible>(())
            }));
            let mut left = polls;
            std::future::poll_fn(|context| {
                if let Poll::Ready(done) = change.as_mut().poll(context) {
                    finished = matches!(done, Ok(Some(Ok(_))));
                    return Poll::Ready(());
                }
                left -= 1;
                if left == 0 {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                }
            })
            .await;
        }
        let after = store.load_graph(id).await.unwrap().unwrap();
        let added = after.listeners.len() - before.listeners.len();
        assert_eq!(
            added,
            after.pools.len() - before.pools.len(),
            "after {polls} polls"
        );
        assert_eq!(
            after.load_balancer.generation,
            before.load_balancer.generation + added as u64
        );
        if finished {
            break;
        }
        assert!(polls < 500, "the change never finishes");
    }
}

#[tokio::test]
async fn operating_statuses_are_written_only_on_change_and_beside_other_writes() {
    let database = database().await;
    let store = database.store;
    let mut graph = plain_graph(ProvisioningStatus::Active);
    graph.pools.push(pool(at(0)));
    store.insert_graph(&graph).await.unwrap();
    let id = graph.load_balancer.id;
    let same = store
        .update_operating_statuses(id, |_| {})
        .await
        .unwrap()
        .unwrap();
    assert!(!same.changed);
    let offline = |graph: &mut Graph| {
        graph.pools[0].operating_status = lb_model::OperatingStatus::Offline;
    };
    let changed = store
        .update_operating_statuses(id, offline)
        .await
        .unwrap()
        .unwrap();
    assert!(changed.changed);
    assert_eq!(changed.revision, same.revision + 1);
    let again = store
        .update_operating_statuses(id, offline)
        .await
        .unwrap()
        .unwrap();
    assert_eq!((again.changed, again.revision), (false, changed.revision));
    let loaded = store.load_graph(id).await.unwrap().unwrap();
    assert_eq!(
        loaded.load_balancer.generation,
        graph.load_balancer.generation
    );

    // Both kinds of write at once: neither undoes the other.
    let api = async {
        for number in 0..20 {
            store
                .change_graph(id, at(number), |graph| {
                    graph.load_balancer.provisioning_status = ProvisioningStatus::PendingUpdate;
                    graph.pools[0].description = number.to_string();
                    Ok::<(), Infallible>(())
                })
                .await
                .unwrap();
        }
    };
    let reports = async {
        for number in 0..20 {
            store
                .update_operating_statuses(id, |graph| {
                    graph.pools[0].operating_status = if number % 2 == 0 {
                        lb_model::OperatingStatus::Online
                    } else {
                        lb_model::OperatingStatus::Degraded
                    };
                })
                .await
                .unwrap();
        }
    };
    tokio::join!(api, reports);
    let end = store.load_graph(id).await.unwrap().unwrap();
    assert_eq!(
        end.load_balancer.provisioning_status,
        ProvisioningStatus::PendingUpdate
    );
    assert_eq!(end.pools[0].description, "19");
    assert_eq!(
        end.pools[0].operating_status,
        lb_model::OperatingStatus::Degraded
    );
}

#[tokio::test]
async fn a_requested_failover_is_one_change_of_the_intent() {
    let database = database().await;
    let store = database.store;
    let cases = [
        (ProvisioningStatus::Active, AmphoraStatus::Allocated, true),
        (ProvisioningStatus::Error, AmphoraStatus::Allocated, true),
        (
            ProvisioningStatus::Active,
            AmphoraStatus::FailoverStopped,
            true,
        ),
        (ProvisioningStatus::Active, AmphoraStatus::Error, true),
        (
            ProvisioningStatus::PendingUpdate,
            AmphoraStatus::Allocated,
            false,
        ),
        (
            ProvisioningStatus::PendingDelete,
            AmphoraStatus::Allocated,
            false,
        ),
        (
            ProvisioningStatus::Active,
            AmphoraStatus::PendingDelete,
            false,
        ),
        (ProvisioningStatus::Active, AmphoraStatus::Deleted, false),
    ];
    for (status, amphora, expected) in cases {
        let mut graph = plain_graph(status);
        graph.amphorae[0].status = amphora;
        store.insert_graph(&graph).await.unwrap();
        let id = graph.amphorae[0].id;
        let before = store
            .load_graph(graph.load_balancer.id)
            .await
            .unwrap()
            .unwrap();
        let mut changed = store.changed();
        let requested = store.request_failover(id, at(5)).await.unwrap();
        assert_eq!(requested, expected, "{status} {amphora}");
        let after = store
            .load_graph(graph.load_balancer.id)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(changed.has_changed().unwrap(), expected);
        changed.mark_unchanged();
        if expected {
            assert_eq!(
                after.load_balancer.provisioning_status,
                ProvisioningStatus::PendingUpdate
            );
            assert_eq!(
                after.load_balancer.generation,
                before.load_balancer.generation + 1
            );
            assert!(after.amphorae[0].failover_requested);
            assert!(
                !store.request_failover(id, at(6)).await.unwrap(),
                "asked twice"
            );
        } else {
            assert_eq!(after, before);
        }
    }
}

#[tokio::test]
async fn only_old_deleted_rows_are_purged() {
    let database = database().await;
    let store = database.store;
    let mut old = plain_graph(ProvisioningStatus::Deleted);
    old.amphorae[0].status = AmphoraStatus::Deleted;
    old.load_balancer.tags = vec!["a".into()];
    let mut young = plain_graph(ProvisioningStatus::Deleted);
    young.load_balancer.updated_at = Some(at(100));
    young.amphorae[0].status = AmphoraStatus::Deleted;
    young.amphorae[0].updated_at = Some(at(100));
    let living = plain_graph(ProvisioningStatus::Active);
    let mut heard = plain_graph(ProvisioningStatus::Active);
    heard.amphorae[0].status = AmphoraStatus::Deleted;
    for graph in [&old, &young, &living, &heard] {
        store.insert_graph(graph).await.unwrap();
    }
    store
        .record_heartbeats(&[heard_at(heard.amphorae[0].id, 90)])
        .await
        .unwrap();
    let purged = store.purge_deleted(at(50)).await.unwrap();
    assert_eq!((purged.load_balancers, purged.amphorae), (1, 1));
    let known = [&old, &young, &living, &heard].map(|graph| graph.amphorae[0].id);
    let targets = store.heartbeat_targets(&known).await.unwrap();
    assert_eq!(targets.len(), 3);
    assert!(!targets.contains_key(&known[0]));
    let purged = store.purge_deleted(at(200)).await.unwrap();
    assert_eq!((purged.load_balancers, purged.amphorae), (1, 2));
    assert!(
        store
            .load_graph(living.load_balancer.id)
            .await
            .unwrap()
            .is_some()
    );
}
