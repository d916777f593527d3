//! The stage of tests and demo: a stack with a client, servers, and the load balancer's request.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use crate::{Api, Member, Service, Stack, StackOptions};
use anyhow::{Context, Result, ensure};
use lb_drivers::local::Netns;
use serde_json::{Value, json};

pub const HTTP: u16 = 80;
pub const TCP: u16 = 9000;
pub const UDP: u16 = 9001;
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Names and weights of the servers.
pub const SERVERS: [(&str, u64); 3] = [("red", 1), ("green", 2), ("blue", 1)];

/// Address of the tenant's client, on the network of the VIPs.
pub const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 10, 0, 10));

/// Ports of the listeners, and of the servers behind them: [`HTTP`], [`TCP`], [`UDP`].
#[derive(Debug)]
pub struct Scene {
    pub client: Netns,
    pub servers: Vec<Member>,
    pub stack: Stack,
}

/// Address of one of [`SERVERS`].
pub fn server_address(index: usize) -> IpAddr {
    let last = u8::try_from(11 + index).expect("there are few servers");
    IpAddr::V4(Ipv4Addr::new(10, 20, 0, last))
}

impl Scene {
    pub async fn start() -> Result<Self> {
        Self::start_with("").await
    }

    /// With TOML that overrides defaults of the control plane.
    pub async fn start_with(config: &str) -> Result<Self> {
        Self::start_as(StackOptions {
            config: config.to_owned(),
            ..StackOptions::default()
        })
        .await
    }

    /// A stack of this description.
    pub async fn start_as(options: StackOptions) -> Result<Self> {
        let stack = Stack::start(options).await?;
        let client = stack.host("client", "public", &[CLIENT]).await?;
        let mut scene = Self {
            client,
            servers: Vec::new(),
            stack,
        };
        for index in 0..SERVERS.len() {
            scene.start_server(index).await?;
        }
        Ok(scene)
    }

    pub fn api(&self) -> Api {
        self.stack.api()
    }

    pub async fn start_server(&mut self, index: usize) -> Result<()> {
        let (name, _) = SERVERS[index];
        let address = server_address(index);
        let host = self.stack.host(name, "servers", &[address]).await?;
        for (service, port) in [
            (Service::Http, HTTP),
            (Service::Tcp, TCP),
            (Service::Udp, UDP),
        ] {
            let address = SocketAddr::new(address, port);
            self.servers
                .push(Member::start(&host, name, address, service).await?);
        }
        Ok(())
    }

    /// The server and all its connections are gone.
    pub fn stop_server(&mut self, index: usize) {
        self.servers
            .retain(|server| server.name != SERVERS[index].0);
    }

    pub async fn subnet(&self, name: &str) -> Result<String> {
        let body = self
            .api()
            .get(&format!("subnets?name={name}"))
            .await?
            .expect(200)?;
        text(&body["subnets"][0], "id")
    }

    /// The request for TCP, UDP and HTTP listeners with all servers behind each.
    pub async fn full_request(&self, name: &str) -> Result<Value> {
        let vip_subnet = self.subnet("public-v4").await?;
        let member_subnet = self.subnet("servers-v4").await?;
        let listener = |protocol: &str, port: u16, monitor: &str, delay: u32| {
            let members: Vec<Value> = SERVERS
                .iter()
                .enumerate()
                .map(|(index, (name, weight))| {
                    json!({
                        "name": name, "address": server_address(index), "protocol_port": port,
                        "weight": weight, "subnet_id": member_subnet,
                    })
                })
                .collect();
            json!({
                "name": protocol, "protocol": protocol, "protocol_port": port,
                "default_pool": {
                    "name": format!("{protocol} pool"), "protocol": protocol,
                    "lb_algorithm": "ROUND_ROBIN", "members": members,
                    "healthmonitor": {
                        "type": monitor, "delay": delay, "timeout": 1, "max_retries": 1,
                        "max_retries_down": 1,
                    },
                },
            })
        };
        Ok(json!({ "loadbalancer": {
            "name": name,
            "vip_subnet_id": vip_subnet,
            "listeners": [
                listener("TCP", TCP, "TCP", 1),
                listener("UDP", UDP, "UDP-CONNECT", 3),
                listener("HTTP", HTTP, "HTTP", 1),
            ],
        }}))
    }

    /// Creates it, waits until it serves, and returns the answer of the create call.
    pub async fn create(&self, name: &str) -> Result<Value> {
        let request = self.full_request(name).await?;
        let body = self
            .api()
            .post("lbaas/loadbalancers", &request)
            .await?
            .expect(201)?;
        let load_balancer = body["loadbalancer"].clone();
        let id = text(&load_balancer, "id")?;
        self.api()
            .wait_active(&id)
            .await
            .with_context(|| self.stack.log_tail())?;
        self.wait_operating(&id, "ONLINE").await?;
        Ok(load_balancer)
    }

    pub async fn wait_operating(&self, id: &str, wanted: &str) -> Result<()> {
        let path = format!("lbaas/loadbalancers/{id}");
        self.api()
            .wait_for(&path, "loadbalancer", "operating_status", wanted, PATIENCE)
            .await
            .map(drop)
    }

    /// The amphora in `ALLOCATED`.
    pub async fn amphora(&self, id: &str) -> Result<Value> {
        let path = format!("octavia/amphorae?loadbalancer_id={id}&status=ALLOCATED");
        let body = self.api().get(&path).await?.expect(200)?;
        Ok(body["amphorae"][0].clone())
    }

    /// Waits until another amphora than `before` serves the load balancer.
    pub async fn wait_replaced(&self, id: &str, before: &Value) -> Result<Value> {
        wait_until("the amphora is replaced", async || {
            let now = self.amphora(id).await?;
            Ok((now["id"].is_string() && now["id"] != before["id"]).then_some(now))
        })
        .await
    }
}

/// `short` rounds of a test, and so many more in its long form (`make soak`).
pub fn rounds(short: u64) -> u64 {
    let soak = std::env::var_os("LB_SOAK").is_some();
    if soak { short * 5 } else { short }
}

/// The VIP of a load balancer, with a listener's port.
pub fn vip(load_balancer: &Value, port: u16) -> SocketAddr {
    let address = load_balancer["vip_address"]
        .as_str()
        .and_then(|address| address.parse().ok());
    SocketAddr::new(address.expect("a load balancer has a VIP"), port)
}

/// A string field that must be there.
pub fn text(object: &Value, field: &str) -> Result<String> {
    object[field]
        .as_str()
        .map(str::to_owned)
        .with_context(|| format!("no {field} in {object}"))
}

/// Asks until there is an answer, for half a minute.
pub async fn wait_until<T>(
    what: &str,
    mut ask: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let start = Instant::now();
    loop {
        if let Some(found) = ask().await? {
            return Ok(found);
        }
        ensure!(start.elapsed() < PATIENCE, "waited 30 s until {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
