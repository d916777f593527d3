//! Any intent over any world: applying plans reaches the end, and the next plan is empty.

mod support;

use std::collections::BTreeSet;

use lb_model::{
    AmphoraStatus, Graph, ListenerProtocol, PoolProtocol, ProvisioningStatus, SubnetId, sample,
};
use lb_planner::{PortPurpose, Step, wanted_networks};
use proptest::prelude::*;

use support::{OTHER_SUBNET, SECOND_SUBNET, Sim, THIRD_SUBNET};

fn subnet() -> impl Strategy<Value = Option<SubnetId>> {
    prop_oneof![
        Just(None),
        Just(Some(sample::SUBNET)),
        Just(Some(OTHER_SUBNET)),
        Just(Some(SECOND_SUBNET)),
        Just(Some(THIRD_SUBNET)),
        Just(Some(SubnetId(sample::uuid(0xdead)))),
    ]
}

fn status() -> impl Strategy<Value = ProvisioningStatus> {
    prop_oneof![
        3 => Just(ProvisioningStatus::Active),
        1 => Just(ProvisioningStatus::PendingUpdate),
        1 => Just(ProvisioningStatus::PendingDelete),
        1 => Just(ProvisioningStatus::Error),
    ]
}

prop_compose! {
    fn intent()(
        members in prop::collection::vec((subnet(), status(), any::<bool>()), 0..6),
        pool_status in status(),
        listeners in prop::collection::vec((0..7usize, status(), any::<bool>(), any::<bool>()), 0..5),
        enabled in prop::bool::weighted(0.8),
    ) -> Graph {
        let mut graph = sample::graph(1);
        let mut pool = sample::pool(1, PoolProtocol::Tcp);
        pool.provisioning_status = pool_status;
        for (number, (subnet, status, up)) in (1u8..).zip(members) {
            let mut member = sample::member(number, subnet);
            member.provisioning_status = status;
            member.admin_state_up = up;
            pool.members.push(member);
        }
        for (number, (protocol, status, up, with_pool)) in (1u16..).zip(listeners) {
            let mut listener = sample::listener(
                u128::from(number),
                ListenerProtocol::ALL[protocol],
                number,
                with_pool.then_some(pool.id),
            );
            listener.provisioning_status = status;
            listener.admin_state_up = up;
            graph.listeners.push(listener);
        }
        graph.pools = vec![pool];
        graph.load_balancer.admin_state_up = enabled;
        graph
    }
}

/// What happened to the world before the plan: each is one hit.
#[derive(Debug, Clone)]
enum Hit {
    Kill,
    Stop,
    Silence,
    FailoverRequested,
    LosePort(prop::sample::Index),
    LoseVipPort,
    HalfBuilt(bool, bool),
    ForgetDocument,
}

fn hit() -> impl Strategy<Value = Hit> {
    prop_oneof![
        Just(Hit::Kill),
        Just(Hit::Stop),
        Just(Hit::Silence),
        Just(Hit::FailoverRequested),
        any::<prop::sample::Index>().prop_map(Hit::LosePort),
        Just(Hit::LoseVipPort),
        any::<(bool, bool)>().prop_map(|(server, port)| Hit::HalfBuilt(server, port)),
        Just(Hit::ForgetDocument),
    ]
}

