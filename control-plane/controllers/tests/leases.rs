//! Several workers, lost leases, newer intents, strays.

mod support;

use std::sync::Arc;
use std::time::Duration;

use amphora_api::AmphoraConfig;
use lb_drivers::fake::FaultPlan;
use lb_drivers::network::{DEVICE_OWNER, FixedIp, Port, vip_port_name};
use lb_drivers::{AmphoraDriver, AmphoraError, Endpoint};
use lb_model::{LoadBalancerId, PortId, ProvisioningStatus, sample};

use support::{Bench, LEASE, full};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_workers_share_the_work_and_build_nothing_twice() {
    let bench = Bench::new().await;
    let mut ids = Vec::new();
    for number in 1..=8 {
        ids.push(bench.create(number, |_| {}).await);
    }
    let (first, second) = (bench.worker(), bench.worker());
    tokio::join!(first.run_due(), second.run_due());
    for id in ids {
        bench.reach(id, ProvisioningStatus::Active).await;
    }
    assert_eq!(bench.cloud.servers().len(), 8);
    assert_eq!(bench.cloud.ports().len(), 16, "VIP port and base port each");
    assert_eq!(bench.cloud.breaches(), Vec::<String>::new());
}

/// Number of the first call of this name when a new load balancer is created.
async fn number_of(name: &str) -> u64 {
    let bench = Bench::new().await;
    bench.cloud.set_faults(FaultPlan::None);
    bench.create(1, |_| {}).await;
    bench.worker().run_due().await;
    let log = bench.cloud.call_log();
    let index = log.iter().position(|call| call == name);
    u64::try_from(index.expect("the call is made")).expect("few calls") + 1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_sleeps_through_its_lease_stops_and_changes_nothing() {
    let push = number_of("put config").await;
    let bench = Arc::new(Bench::new().await);
    let id = bench.create(1, |_| {}).await;
    bench.cloud.set_faults(FaultPlan::PauseBefore(push));
    let sleeper = tokio::spawn({
        let worker = bench.worker();
        async move { worker.run_due().await }
    });
    bench.cloud.died().await;
    bench.cloud.set_faults(FaultPlan::None);
    bench.turn_clock(LEASE * 2);
    bench.reach(id, ProvisioningStatus::Active).await;
    let pushes = bench.cloud.pushes();
    // The sleeper notices that its lease is gone.
    let ended = tokio::time::timeout(Duration::from_secs(20), sleeper).await;
    ended.expect("the sleeper stops").unwrap();
    bench.cloud.resume();
    assert_eq!(bench.cloud.pushes(), pushes);
    bench.check_serving(id).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_document_of_a_worker_that_lost_its_lease_is_refused_by_the_agent() {
    let bench = Bench::new().await;
    let id = bench.active().await;
    let amphora = bench.amphora(id).await;
    let stale: AmphoraConfig = bench.cloud.config(amphora).unwrap();
    bench
        .change(id, |graph| {
            graph.load_balancer.provisioning_status = ProvisioningStatus::PendingUpdate;
            graph.listeners[0].admin_state_up = false;
        })
        .await;
    bench.reach(id, ProvisioningStatus::Active).await;
    let endpoint = Endpoint {
        amphora_id: amphora,
        address: "198.18.0.1:9443".parse().unwrap(),
    };
    let answer = bench.cloud.put_config(&endpoint, &stale).await;
    assert!(matches!(answer, Err(AmphoraError::OutOfDate { .. })));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_intent_that_comes_while_another_is_worked_on_is_reached_too() {
    let push = number_of("put config").await;
    let bench = Bench::new().await;
    let id = bench.create(1, full).await;
    bench.cloud.set_faults(FaultPlan::PauseBefore(push));
    let worker = bench.worker();
    let work = worker.run_due();
    let change = async {
        bench.cloud.died().await;
        bench
            .change(id, |graph| {
                graph.listeners[1].provisioning_status = ProvisioningStatus::PendingDelete;
            })
            .await;
        bench.cloud.resume();
    };
    tokio::join!(work, change);
    bench.cloud.set_faults(FaultPlan::None);
    let graph = bench.graph(id).await.unwrap();
    assert_eq!(
        graph.load_balancer.provisioning_status,
        ProvisioningStatus::Active
    );
    assert_eq!(graph.listeners.len(), 1, "the newer intent is what counts");
    let outcome = bench.store.outcome(id).await.unwrap().unwrap();
    assert_eq!(outcome.generation, graph.load_balancer.generation);
    assert_eq!(outcome.outcome.error, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_worker_takes_new_work_and_stops_when_told() {
    let bench = Bench::new().await;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(bench.worker().run(async move {
        let _ = stopped.await;
    }));
    let id = bench.create(1, full).await;
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    loop {
        let graph = bench.graph(id).await.unwrap();
        if graph.load_balancer.provisioning_status == ProvisioningStatus::Active {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "{graph:#?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    stop.send(()).unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(20), running).await;
    ended.expect("the worker stops").unwrap();
    bench.check_serving(id).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_vip_port_of_a_create_call_that_died_is_swept_and_no_other() {
    let mut bench = Bench::new().await;
    bench.settings.sweep_interval = Duration::from_millis(10);
    bench.settings.sweep_grace = Duration::from_millis(1);
    let id = bench.active().await;
    let lost = LoadBalancerId::random();
    let stray = |name: String, last: u8| Port {
        id: PortId::random(),
        name,
        network_id: sample::NETWORK,
        mac_address: format!("fa:16:3e:ee:00:{last:02x}"),
        fixed_ips: vec![FixedIp {
            subnet_id: sample::SUBNET,
            ip_address: std::net::Ipv4Addr::new(10, 0, 0, last).into(),
        }],
        device_id: format!("lb-{lost}"),
        device_owner: DEVICE_OWNER.to_owned(),
        project_id: None,
        allowed_address_pairs: Vec::new(),
        admin_state_up: false,
    };
    bench.cloud.add_port(stray(vip_port_name(lost), 200));
    let foreign = stray("octavia-lb-of-someone-else".to_owned(), 201);
    bench.cloud.add_port(foreign.clone());
    let ports = bench.cloud.ports().len();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(bench.worker().run(async move {
        let _ = stopped.await;
    }));
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while bench.cloud.ports().len() == ports {
        assert!(tokio::time::Instant::now() < deadline, "nothing is swept");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    stop.send(()).unwrap();
    running.await.unwrap();
    let left = bench.cloud.ports();
    assert!(left.contains(&foreign));
    assert!(left.iter().all(|port| port.name != vip_port_name(lost)));
    let graph = bench.graph(id).await.unwrap();
    assert_eq!(left.len(), ports - 1);
    assert_eq!(graph.amphorae.len(), 1);
}
