//! Every call that writes, as a table: the statuses it needs, the statuses it leaves, the attributes it refuses.

use serde_json::{Value, json};

use super::{LATER, active, batch, create, create_monitor_with, create_pool_with, statuses, text};
use crate::change::{
    create_member, delete_health_monitor, delete_listener, delete_load_balancer, delete_member,
    delete_pool, request_failover, update_health_monitor, update_listener, update_load_balancer,
    update_member, update_pool,
};
use crate::spec::{
    HealthMonitorUpdate, ListenerUpdate, LoadBalancerUpdate, MemberCreate, MemberUpdate, PoolUpdate,
};
use crate::{Fault, Graph, MemberId, ProvisioningStatus as Status, Rules};

type Change = fn(&mut Graph) -> Result<(), Fault>;

/// Every call that writes, with the statuses it leaves: LB, listener, pool 1, its members and monitor, pool 2, and
/// what was added at the end of its list.
const CALLS: &[(&str, Change, &str)] = &[
    (
        "PUT load balancer",
        |g| {
            let spec = LoadBalancerUpdate::decode(&json!({"loadbalancer": {}}))?;
            update_load_balancer(g, &spec, LATER)
        },
        "U......",
    ),
    (
        "DELETE load balancer, cascade",
        |g| delete_load_balancer(g, true, LATER),
        "D......",
    ),
    (
        "PUT load balancer failover",
        |g| request_failover(g, LATER),
        "U......",
    ),
    ("POST listener", |g| create(g, json!({})), "U.C....."),
    (
        "PUT listener",
        |g| {
            let spec = ListenerUpdate::decode(&json!({"listener": {}}))?;
            let id = g.listeners[0].id;
            update_listener(g, id, &spec, &Rules::default(), LATER)
        },
        "UU.....",
    ),
    (
        "DELETE listener",
        |g| {
            let id = g.listeners[0].id;
            delete_listener(g, id, LATER)
        },
        "UD.....",
    ),
    ("POST pool", |g| create_pool_with(g, json!({})), "U......C"),
    (
        "PUT pool",
        |g| {
            let spec = PoolUpdate::decode(&json!({"pool": {}}))?;
            let id = g.pools[0].id;
            update_pool(g, id, &spec, &Rules::default(), LATER)
        },
        "UUU....",
    ),
    (
        "PUT unattached pool",
        |g| {
            let spec = PoolUpdate::decode(&json!({"pool": {}}))?;
            let id = g.pools[1].id;
            update_pool(g, id, &spec, &Rules::default(), LATER)
        },
        "U.....U",
    ),
    (
        "DELETE pool",
        |g| {
            let id = g.pools[0].id;
            delete_pool(g, id, LATER)
        },
        "UUD....",
    ),
    (
        "POST member",
        |g| {
            let spec = MemberCreate::decode(
                &json!({"member": {"address": "10.0.0.23", "protocol_port": 80}}),
            )?;
            let id = g.pools[0].id;
            create_member(g, id, &spec, MemberId::random(), &Rules::default(), LATER)
        },
        "UUU..C..",
    ),
    (
        "PUT member",
        |g| {
            let spec = MemberUpdate::decode(&json!({"member": {}}))?;
            let (pool, id) = (g.pools[0].id, g.pools[0].members[0].id);
            update_member(g, pool, id, &spec, LATER)
        },
        "UUUU...",
    ),
    (
        "DELETE member",
        |g| {
            let (pool, id) = (g.pools[0].id, g.pools[0].members[0].id);
            delete_member(g, pool, id, LATER)
        },
        "UUUD...",
    ),
    (
        "PUT members",
        |g| {
            batch(
                g,
                json!([
                    {"address": "10.0.0.22", "protocol_port": 80, "weight": 7},
                    {"address": "10.0.0.23", "protocol_port": 80},
                ]),
                false,
            )
        },
        "UUUDUC..",
    ),
    (
        "POST health monitor",
        |g| {
            let id = g.pools[1].id;
            create_monitor_with(g, id, json!({"type": "TCP"}))
        },
        "U.....UC",
    ),
    (
        "PUT health monitor",
        |g| {
            let id = g.pools[0].health_monitor.as_ref().unwrap().id;
            let spec = HealthMonitorUpdate::decode(&json!({"healthmonitor": {}}))?;
            update_health_monitor(g, id, &spec, &Rules::default(), LATER)
        },
        "UUU..U.",
    ),
    (
        "DELETE health monitor",
        |g| {
            let id = g.pools[0].health_monitor.as_ref().unwrap().id;
            delete_health_monitor(g, id, LATER)
        },
        "UUU..D.",
    ),
];

