//! The API under test, and the worker's part played by hand.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use lb_api::policy::Policy;
use lb_api::{ApiConfig, ApiState};
use lb_drivers::identity::NoIdentity;
use lb_drivers::network::{FixedIp, Port, PortFilter, PortSpec, PortUpdate, Subnet, TenantNetwork};
use lb_drivers::{Caller, DriverError, Identity, IdentityError, Network};
use lb_model::{
    Graph, LoadBalancerId, NetworkId, PortId, Provider, ProviderSupport, Settlement, SubnetId,
    Timestamp,
};
use lb_store::Store;
use lb_store::testing::{StoreFaults, TestDatabase};
use serde_json::{Value, json};
use tower::ServiceExt;
use uuid::Uuid;

pub(crate) const NETWORK: &str = "11111111-1111-4111-8111-111111111111";
pub(crate) const SUBNET: &str = "22222222-2222-4222-8222-222222222222";
pub(crate) const SUBNET6: &str = "33333333-3333-4333-8333-333333333333";
pub(crate) const OTHER_NETWORK: &str = "44444444-4444-4444-8444-444444444444";
pub(crate) const OTHER_SUBNET: &str = "55555555-5555-4555-8555-555555555555";
pub(crate) const PROJECT: &str = "demo";
pub(crate) const ABSENT: &str = "99999999-9999-4999-8999-999999999999";

pub(crate) struct Api {
    pub(crate) store: Store,
    pub(crate) network: Arc<MemoryNetwork>,
    state: ApiState,
    router: Router,
    _database: Arc<TestDatabase>,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
    pub(crate) body: Value,
}

impl Answer {
    /// The fault string of an error, or nothing.
    pub(crate) fn fault(&self) -> &str {
        self.body["faultstring"].as_str().unwrap_or_default()
    }
}

