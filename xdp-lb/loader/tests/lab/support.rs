//! A lab is a value: namespaces without names, so that nothing can be left behind.
//!
//! ```text
//! client 10.1.0.2, fd01::2 --- 10.1.0.1, fd01::1 lb 10.2.0.1, fd02::1 --- switch --- members 10.2.0.1x
//!                              VIP 10.1.0.100, fd01::100
//! ```

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::{Command, id};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use uuid::Uuid;
use xdp_lb::{
    Algorithm, AttachMode, Config, FastPath, Interface, Member, Options, Protocol, Report, Service,
};

pub(crate) const VIP_V4: &str = "10.1.0.100";
pub(crate) const VIP_V6: &str = "fd01::100";
pub(crate) const PORT: u16 = 8080;
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);

/// A network namespace that lives as long as the value.
pub(crate) struct Netns(File);

impl Netns {
    fn new() -> Arc<Self> {
        let file = thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET)
                .expect("new network namespace (these tests need root)");
            File::open("/proc/thread-self/ns/net").expect("open namespace")
        })
        .join()
        .expect("namespace thread");
        let namespace = Arc::new(Self(file));
        namespace.ip("link set lo up");
        namespace
    }

    /// Runs `f` on a thread inside the namespace.
    pub(crate) fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            scope
                .spawn(|| {
                    setns(&self.0, CloneFlags::CLONE_NEWNET).expect("enter namespace");
                    f()
                })
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Starts `f` on a thread inside the namespace.
    fn spawn(self: &Arc<Self>, f: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
        let namespace = Arc::clone(self);
        thread::spawn(move || {
            setns(&namespace.0, CloneFlags::CLONE_NEWNET).expect("enter namespace");
            f();
        })
    }

    pub(crate) fn command(&self, program: &str, arguments: &str) -> String {
        self.run(|| {
            let output = Command::new(program)
                .args(arguments.split_whitespace())
                .output()
                .unwrap_or_else(|error| panic!("run {program}: {error}"));
            assert!(
                output.status.success(),
                "{program} {arguments}: {}{}",
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            );
            String::from_utf8_lossy(&output.stdout).into_owned()
        })
    }

    pub(crate) fn ip(&self, arguments: &str) -> String {
        self.command("ip", arguments)
    }

    pub(crate) fn sysctl(&self, path: &str, value: &str) {
        self.run(|| fs::write(format!("/proc/sys/net/{path}"), value).expect("set sysctl"));
    }

    /// How `ip` can name it.
    fn path(&self) -> String {
        format!("/proc/{}/fd/{}", id(), self.0.as_raw_fd())
    }
}

pub(crate) fn veth(a: &Netns, a_name: &str, b: &Netns, b_name: &str) {
    a.ip(&format!(
        "link add {a_name} type veth peer name {b_name} netns {}",
        b.path()
    ));
    a.ip(&format!("link set {a_name} up"));
    b.ip(&format!("link set {b_name} up"));
}

/// Client, balancer, switch and members.
pub(crate) struct Lab {
    pub(crate) client: Arc<Netns>,
    pub(crate) lb: Arc<Netns>,
    pub(crate) switch: Arc<Netns>,
    pub(crate) members: Vec<Arc<Netns>>,
    extra: Vec<Arc<Netns>>,
    stop: Arc<AtomicBool>,
    servers: Vec<JoinHandle<()>>,
    bpffs: PathBuf,
    _directory: tempfile::TempDir,
}