#[test]
fn each_call_writes_exactly_the_statuses_of_its_row() {
    for (name, call, expected) in CALLS {
        let mut graph = active();
        assert_eq!(text(call(&mut graph)), "ok", "{name}");
        assert_eq!(statuses(&graph), *expected, "{name}");
        assert_eq!(graph.load_balancer.updated_at, Some(LATER), "{name}");
    }
}

#[test]
fn only_an_active_load_balancer_is_changed_and_only_active_or_error_is_deleted_or_failed_over() {
    for status in Status::ALL {
        for (name, call, _) in CALLS {
            let mut graph = active();
            graph.load_balancer.provisioning_status = *status;
            let own = name.contains("load balancer");
            let may = *status == Status::Active
                || *status == Status::Error
                    && (name.contains("DELETE load") || name.contains("failover"));
            let id = graph.load_balancer.id;
            let expected = match (may, own) {
                (true, _) => "ok".to_owned(),
                (false, true) => format!("Invalid state {status} of loadbalancer resource {id}"),
                (false, false) => {
                    format!("Load Balancer {id} is immutable and cannot be updated.")
                }
            };
            assert_eq!(text(call(&mut graph)), expected, "{name} while {status}");
        }
    }
}

#[test]
fn members_and_monitors_need_their_pool_active_and_the_pool_itself_does_not() {
    for (name, call, _) in CALLS {
        let mut graph = active();
        for pool in &mut graph.pools {
            pool.provisioning_status = Status::Error;
        }
        let needs_pool = name.contains("member") || name.contains("monitor");
        let result = text(call(&mut graph));
        if needs_pool {
            let pool = if *name == "POST health monitor" { 1 } else { 0 };
            let expected = format!(
                "Pool {} is immutable and cannot be updated.",
                active().pools[pool].id
            );
            assert_eq!(result, expected, "{name}");
        } else {
            assert_eq!(result, "ok", "{name}");
        }
    }
}

#[test]
fn immutable_attributes_are_unknown_to_an_update() {
    type Decode = fn(&Value) -> Result<(), Fault>;
    let cases: &[(&str, Decode)] = &[
        ("listener.protocol", |v| ListenerUpdate::decode(v).map(drop)),
        ("listener.protocol_port", |v| {
            ListenerUpdate::decode(v).map(drop)
        }),
        ("listener.loadbalancer_id", |v| {
            ListenerUpdate::decode(v).map(drop)
        }),
        ("pool.protocol", |v| PoolUpdate::decode(v).map(drop)),
        ("member.address", |v| MemberUpdate::decode(v).map(drop)),
        ("member.subnet_id", |v| MemberUpdate::decode(v).map(drop)),
        ("healthmonitor.type", |v| {
            HealthMonitorUpdate::decode(v).map(drop)
        }),
        ("loadbalancer.vip_address", |v| {
            LoadBalancerUpdate::decode(v).map(drop)
        }),
        ("loadbalancer.provider", |v| {
            LoadBalancerUpdate::decode(v).map(drop)
        }),
    ];
    for (path, decode) in cases {
        let (root, attribute) = path.split_once('.').unwrap();
        let body = json!({root: {attribute: "x"}});
        assert_eq!(
            text(decode(&body)),
            format!("Unknown attribute for argument {root}: {attribute}")
        );
    }
}
