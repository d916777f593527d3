use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use amphora_api::{HeartbeatMessage, HeartbeatTotals, ListenerStats, encode_heartbeat};
use async_trait::async_trait;
use lb_drivers::network::Port;
use lb_drivers::{Compute, DriverError, Observed, Server, ServerSpec};
use lb_model::{AmphoraId, AmphoraStatus, Graph, OperatingStatus, PortId, ProvisioningStatus};
use lb_store::Store;
use tokio::net::UdpSocket;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::graphs::{Database, clock, database, graph, healthy};
use crate::health_manager::service::{CountersReader, Ended};
use crate::health_manager::{
    Counters, HealthManager, HealthManagerDeps, HealthManagerSettings, HeartbeatKeys,
    LivenessSettings,
};

const KEY: &[u8] = b"key";

/// Remembers which servers it was told to delete.
#[derive(Default)]
struct Deletions(Mutex<Vec<AmphoraId>>);

#[async_trait]
impl Compute for Deletions {
    async fn ensure_server(&self, _: &ServerSpec) -> Result<Server, DriverError> {
        panic!("a health manager makes no servers");
    }

    async fn observe_server(&self, _: AmphoraId) -> Result<Observed<Server>, DriverError> {
        Ok(Observed::Absent)
    }

    async fn list_servers(&self) -> Result<Vec<Server>, DriverError> {
        Ok(Vec::new())
    }

    async fn attach_port(&self, _: AmphoraId, _: &Port) -> Result<(), DriverError> {
        panic!("a health manager attaches no ports");
    }

    async fn detach_port(&self, _: AmphoraId, _: PortId) -> Result<(), DriverError> {
        panic!("a health manager detaches no ports");
    }

    async fn delete_server(&self, amphora: AmphoraId) -> Result<(), DriverError> {
        self.0.lock().unwrap().push(amphora);
        Ok(())
    }
}

struct Running {
    database: Database,
    address: SocketAddr,
    sender: UdpSocket,
    counters: CountersReader,
    deletions: Arc<Deletions>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), Ended>>,
}

async fn running(liveness: LivenessSettings) -> Running {
    running_on(database().await, liveness).await
}

async fn running_on(database: Database, liveness: LivenessSettings) -> Running {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let deletions = Arc::new(Deletions::default());
    let manager = HealthManager::new(
        HealthManagerDeps {
            store: database.store.clone(),
            compute: deletions.clone(),
            socket,
            clock: clock(),
        },
        HealthManagerSettings {
            liveness,
            keys: HeartbeatKeys::new([KEY.to_vec()]),
        },
    );
    let counters = manager.counters();
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(manager.run(async {
        let _ = stopped.await;
    }));
    Running {
        database,
        address,
        sender: UdpSocket::bind("127.0.0.1:0").await.unwrap(),
        counters,
        deletions,
        stop,
        task,
    }
}

impl Running {
    fn store(&self) -> &Store {
        &self.database.store
    }

    async fn send(&self, datagram: &[u8]) {
        self.sender.send_to(datagram, self.address).await.unwrap();
    }

    async fn beat(&self, message: &HeartbeatMessage) {
        self.send(&encode_heartbeat(message, KEY).unwrap()).await;
    }

    async fn counted(&self, what: &str, enough: impl Fn(&Counters) -> bool) {
        wait_for(what, async || enough(&self.counters.read())).await;
    }

    async fn graph(&self, graph: &Graph) -> Graph {
        let id = graph.load_balancer.id;
        self.store().load_graph(id).await.unwrap().unwrap()
    }

    async fn end(self) -> Database {
        self.stop.send(()).unwrap();
        self.task.await.unwrap().unwrap();
        self.database
    }
}

