//! What each call checks and writes, as tables: one file for all calls, one for the rules of each resource.

mod amphora;
mod calls;
mod everything;
mod health_monitor;
mod l7policy;
mod l7rule;
mod listener;
mod load_balancer;
mod member;
mod pool;

use serde_json::{Value, json};

use super::{batch_update_members, create_health_monitor, create_listener, create_pool};
use crate::sample::{self, NOW};
use crate::spec::{HealthMonitorCreate, ListenerCreate, MemberBatch, PoolCreate};
use crate::{
    Fault, Graph, HealthMonitorId, ListenerId, MemberId, PoolId, Provider, ProviderSupport,
    ProvisioningStatus as Status, Rules, Timestamp,
};

const LATER: Timestamp = NOW.plus_millis(5_000);

/// An ACTIVE load balancer: listener HTTP/80 -> pool (HTTP) with two members and a monitor; a second pool (TCP) alone.
fn active() -> Graph {
    let mut pool = sample::pool(1, crate::PoolProtocol::Http);
    pool.members = vec![member_at(21), member_at(22)];
    pool.health_monitor = Some(sample::health_monitor(1, crate::MonitorType::Http));
    let spare = sample::pool(2, crate::PoolProtocol::Tcp);
    let mut graph = sample::graph(1);
    graph.listeners = vec![sample::listener(
        1,
        crate::ListenerProtocol::Http,
        80,
        Some(pool.id),
    )];
    graph.pools = vec![pool, spare];
    sample::set_status(&mut graph, Status::Active);
    graph
}

/// Rules under which the provider of [`active`] serves everything.
fn everything() -> Rules {
    Rules {
        providers: vec![Provider::new("amphora", "", ProviderSupport::EVERYTHING)],
        ..Rules::default()
    }
}

fn member_at(last: u8) -> crate::Member {
    let mut member = sample::member(last, None);
    member.address = std::net::IpAddr::from([10, 0, 0, last]).into();
    member
}

fn listener_spec(fields: Value) -> Result<ListenerCreate, Fault> {
    let mut object =
        json!({"loadbalancer_id": sample::uuid(1), "protocol": "TCP", "protocol_port": 443});
    merge(&mut object, fields);
    ListenerCreate::decode(&json!({"listener": object}))
}

fn merge(object: &mut Value, fields: Value) {
    for (key, value) in fields.as_object().unwrap() {
        object[key] = value.clone();
    }
}

fn create(graph: &mut Graph, fields: Value) -> Result<(), Fault> {
    create_listener_under(&Rules::default(), graph, fields)
}

fn create_listener_under(rules: &Rules, graph: &mut Graph, fields: Value) -> Result<(), Fault> {
    let spec = listener_spec(fields)?;
    create_listener(graph, &spec.listener, ListenerId::random(), rules, LATER)
}

fn create_pool_with(graph: &mut Graph, fields: Value) -> Result<(), Fault> {
    create_pool_under(&Rules::default(), graph, fields)
}

fn create_pool_under(rules: &Rules, graph: &mut Graph, fields: Value) -> Result<(), Fault> {
    let mut object = json!({"loadbalancer_id": sample::uuid(1), "protocol": "HTTP", "lb_algorithm": "ROUND_ROBIN"});
    merge(&mut object, fields);
    let spec = PoolCreate::decode(&json!({"pool": object}))?;
    create_pool(
        graph,
        &spec.pool,
        PoolId::random(),
        spec.listener_id,
        rules,
        LATER,
    )
}

fn create_monitor_with(graph: &mut Graph, pool: PoolId, fields: Value) -> Result<(), Fault> {
    create_monitor_under(&Rules::default(), graph, pool, fields)
}

fn create_monitor_under(
    rules: &Rules,
    graph: &mut Graph,
    pool: PoolId,
    fields: Value,
) -> Result<(), Fault> {
    let mut object =
        json!({"pool_id": pool, "type": "HTTP", "delay": 5, "timeout": 5, "max_retries": 3});
    merge(&mut object, fields);
    let spec = HealthMonitorCreate::decode(&json!({"healthmonitor": object}))?;
    create_health_monitor(
        graph,
        spec.pool_id,
        &spec.health_monitor,
        HealthMonitorId::random(),
        rules,
        LATER,
    )
}

fn batch(graph: &mut Graph, members: Value, additive_only: bool) -> Result<(), Fault> {
    let pool = graph.pools[0].id;
    let batch = MemberBatch::decode(&json!({"members": members}), additive_only)?;
    batch_update_members(
        graph,
        pool,
        &batch,
        &mut MemberId::random,
        &Rules::default(),
        LATER,
    )
    .map(drop)
}

fn text(result: Result<(), Fault>) -> String {
    match result {
        Ok(()) => "ok".to_owned(),
        Err(fault) => fault.to_string(),
    }
}

/// Provisioning status of load balancer, listener, first pool, second pool, each member, monitor.
fn statuses(graph: &Graph) -> String {
    let mut words = vec![graph.load_balancer.provisioning_status];
    words.extend(graph.listeners.iter().map(|item| item.provisioning_status));
    for pool in &graph.pools {
        words.push(pool.provisioning_status);
        words.extend(pool.members.iter().map(|item| item.provisioning_status));
        words.extend(
            pool.health_monitor
                .iter()
                .map(|item| item.provisioning_status),
        );
    }
    letters(words)
}

fn letters(words: impl IntoIterator<Item = Status>) -> String {
    words
        .into_iter()
        .map(|status| match status {
            Status::Active => '.',
            Status::PendingCreate => 'C',
            Status::PendingUpdate => 'U',
            Status::PendingDelete => 'D',
            Status::Error => 'E',
            Status::Deleted => 'X',
        })
        .collect()
}
