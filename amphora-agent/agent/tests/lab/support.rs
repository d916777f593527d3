//! A small lab: an amphora's namespace with the real agent in it, a client and two members on one bridge, and a
//! management link from where the control plane speaks. All of it lives in network namespaces with names of its own
//! and is gone when the value is dropped, also on a panic.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use amphora_api::{
    AmphoraConfig, AmphoraInfo, AmphoraStats, Check, Heartbeat, HeartbeatMessage, Interface,
    LbAlgorithm, Listener, ListenerProtocol, Member, Monitor, Pool, PoolProtocol, Vip, VipState,
    decode_heartbeat,
};
use nix::sched::{CloneFlags, setns};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use uuid::Uuid;

pub(crate) const AMPHORA: Uuid = Uuid::from_u128(0xa0);
pub(crate) const VIP_MAC: &str = "fa:16:3e:00:00:01";
pub(crate) const TCP: Uuid = Uuid::from_u128(0x11);
pub(crate) const UDP: Uuid = Uuid::from_u128(0x12);
pub(crate) const HTTP: Uuid = Uuid::from_u128(0x13);
pub(crate) const TCP_POOL: Uuid = Uuid::from_u128(0x21);
pub(crate) const TCP_PORT: u16 = 7001;
pub(crate) const UDP_PORT: u16 = 7002;
pub(crate) const HTTP_PORT: u16 = 7003;

const KEY: &[u8] = b"lab";
const MANAGEMENT: &str = "198.18.7.1";
const AGENT: &str = "198.18.7.2";

/// Deadline of everything that is waited for; reached only when something is wrong.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    /// Host `n` of the tenant's subnet.
    pub(crate) fn address(self, n: u8) -> IpAddr {
        match self {
            Family::V4 => IpAddr::from([10, 77, 0, n]),
            Family::V6 => IpAddr::from([0xfd77, 0, 0, 0, 0, 0, 0, u16::from(n)]),
        }
    }

    fn prefix(self) -> u8 {
        match self {
            Family::V4 => 24,
            Family::V6 => 64,
        }
    }

    pub(crate) fn vip(self) -> IpAddr {
        self.address(100)
    }
}

pub(crate) struct Lab {
    name: String,
    family: Family,
    directory: tempfile::TempDir,
    agent: Option<Child>,
    client_identity: (String, String),
    server_ca: String,
    pub(crate) heartbeats: UdpSocket,
    namespaces: Vec<String>,
}

impl Lab {
    pub(crate) fn new(family: Family) -> Self {
        assert!(
            nix::unistd::geteuid().is_root(),
            "lab tests make network namespaces: run them as root"
        );
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "agl{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let directory = tempfile::tempdir().unwrap();
        let (client_identity, server_ca) = certificates(directory.path());
        let namespaces: Vec<_> = ["fab", "amp", "client", "m1", "m2"]
            .iter()
            .map(|part| format!("{name}-{part}"))
            .collect();
        // Made before anything else, so that what follows is cleaned up if it panics.
        let mut lab = Lab {
            name,
            family,
            directory,
            agent: None,
            client_identity,
            server_ca,
            heartbeats: UdpSocket::bind("127.0.0.1:0").unwrap(),
            namespaces,
        };
        lab.build();
        lab
    }