async fn wait_for(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    while !holds().await {
        assert!(tokio::time::Instant::now() < deadline, "still not: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_heartbeat_is_written_and_its_counters_equal_what_was_served() {
    let running = running(LivenessSettings::default()).await;
    let graph = graph(2);
    running.store().insert_graph(&graph).await.unwrap();
    let listener = graph.listeners[0].id;
    let mut message = healthy(&graph, 1);
    for seq in 1..=5 {
        message.seq = seq;
        message.sent_at_ms = Some(1000 + seq);
        let counters = ListenerStats {
            total_connections: seq * 100,
            ..ListenerStats::default()
        };
        message
            .totals
            .insert(listener.0, HeartbeatTotals { epoch: 1, counters });
        // Every second one is lost on the way: nothing that was served is.
        if seq % 2 == 1 {
            running.beat(&message).await;
        }
    }
    wait_for("all connections counted", async || {
        running
            .store()
            .listener_stats(listener)
            .await
            .unwrap()
            .total_connections
            == 500
    })
    .await;
    let written = running.graph(&graph).await;
    assert_eq!(
        written.load_balancer.operating_status,
        OperatingStatus::Online
    );
    assert_eq!(
        written.pools[0].members[1].operating_status,
        OperatingStatus::Online
    );
    assert_eq!(
        written.load_balancer.generation,
        graph.load_balancer.generation
    );
    running
        .counted("two lost", |counters| counters.lost == 2)
        .await;
    running.end().await;
}

#[tokio::test]
async fn hostile_datagrams_are_counted_by_reason_and_change_nothing() {
    let running = running(LivenessSettings::default()).await;
    let graph = graph(1);
    running.store().insert_graph(&graph).await.unwrap();
    let message = healthy(&graph, 5);
    let good = encode_heartbeat(&message, KEY).unwrap();
    running.send(&good).await;
    running
        .counted("accepted", |counters| counters.accepted == 1)
        .await;

    running.send(&good).await;
    running
        .counted("replay", |counters| counters.refused_replayed == 1)
        .await;
    running.send(&[]).await;
    running.send(&good[..40]).await;
    running
        .counted("short", |counters| counters.refused_too_short == 2)
        .await;
    let mut flipped = good.clone();
    flipped[3] ^= 1;
    running.send(&flipped).await;
    running.send(&good[..good.len() - 1]).await;
    running
        .send(&encode_heartbeat(&message, b"other").unwrap())
        .await;
    running.send(&vec![0xff; 60_000]).await;
    running
        .counted("forged", |counters| counters.refused_bad_hmac == 4)
        .await;

    let after = healthy(&graph, 6);
    running.beat(&after).await;
    running
        .counted("still works", |counters| counters.accepted == 2)
        .await;
    let counters = running.counters.read();
    assert_eq!(counters.received, 9);
    running.end().await;
}

/// P28
#[tokio::test]
async fn a_replay_is_refused_also_after_a_restart() {
    let first = running(LivenessSettings::default()).await;
    let graph = graph(1);
    first.store().insert_graph(&graph).await.unwrap();
    for seq in [5, 6] {
        first.beat(&healthy(&graph, seq)).await;
    }
    let id = graph.amphorae[0].id;
    wait_for("the newest is on record", async || {
        let targets = first.store().heartbeat_targets(&[id]).await.unwrap();
        targets[&id].newest.is_some_and(|newest| newest.seq == 6)
    })
    .await;
    let second = running_on(first.end().await, LivenessSettings::default()).await;
    let mut down = healthy(&graph, 5);
    for pool in down.pools.values_mut() {
        pool.status = "DOWN".to_owned();
    }
    second.beat(&down).await;
    second
        .counted("replay", |counters| counters.refused_replayed == 1)
        .await;
    let found = second.graph(&graph).await;
    assert_eq!(
        found.load_balancer.operating_status,
        OperatingStatus::Online
    );
    second.beat(&healthy(&graph, 7)).await;
    second
        .counted("the next one", |counters| counters.accepted == 1)
        .await;
    second.end().await;
}

#[tokio::test]
async fn servers_that_outlived_their_amphora_are_deleted_once() {
    let running = running(LivenessSettings::default()).await;
    let mut graph = graph(0);
    graph.amphorae[0].status = AmphoraStatus::Deleted;
    running.store().insert_graph(&graph).await.unwrap();
    let unknown = AmphoraId::random();
    for seq in 1..=3 {
        running.beat(&healthy(&graph, seq)).await;
        let mut message = healthy(&graph, seq);
        message.id = unknown.0;
        running.beat(&message).await;
    }
    running
        .counted("six refused", |counters| {
            counters.refused_unknown_amphora == 6
        })
        .await;
    wait_for("two deletions", async || {
        running.deletions.0.lock().unwrap().len() == 2
    })
    .await;
    assert_eq!(running.counters.read().zombie_deletions_requested, 2);
    running.end().await;
}

#[tokio::test]
async fn a_message_of_an_older_document_or_of_a_replaced_amphora_says_nothing() {
    let running = running(LivenessSettings::default()).await;
    let mut old = graph(0);
    old.amphorae[0].config_generation = 9;
    let mut leaving = graph(0);
    leaving.amphorae[0].status = AmphoraStatus::PendingDelete;
    for graph in [&old, &leaving] {
        running.store().insert_graph(graph).await.unwrap();
        running.beat(&healthy(graph, 1)).await;
    }
    running
        .counted("both heard", |counters| counters.accepted == 2)
        .await;
    let mut current = healthy(&old, 2);
    for graph in [&old, &leaving] {
        let found = running.graph(graph).await;
        assert_eq!(
            found.load_balancer.operating_status,
            OperatingStatus::Offline
        );
    }
    current.generation = Some(9);
    running.beat(&current).await;
    wait_for("statuses of the current document", async || {
        running.graph(&old).await.load_balancer.operating_status == OperatingStatus::Online
    })
    .await;
    running.end().await;
}

#[tokio::test]
async fn an_amphora_that_falls_silent_is_replaced_and_one_that_beats_is_not() {
    let running = running(LivenessSettings {
        heartbeat_timeout: Duration::from_millis(1500),
        scan_interval: Duration::from_millis(50),
        ..LivenessSettings::default()
    })
    .await;
    let silent = graph(0);
    let beating = graph(0);
    let mismatched = graph(0);
    for graph in [&silent, &beating, &mismatched] {
        running.store().insert_graph(graph).await.unwrap();
    }
    running.beat(&healthy(&silent, 1)).await;
    let mut seq = 1;
    wait_for(
        "the silent one and the one with other listeners fail over",
        async || {
            seq += 1;
            running.beat(&healthy(&beating, seq)).await;
            let mut wrong = healthy(&mismatched, seq);
            wrong.listeners.clear();
            running.beat(&wrong).await;
            running.counters.read().failovers_requested == 2
        },
    )
    .await;
    for (graph, expected) in [(&silent, true), (&mismatched, true), (&beating, false)] {
        let found = running.graph(graph).await;
        assert_eq!(found.amphorae[0].failover_requested, expected);
        let pending = found.load_balancer.provisioning_status == ProvisioningStatus::PendingUpdate;
        assert_eq!(pending, expected);
    }
    running.end().await;
}
