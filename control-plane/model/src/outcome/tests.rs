//! What the end of each operation writes, row by row of the table in [`super`].

use super::*;
use crate::sample::{self, NOW};
use crate::{Graph, HealthMonitor, ListenerProtocol, MonitorType, PoolProtocol};

use ProvisioningStatus::PendingUpdate;

const LATER: Timestamp = NOW.plus_millis(1000);

/// Two listeners; the first uses the pool, which has two members and a monitor. All ACTIVE.
fn active() -> Graph {
    let mut graph = sample::graph(1);
    let mut pool = sample::pool(1, PoolProtocol::Http);
    pool.members = vec![sample::member(1, None), sample::member(2, None)];
    pool.health_monitor = Some(sample::health_monitor(1, MonitorType::Http));
    graph.listeners = vec![
        sample::listener(1, ListenerProtocol::Http, 80, Some(pool.id)),
        sample::listener(2, ListenerProtocol::Tcp, 81, None),
    ];
    graph.pools = vec![pool];
    sample::set_status(&mut graph, Active);
    graph
}

/// Statuses in short: load balancer, listeners, pools, members, monitor; `-` is gone.
fn statuses(graph: &Graph) -> String {
    let letter = |status: ProvisioningStatus| match status {
        Active => 'A',
        Error => 'E',
        Deleted => 'D',
        PendingCreate | PendingUpdate | PendingDelete => 'P',
    };
    let listeners: String = graph
        .listeners
        .iter()
        .map(|listener| letter(listener.provisioning_status))
        .collect();
    let pool = graph.pools.first();
    let members: String = pool
        .iter()
        .flat_map(|pool| &pool.members)
        .map(|member| letter(member.provisioning_status))
        .collect();
    format!(
        "{} {listeners} {} {members} {}",
        letter(graph.load_balancer.provisioning_status),
        pool.map_or('-', |pool| letter(pool.provisioning_status)),
        pool.and_then(|pool| pool.health_monitor.as_ref())
            .map_or('-', |monitor| letter(monitor.provisioning_status)),
    )
}

#[test]
fn each_operation_ends_as_the_status_table_says() {
    type Start = fn(&mut Graph);
    // name, what the API wrote, after success, after failure
    let cases: [(&str, Start, &str, &str); 12] = [
        (
            "create with everything",
            |graph| sample::set_status(graph, PendingCreate),
            "A AA A AA A",
            "E EE E EE E",
        ),
        (
            "update of the load balancer",
            |graph| graph.load_balancer.provisioning_status = PendingUpdate,
            "A AA A AA A",
            "E AA A AA A",
        ),
        (
            "cascade delete",
            |graph| sample::set_status(graph, PendingDelete),
            "D  -  -",
            "E EE E EE E",
        ),
        (
            "listener create",
            |graph| {
                graph.load_balancer.provisioning_status = PendingUpdate;
                graph.listeners[1].provisioning_status = PendingCreate;
            },
            "A AA A AA A",
            "A AE A AA A",
        ),
        (
            "listener update",
            |graph| {
                graph.load_balancer.provisioning_status = PendingUpdate;
                graph.listeners[0].provisioning_status = PendingUpdate;
            },
            "A AA A AA A",
            "A EA A AA A",
        ),
        (
            "listener delete",
            |graph| {
                graph.load_balancer.provisioning_status = PendingUpdate;
                graph.listeners[0].provisioning_status = PendingDelete;
            },
            "A A A AA A",
            "A EA A AA A",
        ),
        (
            "pool update",
            |graph| lock_pool(graph, PendingUpdate),
            "A AA A AA A",
            "A AA E AA A",
        ),
        (
            "pool delete",
            |graph| lock_pool(graph, PendingDelete),
            "A AA -  -",
            "A AA E AA A",
        ),
        (
            "member create",
            |graph| {
                lock_pool(graph, PendingUpdate);
                graph.pools[0].members[1].provisioning_status = PendingCreate;
            },
            "A AA A AA A",
            "A AA A AE A",
        ),
        (
            "member batch: one changed, one removed",
            |graph| {
                lock_pool(graph, PendingUpdate);
                graph.pools[0].members[0].provisioning_status = PendingUpdate;
                graph.pools[0].members[1].provisioning_status = PendingDelete;
            },
            "A AA A A A",
            "A AA A EE A",
        ),
        (
            "health monitor create",
            |graph| {
                lock_pool(graph, PendingUpdate);
                monitor(graph).provisioning_status = PendingCreate;
            },
            "A AA A AA A",
            "A AA A AA E",
        ),
        (
            "health monitor delete",
            |graph| {
                lock_pool(graph, PendingUpdate);
                monitor(graph).provisioning_status = PendingDelete;
            },
            "A AA A AA -",
            "A AA A AA E",
        ),
    ];
    for (name, start, success, failure) in cases {
        let mut graph = active();
        start(&mut graph);
        let mut failed = graph.clone();
        settle(&mut graph, &Settlement::default(), LATER);
        assert_eq!(statuses(&graph), success, "{name}, success");
        assert_eq!(graph.load_balancer.error_reason, None, "{name}");
        settle(&mut failed, &failure_of("no agent"), LATER);
        assert_eq!(statuses(&failed), failure, "{name}, failure");
        assert_eq!(
            failed.load_balancer.error_reason.as_deref(),
            Some("no agent"),
            "{name}"
        );
    }
}