    fn build(&mut self) {
        for namespace in &self.namespaces {
            ip(&format!("netns add {namespace}"));
            ip(&format!("-n {namespace} link set lo up"));
        }
        let (fab, amp) = (self.namespace("fab"), self.namespace("amp"));
        ip(&format!(
            "-n {fab} link add br0 type bridge mcast_snooping 0"
        ));
        ip(&format!("-n {fab} link set br0 up"));
        for (part, host) in [("client", 50), ("m1", 21), ("m2", 22)] {
            let namespace = self.namespace(part);
            ip(&format!(
                "-n {fab} link add p-{part} type veth peer name eth0 netns {namespace}"
            ));
            ip(&format!("-n {fab} link set p-{part} master br0 up"));
            let (address, prefix) = (self.family.address(host), self.family.prefix());
            ip(&format!(
                "-n {namespace} addr add {address}/{prefix} dev eth0 nodad"
            ));
            ip(&format!("-n {namespace} link set eth0 up"));
        }
        ip(&format!(
            "-n {fab} link add mg0 type veth peer name mgmt netns {amp}"
        ));
        ip(&format!("-n {fab} addr add {MANAGEMENT}/24 dev mg0"));
        ip(&format!("-n {fab} link set mg0 up"));
        ip(&format!("-n {amp} addr add {AGENT}/24 dev mgmt"));
        ip(&format!("-n {amp} link set mgmt up"));
        self.heartbeats = self.within("fab", || UdpSocket::bind((MANAGEMENT, 0)).unwrap());
        self.heartbeats.set_read_timeout(Some(DEADLINE)).unwrap();
        self.plug("p-vip", VIP_MAC);
        let bpf = self.directory.path().join("bpf");
        std::fs::create_dir(&bpf).unwrap();
        nix::mount::mount(
            Some("bpf"),
            &bpf,
            Some("bpf"),
            nix::mount::MsFlags::empty(),
            None::<&str>,
        )
        .expect("mount a bpffs for the lab");
        let settings = format!(
            "[amphora_agent]\namphora_id = {AMPHORA}\nagent_server_cert = {0}/server.pem\n\
             agent_server_ca = {0}/client_ca.pem\nstate_dir = {0}/state\nbpf_dir = {0}/bpf/pins\n\
             tenant_netns = {1}\nflow_capacity = 4096\nproxy_threads = 1\n\
             [haproxy_amphora]\nbind_host = {AGENT}\nbind_port = 9443\n\
             [health_manager]\ncontroller_ip_port_list = {2}\nheartbeat_interval = 0.2\n\
             heartbeat_key = lab\n",
            self.directory.path().display(),
            self.tenant(),
            self.heartbeats.local_addr().unwrap(),
        );
        std::fs::write(self.config_file(), settings).unwrap();
    }

    /// A port of the tenant's network appears in the amphora, as a hot-plugged one does.
    pub(crate) fn plug(&self, port: &str, mac: &str) {
        let (fab, amp) = (self.namespace("fab"), self.namespace("amp"));
        ip(&format!(
            "-n {fab} link add {port} type veth peer name {port}-a netns {amp}"
        ));
        ip(&format!("-n {fab} link set {port} master br0 up"));
        ip(&format!("-n {amp} link set {port}-a address {mac}"));
    }

    fn config_file(&self) -> PathBuf {
        self.directory.path().join("amphora-agent.conf")
    }

    pub(crate) fn namespace(&self, part: &str) -> String {
        format!("{}-{part}", self.name)
    }

    pub(crate) fn tenant(&self) -> String {
        self.namespace("amp-t")
    }