impl Api {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}, Arc::new(NoIdentity)).await
    }

    /// With a provider that serves everything there is, as the default one.
    pub(crate) async fn serving_everything() -> Self {
        Self::with(serve_everything, Arc::new(NoIdentity)).await
    }

    pub(crate) async fn with(
        configure: impl FnOnce(&mut ApiConfig),
        identity: Arc<dyn Identity>,
    ) -> Self {
        Self::build(configure, identity, Policy::default()).await
    }

    /// As [`Self::serving_everything`], under a policy.
    pub(crate) async fn governed(policy: Policy, identity: Arc<dyn Identity>) -> Self {
        Self::build(serve_everything, identity, policy).await
    }

    async fn build(
        configure: impl FnOnce(&mut ApiConfig),
        identity: Arc<dyn Identity>,
        policy: Policy,
    ) -> Self {
        let database = Arc::new(TestDatabase::new().await);
        let store = database.store().await;
        let network = Arc::new(MemoryNetwork::new());
        let mut config = ApiConfig {
            default_project_id: Some(PROJECT.to_owned()),
            serve_network_lookups: true,
            ..ApiConfig::default()
        };
        configure(&mut config);
        // A second passes with each reading, so that everything has an order.
        let seconds = AtomicI64::new(1_769_784_558);
        let state = ApiState {
            store: store.clone(),
            network: network.clone(),
            identity,
            policy: Arc::new(policy),
            config: Arc::new(config),
            clock: Arc::new(move || {
                Timestamp::from_micros(seconds.fetch_add(1, Ordering::SeqCst) * 1_000_000)
            }),
        };
        Self {
            store,
            network,
            router: lb_api::router(state.clone()),
            state,
            _database: database,
        }
    }

    /// The same API as somebody else meets it.
    pub(crate) fn as_caller(&self, identity: Arc<dyn Identity>) -> Self {
        self.but(|state| state.identity = identity)
    }

    /// The same API, whose transactions go wrong as `faults` say.
    pub(crate) fn with_faults(&self, faults: &StoreFaults) -> Self {
        self.but(|state| state.store = state.store.clone().with_faults(faults.clone()))
    }

    /// The same API with another network service behind it.
    pub(crate) fn on_network(&self, network: Arc<dyn Network>) -> Self {
        self.but(|state| state.network = network)
    }

    fn but(&self, change: impl FnOnce(&mut ApiState)) -> Self {
        let mut state = self.state.clone();
        change(&mut state);
        Self {
            store: self.store.clone(),
            network: self.network.clone(),
            router: lb_api::router(state.clone()),
            state,
            _database: self._database.clone(),
        }
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        Answer {
            status: parts.status,
            headers: parts.headers,
            body: serde_json::from_str(&text).unwrap_or(Value::Null),
            text,
        }
    }

    pub(crate) async fn call(&self, method: &str, path: &str, body: Option<Value>) -> Answer {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "lb.example:9876");
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        self.send(request.body(body).unwrap()).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.call("GET", path, None).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.call("POST", path, Some(body)).await
    }

    pub(crate) async fn put(&self, path: &str, body: Value) -> Answer {
        self.call("PUT", path, Some(body)).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.call("DELETE", path, None).await
    }

    /// An ACTIVE load balancer with the given fields besides its VIP subnet.
    pub(crate) async fn load_balancer(&self, fields: Value) -> Value {
        let mut object = json!({"vip_subnet_id": SUBNET});
        merge(&mut object, fields);
        let answer = self
            .post("/v2/lbaas/loadbalancers", json!({"loadbalancer": object}))
            .await;
        assert_eq!(answer.status, 201, "{}", answer.text);
        let lb = answer.body["loadbalancer"].clone();
        self.settle(id_of(&lb)).await;
        lb
    }

    /// Posts, expects 201, and lets the worker finish.
    pub(crate) async fn create(&self, path: &str, root: &str, lb: &str, object: Value) -> Value {
        let answer = self.post(path, json!({root: object})).await;
        assert_eq!(answer.status, 201, "{}", answer.text);
        self.settle(lb).await;
        answer.body[root].clone()
    }

    /// What a worker does in the end: pending objects become ACTIVE or go away.
    pub(crate) async fn settle(&self, lb: &str) {
        self.edit(lb, |graph| {
            let now = Timestamp::from_micros(1_769_800_000_000_000);
            lb_model::settle(graph, &Settlement::default(), now);
        })
        .await;
    }

    /// Writes to the stored graph behind the API's back.
    pub(crate) async fn edit(&self, lb: &str, f: impl Fn(&mut Graph) + Send) {
        let id: LoadBalancerId = lb.parse().unwrap();
        self.store
            .change_graph(id, Timestamp::from_micros(0), move |graph| {
                f(graph);
                Ok::<(), std::convert::Infallible>(())
            })
            .await
            .unwrap()
            .unwrap()
            .unwrap();
    }

    pub(crate) async fn status_of(&self, path: &str, root: &str) -> String {
        let answer = self.get(path).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.body[root]["provisioning_status"]
            .as_str()
            .unwrap()
            .to_owned()
    }
}

fn serve_everything(config: &mut ApiConfig) {
    config.rules.providers.push(Provider::new(
        "everything",
        "Serves everything.",
        ProviderSupport::EVERYTHING,
    ));
    config.default_provider = "everything".to_owned();
}

pub(crate) fn merge(object: &mut Value, fields: Value) {
    for (key, value) in fields.as_object().unwrap() {
        object[key] = value.clone();
    }
}

pub(crate) fn id_of(object: &Value) -> &str {
    object["id"].as_str().unwrap()
}

/// Sorted.
pub(crate) fn keys(object: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = object
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    keys.sort_unstable();
    keys
}

