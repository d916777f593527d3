//! Failover of a load balancer's amphorae, all or one.

use super::{LATER, active, text};
use crate::change::{request_amphora_failover, request_failover};
use crate::sample::{self, NOW};
use crate::{AmphoraId, AmphoraStatus, Graph, ProvisioningStatus as Status};

#[test]
fn failover_marks_every_amphora_that_is_not_on_its_way_out() {
    for status in AmphoraStatus::ALL {
        let leaving = matches!(
            status,
            AmphoraStatus::PendingDelete | AmphoraStatus::Deleted
        );
        let mut graph = active();
        let mut amphora = sample_amphora(&graph);
        amphora.status = *status;
        graph.amphorae = vec![amphora];
        request_failover(&mut graph, LATER).unwrap();
        assert_eq!(graph.amphorae[0].failover_requested, !leaving, "{status}");
    }
}

#[test]
fn failover_of_an_amphora_needs_it_there_and_its_load_balancer_active() {
    let mut graph = active();
    let amphora = sample_amphora(&graph);
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

fn sample_amphora(graph: &Graph) -> crate::Amphora {
    crate::Amphora {
        id: AmphoraId(sample::uuid(0xa1)),
        load_balancer_id: graph.load_balancer.id,
        status: AmphoraStatus::Allocated,
        role: None,
        compute_id: None,
        lb_network_ip: None,
        vrrp_ip: None,
        ha_ip: None,
        vrrp_port_id: None,
        ha_port_id: None,
        vrrp_interface: None,
        vrrp_id: None,
        vrrp_priority: None,
        cert_expiration: None,
        cert_busy: false,
        cached_zone: None,
        image_id: None,
        compute_flavor: None,
        failover_requested: false,
        config_generation: 0,
        created_at: NOW,
        updated_at: None,
    }
}
