//! A control plane over a real database and a cloud in memory, with a clock that tests turn.

#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(unreachable_pub, reason = "a module of test binaries")]
#![allow(clippy::unwrap_used, reason = "a failing unwrap is a failing test")]

use std::convert::Infallible;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lb_controllers::worker::{Deadlines, Settings, Worker, WorkerDeps};
use lb_drivers::fake::{FakeCloud, FaultPlan};
use lb_drivers::network::{DEVICE_OWNER, FixedIp, Port, vip_device_id, vip_port_name};
use lb_drivers::{AmphoraDriver, CertificateAuthority, Compute, Network, Secret};
use lb_model::{
    AmphoraId, AmphoraStatus, Graph, ListenerProtocol, LoadBalancerId, MonitorType, NetworkId,
    PoolProtocol, ProvisioningStatus, SubnetId, Timestamp, sample,
};
use lb_store::Store;
use lb_store::testing::{self, StoreFaults, TestDatabase};

pub const OTHER_NETWORK: NetworkId = NetworkId(sample::uuid(0xe02));
pub const THIRD_NETWORK: NetworkId = NetworkId(sample::uuid(0xe03));
pub const OTHER_SUBNET: SubnetId = SubnetId(sample::uuid(0x502));
pub const THIRD_SUBNET: SubnetId = SubnetId(sample::uuid(0x504));

/// How long a lease of these tests holds, by the turned clock.
pub const LEASE: Duration = Duration::from_millis(600);

/// Authorities, made once a test process.
fn authority() -> Arc<CertificateAuthority> {
    static AUTHORITY: LazyLock<Arc<CertificateAuthority>> = LazyLock::new(|| {
        let dir = tempfile::tempdir().unwrap();
        Arc::new(CertificateAuthority::load_or_create(&dir.path().join("ca")).unwrap())
    });
    Arc::clone(&AUTHORITY)
}

/// What goes wrong, at a number of which place.
#[derive(Debug, Clone, Copy)]
pub enum Fault {
    Driver(fn(u64) -> FaultPlan),
    Store(fn(u64) -> testing::FaultPlan),
}

pub struct Bench {
    pub store: Store,
    pub cloud: FakeCloud,
    pub settings: Settings,
    /// What goes wrong in transactions; [`Bench::cloud`] has those of drivers.
    pub faults: StoreFaults,
    ca: Arc<CertificateAuthority>,
    /// Milliseconds the clock is ahead.
    ahead: Arc<AtomicI64>,
    _database: TestDatabase,
}

impl Bench {
    pub async fn new() -> Self {
        let database = TestDatabase::new().await;
        let faults = StoreFaults::default();
        let store = database.store().await.with_faults(faults.clone());
        let cloud = FakeCloud::new();
        cloud.set_boot_calls(1);
        for (network, subnet, cidr) in [
            (sample::NETWORK, sample::SUBNET, "10.0.0.0/24"),
            (OTHER_NETWORK, OTHER_SUBNET, "10.0.1.0/24"),
            (THIRD_NETWORK, THIRD_SUBNET, "10.0.3.0/24"),
        ] {
            cloud.add_network(network, cidr);
            cloud.add_subnet(subnet, network, cidr.parse().unwrap());
        }
        let mut settings = Settings::new(Secret::new("insecure"));
        settings.lease = LEASE;
        settings.poll = Duration::from_millis(10);
        settings.agent_poll = Duration::from_millis(1);
        settings.agent_wait = Duration::from_millis(50);
        settings.retry_delay = Duration::from_millis(10);
        settings.deadlines = Deadlines {
            create: Duration::from_secs(60),
            update: Duration::from_secs(60),
            failover: Duration::from_secs(60),
            delete: Duration::from_secs(60),
            compensation: Duration::from_secs(60),
        };
        Self {
            store,
            cloud,
            settings,
            faults,
            ca: authority(),
            ahead: Arc::default(),
            _database: database,
        }
    }

    /// A worker as a new process would have it.
    pub fn worker(&self) -> Worker {
        self.worker_with(
            Arc::new(self.cloud.clone()),
            Arc::new(self.cloud.clone()),
            Arc::new(self.cloud.clone()),
        )
    }

    /// A worker with other drivers than the cloud in memory.
    pub fn worker_with(
        &self,
        compute: Arc<dyn Compute>,
        network: Arc<dyn Network>,
        amphora: Arc<dyn AmphoraDriver>,
    ) -> Worker {
        let ahead = Arc::clone(&self.ahead);
        let mut settings = self.settings.clone();
        settings.owner = uuid::Uuid::new_v4().to_string();
        Worker::new(WorkerDeps {
            store: self.store.clone(),
            compute,
            network,
            amphora,
            ca: Arc::clone(&self.ca),
            settings,
            clock: Arc::new(move || now(&ahead)),
        })
    }

