//! Databases and load balancers for tests.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use lb_model::{
    AdditionalVip, Amphora, AmphoraId, AmphoraRole, AmphoraStatus, ClientAuthentication, Graph,
    HealthMonitor, HealthMonitorId, HttpVersion, L7Policy, L7PolicyAction, L7PolicyId, L7Rule,
    L7RuleCompareType, L7RuleId, L7RuleType, LbAlgorithm, Listener, ListenerId, ListenerProtocol,
    LoadBalancer, LoadBalancerId, Member, MemberId, MonitorType, OperatingStatus, Pool, PoolId,
    PoolProtocol, PortId, ProvisioningStatus, SessionPersistence, SessionPersistenceType, SubnetId,
    Timestamp, Topology, Vip, VnicType, sample,
};
use uuid::Uuid;

use crate::testing::TestDatabase;
use crate::{Heard, MessageMark, Store};

/// A fresh database with a store on it.
pub(crate) struct Database {
    pub(crate) store: Store,
    pub(crate) url: String,
    _database: TestDatabase,
}

pub(crate) async fn database() -> Database {
    let database = TestDatabase::new().await;
    Database {
        store: database.store().await,
        url: database.url().to_owned(),
        _database: database,
    }
}

/// So many seconds after the start of the test's time.
pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(1_800_000_000_000_000).plus_millis(seconds * 1000)
}

/// A heartbeat of that second.
pub(crate) fn heard_at(amphora_id: AmphoraId, seconds: i64) -> Heard {
    Heard {
        amphora_id,
        at: at(seconds),
        newest: MessageMark {
            seq: 1,
            sent_at_ms: Some(1),
        },
    }
}

/// Repeatable choices (xorshift).
pub(crate) struct Choices(pub(crate) u64);

impl Choices {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn flag(&mut self) -> bool {
        self.next() & 4 == 0
    }

