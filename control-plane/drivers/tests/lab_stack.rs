//! The local stack on real namespaces, links and processes. Needs root.

#![allow(clippy::unwrap_used, reason = "a test that meets an error has failed")]

use std::collections::{BTreeMap, HashSet};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lb_drivers::agent_conf::{AgentSettings, render};
use lb_drivers::compute::{AGENT_CONF, CLIENT_CA_PEM, SERVER_PEM};
use lb_drivers::local::{Host, Netns};
use lb_drivers::network::{DEVICE_OWNER, FixedIpSpec, Port, PortFilter, PortSpec, base_port_name};
use lb_drivers::{
    Compute, DriverError, LocalStack, Network, Observed, Secret, ServerSpec, ServerStatus,
    StackConfig,
};
use lb_model::{AmphoraId, LoadBalancerId};

const NETWORKS: &str = r#"
    [[network]]
    name = "front"
    [[network.subnet]]
    name = "front4"
    cidr = "10.30.0.0/24"
    gateway = "10.30.0.1"
    [[network.subnet]]
    name = "front6"
    cidr = "fd00:30::/64"
    gateway = "fd00:30::1"
    [[network]]
    name = "back"
    mtu = 9000
    [[network.subnet]]
    name = "back4"
    cidr = "10.31.0.0/24"
    gateway = "10.31.0.1"
    [[network.subnet]]
    name = "back6"
    cidr = "fd00:31::/64"
    gateway = "fd00:31::1"
"#;

/// Stands in for the agent: it stays, and has a child, as a program that must be killed as a whole.
const AGENT: &str = "#!/bin/sh\nwhile :; do sleep 1000; done\n";

/// A stack of its own name and directory that is gone when the test ends, however it ends.
struct Lab {
    config: StackConfig,
    dir: tempfile::TempDir,
}

impl Lab {
    fn new() -> Self {
        assert!(
            nix::unistd::geteuid().is_root(),
            "this test makes network namespaces and must run as root"
        );
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "t{}x{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let dir = tempfile::tempdir().unwrap();
        let networks = dir.path().join("networks.toml");
        std::fs::write(&networks, NETWORKS).unwrap();
        let agent = dir.path().join("agent");
        std::fs::write(&agent, AGENT).unwrap();
        std::fs::set_permissions(&agent, std::fs::Permissions::from_mode(0o755)).unwrap();
        Self {
            config: StackConfig::new(name, dir.path().join("state"), networks, agent),
            dir,
        }
    }

    async fn open(&self) -> LocalStack {
        LocalStack::open(self.config.clone()).await.unwrap()
    }

    async fn destroy(&self) {
        LocalStack::destroy(&self.config.name, &self.config.state_dir)
            .await
            .unwrap();
    }

    /// Namespaces of this stack that `ip netns` would show.
    fn namespaces(&self) -> Vec<String> {
        let prefix = format!("{}-", self.config.name);
        let mut found: Vec<String> = std::fs::read_dir("/run/netns")
            .map(|entries| {
                entries
                    .filter_map(|entry| entry.unwrap().file_name().into_string().ok())
                    .filter(|name| name.starts_with(&prefix))
                    .collect()
            })
            .unwrap_or_default();
        found.sort();
        found
    }

    /// Processes that name a file of this stack on their command line.
    fn processes(&self) -> Vec<String> {
        let dir = self.dir.path().to_str().unwrap().to_owned();
        std::fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| {
                let path = entry.ok()?.path();
                let line = std::fs::read(path.join("cmdline")).ok()?;
                let line = String::from_utf8_lossy(&line).replace('\0', " ");
                line.contains(&dir).then_some(line)
            })
            .collect()
    }

    fn mounts(&self) -> Vec<String> {
        let dir = self.dir.path().to_str().unwrap();
        let prefix = format!("/netns/{}-", self.config.name);
        std::fs::read_to_string("/proc/self/mountinfo")
            .unwrap()
            .lines()
            .filter(|line| line.contains(dir) || line.contains(&prefix))
            .map(str::to_owned)
            .collect()
    }

    fn assert_nothing_is_left(&self) {
        assert_eq!(self.namespaces(), Vec::<String>::new());
        assert_eq!(self.processes(), Vec::<String>::new());
        assert_eq!(self.mounts(), Vec::<String>::new());
        assert!(!self.config.state_dir.exists());
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let (name, state_dir) = (self.config.name.clone(), self.config.state_dir.clone());
        // The test's own runtime may be unwinding.
        let cleaned = std::thread::spawn(move || {
            tokio::runtime::Builder::new_current_thread()
                .build()
                .unwrap()
                .block_on(LocalStack::destroy(&name, &state_dir))
        })
        .join();
        if !matches!(cleaned, Ok(Ok(()))) && !std::thread::panicking() {
            panic!("clean up the lab: {cleaned:?}");
        }
    }
}

