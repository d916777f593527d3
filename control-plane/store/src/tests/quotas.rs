use std::convert::Infallible;

use lb_model::{Graph, PerResource, ProvisioningStatus, Quota, Resource, UNLIMITED};

use super::fixtures::{at, database, health_monitor, listener, member, plain_graph, pool};
use crate::{Direction, Query, Store, StoreError};

const PROJECT: &str = lb_model::sample::PROJECT;

async fn limit(store: &Store, limits: PerResource<Option<i32>>) {
    store
        .change_quota(PROJECT, at(0), |quota| *quota = Quota(limits))
        .await
        .unwrap();
}

fn only(set: impl FnOnce(&mut PerResource<Option<i32>>)) -> PerResource<Option<i32>> {
    let mut limits = PerResource::default();
    set(&mut limits);
    limits
}

/// How many of the calls were taken; the others were refused for `resource`.
fn taken(results: Vec<Result<(), StoreError>>, resource: Resource) -> usize {
    let mut taken = 0;
    for result in results {
        match result {
            Ok(()) => taken += 1,
            Err(StoreError::QuotaReached(refused)) => assert_eq!(refused, resource),
            Err(error) => panic!("{error}"),
        }
    }
    taken
}

async fn together<F>(calls: Vec<F>) -> Vec<Result<(), StoreError>>
where
    F: Future<Output = Result<(), StoreError>> + Send + 'static,
{
    let mut tasks = tokio::task::JoinSet::new();
    for call in calls {
        tasks.spawn(call);
    }
    tasks.join_all().await
}

async fn add(
    store: &Store,
    graph: &Graph,
    change: impl Fn(&mut Graph) + Send + Sync,
) -> Result<(), StoreError> {
    store
        .change_graph(graph.load_balancer.id, at(1), |graph| {
            change(graph);
            Ok::<(), Infallible>(())
        })
        .await
        .map(|answer| assert!(matches!(answer, Some(Ok(_)))))
}

// P89
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn load_balancers_created_at_once_never_exceed_the_limit() {
    let database = database().await;
    limit(
        &database.store,
        only(|limits| limits.load_balancer = Some(7)),
    )
    .await;
    // Another process has a pool and a queue of writers of its own.
    let other = Store::connect(&database.url).await.unwrap();
    let calls = (0..40)
        .map(|number| {
            let store = if number % 2 == 0 {
                database.store.clone()
            } else {
                other.clone()
            };
            async move {
                let graph = plain_graph(ProvisioningStatus::Active);
                store.insert_graph(&graph).await
            }
        })
        .collect();
    assert_eq!(taken(together(calls).await, Resource::LoadBalancer), 7);
    let stored = database.store.list_load_balancers(&Query::default()).await;
    assert_eq!(stored.unwrap().len(), 7);
}

// P89
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn members_created_at_once_below_different_load_balancers_never_exceed_the_limit() {
    let database = database().await;
    let store = &database.store;
    let mut graphs = Vec::new();
    for _ in 0..4 {
        let mut graph = plain_graph(ProvisioningStatus::Active);
        graph.pools.push(pool(at(0)));
        store.insert_graph(&graph).await.unwrap();
        graphs.push(graph);
    }
    limit(store, only(|limits| limits.member = Some(10))).await;
    let calls = (0..32)
        .map(|number| {
            let store = store.clone();
            let graph = graphs[number % graphs.len()].clone();
            async move {
                add(&store, &graph, move |graph| {
                    let mut member = member(at(number as i64));
                    member.protocol_port = 1000 + number as u16;
                    graph.pools[0].members.push(member);
                })
                .await
            }
        })
        .collect();
    assert_eq!(taken(together(calls).await, Resource::Member), 10);
}

#[tokio::test]
async fn a_refused_load_balancer_leaves_nothing_behind() {
    let database = database().await;
    let store = &database.store;
    limit(store, only(|limits| limits.health_monitor = Some(0))).await;
    let mut graph = plain_graph(ProvisioningStatus::PendingCreate);
    graph.load_balancer.tags = vec!["red".to_owned()];
    let mut pool = pool(at(0));
    pool.health_monitor = Some(health_monitor(at(0)));
    graph.pools.push(pool);
    assert!(matches!(
        store.insert_graph(&graph).await,
        Err(StoreError::QuotaReached(Resource::HealthMonitor))
    ));
    assert_eq!(
        store.load_graph(graph.load_balancer.id).await.unwrap(),
        None
    );
    // The same ids are free: no row of it stayed.
    limit(store, PerResource::default()).await;
    store.insert_graph(&graph).await.unwrap();
}

#[tokio::test]
async fn each_kind_has_a_limit_of_its_own_and_deleted_load_balancers_do_not_count() {
    let database = database().await;
    let store = database.store.with_default_quota(PerResource {
        load_balancer: 1,
        listener: 1,
        ..PerResource::all(UNLIMITED)
    });
    let graph = plain_graph(ProvisioningStatus::Active);
    store.insert_graph(&graph).await.unwrap();
    add(&store, &graph, |graph| {
        graph.listeners.push(listener(80, at(1)))
    })
    .await
    .unwrap();
    for port in [81, 82] {
        let refused = add(&store, &graph, move |graph| {
            graph.listeners.push(listener(port, at(2)));
        });
        assert!(matches!(
            refused.await,
            Err(StoreError::QuotaReached(Resource::Listener))
        ));
    }
    let another = plain_graph(ProvisioningStatus::Active);
    assert!(matches!(
        store.insert_graph(&another).await,
        Err(StoreError::QuotaReached(Resource::LoadBalancer))
    ));
    add(&store, &graph, |graph| {
        graph.load_balancer.provisioning_status = ProvisioningStatus::PendingDelete;
    })
    .await
    .unwrap();
    assert!(store.insert_graph(&another).await.is_err());
    add(&store, &graph, |graph| {
        graph.listeners.clear();
        graph.load_balancer.provisioning_status = ProvisioningStatus::Deleted;
    })
    .await
    .unwrap();
    store.insert_graph(&another).await.unwrap();
}

#[tokio::test]
async fn a_project_is_listed_once_it_has_created_something_or_was_given_limits() {
    let database = database().await;
    let store = &database.store;
    assert_eq!(store.list_quotas(&Query::default()).await.unwrap(), []);
    assert!(!store.reset_quota(PROJECT).await.unwrap());
    let graph = plain_graph(ProvisioningStatus::Active);
    store.insert_graph(&graph).await.unwrap();
    for name in ["a", "z"] {
        store
            .change_quota(name, at(5), |quota| quota.0.pool = Some(3))
            .await
            .unwrap();
    }
    let names = |query: Query| async move {
        let rows = store.list_quotas(&query).await.unwrap();
        rows.into_iter()
            .map(|row| row.project_id)
            .collect::<Vec<_>>()
    };
    assert_eq!(names(Query::default()).await, [PROJECT, "a", "z"]);
    let sorted = Query {
        sort: vec![("project_id".to_owned(), Direction::Descending)],
        limit: Some(1),
        marker: Some("z".to_owned()),
        ..Query::default()
    };
    assert_eq!(names(sorted).await, ["a"]);
    assert!(store.reset_quota("a").await.unwrap());
    assert_eq!(store.quota("a").await.unwrap(), Some(Quota::default()));
    assert_eq!(store.quota("nobody").await.unwrap(), None);
}