fn lock_pool(graph: &mut Graph, status: ProvisioningStatus) {
    graph.load_balancer.provisioning_status = PendingUpdate;
    graph.listeners[0].provisioning_status = PendingUpdate;
    graph.pools[0].provisioning_status = status;
}

fn monitor(graph: &mut Graph) -> &mut HealthMonitor {
    graph.pools[0].health_monitor.as_mut().unwrap()
}

fn failure_of(reason: &str) -> Settlement {
    Settlement {
        error: Some(reason.to_owned()),
        ..Settlement::default()
    }
}

#[test]
fn a_deleted_pool_is_no_default_pool_any_more() {
    let mut graph = active();
    lock_pool(&mut graph, PendingDelete);
    settle(&mut graph, &Settlement::default(), LATER);
    assert_eq!(graph.listeners[0].default_pool_id, None);
}

#[test]
fn failover_heals_what_was_in_error_and_other_updates_do_not() {
    for (failed_over, expected) in [(true, "A AA A AA A"), (false, "A EA A AE A")] {
        let mut graph = active();
        graph.load_balancer.provisioning_status = PendingUpdate;
        graph.listeners[0].provisioning_status = Error;
        graph.pools[0].members[1].provisioning_status = Error;
        let settlement = Settlement {
            failed_over,
            ..Settlement::default()
        };
        settle(&mut graph, &settlement, LATER);
        assert_eq!(statuses(&graph), expected);
    }
}

#[test]
fn a_failed_failover_is_the_load_balancers_error_even_with_children_pending() {
    let mut graph = active();
    lock_pool(&mut graph, PendingUpdate);
    let settlement = Settlement {
        failed_over: true,
        ..failure_of("no free address")
    };
    settle(&mut graph, &settlement, LATER);
    assert_eq!(statuses(&graph), "E AA E AA A");
}

#[test]
fn an_unserved_listener_alone_is_in_error() {
    let mut graph = active();
    graph.load_balancer.provisioning_status = PendingUpdate;
    graph.listeners[1].provisioning_status = PendingCreate;
    let settlement = Settlement {
        unserved: vec![Unserved {
            object: UnservedObject::Listener(graph.listeners[1].id),
            reason: "SCTP is not served".to_owned(),
        }],
        ..Settlement::default()
    };
    settle(&mut graph, &settlement, LATER);
    assert_eq!(statuses(&graph), "A AE A AA A");
    assert_eq!(graph.listeners[1].operating_status, OperatingStatus::Error);
    let reason = graph.load_balancer.error_reason.unwrap();
    assert!(reason.contains("SCTP is not served"), "{reason}");
}

#[test]
fn monitors_are_online_when_enabled_and_members_lose_theirs_with_them() {
    for (enabled, expected) in [
        (true, OperatingStatus::Online),
        (false, OperatingStatus::Offline),
    ] {
        let mut graph = active();
        lock_pool(&mut graph, PendingUpdate);
        monitor(&mut graph).provisioning_status = PendingUpdate;
        monitor(&mut graph).admin_state_up = enabled;
        settle(&mut graph, &Settlement::default(), LATER);
        assert_eq!(monitor(&mut graph).operating_status, expected);
    }
    let mut graph = active();
    lock_pool(&mut graph, PendingUpdate);
    graph.pools[0].members[0].operating_status = OperatingStatus::Online;
    monitor(&mut graph).provisioning_status = PendingDelete;
    settle(&mut graph, &Settlement::default(), LATER);
    let members = &graph.pools[0].members;
    assert!(
        members
            .iter()
            .all(|member| member.operating_status == OperatingStatus::NoMonitor)
    );
}

#[test]
fn a_graph_that_is_not_pending_is_left_alone() {
    let mut graph = active();
    let before = graph.clone();
    settle(&mut graph, &failure_of("late news"), LATER);
    assert_eq!(graph, before);
}

#[test]
fn nothing_is_pending_after_any_settlement() {
    let pending = [PendingCreate, PendingUpdate, PendingDelete];
    for lb in pending {
        for child in pending {
            for settlement in [Settlement::default(), failure_of("x")] {
                let mut graph = active();
                sample::set_status(&mut graph, child);
                graph.load_balancer.provisioning_status = lb;
                settle(&mut graph, &settlement, LATER);
                assert!(!statuses(&graph).contains('P'), "{lb} {child}");
            }
        }
    }
}

#[test]
fn what_becomes_active_or_fails_has_changed_at_that_time() {
    let mut graph = active();
    let mut policy = sample::l7policy(1, crate::L7PolicyAction::Reject);
    policy.rules = vec![sample::l7rule(1)];
    graph.listeners[0].l7policies = vec![policy];
    sample::set_status(&mut graph, Active);
    graph.load_balancer.provisioning_status = PendingUpdate;
    graph.listeners[0].provisioning_status = PendingUpdate;
    graph.listeners[0].l7policies[0].provisioning_status = PendingUpdate;
    graph.listeners[0].l7policies[0].rules[0].provisioning_status = PendingCreate;
    settle(&mut graph, &Settlement::default(), LATER);
    let listener = &graph.listeners[0];
    let policy = &listener.l7policies[0];
    let rule = &policy.rules[0];
    for updated_at in [
        graph.load_balancer.updated_at,
        listener.updated_at,
        policy.updated_at,
        rule.updated_at,
    ] {
        assert_eq!(updated_at, Some(LATER));
    }
    assert_eq!(rule.operating_status, OperatingStatus::Online);
    assert_eq!(graph.listeners[1].updated_at, None);
    assert_eq!(graph.pools[0].updated_at, None);
}