    fn maybe<T>(&mut self, value: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.flag().then(|| value(self))
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    fn text(&mut self) -> String {
        const TEXTS: [&str; 9] = [
            "",
            "web",
            "web ",
            "Web",
            "naïve ☃",
            "it's \"quoted\"",
            "%_\\",
            "NULL",
            " ",
        ];
        self.of(&TEXTS).to_owned()
    }

    fn address(&mut self) -> IpAddr {
        let bits = self.next();
        if self.flag() {
            IpAddr::V6(Ipv6Addr::from(u128::from(bits) << 60 | 1))
        } else {
            IpAddr::V4(Ipv4Addr::from(bits as u32))
        }
    }

    fn time(&mut self) -> Timestamp {
        at((self.next() % 1000) as i64).plus_millis((self.next() % 1000) as i64)
    }

    fn tags(&mut self) -> Vec<String> {
        let mut tags: Vec<String> = (0..self.below(4)).map(|_| self.text()).collect();
        tags.dedup();
        tags
    }
}

/// A load balancer with everything, every field chosen.
pub(crate) fn any_graph(choices: &mut Choices) -> Graph {
    let mut graph = Graph {
        load_balancer: load_balancer(),
        listeners: Vec::new(),
        pools: Vec::new(),
        amphorae: Vec::new(),
    };
    change_anything(&mut graph, choices);
    graph
}

/// Changes, adds and removes at will; what stays keeps its id and its time of creation.
pub(crate) fn change_anything(graph: &mut Graph, choices: &mut Choices) {
    let lb = &mut graph.load_balancer;
    lb.name = choices.text();
    lb.description = choices.text();
    lb.admin_state_up = choices.flag();
    lb.operating_status = choices.of(OperatingStatus::ALL);
    lb.topology = choices.of(Topology::ALL);
    lb.vip.address = choices.address();
    lb.vip.qos_policy_id = choices.maybe(|_| Uuid::new_v4());
    lb.vip.vnic_type = choices.of(VnicType::ALL);
    lb.vip.sg_ids = (0..choices.below(3)).map(|_| Uuid::new_v4()).collect();
    lb.vip.port_is_ours = choices.flag();
    lb.additional_vips = (0..choices.below(3))
        .map(|_| AdditionalVip {
            subnet_id: SubnetId::random(),
            ip_address: choices.address(),
            port_id: PortId::random(),
        })
        .collect();
    lb.tags = choices.tags();
    lb.updated_at = choices.maybe(Choices::time);
    lb.error_reason = choices.maybe(Choices::text);

    let kept: Vec<Pool> = std::mem::take(&mut graph.pools);
    graph.pools = kept.into_iter().filter(|_| choices.flag()).collect();
    for _ in 0..choices.below(3) {
        graph.pools.push(pool(choices.time()));
    }
    for pool in &mut graph.pools {
        any_pool(pool, choices);
    }
    let pools: Vec<PoolId> = graph.pools.iter().map(|pool| pool.id).collect();
    let kept = std::mem::take(&mut graph.listeners);
    graph.listeners = kept.into_iter().filter(|_| choices.flag()).collect();
    for port in 0..choices.below(3) {
        graph
            .listeners
            .push(listener(80 + port as u16, choices.time()));
    }
    for listener in &mut graph.listeners {
        any_listener(listener, &pools, choices);
    }
    for _ in 0..choices.below(2) {
        graph.amphorae.push(amphora(
            graph.load_balancer.id,
            AmphoraStatus::PendingCreate,
            choices.time(),
        ));
    }
    for amphora in &mut graph.amphorae {
        any_amphora(amphora, choices);
    }
    in_order(graph);
}

/// Children in the order the store gives them in.
pub(crate) fn in_order(graph: &mut Graph) {
    graph
        .listeners
        .sort_by_key(|listener| (listener.created_at, listener.id));
    graph.pools.sort_by_key(|pool| (pool.created_at, pool.id));
    for pool in &mut graph.pools {
        pool.members
            .sort_by_key(|member| (member.created_at, member.id));
    }
    for listener in &mut graph.listeners {
        listener.l7policies.sort_by_key(|policy| policy.position);
        for policy in &mut listener.l7policies {
            policy.rules.sort_by_key(|rule| (rule.created_at, rule.id));
        }
    }
    graph
        .amphorae
        .sort_by_key(|amphora| (amphora.created_at, amphora.id));
}

fn any_pool(pool: &mut Pool, choices: &mut Choices) {
    pool.name = choices.text();
    pool.description = choices.text();
    pool.admin_state_up = choices.flag();
    pool.provisioning_status = choices.of(ProvisioningStatus::ALL);
    pool.operating_status = choices.of(OperatingStatus::ALL);
    pool.protocol = choices.of(PoolProtocol::ALL);
    pool.lb_algorithm = choices.of(LbAlgorithm::ALL);
    pool.session_persistence = choices.maybe(|choices| SessionPersistence {
        kind: choices.of(SessionPersistenceType::ALL),
        cookie_name: choices.maybe(Choices::text),
        persistence_timeout: choices.maybe(|choices| choices.next() as u32),
        persistence_granularity: choices.maybe(Choices::text),
    });
    pool.tls_container_ref = choices.maybe(Choices::text);
    pool.tls_enabled = choices.flag();
    pool.tls_versions = choices.maybe(|choices| vec![choices.text()]);
    pool.alpn_protocols = choices.maybe(|_| Vec::new());
    pool.tags = choices.tags();
    pool.updated_at = choices.maybe(Choices::time);
    let kept = std::mem::take(&mut pool.members);
    pool.members = kept.into_iter().filter(|_| choices.flag()).collect();
    for _ in 0..choices.below(4) {
        pool.members.push(member(choices.time()));
    }
    for member in &mut pool.members {
        member.name = choices.text();
        member.address = choices.address().into();
        member.protocol_port = choices.next() as u16;
        member.weight = choices.below(257) as u16;
        member.backup = choices.flag();
        member.subnet_id = choices.maybe(|_| SubnetId::random());
        member.monitor_address = choices.maybe(|choices| choices.address().into());
        member.monitor_port = choices.maybe(|choices| choices.next() as u16);
        member.operating_status = choices.of(OperatingStatus::ALL);
        member.provisioning_status = choices.of(ProvisioningStatus::ALL);
        member.tags = choices.tags();
    }
    pool.health_monitor = choices.maybe(|choices| HealthMonitor {
        kind: choices.of(MonitorType::ALL),
        delay: choices.next() as u32,
        timeout: choices.next() as u32,
        http_method: choices.maybe(|_| "GET".to_owned()),
        url_path: choices.maybe(|_| "/".to_owned()),
        expected_codes: choices
            .maybe(|choices| choices.of(&["200", "200-204", "200, 202"]).parse().unwrap()),
        http_version: choices.maybe(|choices| choices.of(&[HttpVersion::V1_0, HttpVersion::V1_1])),
        domain_name: choices.maybe(Choices::text),
        tags: choices.tags(),
        ..health_monitor(choices.time())
    });
}

fn any_listener(listener: &mut Listener, pools: &[PoolId], choices: &mut Choices) {
    listener.name = choices.text();
    listener.protocol = choices.of(ListenerProtocol::ALL);
    listener.connection_limit = choices.next() as i32;
    listener.default_pool_id = (!pools.is_empty() && choices.flag()).then(|| choices.of(pools));
    listener.default_tls_container_ref = choices.maybe(Choices::text);
    listener.sni_container_refs = (0..choices.below(3)).map(|_| choices.text()).collect();
    listener.insert_headers = BTreeMap::from([(choices.text(), choices.text())]);
    listener.timeout_client_data = choices.next() as u32;
    listener.client_authentication = choices.of(ClientAuthentication::ALL);
    listener.allowed_cidrs = choices.maybe(|choices| vec![ipnet::IpNet::from(choices.address())]);
    listener.tls_versions = choices.maybe(|choices| vec![choices.text()]);
    listener.hsts_max_age = choices.maybe(|choices| choices.next() >> 2);
    listener.hsts_preload = choices.flag();
    listener.tags = choices.tags();
    listener.operating_status = choices.of(OperatingStatus::ALL);
    listener.l7policies = (1..=choices.below(3))
        .map(|position| L7Policy {
            id: L7PolicyId::random(),
            project_id: "p".into(),
            name: choices.text(),
            description: choices.text(),
            admin_state_up: choices.flag(),
            provisioning_status: ProvisioningStatus::Active,
            operating_status: OperatingStatus::Online,
            action: choices.of(L7PolicyAction::ALL),
            redirect_pool_id: (!pools.is_empty() && choices.flag()).then(|| choices.of(pools)),
            redirect_url: choices.maybe(Choices::text),
            redirect_prefix: choices.maybe(Choices::text),
            redirect_http_code: choices.maybe(|choices| choices.of(&[301, 302])),
            position: position as u32,
            tags: choices.tags(),
            created_at: choices.time(),
            updated_at: choices.maybe(Choices::time),
            rules: (0..choices.below(3))
                .map(|_| L7Rule {
                    id: L7RuleId::random(),
                    project_id: "p".into(),
                    admin_state_up: choices.flag(),
                    provisioning_status: ProvisioningStatus::Active,
                    operating_status: OperatingStatus::Online,
                    kind: choices.of(L7RuleType::ALL),
                    compare_type: choices.of(L7RuleCompareType::ALL),
                    key: choices.maybe(Choices::text),
                    value: choices.text(),
                    invert: choices.flag(),
                    tags: choices.tags(),
                    created_at: choices.time(),
                    updated_at: choices.maybe(Choices::time),
                })
                .collect(),
        })
        .collect();
}

fn any_amphora(amphora: &mut Amphora, choices: &mut Choices) {
    amphora.status = choices.of(&[
        AmphoraStatus::Booting,
        AmphoraStatus::Allocated,
        AmphoraStatus::Error,
    ]);
    amphora.role = choices.maybe(|choices| choices.of(AmphoraRole::ALL));
    amphora.compute_id = choices.maybe(Choices::text);
    amphora.lb_network_ip = choices.maybe(Choices::address);
    amphora.vrrp_port_id = choices.maybe(|_| PortId::random());
    amphora.vrrp_id = choices.maybe(|choices| choices.next() as u16);
    amphora.cert_expiration = choices.maybe(Choices::time);
    amphora.cert_busy = choices.flag();
    amphora.failover_requested = choices.flag();
    amphora.config_generation = choices.next() >> 2;
}

pub(crate) fn load_balancer() -> LoadBalancer {
    let sample = sample::load_balancer(1);
    LoadBalancer {
        id: LoadBalancerId::random(),
        name: "lb".into(),
        provisioning_status: ProvisioningStatus::Active,
        operating_status: OperatingStatus::Online,
        vip: Vip {
            port_id: PortId::random(),
            ..sample.vip
        },
        created_at: at(0),
        ..sample
    }
}

/// A load balancer with one allocated amphora and nothing else.
pub(crate) fn plain_graph(status: ProvisioningStatus) -> Graph {
    let mut load_balancer = load_balancer();
    load_balancer.provisioning_status = status;
    let amphorae = vec![amphora(load_balancer.id, AmphoraStatus::Allocated, at(0))];
    Graph {
        load_balancer,
        listeners: Vec::new(),
        pools: Vec::new(),
        amphorae,
    }
}

pub(crate) fn listener(port: u16, created_at: Timestamp) -> Listener {
    Listener {
        id: ListenerId::random(),
        provisioning_status: ProvisioningStatus::Active,
        operating_status: OperatingStatus::Online,
        created_at,
        ..sample::listener(1, ListenerProtocol::Tcp, port, None)
    }
}

pub(crate) fn pool(created_at: Timestamp) -> Pool {
    Pool {
        id: PoolId::random(),
        provisioning_status: ProvisioningStatus::Active,
        operating_status: OperatingStatus::Online,
        created_at,
        ..sample::pool(1, PoolProtocol::Tcp)
    }
}

pub(crate) fn member(created_at: Timestamp) -> Member {
    Member {
        id: MemberId::random(),
        provisioning_status: ProvisioningStatus::Active,
        created_at,
        ..sample::member(1, None)
    }
}

pub(crate) fn health_monitor(created_at: Timestamp) -> HealthMonitor {
    HealthMonitor {
        id: HealthMonitorId::random(),
        provisioning_status: ProvisioningStatus::Active,
        operating_status: OperatingStatus::Online,
        created_at,
        ..sample::health_monitor(1, MonitorType::Tcp)
    }
}

pub(crate) fn amphora(
    load_balancer_id: LoadBalancerId,
    status: AmphoraStatus,
    created_at: Timestamp,
) -> Amphora {
    Amphora {
        id: AmphoraId::random(),
        status,
        created_at,
        ..sample::amphora(load_balancer_id)
    }
}