impl Lab {
    pub(crate) fn new(members: usize) -> Self {
        assert!(
            nix::unistd::geteuid().is_root(),
            "lab tests make network namespaces and load eBPF programs: run them as root"
        );
        // A mount namespace for this thread, gone with it.
        unshare(CloneFlags::CLONE_NEWNS).expect("new mount namespace");
        let none: Option<&str> = None;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
            .expect("make mounts private");
        let directory = tempfile::tempdir().expect("temporary directory");
        let bpffs = directory.path().join("bpf");
        fs::create_dir(&bpffs).expect("create mount point");
        mount(Some("bpf"), &bpffs, Some("bpf"), MsFlags::empty(), none).expect("mount bpffs");

        let (client, lb, switch) = (Netns::new(), Netns::new(), Netns::new());
        veth(&client, "eth0", &lb, "front");
        veth(&lb, "back", &switch, "lb");
        switch.ip("link add bridge type bridge");
        switch.ip("link set bridge up");
        switch.ip("link set lb master bridge");
        for namespace in [&client, &lb] {
            namespace.sysctl("ipv6/conf/all/accept_dad", "0");
        }
        client.ip("addr add 10.1.0.2/24 dev eth0");
        client.ip("addr add fd01::2/64 dev eth0 nodad");
        lb.ip("addr add 10.1.0.1/24 dev front");
        lb.ip("addr add fd01::1/64 dev front nodad");
        lb.ip(&format!("addr add {VIP_V4}/32 dev front"));
        lb.ip(&format!("addr add {VIP_V6}/128 dev front nodad"));
        lb.ip("addr add 10.2.0.1/24 dev back");
        lb.ip("addr add fd02::1/64 dev back nodad");
        let members = (0..members)
            .map(|index| {
                let member = Netns::new();
                let port = format!("m{index}");
                veth(&member, "eth0", &switch, &port);
                switch.ip(&format!("link set {port} master bridge"));
                member.ip(&format!("addr add 10.2.0.{}/24 dev eth0", 10 + index));
                member.ip(&format!(
                    "addr add fd02::{:x}/64 dev eth0 nodad",
                    0x10 + index
                ));
                member
            })
            .collect();
        Self {
            client,
            lb,
            switch,
            members,
            extra: Vec::new(),
            stop: Arc::new(AtomicBool::new(false)),
            servers: Vec::new(),
            bpffs,
            _directory: directory,
        }
    }

    /// A client behind the client, over a link with a smaller MTU that its sender learns of late.
    pub(crate) fn far_client(&self) -> Arc<Netns> {
        let far = Netns::new();
        veth(&far, "eth0", &self.client, "narrow");
        // The far end announces a full-size segment; only the router's side is narrow.
        self.client.ip("link set narrow mtu 1300");
        self.client.ip("addr add 10.9.0.1/24 dev narrow");
        self.client.sysctl("ipv4/ip_forward", "1");
        far.ip("addr add 10.9.0.2/24 dev eth0");
        far.ip("route add default via 10.9.0.1");
        far
    }

    /// A client on the members' segment.
    pub(crate) fn client_on_switch(&self) -> Arc<Netns> {
        let client = Netns::new();
        veth(&client, "eth0", &self.switch, "near");
        self.switch.ip("link set near master bridge");
        client.ip("addr add 10.2.0.99/24 dev eth0");
        client
    }

    /// Another holder of the IPv4 VIP, on the front segment: client, balancer and it on one bridge.
    pub(crate) fn predecessor(&mut self) -> Arc<Netns> {
        let (hub, predecessor) = (Netns::new(), Netns::new());
        for (namespace, port) in [(&self.client, "to_client"), (&self.lb, "to_lb")] {
            let name = if port == "to_client" { "eth0" } else { "front" };
            if port == "to_client" {
                namespace.ip("link del eth0");
            }
            veth(namespace, name, &hub, port);
        }
        veth(&predecessor, "eth0", &hub, "to_old");
        hub.ip("link add bridge type bridge");
        hub.ip("link set bridge up");
        for port in ["to_client", "to_lb", "to_old"] {
            hub.ip(&format!("link set {port} master bridge"));
        }
        self.client.ip("addr add 10.1.0.2/24 dev eth0");
        self.lb.ip("addr add 10.1.0.1/24 dev front");
        self.extra.push(hub);
        predecessor.ip("addr add 10.1.0.3/24 dev eth0");
        predecessor.ip(&format!("addr add {VIP_V4}/32 dev eth0"));
        predecessor
    }

    /// The balancer answers for the IPv4 VIP from now on: the client's neighbour entry says so.
    pub(crate) fn take_vip_over(&self) {
        self.lb.ip(&format!("addr add {VIP_V4}/32 dev front"));
        let text = self.lb.ip("-o link show dev front");
        let mac = text
            .split("link/ether ")
            .nth(1)
            .and_then(|rest| rest.split(' ').next())
            .expect("MAC address");
        self.client.ip(&format!(
            "neigh replace {VIP_V4} lladdr {mac} dev eth0 nud reachable"
        ));
    }

