//! Plans as text. `UPDATE_GOLDEN=1 cargo test -p lb-planner` writes the files anew; read the diff before committing.

mod support;

use std::path::Path;

use lb_model::{
    Graph, ListenerProtocol, MonitorType, PoolProtocol, ProvisioningStatus, UnservedObject, sample,
};

use support::{OTHER_SUBNET, SECOND_SUBNET, Sim, THIRD_SUBNET};

/// TCP, UDP and HTTP listeners; members in the VIP network and in another one.
fn full() -> Graph {
    let mut graph = sample::graph(1);
    let mut tcp = sample::pool(1, PoolProtocol::Tcp);
    tcp.members = vec![
        sample::member(1, None),
        sample::member(2, Some(OTHER_SUBNET)),
    ];
    tcp.health_monitor = Some(sample::health_monitor(1, MonitorType::Tcp));
    let mut udp = sample::pool(2, PoolProtocol::Udp);
    udp.members = vec![sample::member(3, Some(SECOND_SUBNET))];
    graph.listeners = vec![
        sample::listener(1, ListenerProtocol::Tcp, 80, Some(tcp.id)),
        sample::listener(2, ListenerProtocol::Udp, 53, Some(udp.id)),
        sample::listener(3, ListenerProtocol::Http, 8080, None),
    ];
    graph.pools = vec![tcp, udp];
    graph
}

fn active() -> Sim {
    let mut sim = Sim::new(full());
    sim.finish();
    assert_eq!(
        sim.graph.load_balancer.provisioning_status,
        ProvisioningStatus::Active
    );
    sim
}

fn golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name)
        .with_extension("txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, text).expect("the golden file is writable");
    }
    let expected = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("read {}: {error}", path.display()));
    assert_eq!(text, expected, "differs from {}", path.display());
}

#[test]
fn create_builds_one_amphora_and_gives_it_the_vip() {
    let mut sim = Sim::new(full());
    golden("create", &sim.finish());
    assert_eq!(sim.vip_owners(), [sim.only_amphora()]);
}

#[test]
fn a_member_in_a_new_network_plugs_a_port_before_the_document_names_it() {
    let mut sim = active();
    sim.set_pending_update();
    let mut member = sample::member(9, Some(THIRD_SUBNET));
    member.provisioning_status = ProvisioningStatus::PendingCreate;
    sim.graph.pools[0].members.push(member);
    golden("member_in_new_network", &sim.finish());
}

#[test]
fn the_last_member_of_a_network_takes_the_port_with_it() {
    let mut sim = active();
    sim.set_pending_update();
    for pool in &mut sim.graph.pools {
        for member in &mut pool.members {
            if member.subnet_id.is_some() {
                member.provisioning_status = ProvisioningStatus::PendingDelete;
            }
        }
    }
    golden("member_networks_removed", &sim.finish());
}

#[test]
fn new_tags_push_nothing() {
    let mut sim = active();
    sim.set_pending_update();
    sim.graph.load_balancer.tags = vec!["blue".to_owned()];
    sim.graph.listeners[0].name = "renamed".to_owned();
    assert!(sim.plan().is_empty(), "{}", sim.plan());
}

#[test]
fn planned_failover_is_made_before_it_is_broken() {
    let mut sim = active();
    let old = sim.only_amphora();
    sim.servers.get_mut(&old).unwrap().connections = 3;
    sim.graph.amphorae[0].failover_requested = true;
    sim.set_pending_update();
    let mut story = sim.finish();
    assert_eq!(sim.servers.len(), 2, "the old one drains");
    story.push_str("-- the last connection of the old one ends\n");
    sim.servers.get_mut(&old).unwrap().connections = 0;
    story.push_str(&sim.converge());
    golden("failover_planned", &story);
    assert_ne!(sim.only_amphora(), old);
}

#[test]
fn draining_ends_when_its_time_is_over() {
    let mut sim = active();
    let old = sim.only_amphora();
    sim.servers.get_mut(&old).unwrap().connections = 3;
    sim.graph.amphorae[0].failover_requested = true;
    sim.set_pending_update();
    sim.finish();
    assert_eq!(sim.plan().draining, [old]);
    sim.now = sim.now.plus_millis(60_000);
    sim.converge();
    assert_ne!(sim.only_amphora(), old);
}

#[test]
fn a_silent_amphora_is_fenced_before_its_successor_is_active() {
    let mut sim = active();
    let old = sim.only_amphora();
    sim.servers.get_mut(&old).unwrap().silent = true;
    sim.graph.amphorae[0].failover_requested = true;
    sim.set_pending_update();
    golden("failover_silent", &sim.finish());
    assert_eq!(sim.servers.len(), 1);
}