fn server_spec(amphora: AmphoraId) -> ServerSpec {
    let settings = AgentSettings::new(
        amphora,
        vec!["198.18.0.1:5555".parse().unwrap()],
        Duration::from_secs(1),
        Secret::new("key"),
    );
    let mut files = BTreeMap::new();
    files.insert(AGENT_CONF.to_owned(), render(&settings).unwrap());
    files.insert(SERVER_PEM.to_owned(), Secret::new("server"));
    files.insert(CLIENT_CA_PEM.to_owned(), Secret::new("client ca"));
    ServerSpec {
        amphora_id: amphora,
        load_balancer_id: LoadBalancerId::random(),
        files,
        placement: lb_drivers::Placement::default(),
    }
}

async fn base_port(stack: &LocalStack, amphora: AmphoraId, network: &str) -> Port {
    let declaration = stack.declaration();
    let network = declaration.find_network(network).unwrap();
    stack
        .network()
        .ensure_port(&PortSpec {
            name: base_port_name(amphora),
            network_id: network.id,
            fixed_ips: vec![FixedIpSpec {
                subnet_id: network.subnets[0],
                ip_address: None,
            }],
            device_id: amphora.to_string(),
            device_owner: DEVICE_OWNER.to_owned(),
            project_id: None,
            allowed_address_pairs: Vec::new(),
            admin_state_up: true,
        })
        .await
        .unwrap()
}

/// MAC addresses and MTUs of the links in a namespace, by another program than the one under test.
fn links(netns: &Netns) -> BTreeMap<String, (String, String)> {
    let output = std::process::Command::new("ip")
        .args(["-netns", netns.name(), "-br", "-o", "link"])
        .output()
        .expect("run ip: iproute2 must be installed for this test");
    let details = std::process::Command::new("ip")
        .args(["-netns", netns.name(), "-o", "link"])
        .output()
        .unwrap();
    let details = String::from_utf8(details.stdout).unwrap();
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let name = words.next()?.split('@').next()?.to_owned();
            let mac = words.nth(1)?.to_owned();
            let mtu = details
                .lines()
                .find(|line| line.contains(&format!(" {name}")))?
                .split_whitespace()
                .skip_while(|word| *word != "mtu")
                .nth(1)?
                .to_owned();
            Some((name, (mac, mtu)))
        })
        .filter(|(name, _)| name != "lo")
        .collect()
}

fn has_mac(netns: &Netns, port: &Port) -> bool {
    links(netns)
        .values()
        .any(|(mac, _)| *mac == port.mac_address)
}

/// One connection with a byte each way, between two namespaces.
fn connects(server: &Netns, address: IpAddr, client: &Netns) -> bool {
    let listener = server
        .run_in(|| TcpListener::bind(SocketAddr::new(address, 0)).unwrap())
        .unwrap();
    let target = listener.local_addr().unwrap();
    let stream = client
        .run_in(|| TcpStream::connect_timeout(&target, Duration::from_secs(2)))
        .unwrap();
    let Ok(mut stream) = stream else {
        return false;
    };
    let (mut accepted, _) = listener.accept().unwrap();
    stream.write_all(b"?").unwrap();
    let mut byte = [0];
    accepted.read_exact(&mut byte).unwrap();
    accepted.write_all(b"!").unwrap();
    stream.read_exact(&mut byte).unwrap();
    byte == *b"!"
}