    /// Starts a server in each member that answers with the member's index.
    pub(crate) fn serve(&mut self) {
        for index in 0..self.members.len() {
            self.serve_one(index);
        }
    }

    pub(crate) fn serve_one(&mut self, index: usize) {
        let member = Arc::clone(&self.members[index]);
        let any = SocketAddr::new(IpAddr::from([0u16; 8]), PORT);
        let (tcp, udp) = member.run(|| {
            (
                TcpListener::bind(any).expect("bind TCP server"),
                UdpSocket::bind(any).expect("bind UDP server"),
            )
        });
        let name = u8::try_from(index).expect("few members");
        tcp.set_nonblocking(true).expect("non-blocking listener");
        udp.set_read_timeout(Some(Duration::from_millis(50)))
            .expect("read timeout");
        let stop = Arc::clone(&self.stop);
        self.servers
            .push(member.spawn(move || serve_tcp(&tcp, name, &stop)));
        let stop = Arc::clone(&self.stop);
        self.servers
            .push(member.spawn(move || serve_udp(&udp, name, &stop)));
    }

    /// Opens the fast path inside the balancer's namespace.
    pub(crate) fn fast_path(&self) -> FastPath {
        setns(&self.lb.0, CloneFlags::CLONE_NEWNET).expect("enter namespace");
        FastPath::open(Options {
            pin_dir: self.bpffs.join("fast"),
            flow_capacity: 16_384,
        })
        .unwrap_or_else(|error| panic!("open fast path: {}", chain(&error)))
    }

    pub(crate) fn interface(&self, name: &str, mode: AttachMode) -> Interface {
        let text = self.lb.ip(&format!("-o link show dev {name}"));
        let ifindex = text
            .split(':')
            .next()
            .and_then(|n| n.trim().parse().ok())
            .expect("ifindex");
        let mac = text
            .split("link/ether ")
            .nth(1)
            .and_then(|rest| rest.split(' ').next())
            .expect("MAC address");
        Interface {
            ifindex,
            name: name.to_owned(),
            mac: parse_mac(mac),
            mtu: 1500,
            mode,
            snat_v4: Some(
                if name == "front" {
                    [10, 1, 0, 1]
                } else {
                    [10, 2, 0, 1]
                }
                .into(),
            ),
            snat_v6: Some(
                if name == "front" {
                    "fd01::1"
                } else {
                    "fd02::1"
                }
                .parse()
                .expect("literal"),
            ),
            handover_mac: None,
        }
    }

    /// Both interfaces, one TCP and one UDP listener on both VIPs, members of both families.
    pub(crate) fn config(&self, mode: AttachMode, weights: &[u16]) -> Config {
        Config {
            interfaces: vec![self.interface("front", mode), self.interface("back", mode)],
            services: [(1, Protocol::Tcp), (2, Protocol::Udp)]
                .into_iter()
                .map(|(id, protocol)| Service {
                    id: Uuid::from_u128(id),
                    vips: vec![
                        VIP_V4.parse().expect("literal"),
                        VIP_V6.parse().expect("literal"),
                    ],
                    port: PORT,
                    protocol,
                    algorithm: Algorithm::RoundRobin,
                    idle_timeout: Duration::from_secs(50),
                    connection_limit: None,
                    allowed: Vec::new(),
                    members: weights
                        .iter()
                        .enumerate()
                        .flat_map(|(index, weight)| members(index, *weight))
                        .collect(),
                })
                .collect(),
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for server in self.servers.drain(..) {
            // A server's panic has been printed; dropping goes on.
            let _ = server.join();
        }
    }
}

/// A member of each family.
pub(crate) fn members(index: usize, weight: u16) -> [Member; 2] {
    let number = u128::try_from(index).expect("few members");
    let v4 = IpAddr::from([10, 2, 0, u8::try_from(10 + index).expect("few members")]);
    let v6 = format!("fd02::{:x}", 0x10 + index)
        .parse()
        .expect("address");
    [(0x400 + number, v4), (0x600 + number, v6)].map(|(id, address)| Member {
        id: Uuid::from_u128(id),
        address,
        port: PORT,
        weight,
        backup: false,
        up: true,
    })
}

pub(crate) fn parse_mac(text: &str) -> [u8; 6] {
    let bytes: Vec<u8> = text
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16).expect("MAC address"))
        .collect();
    bytes.try_into().expect("MAC address")
}

