use std::collections::HashSet;
use std::convert::Infallible;
use std::time::Duration;

use lb_model::{AmphoraStatus, Graph, ProvisioningStatus};

use super::fixtures::{at, database, listener, plain_graph};
use crate::{Finish, Lease, Outcome, Progress, Store};

const TTL: Duration = Duration::from_secs(30);

async fn pending(store: &Store) -> Graph {
    let graph = plain_graph(ProvisioningStatus::PendingCreate);
    store.insert_graph(&graph).await.unwrap();
    graph
}

async fn claim(store: &Store, owner: &str, seconds: i64) -> Option<Lease> {
    store.claim(owner, TTL, at(seconds)).await.unwrap()
}

fn active(graph: &mut Graph) {
    graph.load_balancer.provisioning_status = ProvisioningStatus::Active;
}

#[tokio::test]
async fn two_claimers_at_once_never_get_the_same_load_balancer() {
    let database = database().await;
    for _ in 0..30 {
        pending(&database.store).await;
    }
    let other = Store::connect(&database.url).await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..8 {
        let store = if number % 2 == 0 {
            database.store.clone()
        } else {
            other.clone()
        };
        tasks.spawn(async move {
            let mut taken = Vec::new();
            while let Some(lease) = claim(&store, &format!("worker-{number}"), 1).await {
                taken.push(lease.load_balancer_id);
            }
            taken
        });
    }
    let all: Vec<_> = tasks.join_all().await.into_iter().flatten().collect();
    assert_eq!(all.len(), 30);
    assert_eq!(all.iter().collect::<HashSet<_>>().len(), 30);
}

#[tokio::test]
async fn the_longest_due_is_claimed_first_and_what_is_not_due_not_at_all() {
    let database = database().await;
    let store = database.store;
    let idle = plain_graph(ProvisioningStatus::Active);
    store.insert_graph(&idle).await.unwrap();
    let mut graphs = Vec::new();
    for seconds in [30, 10, 20] {
        let mut graph = plain_graph(ProvisioningStatus::PendingCreate);
        graph.load_balancer.created_at = at(seconds);
        store.insert_graph(&graph).await.unwrap();
        graphs.push(graph.load_balancer.id);
    }
    assert_eq!(claim(&store, "a", 5).await, None);
    for expected in [graphs[1], graphs[2], graphs[0]] {
        assert_eq!(
            claim(&store, "a", 40).await.unwrap().load_balancer_id,
            expected
        );
    }
    assert_eq!(claim(&store, "a", 40).await, None);
}

#[tokio::test]
async fn a_lease_that_ran_out_is_taken_over_and_its_holder_is_fenced() {
    let database = database().await;
    let store = database.store;
    let graph = pending(&store).await;
    let first = claim(&store, "a", 1).await.unwrap();
    assert_eq!(claim(&store, "b", 30).await, None, "still held");
    assert!(store.renew(&first, TTL, at(20)).await.unwrap());
    assert_eq!(claim(&store, "b", 45).await, None, "renewed");
    let second = claim(&store, "b", 50).await.unwrap();
    assert!(second.fence > first.fence);

    assert!(!store.renew(&first, TTL, at(51)).await.unwrap());
    assert_eq!(
        store.save_progress(&first, at(51), active).await.unwrap(),
        Progress::LeaseLost
    );
    let outcome = Outcome::default();
    assert_eq!(
        store
            .finish(&first, 1, &outcome, at(51), active)
            .await
            .unwrap(),
        Finish::LeaseLost
    );
    assert!(
        !store
            .note_attempt(&first, 1, &outcome, at(51))
            .await
            .unwrap()
    );
    store.release(&first, Some(at(1000))).await.unwrap();
    assert!(
        store.renew(&second, TTL, at(52)).await.unwrap(),
        "release of a lost lease"
    );
    assert_eq!(
        store.load_graph(graph.load_balancer.id).await.unwrap(),
        Some(graph)
    );
    assert_eq!(store.outcome(second.load_balancer_id).await.unwrap(), None);
}

#[tokio::test]
async fn an_expired_holder_may_go_on_until_somebody_claims() {
    let database = database().await;
    let store = database.store;
    pending(&store).await;
    let lease = claim(&store, "a", 1).await.unwrap();
    assert_eq!(
        store
            .finish(&lease, 1, &Outcome::default(), at(500), active)
            .await
            .unwrap(),
        Finish::Written
    );
}

