use lb_model::OperatingStatus::{Degraded, Draining, Error, NoMonitor, Offline, Online};
use lb_model::{Graph, OperatingStatus, ProvisioningStatus};

use super::graphs::{graph, healthy, listener};
use crate::health_manager::{expected_listeners, roll_up};

fn statuses(graph: &Graph) -> (OperatingStatus, OperatingStatus, OperatingStatus) {
    (
        graph.load_balancer.operating_status,
        graph.listeners[0].operating_status,
        graph.pools[0].operating_status,
    )
}

/// Words of the listener, the pool and two members; then what load balancer, listener, pool and members become.
#[test]
fn what_is_reported_decides_every_status() {
    type Row = (
        Option<&'static str>,
        Option<&'static str>,
        [Option<&'static str>; 2],
        (OperatingStatus, OperatingStatus, OperatingStatus),
        [OperatingStatus; 2],
    );
    let up = Some("UP");
    let rows: [Row; 22] = [
        (
            Some("OPEN"),
            up,
            [up, up],
            (Online, Online, Online),
            [Online, Online],
        ),
        (
            Some("FULL"),
            up,
            [up, up],
            (Degraded, Degraded, Online),
            [Online, Online],
        ),
        (
            None,
            up,
            [up, up],
            (Online, Error, Online),
            [Online, Online],
        ),
        (
            Some("OPEN"),
            None,
            [None, None],
            (Online, Online, Offline),
            [Offline, Offline],
        ),
        (
            Some("OPEN"),
            up,
            [Some("DOWN"), up],
            (Degraded, Online, Degraded),
            [Error, Online],
        ),
        (
            Some("FULL"),
            up,
            [Some("DOWN"), up],
            (Degraded, Degraded, Degraded),
            [Error, Online],
        ),
        (
            Some("OPEN"),
            Some("DOWN"),
            [Some("DOWN"), Some("DOWN")],
            (Error, Online, Error),
            [Error, Error],
        ),
        (
            Some("FULL"),
            Some("DOWN"),
            [None, None],
            (Error, Degraded, Error),
            [Offline, Offline],
        ),
        (
            Some("OPEN"),
            up,
            [Some("UP 1/3"), up],
            (Online, Online, Online),
            [Online, Online],
        ),
        (
            Some("OPEN"),
            up,
            [Some("DOWN 1/3"), up],
            (Degraded, Online, Degraded),
            [Error, Online],
        ),
        (
            Some("OPEN"),
            up,
            [Some("DRAIN"), up],
            (Online, Online, Online),
            [Draining, Online],
        ),
        (
            Some("OPEN"),
            up,
            [Some("MAINT"), up],
            (Online, Online, Online),
            [Offline, Online],
        ),
        (
            Some("OPEN"),
            up,
            [Some("no check"), up],
            (Online, Online, Online),
            [NoMonitor, Online],
        ),
        (
            Some("OPEN"),
            up,
            [None, up],
            (Online, Online, Online),
            [Offline, Online],
        ),
        (
            Some("OPEN"),
            up,
            [Some("RESTARTING"), up],
            (Online, Online, Online),
            [Draining, Online],
        ),
        (
            Some("OPEN"),
            up,
            [Some("up"), up],
            (Online, Online, Online),
            [Draining, Online],
        ),
        (
            Some("OPEN"),
            up,
            [Some(""), up],
            (Online, Online, Online),
            [Draining, Online],
        ),
        (
            Some("CLOSED"),
            up,
            [up, up],
            (Online, Draining, Online),
            [Online, Online],
        ),
        (
            Some("OPEN"),
            Some("?"),
            [up, up],
            (Online, Online, Draining),
            [Online, Online],
        ),
        (
            Some("OPEN"),
            Some("?"),
            [Some("DOWN"), up],
            (Degraded, Online, Draining),
            [Error, Online],
        ),
        (
            Some("OPEN"),
            Some("DOWN"),
            [up, up],
            (Error, Online, Error),
            [Online, Online],
        ),
        (
            None,
            None,
            [None, None],
            (Online, Error, Offline),
            [Offline, Offline],
        ),
    ];
    for (row, (listener, pool, members, overall, expected)) in rows.into_iter().enumerate() {
        let mut graph = graph(2);
        // A status no row leads to by itself shows what is left alone.
        graph.listeners[0].operating_status = Draining;
        graph.pools[0].operating_status = Draining;
        for member in &mut graph.pools[0].members {
            member.operating_status = Draining;
        }
        let mut message = healthy(&graph, 1);
        match listener {
            Some(word) => {
                let id = graph.listeners[0].id.0;
                message.listeners.get_mut(&id).unwrap().status = word.into();
            }
            None => message.listeners.clear(),
        }
        match pool {
            Some(word) => {
                let reported = message.pools.values_mut().next().unwrap();
                reported.status = word.into();
                for (member, word) in graph.pools[0].members.iter().zip(members) {
                    match word {
                        Some(word) => reported.members.insert(member.id.0, word.into()),
                        None => reported.members.remove(&member.id.0),
                    };
                }
            }
            None => message.pools.clear(),
        }
        roll_up(&mut graph, &message);
        assert_eq!(statuses(&graph), overall, "row {row}");
        let found: Vec<_> = graph.pools[0]
            .members
            .iter()
            .map(|member| member.operating_status)
            .collect();
        assert_eq!(found, expected, "row {row}");
    }
}

#[test]
fn a_listener_that_is_not_reported_is_in_error_only_when_it_should_be_there() {
    use ProvisioningStatus::{
        Active, Error as Failed, PendingCreate, PendingDelete, PendingUpdate,
    };
    // load balancer enabled and provisioning, listener enabled; listener, load balancer
    let rows = [
        (true, Active, true, Error, Online),
        (true, Active, false, Offline, Online),
        (true, PendingUpdate, true, Offline, Online),
        (true, PendingCreate, true, Offline, Online),
        (true, PendingDelete, true, Offline, Online),
        (true, Failed, true, Offline, Online),
        (false, Active, true, Error, Offline),
        (false, PendingUpdate, true, Offline, Offline),
        (false, Active, false, Offline, Offline),
    ];
    for (row, (up, provisioning, listener_up, listener, overall)) in rows.into_iter().enumerate() {
        let mut graph = graph(0);
        graph.load_balancer.admin_state_up = up;
        graph.load_balancer.provisioning_status = provisioning;
        graph.listeners[0].admin_state_up = listener_up;
        let mut message = healthy(&graph, 1);
        message.listeners.clear();
        message.pools.clear();
        roll_up(&mut graph, &message);
        assert_eq!(statuses(&graph), (overall, listener, Offline), "row {row}");
    }
}

#[test]
fn a_disabled_load_balancer_is_offline_unless_a_pool_is_down() {
    let mut graph = graph(1);
    graph.load_balancer.admin_state_up = false;
    let mut message = healthy(&graph, 1);
    let id = graph.listeners[0].id.0;
    message.listeners.get_mut(&id).unwrap().status = "FULL".into();
    roll_up(&mut graph, &message);
    assert_eq!(graph.load_balancer.operating_status, Offline);
    message.pools.values_mut().next().unwrap().status = "DOWN".into();
    roll_up(&mut graph, &message);
    assert_eq!(graph.load_balancer.operating_status, Error);
}

#[test]
fn a_member_without_monitor_stays_so_while_it_is_not_reported() {
    let mut graph = graph(2);
    graph.pools[0].members[0].operating_status = NoMonitor;
    graph.pools[0].members[1].operating_status = Online;
    let mut message = healthy(&graph, 1);
    for clear_pool in [false, true] {
        if clear_pool {
            message.pools.clear();
        } else {
            message.pools.values_mut().next().unwrap().members.clear();
        }
        roll_up(&mut graph, &message);
        assert_eq!(graph.pools[0].members[0].operating_status, NoMonitor);
        assert_eq!(graph.pools[0].members[1].operating_status, Offline);
    }
}

#[test]
fn a_pool_is_found_under_keys_of_both_kinds_and_down_under_one_is_down() {
    let mut graph = graph(1);
    let mut message = healthy(&graph, 1);
    let pool = message.pools.pop_first().unwrap().1;
    let id = graph.pools[0].id;
    message
        .pools
        .insert(format!("{id}:{}", graph.listeners[0].id), pool.clone());
    roll_up(&mut graph, &message);
    assert_eq!(graph.pools[0].operating_status, Online);
    let mut down = pool;
    down.status = "DOWN".into();
    message
        .pools
        .insert(format!("{id}:{}", listener(None).id), down);
    message.pools.insert(
        "rubbish".into(),
        message.pools.values().next().unwrap().clone(),
    );
    roll_up(&mut graph, &message);
    assert_eq!(graph.pools[0].operating_status, Error);
}

#[test]
fn an_empty_pool_is_online() {
    let mut graph = graph(0);
    let message = healthy(&graph, 1);
    roll_up(&mut graph, &message);
    assert_eq!(statuses(&graph), (Online, Online, Online));
}

#[test]
fn only_operating_statuses_are_written() {
    let before = graph(2);
    let mut after = before.clone();
    roll_up(&mut after, &healthy(&before, 1));
    after.load_balancer.operating_status = Offline;
    after.listeners[0].operating_status = Offline;
    after.pools[0].operating_status = Offline;
    for member in &mut after.pools[0].members {
        member.operating_status = Offline;
    }
    assert_eq!(after, before);
}

#[test]
fn the_number_of_listeners_matters_only_when_it_can_be_known() {
    let mut graph = graph(0);
    graph.listeners.push(listener(None));
    graph.listeners.push(listener(None));
    graph.listeners[1].admin_state_up = false;
    assert_eq!(expected_listeners(&graph), Some(2..=2));
    graph.listeners[2].provisioning_status = ProvisioningStatus::Error;
    assert_eq!(expected_listeners(&graph), Some(1..=2));
    graph.load_balancer.provisioning_status = ProvisioningStatus::PendingUpdate;
    assert_eq!(expected_listeners(&graph), None);
    graph.load_balancer.provisioning_status = ProvisioningStatus::Error;
    assert_eq!(expected_listeners(&graph), Some(1..=2));
    graph.load_balancer.admin_state_up = false;
    assert_eq!(expected_listeners(&graph), None);
}