    pub fn now(&self) -> Timestamp {
        now(&self.ahead)
    }

    pub fn turn_clock(&self, by: Duration) {
        let millis = i64::try_from(by.as_millis()).unwrap();
        self.ahead.fetch_add(millis, Ordering::SeqCst);
    }

    /// What the create call leaves: the VIP port, and the graph with everything PENDING_CREATE.
    pub async fn create(&self, number: u128, fill: impl FnOnce(&mut Graph)) -> LoadBalancerId {
        let mut graph = sample::graph(number);
        fill(&mut graph);
        sample::set_status(&mut graph, ProvisioningStatus::PendingCreate);
        let id = graph.load_balancer.id;
        let last = u8::try_from(number + 9).unwrap();
        graph.load_balancer.vip.address = std::net::Ipv4Addr::new(10, 0, 0, last).into();
        graph.load_balancer.created_at = self.now();
        let vip = &graph.load_balancer.vip;
        self.cloud.add_port(Port {
            id: vip.port_id,
            name: vip_port_name(id),
            network_id: vip.network_id,
            mac_address: format!("fa:16:3e:ff:00:{last:02x}"),
            fixed_ips: vec![FixedIp {
                subnet_id: vip.subnet_id,
                ip_address: vip.address,
            }],
            device_id: vip_device_id(id),
            device_owner: DEVICE_OWNER.to_owned(),
            project_id: Some(sample::PROJECT.to_owned()),
            allowed_address_pairs: Vec::new(),
            admin_state_up: false,
        });
        self.store.insert_graph(&graph).await.unwrap();
        id
    }

    /// A load balancer that serves.
    pub async fn active(&self) -> LoadBalancerId {
        let id = self.create(1, full).await;
        self.reach(id, ProvisioningStatus::Active).await;
        id
    }

    pub async fn change(&self, id: LoadBalancerId, change: impl Fn(&mut Graph) + Send + Sync) {
        let changed = self
            .store
            .change_graph::<_, Infallible, _>(id, self.now(), |graph| {
                change(graph);
                Ok(())
            })
            .await
            .unwrap();
        assert!(changed.is_some());
    }

    pub async fn graph(&self, id: LoadBalancerId) -> Option<Graph> {
        self.store.load_graph(id).await.unwrap()
    }

    /// Fresh workers until the load balancer is in this status and nothing is left to do for it.
    pub async fn reach(&self, id: LoadBalancerId, status: ProvisioningStatus) {
        for _ in 0..40 {
            self.worker().run_due().await;
            let graph = self.graph(id).await;
            let now = graph.as_ref().map_or(ProvisioningStatus::Deleted, |graph| {
                graph.load_balancer.provisioning_status
            });
            if now == ProvisioningStatus::Deleted {
                // Whoever sees it gone must find nothing of it.
                assert_eq!(self.cloud.ports(), [], "ports of a deleted load balancer");
                assert_eq!(self.cloud.servers(), []);
            }
            let rest = graph.iter().flat_map(|graph| &graph.amphorae);
            if now == status && rest.into_iter().all(is_settled) {
                return;
            }
            self.turn_clock(Duration::from_secs(1));
        }
        let outcome = self.store.outcome(id).await.unwrap();
        panic!(
            "does not reach {status}: {:#?}\n{outcome:#?}",
            self.graph(id).await
        );
    }

