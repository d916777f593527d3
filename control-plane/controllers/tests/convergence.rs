//! Crash everywhere: whatever call fails, and wherever a worker dies, the end is the right one, nothing is left over,
//! and one more pass does nothing.

mod support;

use lb_drivers::fake::FaultPlan;
use lb_drivers::network::vip_port_name;
use lb_model::{Graph, LoadBalancerId, ProvisioningStatus, sample};
use lb_store::testing;

use support::{Bench, Fault, THIRD_SUBNET, full};

const DRIVER_FAULTS: [(&str, Fault); 4] = [
    ("fails before", Fault::Driver(FaultPlan::FailBefore)),
    ("fails after", Fault::Driver(FaultPlan::FailAfter)),
    ("dies before", Fault::Driver(FaultPlan::DieBefore)),
    ("dies after", Fault::Driver(FaultPlan::DieAfter)),
];

const STORE_FAULTS: [(&str, Fault); 6] = [
    (
        "store fails before",
        Fault::Store(testing::FaultPlan::FailBefore),
    ),
    (
        "store fails after",
        Fault::Store(testing::FaultPlan::FailAfter),
    ),
    (
        "database lost before",
        Fault::Store(testing::FaultPlan::LoseBefore),
    ),
    (
        "database lost after",
        Fault::Store(testing::FaultPlan::LoseAfter),
    ),
    (
        "dies before a transaction",
        Fault::Store(testing::FaultPlan::DieBefore),
    ),
    (
        "dies after a transaction",
        Fault::Store(testing::FaultPlan::DieAfter),
    ),
];

/// More calls than any operation makes.
const CALLS: u64 = 400;

/// Runs an operation once for each call it makes, of a driver and of the store, and each way that call can go wrong.
async fn crash_everywhere<S, C>(start: S, check: C, end: ProvisioningStatus)
where
    S: AsyncFn(&Bench) -> LoadBalancerId,
    C: AsyncFn(&Bench, LoadBalancerId),
{
    for (kind, (name, fault)) in DRIVER_FAULTS.into_iter().chain(STORE_FAULTS).enumerate() {
        let stride = stride(fault);
        let mut reached = 0;
        for number in (1..CALLS).skip(kind % stride).step_by(stride) {
            let bench = Bench::new().await;
            let id = start(&bench).await;
            let happened = bench.run_into(fault, number).await;
            bench.reach(id, end).await;
            check(&bench, id).await;
            assert_eq!(
                bench.cloud.breaches(),
                Vec::<String>::new(),
                "{name} {number}"
            );
            if !happened {
                break;
            }
            reached = number;
        }
        assert!(reached > 3, "{name}: only {reached} calls were hit");
        println!("{name}: {reached} calls");
    }
}

/// On a database server, where each run takes longer, every third call of a driver is hit, other ones by each kind of
/// fault; all of them in the long form.
fn stride(fault: Fault) -> usize {
    if matches!(fault, Fault::Store(_)) {
        return 1;
    }
    let server = std::env::var_os("LB_TEST_DATABASE").is_some();
    let long = std::env::var_os("LB_SOAK").is_some();
    if server && !long { 3 } else { 1 }
}

async fn serves(bench: &Bench, id: LoadBalancerId) {
    bench.check_serving(id).await;
}

/// P01
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn create_reaches_active_wherever_it_is_hit() {
    crash_everywhere(
        async |bench| bench.create(1, full).await,
        serves,
        ProvisioningStatus::Active,
    )
    .await;
}

