//! Load balancers and messages for tests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use amphora_api::{HeartbeatListener, HeartbeatListenerStats, HeartbeatMessage, HeartbeatPool};
use lb_model::{
    Amphora, AmphoraId, Clock, Graph, Listener, ListenerId, ListenerProtocol, LoadBalancerId,
    Member, MemberId, OperatingStatus, Pool, PoolId, PoolProtocol, PortId, ProvisioningStatus,
    Timestamp, sample,
};
use lb_store::Store;
use lb_store::testing::TestDatabase;

/// So many milliseconds after the start of the test's time.
pub(super) fn at(millis: i64) -> Timestamp {
    Timestamp::from_micros(1_700_000_000_000_000).plus_millis(millis)
}

/// The clock of this machine.
pub(super) fn clock() -> Clock {
    Arc::new(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap())
    })
}

pub(super) struct Database {
    pub(super) store: Store,
    _database: TestDatabase,
}

pub(super) async fn database() -> Database {
    let database = TestDatabase::new().await;
    Database {
        store: database.store().await,
        _database: database,
    }
}

/// One amphora, one listener, one pool with so many members; all new ids.
pub(super) fn graph(members: usize) -> Graph {
    let mut graph = sample::graph(1);
    let id = LoadBalancerId::random();
    graph.load_balancer.id = id;
    graph.load_balancer.vip.port_id = PortId::random();
    let pool = Pool {
        id: PoolId::random(),
        members: (0..members).map(|_| member()).collect(),
        ..sample::pool(1, PoolProtocol::Tcp)
    };
    graph.listeners = vec![listener(Some(pool.id))];
    graph.pools = vec![pool];
    graph.amphorae = vec![amphora(id)];
    sample::set_status(&mut graph, ProvisioningStatus::Active);
    graph
}

pub(super) fn listener(default_pool_id: Option<PoolId>) -> Listener {
    Listener {
        id: ListenerId::random(),
        provisioning_status: ProvisioningStatus::Active,
        ..sample::listener(1, ListenerProtocol::Tcp, 80, default_pool_id)
    }
}

pub(super) fn member() -> Member {
    Member {
        id: MemberId::random(),
        provisioning_status: ProvisioningStatus::Active,
        operating_status: OperatingStatus::Offline,
        ..sample::member(9, None)
    }
}

pub(super) fn amphora(load_balancer_id: LoadBalancerId) -> Amphora {
    Amphora {
        id: AmphoraId::random(),
        ..sample::amphora(load_balancer_id)
    }
}

/// All is well: each listener `OPEN`, each pool `UP`, each member `UP`.
pub(super) fn healthy(graph: &Graph, seq: u64) -> HeartbeatMessage {
    HeartbeatMessage {
        id: graph.amphorae[0].id.0,
        seq,
        ver: 3,
        sent_at_ms: Some(1_000 + seq),
        generation: Some(1),
        listeners: graph
            .listeners
            .iter()
            .map(|listener| {
                (
                    listener.id.0,
                    HeartbeatListener {
                        status: "OPEN".into(),
                        stats: HeartbeatListenerStats::default(),
                    },
                )
            })
            .collect(),
        pools: graph
            .pools
            .iter()
            .map(|pool| {
                (
                    pool.id.to_string(),
                    HeartbeatPool {
                        status: "UP".into(),
                        members: pool
                            .members
                            .iter()
                            .map(|member| (member.id.0, "UP".into()))
                            .collect(),
                    },
                )
            })
            .collect(),
        totals: BTreeMap::new(),
    }
}