pub(crate) fn apply(fast_path: &mut FastPath, config: &Config) -> Report {
    fast_path
        .apply(config)
        .unwrap_or_else(|error| panic!("apply: {}", chain(&error)))
}

pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

/// Answers each byte with the member's name.
fn serve_tcp(listener: &TcpListener, name: u8, stop: &AtomicBool) {
    let mut connections: Vec<TcpStream> = Vec::new();
    let mut buffer = [0u8; 4096];
    while !stop.load(Ordering::Relaxed) {
        let mut idle = true;
        while let Ok((stream, _)) = listener.accept() {
            stream.set_nonblocking(true).expect("non-blocking stream");
            stream.set_nodelay(true).expect("no delay");
            connections.push(stream);
            idle = false;
        }
        connections.retain_mut(|stream| match stream.read(&mut buffer) {
            Ok(0) => false,
            Ok(length) => {
                idle = false;
                buffer[..length].fill(name);
                stream.write_all(&buffer[..length]).is_ok()
            }
            Err(error) => error.kind() == io::ErrorKind::WouldBlock,
        });
        if idle {
            thread::park_timeout(Duration::from_millis(1));
        }
    }
}

fn serve_udp(socket: &UdpSocket, name: u8, stop: &AtomicBool) {
    let mut buffer = [0u8; 65536];
    while !stop.load(Ordering::Relaxed) {
        if let Ok((length, from)) = socket.recv_from(&mut buffer) {
            buffer[..length].fill(name);
            // The client may be gone.
            let _ = socket.send_to(&buffer[..length], from);
        }
    }
}

pub(crate) fn vip(v6: bool) -> SocketAddr {
    let address: IpAddr = if v6 { VIP_V6 } else { VIP_V4 }.parse().expect("literal");
    SocketAddr::new(address, PORT)
}

pub(crate) fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&to, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Sends a byte and reads which member answers.
pub(crate) fn ask(stream: &mut TcpStream) -> io::Result<u8> {
    stream.write_all(b"?")?;
    let mut answer = [0u8; 1];
    stream.read_exact(&mut answer)?;
    Ok(answer[0])
}

/// A new socket that sends to this address.
pub(crate) fn udp_socket(to: SocketAddr, patience: Duration) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(if to.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" })?;
    socket.set_read_timeout(Some(patience))?;
    socket.connect(to)?;
    Ok(socket)
}

/// Sends a datagram from a new socket and reads which member answers.
pub(crate) fn ask_udp(to: SocketAddr) -> io::Result<(UdpSocket, u8)> {
    let socket = udp_socket(to, TIMEOUT)?;
    let name = ask_udp_again(&socket)?;
    Ok((socket, name))
}

pub(crate) fn ask_udp_again(socket: &UdpSocket) -> io::Result<u8> {
    socket.send(b"??")?;
    let mut answer = [0u8; 16];
    let length = socket.recv(&mut answer)?;
    assert_eq!(length, 2);
    Ok(answer[0])
}

/// Sends so many bytes in one datagram, and reads which member sends as many back.
pub(crate) fn large_udp(to: SocketAddr, length: usize) -> io::Result<u8> {
    let socket = udp_socket(to, TIMEOUT)?;
    socket.send(&vec![b'?'; length])?;
    let mut answer = vec![0u8; 65536];
    let received = socket.recv(&mut answer)?;
    assert_eq!(received, length);
    let name = answer[0];
    assert!(answer[..received].iter().all(|byte| *byte == name));
    Ok(name)
}

/// Tries until the condition gives a value.
pub(crate) fn wait_for<T>(what: &str, mut condition: impl FnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match condition() {
            Ok(value) => return value,
            Err(seen) => {
                assert!(Instant::now() < deadline, "{what}: last seen {seen}");
                thread::park_timeout(Duration::from_millis(20));
            }
        }
    }
}