    /// Runs on a thread of that namespace.
    pub(crate) fn within<T: Send>(&self, part: &str, work: impl FnOnce() -> T + Send) -> T {
        let namespace = self.namespace(part);
        std::thread::scope(|scope| {
            let run = scope.spawn(move || {
                enter(&namespace);
                work()
            });
            run.join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    pub(crate) fn start_agent(&mut self) {
        let file = self.config_file();
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.directory.path().join("agent.log"))
            .unwrap();
        // A child starts in the namespace of the thread that makes it.
        let agent = self.within("amp", || {
            Command::new(env!("CARGO_BIN_EXE_amphora-agent"))
                .arg("--config")
                .arg(&file)
                .args(["--log", "debug,rustls=info,hyper=info,netlink_proto=info"])
                .stdin(Stdio::null())
                .stderr(log)
                .spawn()
                .unwrap()
        });
        self.agent = Some(agent);
        self.wait_for("the agent to answer", || {
            self.call("GET", "/2.0/info", b"").ok().map(|_| ())
        });
    }

    /// As `kill -9`.
    pub(crate) fn kill_agent(&mut self) {
        let mut agent = self.agent.take().unwrap();
        agent.kill().unwrap();
        agent.wait().unwrap();
    }

    /// As `systemctl stop`.
    pub(crate) fn terminate_agent(&mut self) {
        let mut agent = self.agent.take().unwrap();
        let pid = nix::unistd::Pid::from_raw(i32::try_from(agent.id()).unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        let status = self.wait_for("the agent to end", || agent.try_wait().unwrap());
        assert!(status.success(), "{status}\n{}", self.log());
    }

    /// Resident memory as the kernel tells it: all of it, and the part that is not mapped from files.
    pub(crate) fn resident(&self) -> String {
        let pid = self.agent.as_ref().unwrap().id();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let lines: Vec<_> = status
            .lines()
            .filter(|line| line.starts_with("VmRSS:") || line.starts_with("RssAnon:"))
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        lines.join(", ")
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("agent.log")).unwrap_or_default()
    }

    #[track_caller]
    pub(crate) fn wait_for<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let deadline = Instant::now() + DEADLINE;
        loop {
            if let Some(found) = look() {
                return found;
            }
            assert!(
                Instant::now() < deadline,
                "waited in vain for {what}\n{}",
                self.log()
            );
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }

    /// One request as the control plane makes it.
    pub(crate) fn call(&self, method: &str, path: &str, body: &[u8]) -> io::Result<(u16, Vec<u8>)> {
        self.within("fab", || {
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?
                .block_on(self.request(method, path, body))
        })
    }

    async fn request(&self, method: &str, path: &str, body: &[u8]) -> io::Result<(u16, Vec<u8>)> {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let mut roots = rustls::RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(self.server_ca.as_bytes()).unwrap())
            .unwrap();
        let (cert, key) = &self.client_identity;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_client_auth_cert(
                vec![CertificateDer::from_pem_slice(cert.as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
            )
            .unwrap();
        let stream = tokio::net::TcpStream::connect((AGENT, 9443)).await?;
        let name = ServerName::try_from(AMPHORA.to_string()).unwrap();
        let mut stream = tokio_rustls::TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await?;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: agent\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body).await?;
        let mut answer = Vec::new();
        // The agent closes without a TLS goodbye when it is done; the length says whether all is there.
        let _ = stream.read_to_end(&mut answer).await;
        parse(&answer).ok_or_else(|| io::Error::other("no whole answer"))
    }

    /// Puts a document that must be taken as a whole.
    #[track_caller]
    pub(crate) fn put(&self, document: &AmphoraConfig) -> amphora_api::ApplyReport {
        let body = serde_json::to_vec(document).unwrap();
        let (status, answer) = self.call("PUT", "/2.0/config", &body).unwrap();
        let text = String::from_utf8_lossy(&answer);
        assert_eq!(status, 200, "{text}\n{}", self.log());
        let report: amphora_api::ApplyReport = serde_json::from_slice(&answer).unwrap();
        assert!(report.failed_listeners.is_empty(), "{report:?}");
        report
    }

    pub(crate) fn info(&self) -> AmphoraInfo {
        let (status, answer) = self.call("GET", "/2.0/info", b"").unwrap();
        assert_eq!(status, 200);
        serde_json::from_slice(&answer).unwrap()
    }

    pub(crate) fn stats(&self) -> AmphoraStats {
        let (status, answer) = self.call("GET", "/2.0/stats", b"").unwrap();
        assert_eq!(status, 200);
        serde_json::from_slice(&answer).unwrap()
    }

    /// The next heartbeat that `wanted` holds for.
    #[track_caller]
    pub(crate) fn heartbeat(
        &self,
        what: &str,
        wanted: impl Fn(&HeartbeatMessage) -> bool,
    ) -> HeartbeatMessage {
        let deadline = Instant::now() + DEADLINE;
        let mut datagram = vec![0; 65_536];
        loop {
            let length = self
                .heartbeats
                .recv(&mut datagram)
                .unwrap_or_else(|error| panic!("no heartbeat: {error}\n{}", self.log()));
            let message = decode_heartbeat(&datagram[..length], KEY).unwrap();
            if wanted(&message) {
                return message;
            }
            assert!(
                Instant::now() < deadline,
                "no heartbeat with {what}; the last was {message:#?}\n{}",
                self.log()
            );
        }
    }

    /// A document with a TCP, a UDP and an HTTP listener over both members, checked by TCP connects.
    pub(crate) fn document(&self, generation: u64, state: VipState) -> AmphoraConfig {
        let family = self.family;
        let pool = |id: u128, protocol, port, monitored: bool| Pool {
            id: Uuid::from_u128(id),
            protocol,
            lb_algorithm: LbAlgorithm::RoundRobin,
            session_persistence: None,
            monitor: monitored.then(|| Monitor {
                id: Uuid::from_u128(id + 0x10),
                check: Check::Tcp,
                delay_ms: 100,
                // The first packets after a port was plugged may be lost to a bridge that is not ready.
                timeout_ms: 5000,
                rise: 1,
                fall: 1,
            }),
            members: [21, 22]
                .map(|host| Member {
                    id: Uuid::from_u128(id * 0x1000 + u128::from(host)),
                    address: family.address(host),
                    protocol_port: port,
                    weight: 1,
                    backup: false,
                    enabled: true,
                    monitor_address: None,
                    monitor_port: None,
                })
                .to_vec(),
        };
        let listener = |id, protocol, port, pool: u128| Listener {
            id,
            protocol,
            protocol_port: port,
            connection_limit: None,
            default_pool: Some(Uuid::from_u128(pool)),
            x_forwarded_for: true,
            x_forwarded_port: false,
            x_forwarded_proto: false,
            timeout_client_data_ms: 50_000,
            timeout_member_connect_ms: 5_000,
            timeout_member_data_ms: 50_000,
            allowed_cidrs: vec![],
        };
        AmphoraConfig {
            generation,
            amphora_id: AMPHORA,
            load_balancer_id: Uuid::from_u128(0xb0),
            project_id: "lab".into(),
            heartbeat: Heartbeat {
                controllers: vec![self.heartbeats.local_addr().unwrap()],
                interval_ms: 200,
            },
            interfaces: vec![Interface {
                mac_address: VIP_MAC.into(),
                name: "eth1".into(),
                addresses: vec![ipnet::IpNet::new(family.address(5), family.prefix()).unwrap()],
                gateways: vec![family.address(1)],
                routes: vec![],
                mtu_bytes: 1450,
            }],
            vips: vec![Vip {
                address: family.vip(),
                interface_mac: VIP_MAC.into(),
                state,
            }],
            listeners: vec![
                listener(TCP, ListenerProtocol::Tcp, 5000, 0x21),
                listener(UDP, ListenerProtocol::Udp, 5000, 0x22),
                listener(HTTP, ListenerProtocol::Http, 80, 0x23),
            ],
            pools: vec![
                pool(0x21, PoolProtocol::Tcp, TCP_PORT, true),
                pool(0x22, PoolProtocol::Udp, UDP_PORT, false),
                pool(0x23, PoolProtocol::Http, HTTP_PORT, false),
            ],
        }
    }

    /// Servers of both members that answer with the member's name.
    pub(crate) fn serve(&self) -> [Servers; 2] {
        [("m1", 21), ("m2", 22)].map(|(part, host)| {
            self.within(part, || Servers::start(part, self.family.address(host)))
        })
    }

    /// A connection through the virtual address, ready.
    pub(crate) fn connect(&self, port: u16) -> io::Result<TcpStream> {
        let address = SocketAddr::new(self.family.vip(), port);
        self.within("client", || {
            let stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
            stream.set_read_timeout(Some(DEADLINE))?;
            Ok(stream)
        })
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("agent's log:\n{}", self.log());
        }
        if let Some(mut agent) = self.agent.take() {
            let _ = agent.kill();
            let _ = agent.wait();
        }
        let _ = nix::mount::umount(&self.directory.path().join("bpf"));
        for namespace in self.namespaces.iter().chain([&self.tenant()]) {
            // Not all of them need be there.
            let _ = Command::new("ip")
                .args(["netns", "del", namespace])
                .stderr(Stdio::null())
                .status();
        }
    }
}

/// Echoes lines with a name in front, over TCP; datagrams likewise; and answers HTTP requests with the name.
pub(crate) struct Servers {
    tcp: SocketAddr,
    stopped: Arc<AtomicBool>,
}

impl Servers {
    fn start(name: &'static str, address: IpAddr) -> Self {
        let stopped = Arc::new(AtomicBool::new(false));
        let tcp = TcpListener::bind((address, TCP_PORT)).unwrap();
        let local = tcp.local_addr().unwrap();
        let http = TcpListener::bind((address, HTTP_PORT)).unwrap();
        let udp = UdpSocket::bind((address, UDP_PORT)).unwrap();
        let flag = Arc::clone(&stopped);
        std::thread::spawn(move || {
            while let Ok((stream, _)) = tcp.accept() {
                if flag.load(Ordering::SeqCst) {
                    return;
                }
                std::thread::spawn(move || echo(name, stream));
            }
        });
        std::thread::spawn(move || {
            while let Ok((stream, _)) = http.accept() {
                std::thread::spawn(move || answer_http(name, stream));
            }
        });
        std::thread::spawn(move || {
            let mut datagram = [0; 2048];
            while let Ok((_, from)) = udp.recv_from(&mut datagram) {
                let _ = udp.send_to(name.as_bytes(), from);
            }
        });
        Servers {
            tcp: local,
            stopped,
        }
    }