/// A caller of one project, without any privilege.
pub(crate) struct MemberOf(pub(crate) &'static str);

#[async_trait]
impl Identity for MemberOf {
    async fn authenticate(&self, token: Option<&str>) -> Result<Arc<Caller>, IdentityError> {
        if token == Some("bad") {
            return Err(IdentityError::Unauthenticated {
                challenge: "Keystone uri=\"http://keystone\"".to_owned(),
            });
        }
        Ok(Arc::new(Caller {
            user_id: Some("user".to_owned()),
            project_id: Some(self.0.to_owned()),
            roles: vec!["member".to_owned()],
            ..Caller::default()
        }))
    }
}

/// Two networks; ports in a map.
pub(crate) struct MemoryNetwork {
    networks: Vec<TenantNetwork>,
    subnets: Vec<Subnet>,
    ports: Mutex<BTreeMap<PortId, Port>>,
    pub(crate) away: AtomicBool,
    /// Networks and subnets are those of a project that nobody here is of.
    pub(crate) belongs_to_another: AtomicBool,
}

impl MemoryNetwork {
    fn new() -> Self {
        let network = |id: &str, name: &str, subnets: &[&str]| TenantNetwork {
            id: id.parse::<NetworkId>().unwrap(),
            name: name.to_owned(),
            mtu_bytes: 1500,
            project_id: None,
            subnets: subnets.iter().map(|id| id.parse().unwrap()).collect(),
        };
        let subnet =
            |id: &str, network: &str, name: &str, cidr: &str, first: &str, last: &str| Subnet {
                id: id.parse::<SubnetId>().unwrap(),
                name: name.to_owned(),
                network_id: network.parse().unwrap(),
                project_id: None,
                cidr: cidr.parse().unwrap(),
                gateway_ip: None,
                host_routes: Vec::new(),
                allocation_pools: vec![(first.parse().unwrap(), last.parse().unwrap())],
            };
        Self {
            networks: vec![
                network(NETWORK, "front", &[SUBNET6, SUBNET]),
                network(OTHER_NETWORK, "back", &[OTHER_SUBNET]),
            ],
            subnets: vec![
                subnet(
                    SUBNET,
                    NETWORK,
                    "front4",
                    "10.0.0.0/24",
                    "10.0.0.2",
                    "10.0.0.254",
                ),
                subnet(
                    SUBNET6,
                    NETWORK,
                    "front6",
                    "2001:db8::/64",
                    "2001:db8::2",
                    "2001:db8::ffff",
                ),
                subnet(
                    OTHER_SUBNET,
                    OTHER_NETWORK,
                    "back4",
                    "10.9.0.0/30",
                    "10.9.0.2",
                    "10.9.0.2",
                ),
            ],
            ports: Mutex::new(BTreeMap::new()),
            away: AtomicBool::new(false),
            belongs_to_another: AtomicBool::new(false),
        }
    }

    pub(crate) fn ports(&self) -> Vec<Port> {
        self.ports.lock().unwrap().values().cloned().collect()
    }

    /// A port a tenant made.
    pub(crate) fn add_tenant_port(&self, addresses: &[(&str, &str)], device_id: &str) -> PortId {
        let id = PortId(Uuid::new_v4());
        let fixed_ips = addresses
            .iter()
            .map(|(subnet, address)| FixedIp {
                subnet_id: subnet.parse().unwrap(),
                ip_address: address.parse().unwrap(),
            })
            .collect();
        let port = Port {
            id,
            name: "mine".to_owned(),
            network_id: NETWORK.parse().unwrap(),
            mac_address: "fa:16:3e:00:00:01".to_owned(),
            fixed_ips,
            device_id: device_id.to_owned(),
            device_owner: String::new(),
            project_id: None,
            allowed_address_pairs: Vec::new(),
            admin_state_up: true,
        };
        self.ports.lock().unwrap().insert(id, port);
        id
    }

    fn owner(&self) -> Option<String> {
        self.belongs_to_another
            .load(Ordering::SeqCst)
            .then(|| "somebody else".to_owned())
    }

    fn check(&self) -> Result<(), DriverError> {
        if self.away.load(Ordering::SeqCst) {
            return Err(DriverError::Unavailable {
                operation: "look".to_owned(),
                reason: "told so".to_owned(),
            });
        }
        Ok(())
    }
}

#[async_trait]
impl Network for MemoryNetwork {
    async fn list_networks(&self) -> Result<Vec<TenantNetwork>, DriverError> {
        self.check()?;
        Ok(self.networks.clone())
    }

    async fn network(&self, id: NetworkId) -> Result<Option<TenantNetwork>, DriverError> {
        self.check()?;
        let network = self.networks.iter().find(|item| item.id == id);
        Ok(network.cloned().map(|network| TenantNetwork {
            project_id: self.owner(),
            ..network
        }))
    }

    async fn list_subnets(&self) -> Result<Vec<Subnet>, DriverError> {
        self.check()?;
        Ok(self.subnets.clone())
    }

    async fn subnet(&self, id: SubnetId) -> Result<Option<Subnet>, DriverError> {
        self.check()?;
        let subnet = self.subnets.iter().find(|item| item.id == id);
        Ok(subnet.cloned().map(|subnet| Subnet {
            project_id: self.owner(),
            ..subnet
        }))
    }

    async fn list_ports(&self, filter: &PortFilter) -> Result<Vec<Port>, DriverError> {
        self.check()?;
        Ok(self
            .ports()
            .into_iter()
            .filter(|port| filter.matches(port))
            .collect())
    }

    async fn port(&self, id: PortId) -> Result<Option<Port>, DriverError> {
        self.check()?;
        Ok(self.ports.lock().unwrap().get(&id).cloned())
    }

    async fn ensure_port(&self, spec: &PortSpec) -> Result<Port, DriverError> {
        self.check()?;
        let mut ports = self.ports.lock().unwrap();
        let mut fixed_ips: Vec<FixedIp> = Vec::new();
        for wanted in &spec.fixed_ips {
            let subnet = self
                .subnets
                .iter()
                .find(|subnet| subnet.id == wanted.subnet_id)
                .ok_or(DriverError::UnknownSubnet(wanted.subnet_id))?;
            let used = |address: IpAddr| {
                ports
                    .values()
                    .flat_map(|port| &port.fixed_ips)
                    .any(|fixed| fixed.ip_address == address)
            };
            let address = match wanted.ip_address {
                Some(address) if !subnet.cidr.contains(&address) => {
                    return Err(DriverError::AddressOutsideSubnet {
                        address,
                        subnet: subnet.id,
                    });
                }
                Some(address) if used(address) => {
                    return Err(DriverError::AddressInUse { address });
                }
                Some(address) => address,
                None => subnet
                    .cidr
                    .hosts()
                    .skip(1)
                    .find(|address| !used(*address))
                    .ok_or(DriverError::NoFreeAddress { subnet: subnet.id })?,
            };
            fixed_ips.push(FixedIp {
                subnet_id: subnet.id,
                ip_address: address,
            });
        }
        let port = Port {
            id: PortId(Uuid::new_v4()),
            name: spec.name.clone(),
            network_id: spec.network_id,
            mac_address: "fa:16:3e:00:00:02".to_owned(),
            fixed_ips,
            device_id: spec.device_id.clone(),
            device_owner: spec.device_owner.clone(),
            project_id: spec.project_id.clone(),
            allowed_address_pairs: spec.allowed_address_pairs.clone(),
            admin_state_up: spec.admin_state_up,
        };
        ports.insert(port.id, port.clone());
        Ok(port)
    }

    async fn update_port(&self, id: PortId, _: &PortUpdate) -> Result<Port, DriverError> {
        Err(DriverError::UnknownPort(id))
    }

    async fn delete_port(&self, id: PortId) -> Result<(), DriverError> {
        self.ports.lock().unwrap().remove(&id);
        Ok(())
    }
}
