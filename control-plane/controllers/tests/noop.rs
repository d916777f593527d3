//! No-op drivers: the control plane alone goes through every operation, with a new replica, which knows nothing of
//! what the others did, at each step.

mod support;

use std::sync::Arc;

use lb_controllers::worker::Worker;
use lb_drivers::noop::{NoopAmphoraDriver, NoopCompute, NoopNetwork};
use lb_model::{
    AmphoraStatus, Graph, ListenerProtocol, LoadBalancerId, ProvisioningStatus, sample,
};

use support::{Bench, OTHER_SUBNET, full};

fn replica(bench: &Bench) -> Worker {
    bench.worker_with(
        Arc::new(NoopCompute),
        Arc::new(NoopNetwork::default()),
        Arc::new(NoopAmphoraDriver::default()),
    )
}

/// One replica works until nothing is due.
async fn settle(bench: &Bench, id: LoadBalancerId) -> Option<Graph> {
    replica(bench).run_due().await;
    bench.graph(id).await
}

fn serving(graph: &Graph) -> Vec<lb_model::AmphoraId> {
    graph
        .amphorae
        .iter()
        .filter(|row| row.status == AmphoraStatus::Allocated)
        .map(|row| row.id)
        .collect()
}

#[tokio::test]
async fn replicas_that_share_no_memory_take_a_load_balancer_through_its_life() {
    let bench = Bench::new().await;
    let id = bench
        .create(1, |graph| {
            full(graph);
            // No agent serves this yet; without an agent that is missing to nobody.
            let mut tls = sample::listener(3, ListenerProtocol::TerminatedHttps, 443, None);
            tls.default_tls_container_ref = Some("a certificate".to_owned());
            graph.listeners.push(tls);
        })
        .await;

    let made = settle(&bench, id).await.unwrap();
    assert_eq!(
        made.load_balancer.provisioning_status,
        ProvisioningStatus::Active
    );
    for listener in &made.listeners {
        assert_eq!(listener.provisioning_status, ProvisioningStatus::Active);
    }
    let first = serving(&made);
    assert_eq!(first.len(), 1);

    bench
        .change(id, |graph| {
            graph.load_balancer.provisioning_status = ProvisioningStatus::PendingUpdate;
            graph.pools[0]
                .members
                .push(sample::member(7, Some(OTHER_SUBNET)));
        })
        .await;
    let changed = settle(&bench, id).await.unwrap();
    assert_eq!(
        changed.load_balancer.provisioning_status,
        ProvisioningStatus::Active
    );
    assert_eq!(serving(&changed), first, "an update replaces no amphora");

    bench
        .change(id, |graph| {
            graph.load_balancer.provisioning_status = ProvisioningStatus::PendingUpdate;
            for row in &mut graph.amphorae {
                row.failover_requested = true;
            }
        })
        .await;
    let failed_over = settle(&bench, id).await.unwrap();
    assert_eq!(
        failed_over.load_balancer.provisioning_status,
        ProvisioningStatus::Active
    );
    let second = serving(&failed_over);
    assert_eq!(second.len(), 1);
    assert_ne!(second, first);

    bench
        .change(id, |graph| {
            sample::set_status(graph, ProvisioningStatus::PendingDelete);
        })
        .await;
    assert!(settle(&bench, id).await.is_none(), "it is gone");
}
