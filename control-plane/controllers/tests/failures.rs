//! What cannot be reached: errors with a reason, nothing leaked, and a way back.

mod support;

use std::time::Duration;

use lb_drivers::fake::FaultPlan;
use lb_model::{
    AmphoraStatus, ListenerProtocol, LoadBalancerId, OperatingStatus, ProvisioningStatus, sample,
};

use support::{Bench, full};

/// Calls after which each test lets the cloud fail for good.
const CALLS: u64 = 60;

fn short_deadlines(bench: &mut Bench) {
    let deadlines = &mut bench.settings.deadlines;
    deadlines.create = Duration::from_millis(30);
    deadlines.update = Duration::from_millis(30);
    deadlines.failover = Duration::from_millis(30);
    deadlines.delete = Duration::from_millis(30);
    deadlines.compensation = Duration::from_millis(30);
}

async fn request_failover(bench: &Bench, id: LoadBalancerId) {
    bench
        .change(id, |graph| {
            graph.load_balancer.provisioning_status = ProvisioningStatus::PendingUpdate;
            for row in &mut graph.amphorae {
                row.failover_requested = true;
            }
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_create_in_a_broken_cloud_ends_in_error_leaks_nothing_and_heals_by_failover() {
    for number in (1..CALLS).step_by(2) {
        let mut bench = Bench::new().await;
        short_deadlines(&mut bench);
        let id = bench.create(1, full).await;
        bench.cloud.set_faults(FaultPlan::FailFrom(number));
        let graph = bench.give_in(id).await;
        let broken = bench.cloud.calls() >= number;
        let expected = if broken {
            ProvisioningStatus::Error
        } else {
            ProvisioningStatus::Active
        };
        assert_eq!(
            graph.load_balancer.provisioning_status, expected,
            "{number}"
        );
        if !broken {
            break;
        }
        assert!(graph.load_balancer.error_reason.is_some());
        assert_eq!(
            graph.listeners[0].provisioning_status,
            ProvisioningStatus::Error
        );
        // The cloud comes back: what could not be undone is undone now.
        bench.cloud.set_faults(FaultPlan::None);
        bench.reach(id, ProvisioningStatus::Error).await;
        assert_eq!(bench.cloud.servers(), [], "{number}");
        assert_eq!(bench.cloud.ports().len(), 1, "the VIP port only, {number}");
        request_failover(&bench, id).await;
        bench.reach(id, ProvisioningStatus::Active).await;
        bench.check_serving(id).await;
    }
}

/// P34
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_that_cannot_be_made_leaks_nothing_and_keeps_the_vip() {
    for number in (1..CALLS).step_by(2) {
        let mut bench = Bench::new().await;
        let id = bench.active().await;
        short_deadlines(&mut bench);
        request_failover(&bench, id).await;
        bench.cloud.set_faults(FaultPlan::FailFrom(number));
        let graph = bench.give_in(id).await;
        let broken = bench.cloud.calls() >= number;
        bench.cloud.set_faults(FaultPlan::None);
        let status = graph.load_balancer.provisioning_status;
        bench.reach(id, status).await;
        assert!(bench.cloud.servers().len() <= 1, "{number}");
        assert_eq!(bench.cloud.breaches(), Vec::<String>::new(), "{number}");
        request_failover(&bench, id).await;
        bench.reach(id, ProvisioningStatus::Active).await;
        bench.check_serving(id).await;
        if !broken {
            break;
        }
    }
}

/// P33
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_free_address_the_old_amphora_keeps_serving() {
    let bench = Bench::new().await;
    let id = bench.active().await;
    let old = bench.amphora(id).await;
    let before = bench.cloud.ports();
    bench.cloud.set_exhausted(sample::SUBNET, true);
    request_failover(&bench, id).await;
    bench.reach(id, ProvisioningStatus::Error).await;
    let graph = bench.graph(id).await.unwrap();
    let reason = graph.load_balancer.error_reason.unwrap();
    assert!(reason.contains("no free address"), "{reason}");
    assert_eq!(bench.amphora(id).await, old);
    assert_eq!(bench.cloud.ports(), before);
    assert!(bench.cloud.config(old).is_some());
    assert_eq!(bench.cloud.breaches(), Vec::<String>::new());
    bench.cloud.set_exhausted(sample::SUBNET, false);
    request_failover(&bench, id).await;
    bench.reach(id, ProvisioningStatus::Active).await;
    bench.check_serving(id).await;
}

/// P09
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_balancer_in_error_with_a_dead_amphora_is_healed_by_failover() {
    let bench = Bench::new().await;
    let id = bench.active().await;
    let old = bench.amphora(id).await;
    bench.cloud.kill_server(old);
    bench
        .change(id, |graph| {
            graph.load_balancer.provisioning_status = ProvisioningStatus::PendingUpdate;
            graph.listeners[0].provisioning_status = ProvisioningStatus::Error;
            for row in &mut graph.amphorae {
                row.failover_requested = true;
            }
        })
        .await;
    bench.reach(id, ProvisioningStatus::Active).await;
    assert_ne!(bench.amphora(id).await, old);
    bench.check_serving(id).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_the_agent_refuses_is_in_error_alone() {
    let bench = Bench::new().await;
    let id = bench.active().await;
    bench
        .cloud
        .refuse_listener_port(bench.amphora(id).await, 666);
    bench
        .change(id, |graph| {
            graph.load_balancer.provisioning_status = ProvisioningStatus::PendingUpdate;
            let listener = sample::listener(9, ListenerProtocol::Tcp, 666, None);
            graph.listeners.push(listener);
        })
        .await;
    bench.reach(id, ProvisioningStatus::Active).await;
    let graph = bench.graph(id).await.unwrap();
    let statuses: Vec<_> = graph
        .listeners
        .iter()
        .map(|listener| (listener.protocol_port, listener.provisioning_status))
        .collect();
    assert_eq!(
        statuses,
        [
            (80, ProvisioningStatus::Active),
            (8080, ProvisioningStatus::Active),
            (666, ProvisioningStatus::Error)
        ]
    );
    let reason = graph.load_balancer.error_reason.unwrap();
    assert!(reason.contains("refused"), "{reason}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_served_yet_is_in_error_and_its_neighbours_serve() {
    let bench = Bench::new().await;
    let id = bench
        .create(1, |graph| {
            full(graph);
            graph
                .listeners
                .push(sample::listener(9, ListenerProtocol::Sctp, 90, None));
        })
        .await;
    bench.reach(id, ProvisioningStatus::Active).await;
    let graph = bench.graph(id).await.unwrap();
    let sctp = &graph.listeners[2];
    assert_eq!(sctp.provisioning_status, ProvisioningStatus::Error);
    assert_eq!(sctp.operating_status, OperatingStatus::Error);
    let config = bench.cloud.config(bench.amphora(id).await).unwrap();
    assert_eq!(config.listeners.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replaced_amphora_drains_while_the_load_balancer_is_active() {
    let bench = Bench::new().await;
    let id = bench.active().await;
    let old = bench.amphora(id).await;
    bench.cloud.set_active_connections(old, 5);
    request_failover(&bench, id).await;
    bench.worker().run_due().await;
    let graph = bench.graph(id).await.unwrap();
    assert_eq!(
        graph.load_balancer.provisioning_status,
        ProvisioningStatus::Active
    );
    assert_eq!(bench.cloud.servers().len(), 2);
    let row = graph.amphorae.iter().find(|row| row.id == old).unwrap();
    assert_eq!(row.status, AmphoraStatus::PendingDelete);
    bench.cloud.set_active_connections(old, 0);
    bench.reach(id, ProvisioningStatus::Active).await;
    bench.check_serving(id).await;
    assert_eq!(bench.cloud.servers().len(), 1);
}

/// P17
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_create_waits_for_one_boot_and_sends_everything_at_once() {
    let bench = Bench::new().await;
    bench.active().await;
    let calls = bench.cloud.call_log();
    let made = calls.iter().filter(|call| *call == "ensure server");
    assert_eq!(made.count(), 1, "{calls:#?}");
    assert_eq!(bench.cloud.pushes().len(), 1, "{calls:#?}");
}

/// P12
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_tags_send_nothing_to_the_amphora() {
    let bench = Bench::new().await;
    let id = bench.active().await;
    let pushes = bench.cloud.pushes().len();
    bench
        .change(id, |graph| {
            graph.load_balancer.provisioning_status = ProvisioningStatus::PendingUpdate;
            graph.load_balancer.tags = vec!["a".to_owned()];
        })
        .await;
    bench.reach(id, ProvisioningStatus::Active).await;
    assert_eq!(bench.cloud.pushes().len(), pushes);
}