async fn status(stack: &LocalStack, amphora: AmphoraId) -> Option<ServerStatus> {
    match stack.compute().observe_server(amphora).await.unwrap() {
        Observed::Present(server) => Some(server.status),
        Observed::Absent => None,
        Observed::Unsure => panic!("unsure of {amphora}"),
    }
}

fn host_address(host: &Host, v6: bool) -> IpAddr {
    host.port
        .fixed_ips
        .iter()
        .map(|fixed| fixed.ip_address)
        .find(|address| address.is_ipv6() == v6)
        .unwrap()
}

#[tokio::test]
async fn lab_a_server_lives_stops_is_started_again_and_goes() {
    let lab = Lab::new();
    let stack = lab.open().await;
    let compute = stack.compute();
    let amphora = AmphoraId::random();
    assert_eq!(status(&stack, amphora).await, None);
    let port = base_port(&stack, amphora, "back").await;
    assert!(matches!(
        compute.attach_port(amphora, &port).await,
        Err(DriverError::UnknownServer(_))
    ));

    let server = compute.ensure_server(&server_spec(amphora)).await.unwrap();
    assert_eq!(server.status, ServerStatus::Active);
    assert_eq!(server.lb_network_ip, Some("198.18.0.2".parse().unwrap()));
    assert_eq!(status(&stack, amphora).await, Some(ServerStatus::Active));
    let (netns, _) = stack.amphora_netns(amphora).await.unwrap().unwrap();
    assert_eq!(links(&netns).keys().collect::<Vec<_>>(), ["eth0"]);
    assert!(connects(
        &netns,
        server.lb_network_ip.unwrap(),
        stack.fabric()
    ));

    compute.attach_port(amphora, &port).await.unwrap();
    compute.attach_port(amphora, &port).await.unwrap();
    assert!(has_mac(&netns, &port), "{:?}", links(&netns));
    assert!(links(&netns).values().any(|(_, mtu)| mtu == "9000"));

    // The agent dies: its links stay, and a new one is started.
    let pid = stack.agent_pid(amphora).await.unwrap().unwrap();
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(pid),
        nix::sys::signal::Signal::SIGKILL,
    )
    .unwrap();
    wait_for("the agent to be gone", || {
        !Path::new(&format!("/proc/{pid}/ns/net")).exists()
    });
    assert_eq!(status(&stack, amphora).await, Some(ServerStatus::Stopped));
    let again = compute.ensure_server(&server_spec(amphora)).await.unwrap();
    assert_eq!(again, server);
    assert_ne!(stack.agent_pid(amphora).await.unwrap(), Some(pid));
    assert!(has_mac(&netns, &port));

    // The machine loses power: namespaces and links go, and come back with the ports it had.
    stack.kill_server(amphora).await.unwrap();
    assert_eq!(status(&stack, amphora).await, Some(ServerStatus::Stopped));
    assert!(!netns.exists());
    let again = compute.ensure_server(&server_spec(amphora)).await.unwrap();
    assert_eq!(again.lb_network_ip, server.lb_network_ip);
    assert!(has_mac(&netns, &port));

    compute.detach_port(amphora, port.id).await.unwrap();
    compute.detach_port(amphora, port.id).await.unwrap();
    assert_eq!(links(&netns).keys().collect::<Vec<_>>(), ["eth0"]);

    compute.delete_server(amphora).await.unwrap();
    compute.delete_server(amphora).await.unwrap();
    assert_eq!(status(&stack, amphora).await, None);
    assert_eq!(compute.list_servers().await.unwrap(), []);
    assert_eq!(lab.processes(), Vec::<String>::new());
    assert_eq!(
        lab.namespaces(),
        ["fabric", "router"].map(|end| format!("{}-{end}", lab.config.name))
    );
}