#[test]
fn a_lost_server_is_replaced() {
    let mut sim = active();
    let old = sim.only_amphora();
    sim.servers.remove(&old);
    sim.set_pending_update();
    golden("server_lost", &sim.finish());
}

#[test]
fn a_create_out_of_time_leaves_nothing_but_the_vip_port() {
    let mut sim = Sim::new(full());
    for _ in 0..2 {
        let plan = sim.plan();
        sim.apply(&plan);
    }
    sim.out_of_time = true;
    golden("create_out_of_time", &sim.converge());
    assert!(sim.servers.is_empty());
    assert_eq!(sim.ports.len(), 1);
}

#[test]
fn a_failover_out_of_time_keeps_the_one_that_serves() {
    let mut sim = active();
    let old = sim.only_amphora();
    sim.graph.amphorae[0].failover_requested = true;
    sim.set_pending_update();
    let plan = sim.plan();
    sim.apply(&plan);
    assert_eq!(sim.servers.len(), 2);
    sim.out_of_time = true;
    golden("failover_out_of_time", &sim.converge());
    assert_eq!(sim.vip_owners(), [old]);
    assert_eq!(sim.only_amphora(), old);
    assert!(!sim.graph.amphorae[0].failover_requested);
}

#[test]
fn delete_takes_servers_then_ports_then_rows() {
    let mut sim = active();
    sample::set_status(&mut sim.graph, ProvisioningStatus::PendingDelete);
    golden("delete", &sim.finish());
    assert!(sim.servers.is_empty() && sim.ports.is_empty());
}

#[test]
fn a_tenants_own_vip_port_stays() {
    let mut sim = active();
    sim.graph.load_balancer.vip.port_is_ours = false;
    sample::set_status(&mut sim.graph, ProvisioningStatus::PendingDelete);
    sim.finish();
    assert_eq!(
        sim.ports.keys().copied().collect::<Vec<_>>(),
        [sim.graph.load_balancer.vip.port_id]
    );
}

#[test]
fn what_is_not_served_yet_is_named_and_the_rest_goes_on() {
    let mut graph = full();
    graph
        .listeners
        .push(sample::listener(4, ListenerProtocol::Sctp, 90, None));
    graph.listeners.push(sample::listener(
        5,
        ListenerProtocol::TerminatedHttps,
        443,
        None,
    ));
    graph.pools[1].health_monitor = Some(sample::health_monitor(2, MonitorType::TlsHello));
    graph.pools[1].members.push(sample::member(
        8,
        Some(lb_model::SubnetId(sample::uuid(0xdead))),
    ));
    let mut sim = Sim::new(graph);
    let story = sim.converge();
    golden("unserved", &story);
    let plan = sim.plan();
    let listeners = plan
        .unserved
        .iter()
        .filter(|entry| matches!(entry.object, UnservedObject::Listener(_)))
        .count();
    assert_eq!((listeners, plan.unserved.len()), (2, 4));
}

#[test]
fn a_vip_port_that_is_gone_is_made_again_with_its_addresses() {
    let mut sim = active();
    sim.ports.retain(|_, port| port.purpose.is_some());
    sim.set_pending_update();
    golden("vip_port_lost", &sim.finish());
    let vip = &sim.graph.load_balancer.vip;
    assert_eq!(
        sim.ports[&vip.port_id].fixed_ips,
        [(vip.subnet_id, vip.address)]
    );
}

#[test]
fn a_listener_the_agent_cannot_serve_is_named_by_every_later_plan() {
    let mut sim = active();
    let amphora = sim.only_amphora();
    let listener = sim.graph.listeners[0].id;
    let server = sim.servers.get_mut(&amphora).unwrap();
    server
        .failed_listeners
        .insert(listener, "port is taken".to_owned());
    sim.set_pending_update();
    let plan = sim.plan();
    assert!(plan.is_empty(), "{plan}");
    assert_eq!(
        plan.unserved[0].object,
        UnservedObject::Listener(listener),
        "{plan}"
    );
}

#[test]
fn an_unknown_topology_is_an_obstacle_and_not_a_guess() {
    let mut sim = Sim::new(full());
    sim.graph.load_balancer.topology = lb_model::Topology::ActiveStandby;
    let plan = sim.plan();
    assert!(plan.is_empty());
    assert!(plan.blocked_by[0].contains("ACTIVE_STANDBY"), "{plan}");
}
