//! Failover of a load balancer's amphorae, all or one.

use super::{LATER, active, text};
use crate::change::{request_amphora_failover, request_failover};
use crate::sample;
use crate::{AmphoraStatus, ProvisioningStatus as Status};

#[test]
fn failover_marks_every_amphora_that_is_not_on_its_way_out() {
    for status in AmphoraStatus::ALL {
        let leaving = matches!(
            status,
            AmphoraStatus::PendingDelete | AmphoraStatus::Deleted
        );
        let mut graph = active();
        let mut amphora = sample::amphora(graph.load_balancer.id);
        amphora.status = *status;
        graph.amphorae = vec![amphora];
        request_failover(&mut graph, LATER).unwrap();
        assert_eq!(graph.amphorae[0].failover_requested, !leaving, "{status}");
    }
}

#[test]
fn failover_of_an_amphora_needs_it_there_and_its_load_balancer_active() {
    let mut graph = active();
    let amphora = sample::amphora(graph.load_balancer.id);
    let id = amphora.id;
    let lb = graph.load_balancer.id;
    assert_eq!(
        text(request_amphora_failover(&mut graph, id, LATER)),
        format!("Amphora {id} not found.")
    );
    graph.amphorae = vec![amphora];
    graph.load_balancer.provisioning_status = Status::Error;
    assert_eq!(
        text(request_amphora_failover(&mut graph, id, LATER)),
        format!("Load Balancer {lb} is immutable and cannot be updated.")
    );
    graph.load_balancer.provisioning_status = Status::Active;
    request_amphora_failover(&mut graph, id, LATER).unwrap();
    assert!(graph.amphorae[0].failover_requested);
    assert_eq!(
        graph.load_balancer.provisioning_status,
        Status::PendingUpdate
    );
}