fn strike(sim: &mut Sim, hit: &Hit) {
    let Some(first) = sim.graph.amphorae.first().map(|row| row.id) else {
        return;
    };
    match hit {
        Hit::Kill => {
            sim.servers.remove(&first);
        }
        Hit::Stop => {
            if let Some(server) = sim.servers.get_mut(&first) {
                server.stopped = true;
            }
        }
        Hit::Silence => {
            if let Some(server) = sim.servers.get_mut(&first) {
                server.silent = true;
            }
        }
        Hit::FailoverRequested => sim.graph.amphorae[0].failover_requested = true,
        Hit::LosePort(index) => {
            let ports: Vec<_> = sim
                .ports
                .values()
                .filter(|port| port.purpose.is_some())
                .map(|port| port.id)
                .collect();
            if !ports.is_empty() {
                sim.ports.remove(index.get(&ports));
            }
        }
        Hit::LoseVipPort => sim.ports.retain(|_, port| port.purpose.is_some()),
        Hit::HalfBuilt(server, port) => {
            let plan = sim.plan();
            let ends = |step: &&Step| !matches!(step, Step::Forget { .. });
            let rows = plan.steps().filter(|step| step.is_row()).filter(ends);
            for step in rows.cloned().collect::<Vec<_>>() {
                step.write(&mut sim.graph, sim.now);
            }
            let coming = sim
                .graph
                .amphorae
                .iter()
                .find(|row| row.status == AmphoraStatus::PendingCreate)
                .map(|row| row.id);
            if let Some(id) = coming {
                if *server {
                    sim.servers.entry(id).or_default();
                }
                if *port {
                    let plan = sim.plan();
                    for step in plan.steps() {
                        if let Step::EnsurePort(wish) = step
                            && wish.purpose == PortPurpose::Base
                        {
                            sim.ensure_port_for_test(wish);
                        }
                    }
                }
            }
        }
        Hit::ForgetDocument => {
            if let Some(server) = sim.servers.get_mut(&first) {
                server.config = None;
            }
        }
    }
}

fn check_converged(sim: &mut Sim) -> Result<(), TestCaseError> {
    let plan = sim.plan();
    prop_assert!(plan.is_empty(), "second plan:\n{plan}");
    prop_assert!(plan.draining.is_empty());
    let amphora = sim.only_amphora();
    prop_assert_eq!(sim.servers.len(), 1);
    prop_assert_eq!(sim.vip_owners(), [amphora]);
    let (networks, _) = wanted_networks(&sim.graph, &sim.observe());
    let mut wanted: Vec<_> = networks
        .into_iter()
        .enumerate()
        .map(|(index, network)| {
            let purpose = if index == 0 {
                PortPurpose::Base
            } else {
                PortPurpose::Member
            };
            (
                purpose,
                network.network_id,
                network.subnets.into_iter().collect::<BTreeSet<_>>(),
            )
        })
        .collect();
    wanted.sort();
    prop_assert_eq!(sim.ports_of(amphora), wanted);
    // The VIP port is the only other one.
    prop_assert_eq!(sim.ports.len(), sim.ports_of(amphora).len() + 1);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_intent_over_any_world_converges(
        first in intent(),
        hits in prop::collection::vec(hit(), 0..5),
        second in intent(),
    ) {
        let mut sim = Sim::new(first);
        sim.finish();
        sim.set_pending_update();
        for hit in &hits {
            strike(&mut sim, hit);
        }
        let amphorae = std::mem::take(&mut sim.graph.amphorae);
        sim.graph = second;
        sim.graph.amphorae = amphorae;
        sim.set_pending_update();
        sim.converge();
        // Whoever drains has no connections in this world.
        check_converged(&mut sim)?;
    }

    #[test]
    fn any_world_is_deleted_to_the_last_port(
        first in intent(),
        hits in prop::collection::vec(hit(), 0..5),
    ) {
        let mut sim = Sim::new(first);
        sim.finish();
        sim.set_pending_update();
        for hit in &hits {
            strike(&mut sim, hit);
        }
        sample::set_status(&mut sim.graph, ProvisioningStatus::PendingDelete);
        sim.converge();
        prop_assert!(sim.servers.is_empty());
        prop_assert!(sim.ports.is_empty());
        prop_assert!(sim.graph.amphorae.is_empty());
    }

    #[test]
    fn giving_up_ends_with_at_most_the_one_that_served(
        first in intent(),
        hits in prop::collection::vec(hit(), 0..5),
    ) {
        let mut sim = Sim::new(first);
        sim.finish();
        sim.set_pending_update();
        for hit in &hits {
            strike(&mut sim, hit);
        }
        sim.out_of_time = true;
        sim.converge();
        prop_assert!(sim.graph.amphorae.len() <= 1);
        prop_assert!(sim.graph.amphorae.iter().all(|row| !row.failover_requested));
        prop_assert!(sim.servers.len() <= 1);
    }
}