    /// One worker on, until the load balancer is no longer pending, whatever that takes it.
    pub async fn give_in(&self, id: LoadBalancerId) -> Graph {
        let worker = self.worker();
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            worker.run_due().await;
            let graph = self.graph(id).await.expect("the load balancer is there");
            if !graph.load_balancer.provisioning_status.is_pending() {
                return graph;
            }
            assert!(Instant::now() < deadline, "pending for ever: {graph:#?}");
            self.turn_clock(Duration::from_secs(1));
        }
    }

    /// Runs a worker into its faults. Answers whether one happened.
    pub async fn run_into(&self, fault: Fault, number: u64) -> bool {
        match fault {
            Fault::Driver(plan) => self.cloud.set_faults(plan(number)),
            Fault::Store(plan) => self.faults.set(plan(number)),
        }
        let worker = self.worker();
        tokio::select! {
            _ = worker.run_due() => {}
            () = self.cloud.died() => {}
            () = self.faults.died() => {}
        }
        let happened = match fault {
            Fault::Driver(_) => self.cloud.calls() >= number,
            Fault::Store(_) => self.faults.transactions() >= number,
        };
        drop(worker);
        self.cloud.set_faults(FaultPlan::None);
        self.faults.set(testing::FaultPlan::None);
        // A worker that died holds its lease until it runs out.
        self.turn_clock(LEASE);
        happened
    }

    /// The serving world is exactly what the graph asks for, and one more pass does nothing.
    pub async fn check_serving(&self, id: LoadBalancerId) {
        let graph = self.graph(id).await.expect("the load balancer is there");
        let statuses = graph
            .listeners
            .iter()
            .map(|listener| listener.provisioning_status)
            .chain(graph.pools.iter().map(|pool| pool.provisioning_status))
            .chain(
                graph
                    .pools
                    .iter()
                    .flat_map(|pool| &pool.members)
                    .map(|member| member.provisioning_status),
            );
        for status in statuses {
            assert_eq!(status, ProvisioningStatus::Active, "{graph:#?}");
        }
        assert_eq!(graph.load_balancer.error_reason, None);
        self.check_world(&graph);
        let pushes = self.cloud.pushes().len();
        let before = (self.cloud.ports(), self.cloud.servers());
        self.change(id, |graph| {
            graph.load_balancer.provisioning_status = ProvisioningStatus::PendingUpdate;
            graph.load_balancer.tags.push("again".to_owned());
        })
        .await;
        self.worker().run_due().await;
        let again = self.store.outcome(id).await.unwrap().unwrap();
        assert_eq!(again.outcome.planned, Vec::<String>::new());
        assert_eq!(self.cloud.pushes().len(), pushes);
        assert_eq!((self.cloud.ports(), self.cloud.servers()), before);
        let graph = self.graph(id).await.unwrap();
        assert_eq!(
            graph.load_balancer.provisioning_status,
            ProvisioningStatus::Active
        );
    }

    /// One server, its ports and the VIP port; the document carries what the graph has.
    pub fn check_world(&self, graph: &Graph) {
        let [amphora] = graph.amphorae.as_slice() else {
            panic!("one amphora, not {:#?}", graph.amphorae);
        };
        assert_eq!(amphora.status, AmphoraStatus::Allocated);
        assert!(!amphora.failover_requested);
        assert!(
            amphora.cert_expiration.is_some(),
            "certificate is on record"
        );
        assert!(amphora.vrrp_ip.is_some() && amphora.compute_id.is_some());
        let servers: Vec<AmphoraId> = self
            .cloud
            .servers()
            .iter()
            .map(|server| server.amphora_id)
            .collect();
        assert_eq!(servers, [amphora.id]);
        let networks: std::collections::BTreeSet<SubnetId> = graph
            .pools
            .iter()
            .flat_map(|pool| &pool.members)
            .filter_map(|member| member.subnet_id)
            .filter(|subnet| *subnet != sample::SUBNET)
            .collect();
        assert_eq!(
            self.cloud.ports().len(),
            2 + networks.len(),
            "VIP port, base port, one a member network: {:#?}",
            self.cloud.ports()
        );
        assert_eq!(self.cloud.plugged(amphora.id).len(), 1 + networks.len());
        let config = self.cloud.config(amphora.id).expect("a document");
        assert_eq!(config.listeners.len(), graph.listeners.len());
        assert_eq!(config.interfaces.len(), 1 + networks.len());
        assert_eq!(config.generation, amphora.config_generation);
        let members: usize = config.pools.iter().map(|pool| pool.members.len()).sum();
        let wanted: usize = graph.pools.iter().map(|pool| pool.members.len()).sum();
        assert_eq!(members, wanted);
        for vip in &config.vips {
            assert_eq!(
                vip.state,
                amphora_api::VipState::Active { handover_mac: None }
            );
        }
        assert_eq!(self.cloud.breaches(), Vec::<String>::new());
    }

    /// The only amphora's id.
    pub async fn amphora(&self, id: LoadBalancerId) -> AmphoraId {
        let graph = self.graph(id).await.unwrap();
        assert_eq!(graph.amphorae.len(), 1, "{:#?}", graph.amphorae);
        graph.amphorae[0].id
    }
}

fn is_settled(row: &lb_model::Amphora) -> bool {
    row.status != AmphoraStatus::PendingDelete && !row.failover_requested
}

fn now(ahead: &AtomicI64) -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let micros = i64::try_from(since.as_micros()).unwrap();
    Timestamp::from_micros(micros).plus_millis(ahead.load(Ordering::SeqCst))
}

/// TCP and HTTP listeners, members in two networks, a monitor.
pub fn full(graph: &mut Graph) {
    let mut tcp = sample::pool(1, PoolProtocol::Tcp);
    tcp.members = vec![
        sample::member(1, None),
        sample::member(2, Some(OTHER_SUBNET)),
    ];
    tcp.health_monitor = Some(sample::health_monitor(1, MonitorType::Tcp));
    let mut http = sample::pool(2, PoolProtocol::Http);
    http.members = vec![sample::member(3, None)];
    graph.listeners = vec![
        sample::listener(1, ListenerProtocol::Tcp, 80, Some(tcp.id)),
        sample::listener(2, ListenerProtocol::Http, 8080, Some(http.id)),
    ];
    graph.pools = vec![tcp, http];
}