#[tokio::test]
async fn lab_a_control_plane_that_starts_again_adopts_what_it_finds() {
    let lab = Lab::new();
    let amphora = AmphoraId::random();
    let before = lab.open().await;
    let port = base_port(&before, amphora, "front").await;
    let server = before
        .compute()
        .ensure_server(&server_spec(amphora))
        .await
        .unwrap();
    before.compute().attach_port(amphora, &port).await.unwrap();
    let pid = before.agent_pid(amphora).await.unwrap();
    drop(before);

    let after = lab.open().await;
    let adopted = after
        .compute()
        .ensure_server(&server_spec(amphora))
        .await
        .unwrap();
    assert_eq!(adopted, server);
    assert_eq!(after.agent_pid(amphora).await.unwrap(), pid);
    assert_eq!(base_port(&after, amphora, "front").await, port);
    assert_eq!(after.compute().list_servers().await.unwrap(), [server]);

    // It was killed between starting the agent and writing the process id down.
    let pid_file = after.agent_log(amphora).with_file_name("agent.pid");
    std::fs::remove_file(pid_file).unwrap();
    assert_eq!(
        after.compute().observe_server(amphora).await.unwrap(),
        Observed::Unsure
    );
    after
        .compute()
        .ensure_server(&server_spec(amphora))
        .await
        .unwrap();
    // For a moment a shell that starts a child shows twice.
    wait_for("one agent", || lab.processes().len() == 1);
    assert_ne!(after.agent_pid(amphora).await.unwrap(), pid);

    // It was killed while it made or removed the record.
    let half = AmphoraId::random();
    std::fs::create_dir(lab.config.state_dir.join(format!("amphorae/{half}"))).unwrap();
    assert_eq!(
        after.compute().observe_server(half).await.unwrap(),
        Observed::Unsure
    );
    after.compute().delete_server(half).await.unwrap();
    assert_eq!(
        after.compute().observe_server(half).await.unwrap(),
        Observed::Absent
    );
}

#[tokio::test]
async fn lab_hosts_reach_each_other_and_never_the_control_plane() {
    let lab = Lab::new();
    let stack = lab.open().await;
    let client = stack
        .ensure_host("client", "front", &["10.30.0.9".parse().unwrap()])
        .await
        .unwrap();
    let near = stack.ensure_host("near", "front", &[]).await.unwrap();
    let far = stack.ensure_host("far", "back", &[]).await.unwrap();
    assert_eq!(
        stack.ensure_host("far", "back", &[]).await.unwrap(),
        far,
        "a host is made once"
    );
    assert!(connects(
        &near.netns,
        host_address(&near, false),
        &client.netns
    ));
    assert!(connects(
        &far.netns,
        host_address(&far, false),
        &client.netns
    ));
    assert!(connects(&far.netns, host_address(&far, true), &near.netns));

    let controller = IpAddr::V4(stack.controller_address().unwrap());
    assert!(connects(stack.fabric(), controller, stack.fabric()));
    assert!(
        !connects(stack.fabric(), controller, &far.netns),
        "a tenant reaches the control plane"
    );

    // No link of ours is in the namespace of the test, which is the host's.
    let here: HashSet<String> = std::fs::read_dir("/sys/class/net")
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().into_string().ok())
        .collect();
    for host in [&client, &near, &far] {
        assert!(!here.contains(&host.link));
    }
    assert!(!here.contains("br-mgmt"));

    stack.delete_host("far").await.unwrap();
    stack.delete_host("far").await.unwrap();
    assert!(!far.netns.exists());
    let left = stack
        .network()
        .list_ports(&PortFilter {
            device_id: Some("host-far".to_owned()),
            ..PortFilter::default()
        })
        .await
        .unwrap();
    assert_eq!(left, []);
}

#[tokio::test]
async fn lab_amphorae_reach_the_control_plane_and_not_each_other() {
    let lab = Lab::new();
    let stack = lab.open().await;
    let mut found = Vec::new();
    for _ in 0..2 {
        let amphora = AmphoraId::random();
        let server = stack
            .compute()
            .ensure_server(&server_spec(amphora))
            .await
            .unwrap();
        let (netns, _) = stack.amphora_netns(amphora).await.unwrap().unwrap();
        found.push((netns, server.lb_network_ip.unwrap()));
    }
    let controller = IpAddr::V4(stack.controller_address().unwrap());
    for (netns, address) in &found {
        assert!(connects(netns, *address, stack.fabric()));
        assert!(connects(stack.fabric(), controller, netns));
    }
    assert!(!connects(&found[0].0, found[0].1, &found[1].0));
}