#[tokio::test]
async fn an_outcome_of_an_older_intent_is_not_written() {
    let database = database().await;
    let store = database.store;
    let graph = pending(&store).await;
    let id = graph.load_balancer.id;
    let mut lease = claim(&store, "a", 1).await.unwrap();
    store
        .change_graph(id, at(2), |graph| {
            graph.load_balancer.name = "new".into();
            Ok::<(), Infallible>(())
        })
        .await
        .unwrap();
    let outcome = Outcome::default();
    assert_eq!(
        store
            .finish(&lease, 1, &outcome, at(3), active)
            .await
            .unwrap(),
        Finish::Superseded
    );
    let loaded = store.load_graph(id).await.unwrap().unwrap();
    assert_eq!(
        loaded.load_balancer.provisioning_status,
        ProvisioningStatus::PendingCreate
    );

    // A back-off of the old intent does not delay the new one.
    store.release(&lease, Some(at(1000))).await.unwrap();
    lease = claim(&store, "a", 4).await.unwrap();
    assert_eq!(lease.generation, 2);
    assert_eq!(
        store
            .finish(&lease, 2, &outcome, at(5), active)
            .await
            .unwrap(),
        Finish::Written
    );
    store.release(&lease, None).await.unwrap();
    assert_eq!(
        claim(&store, "a", 1_000_000).await,
        None,
        "nothing is left to do"
    );
}

#[tokio::test]
async fn a_back_off_holds_until_it_is_over_or_the_intent_changes() {
    let database = database().await;
    let store = database.store;
    let graph = pending(&store).await;
    let lease = claim(&store, "a", 1).await.unwrap();
    store.release(&lease, Some(at(100))).await.unwrap();
    assert_eq!(claim(&store, "a", 99).await, None);
    let lease = claim(&store, "a", 100).await.unwrap();
    store.release(&lease, Some(at(1000))).await.unwrap();
    let mut changed = store.changed();
    store
        .change_graph(
            graph.load_balancer.id,
            at(200),
            |_| Ok::<(), Infallible>(()),
        )
        .await
        .unwrap();
    assert!(changed.has_changed().unwrap());
    changed.mark_unchanged();
    assert!(claim(&store, "a", 200).await.is_some());
}

#[tokio::test]
async fn finish_removes_what_is_gone_and_keeps_deleted_load_balancers() {
    let database = database().await;
    let store = database.store;
    let mut graph = plain_graph(ProvisioningStatus::PendingDelete);
    graph.listeners.push(listener(80, at(0)));
    graph.amphorae[0].status = AmphoraStatus::PendingDelete;
    store.insert_graph(&graph).await.unwrap();
    let id = graph.load_balancer.id;
    let lease = claim(&store, "a", 1).await.unwrap();
    let outcome = Outcome {
        intended: "delete".into(),
        planned: vec!["- server".into()],
        done: vec!["- server".into()],
        ..Outcome::default()
    };
    assert!(
        store
            .note_attempt(&lease, 1, &outcome, at(2))
            .await
            .unwrap()
    );
    let finish = store
        .finish(&lease, 1, &outcome, at(3), |graph| {
            graph.listeners.clear();
            graph.amphorae[0].status = AmphoraStatus::Deleted;
            graph.load_balancer.provisioning_status = ProvisioningStatus::Deleted;
        })
        .await
        .unwrap();
    assert_eq!(finish, Finish::Written);
    assert_eq!(store.load_graph(id).await.unwrap(), None);
    assert_eq!(
        store
            .load_balancer_of_listener(graph.listeners[0].id)
            .await
            .unwrap(),
        None
    );
    let stored = store.outcome(id).await.unwrap().unwrap();
    assert_eq!(
        (stored.generation, stored.attempts, stored.finished_at),
        (1, 2, at(3))
    );
    assert_eq!(stored.outcome, outcome);
    assert_eq!(claim(&store, "a", 1000).await, None);
}

#[tokio::test]
async fn work_left_in_the_graph_stays_due() {
    let database = database().await;
    let store = database.store;
    let graph = pending(&store).await;
    let lease = claim(&store, "a", 1).await.unwrap();
    let finish = store
        .finish(&lease, 1, &Outcome::default(), at(2), |graph| {
            active(graph);
            graph.amphorae[0].status = AmphoraStatus::PendingDelete;
        })
        .await
        .unwrap();
    assert_eq!(finish, Finish::Written);
    store.release(&lease, Some(at(10))).await.unwrap();
    assert_eq!(claim(&store, "a", 9).await, None);
    let lease = claim(&store, "a", 10).await.unwrap();
    assert_eq!(lease.load_balancer_id, graph.load_balancer.id);
}

#[tokio::test]
async fn progress_keeps_the_generation_and_does_not_undo_other_writes() {
    let database = database().await;
    let store = database.store;
    let graph = pending(&store).await;
    let id = graph.load_balancer.id;
    let lease = claim(&store, "a", 1).await.unwrap();
    store
        .change_graph(id, at(2), |graph| {
            graph.load_balancer.name = "new".into();
            Ok::<(), Infallible>(())
        })
        .await
        .unwrap();
    let progress = store
        .save_progress(&lease, at(3), |graph| {
            graph.amphorae[0].compute_id = Some("server".into());
            graph.load_balancer.generation = 99;
        })
        .await
        .unwrap();
    let Progress::Written(written) = progress else {
        panic!("{progress:?}");
    };
    let loaded = store.load_graph(id).await.unwrap().unwrap();
    assert_eq!(*written, loaded);
    assert_eq!(loaded.load_balancer.name, "new");
    assert_eq!(loaded.load_balancer.generation, 2);
    assert_eq!(loaded.amphorae[0].compute_id.as_deref(), Some("server"));
}