fn lock(graph: &mut Graph) {
    graph.load_balancer.provisioning_status = ProvisioningStatus::PendingUpdate;
    graph.listeners[0].provisioning_status = ProvisioningStatus::PendingUpdate;
    graph.pools[0].provisioning_status = ProvisioningStatus::PendingUpdate;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_in_a_new_network_is_added_wherever_it_is_hit() {
    crash_everywhere(
        async |bench| {
            let id = bench.active().await;
            bench
                .change(id, |graph| {
                    lock(graph);
                    graph.pools[0]
                        .members
                        .push(sample::member(9, Some(THIRD_SUBNET)));
                })
                .await;
            id
        },
        async |bench, id| {
            assert_eq!(bench.graph(id).await.unwrap().pools[0].members.len(), 3);
            bench.check_serving(id).await;
        },
        ProvisioningStatus::Active,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listener_and_last_member_of_a_network_are_removed_wherever_it_is_hit() {
    crash_everywhere(
        async |bench| {
            let id = bench.active().await;
            bench
                .change(id, |graph| {
                    lock(graph);
                    graph.pools[0].members[1].provisioning_status =
                        ProvisioningStatus::PendingDelete;
                    graph.listeners[1].provisioning_status = ProvisioningStatus::PendingDelete;
                    graph.pools[1].provisioning_status = ProvisioningStatus::PendingDelete;
                })
                .await;
            id
        },
        async |bench, id| {
            let graph = bench.graph(id).await.unwrap();
            assert_eq!((graph.listeners.len(), graph.pools.len()), (1, 1));
            assert_eq!(graph.pools[0].members.len(), 1);
            bench.check_serving(id).await;
        },
        ProvisioningStatus::Active,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_the_agent_cannot_serve_is_in_error_wherever_it_is_hit() {
    crash_everywhere(
        async |bench| {
            bench.cloud.fail_listener_port(8080);
            bench.create(1, full).await
        },
        async |bench, id| {
            let graph = bench.graph(id).await.unwrap();
            for listener in &graph.listeners {
                let expected = if listener.protocol_port == 8080 {
                    ProvisioningStatus::Error
                } else {
                    ProvisioningStatus::Active
                };
                assert_eq!(listener.provisioning_status, expected, "{graph:#?}");
            }
            let reason = graph.load_balancer.error_reason.unwrap();
            assert!(reason.contains("port is taken"), "{reason}");
        },
        ProvisioningStatus::Active,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vip_port_that_somebody_deleted_is_made_again_wherever_it_is_hit() {
    crash_everywhere(
        async |bench| {
            let id = bench.active().await;
            let vip = bench.graph(id).await.unwrap().load_balancer.vip;
            bench.cloud.lose_port(vip.port_id);
            bench.change(id, lock).await;
            id
        },
        async |bench, id| {
            let vip = bench.graph(id).await.unwrap().load_balancer.vip;
            let ports = bench.cloud.ports();
            let port = ports.iter().find(|port| port.id == vip.port_id).unwrap();
            assert_eq!(port.fixed_ips[0].ip_address, vip.address);
            assert_eq!(port.name, vip_port_name(id));
            bench.check_serving(id).await;
        },
        ProvisioningStatus::Active,
    )
    .await;
}

async fn replaced(bench: &Bench, id: LoadBalancerId) {
    let first = bench.cloud.pushes()[0].amphora;
    assert_ne!(bench.amphora(id).await, first, "another amphora serves");
    bench.check_serving(id).await;
}

async fn ask_for_failover(bench: &Bench, id: LoadBalancerId) {
    let amphora = bench.amphora(id).await;
    let asked = bench.store.request_failover(amphora, bench.now()).await;
    assert!(asked.expect("the store answers"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn planned_failover_reaches_its_end_and_counts_everything_once_wherever_it_is_hit() {
    const SERVED: u64 = 7;
    crash_everywhere(
        async |bench| {
            let id = bench.active().await;
            let graph = bench.graph(id).await.unwrap();
            let amphora = bench.amphora(id).await;
            // No heartbeat tells of it.
            for listener in &graph.listeners {
                bench.cloud.serve(amphora, listener.id, SERVED);
            }
            ask_for_failover(bench, id).await;
            id
        },
        async |bench, id| {
            replaced(bench, id).await;
            for listener in &bench.graph(id).await.unwrap().listeners {
                let stats = bench.store.listener_stats(listener.id).await.unwrap();
                let counted = (stats.total_connections, stats.bytes_in, stats.bytes_out);
                assert_eq!(counted, (SERVED, SERVED, SERVED));
            }
        },
        ProvisioningStatus::Active,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_amphora_is_replaced_wherever_it_is_hit() {
    crash_everywhere(
        async |bench| {
            let id = bench.active().await;
            bench.cloud.set_silent(bench.amphora(id).await, true);
            ask_for_failover(bench, id).await;
            id
        },
        replaced,
        ProvisioningStatus::Active,
    )
    .await;
}

async fn nothing_is_left(bench: &Bench, id: LoadBalancerId) {
    assert!(bench.graph(id).await.is_none());
    assert_eq!(bench.cloud.ports(), []);
    assert_eq!(bench.cloud.servers(), []);
}

/// P01, P98
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cascade_delete_leaves_nothing_wherever_it_is_hit() {
    crash_everywhere(
        async |bench| {
            let id = bench.active().await;
            bench
                .change(id, |graph| {
                    sample::set_status(graph, ProvisioningStatus::PendingDelete);
                })
                .await;
            id
        },
        nothing_is_left,
        ProvisioningStatus::Deleted,
    )
    .await;
}

/// P11
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_balancer_that_is_half_built_anyhow_is_deleted_cleanly() {
    for number in 1..CALLS {
        let bench = Bench::new().await;
        let id = bench.create(1, full).await;
        let happened = bench
            .run_into(Fault::Driver(FaultPlan::DieAfter), number)
            .await;
        bench
            .change(id, |graph| {
                sample::set_status(graph, ProvisioningStatus::PendingDelete);
            })
            .await;
        bench.reach(id, ProvisioningStatus::Deleted).await;
        nothing_is_left(&bench, id).await;
        if !happened {
            assert!(number > 3);
            break;
        }
    }
}