    /// The TCP server goes away: its port is closed when this returns or soon after. Connections it has go on.
    pub(crate) fn stop_tcp(&self, lab: &Lab, part: &str) {
        self.stopped.store(true, Ordering::SeqCst);
        let address = self.tcp;
        // Wakes the accept, which ends the server.
        lab.within(part, || drop(TcpStream::connect(address)));
    }
}

fn echo(name: &str, mut stream: TcpStream) {
    let mut bytes = [0; 2048];
    while let Ok(length @ 1..) = stream.read(&mut bytes) {
        let answer = [name.as_bytes(), b":", &bytes[..length]].concat();
        if stream.write_all(&answer).is_err() {
            return;
        }
    }
}

fn answer_http(name: &str, mut stream: TcpStream) {
    let mut head = Vec::new();
    let mut bytes = [0; 2048];
    while let Ok(length @ 1..) = stream.read(&mut bytes) {
        head.extend_from_slice(&bytes[..length]);
        if head.windows(4).any(|window| window == b"\r\n\r\n") {
            head.clear();
            let answer = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{name}",
                name.len()
            );
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    }
}

/// Says something and hears who answers.
pub(crate) fn exchange(stream: &mut TcpStream) -> io::Result<String> {
    stream.write_all(b"hello")?;
    let mut answer = [0; 8];
    stream.read_exact(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let (name, rest) = answer.split_once(':').unwrap_or_default();
    assert_eq!(rest, "hello");
    Ok(name.to_owned())
}

pub(crate) fn parse(answer: &[u8]) -> Option<(u16, Vec<u8>)> {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let status = std::str::from_utf8(answer.get(9..12)?).ok()?.parse().ok()?;
    Some((status, answer[end + 4..].to_vec()))
}

pub(crate) fn enter(namespace: &str) {
    let file = std::fs::File::open(format!("/run/netns/{namespace}")).unwrap();
    setns(file.as_fd(), CloneFlags::CLONE_NEWNET).unwrap();
}

#[track_caller]
pub(crate) fn ip(arguments: &str) -> String {
    let output = Command::new("ip")
        .args(arguments.split_whitespace())
        .output()
        .expect("run ip (Debian package iproute2)");
    assert!(
        output.status.success(),
        "ip {arguments}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Writes the agent's files; the control plane's identity and the CA of the agent's certificate.
fn certificates(directory: &std::path::Path) -> ((String, String), String) {
    let authority = |name: &str| {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        (pem, Issuer::new(params, key))
    };
    let issue = |issuer: &Issuer<'_, KeyPair>, name: &str, usage| {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![usage];
        let certificate = params.signed_by(&key, issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    };
    let (server_ca, server_issuer) = authority("server CA");
    let (client_ca, client_issuer) = authority("client CA");
    let (cert, key) = issue(
        &server_issuer,
        &AMPHORA.to_string(),
        ExtendedKeyUsagePurpose::ServerAuth,
    );
    std::fs::write(directory.join("server.pem"), cert + &key).unwrap();
    std::fs::write(directory.join("client_ca.pem"), client_ca).unwrap();
    let client = issue(
        &client_issuer,
        "octavia-controller",
        ExtendedKeyUsagePurpose::ClientAuth,
    );
    (client, server_ca)
}