#[tokio::test]
async fn lab_two_openers_at_once_never_give_an_address_twice() {
    let lab = Lab::new();
    let (one, two) = tokio::join!(lab.open(), lab.open());
    let mut tasks = tokio::task::JoinSet::new();
    for index in 0..24 {
        let stack = if index % 2 == 0 {
            one.clone()
        } else {
            two.clone()
        };
        tasks.spawn(async move {
            let amphora = AmphoraId::random();
            let port = base_port(&stack, amphora, "front").await;
            let management = if index < 6 {
                let spec = server_spec(amphora);
                let server = stack.compute().ensure_server(&spec).await.unwrap();
                server.lb_network_ip
            } else {
                None
            };
            (port, management)
        });
    }
    let made = tasks.join_all().await;
    let addresses: HashSet<IpAddr> = made
        .iter()
        .map(|(port, _)| port.fixed_ips[0].ip_address)
        .collect();
    assert_eq!(addresses.len(), 24);
    let management: HashSet<IpAddr> = made.iter().filter_map(|(_, address)| *address).collect();
    assert_eq!(management.len(), 6);
    let listed = one
        .network()
        .list_ports(&PortFilter::default())
        .await
        .unwrap();
    assert_eq!(listed.len(), 24);
}

#[tokio::test]
async fn lab_destroy_removes_a_running_stack_a_crashed_one_and_nothing() {
    let lab = Lab::new();
    lab.destroy().await;
    let stack = lab.open().await;
    let amphora = AmphoraId::random();
    let port = base_port(&stack, amphora, "front").await;
    stack
        .compute()
        .ensure_server(&server_spec(amphora))
        .await
        .unwrap();
    stack.compute().attach_port(amphora, &port).await.unwrap();
    stack.ensure_host("client", "front", &[]).await.unwrap();
    // What the agent would have made.
    let (_, tenant) = stack.amphora_netns(amphora).await.unwrap().unwrap();
    let added = std::process::Command::new("ip")
        .args(["netns", "add", tenant.name()])
        .status()
        .unwrap();
    assert!(added.success() && tenant.exists());
    assert_eq!(lab.namespaces().len(), 5, "{:?}", lab.namespaces());
    assert!(!lab.mounts().is_empty() && !lab.processes().is_empty());
    lab.destroy().await;
    lab.assert_nothing_is_left();
    lab.destroy().await;

    // Records of a crashed or foreign writer do not stop it.
    let stack = lab.open().await;
    stack
        .compute()
        .ensure_server(&server_spec(amphora))
        .await
        .unwrap();
    let record = lab
        .config
        .state_dir
        .join(format!("amphorae/{amphora}/server.json"));
    std::fs::write(&record, "{\"amphora_id\":").unwrap();
    std::fs::write(lab.config.state_dir.join("ports.json"), "[").unwrap();
    lab.destroy().await;
    lab.assert_nothing_is_left();
}

#[tokio::test]
async fn lab_destroy_leaves_files_of_others_alone() {
    let lab = Lab::new();
    lab.open().await;
    let database: PathBuf = lab.config.state_dir.join("control-plane.db");
    std::fs::write(&database, "rows").unwrap();
    lab.destroy().await;
    assert_eq!(std::fs::read_to_string(&database).unwrap(), "rows");
    assert_eq!(lab.namespaces(), Vec::<String>::new());
    std::fs::remove_file(&database).unwrap();
    std::fs::remove_dir(&lab.config.state_dir).unwrap();
}

/// Yields until a condition holds; fails with its name after ten seconds.
fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(std::time::Instant::now() < deadline, "waiting for {what}");
        std::thread::yield_now();
    }
}
