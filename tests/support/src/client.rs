//! Clients of a tenant, and what they saw.

use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use lb_drivers::local::Netns;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpStream, UdpSocket};
use tokio::task::JoinSet;

use crate::inside::{Background, inside};

const PATIENCE: Duration = Duration::from_secs(5);

/// Who served how often, what went wrong, and the bytes on the wire as the client counts them.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    pub served: BTreeMap<String, u64>,
    /// The first few failures; `failed` counts them all.
    pub failures: Vec<String>,
    pub failed: u64,
    pub connections: u64,
    pub bytes_sent: u64,
    pub bytes_received: u64,
    pub elapsed: Duration,
}

impl Tally {
    pub fn total(&self) -> u64 {
        self.served.values().sum()
    }

    fn record(&mut self, outcome: Result<String>) {
        match outcome {
            Ok(name) => *self.served.entry(name).or_default() += 1,
            Err(error) => {
                self.failed += 1;
                if self.failures.len() < 5 {
                    self.failures.push(format!("{error:#}"));
                }
            }
        }
    }

    fn merge(&mut self, other: Self) {
        for (name, count) in other.served {
            *self.served.entry(name).or_default() += count;
        }
        self.failed += other.failed;
        self.failures.extend(other.failures);
        self.failures.truncate(5);
        self.connections += other.connections;
        self.bytes_sent += other.bytes_sent;
        self.bytes_received += other.bytes_received;
    }

    /// Errors unless nothing failed and every member's share is within `tolerance` of its weight's.
    pub fn check_shares(&self, weights: &[(&str, u64)], tolerance: f64) -> Result<()> {
        ensure!(
            self.failed == 0,
            "{} failures: {:?}",
            self.failed,
            self.failures
        );
        let sum: u64 = weights.iter().map(|(_, weight)| weight).sum();
        for (name, weight) in weights {
            let share = self.served.get(*name).copied().unwrap_or(0) as f64 / self.total() as f64;
            let wanted = *weight as f64 / sum as f64;
            ensure!(
                (share - wanted).abs() <= tolerance,
                "{name} served {share:.4} of all, {wanted:.4} is its weight: {:?}",
                self.served
            );
        }
        Ok(())
    }
}

/// `total` HTTP requests over `connections` keep-alive connections.
pub async fn http_requests(
    netns: &Netns,
    vip: SocketAddr,
    total: u64,
    connections: u64,
) -> Result<Tally> {
    spread(netns, total, connections, move |count| async move {
        let mut tally = Tally::default();
        let mut client = HttpClient::default();
        for _ in 0..count {
            let outcome = client.request(vip).await;
            tally.record(outcome);
        }
        tally.connections = client.connections;
        tally.bytes_sent = client.bytes_sent;
        tally.bytes_received = client.bytes_received;
        tally
    })
    .await
}

/// `total` TCP connections, `at_once` at a time, each with one exchange of `payload` bytes.
pub async fn tcp_connections(
    netns: &Netns,
    vip: SocketAddr,
    total: u64,
    at_once: u64,
    payload: usize,
) -> Result<Tally> {
    spread(netns, total, at_once, move |count| async move {
        let mut tally = Tally::default();
        for _ in 0..count {
            let outcome = patient(tcp_exchange(vip, payload)).await;
            if let Ok(name) = &outcome {
                tally.connections += 1;
                tally.bytes_sent += payload as u64;
                tally.bytes_received += (payload + name.len() + 1) as u64;
            }
            tally.record(outcome);
        }
        tally
    })
    .await
}

/// `total` datagrams, each from a socket of its own. Sockets that get the same port, one after another, are one flow:
/// `connections` counts the ports.
pub async fn udp_exchanges(
    netns: &Netns,
    vip: SocketAddr,
    total: u64,
    at_once: u64,
) -> Result<Tally> {
    let ports = Arc::new(Mutex::new(HashSet::new()));
    spread(netns, total, at_once, move |count| {
        let ports = ports.clone();
        async move {
            let mut tally = Tally::default();
            for _ in 0..count {
                let outcome = patient(udp_exchange(vip, &ports)).await;
                if let Ok((name, new)) = &outcome {
                    tally.connections += u64::from(*new);
                    tally.bytes_sent += UDP_QUESTION.len() as u64;
                    tally.bytes_received += name.len() as u64;
                }
                tally.record(outcome.map(|(name, _)| name));
            }
            tally
        }
    })
    .await
}

const UDP_QUESTION: &[u8] = b"who?";

/// Who answered, and whether the port was used for the first time.
async fn udp_exchange(vip: SocketAddr, ports: &Mutex<HashSet<u16>>) -> Result<(String, bool)> {
    let socket = UdpSocket::bind(unspecified(vip)).await?;
    socket.connect(vip).await?;
    let port = socket.local_addr()?.port();
    socket.send(UDP_QUESTION).await?;
    let mut answer = [0; 256];
    let length = socket.recv(&mut answer).await?;
    let new = ports.lock().is_ok_and(|mut ports| ports.insert(port));
    Ok((String::from_utf8_lossy(&answer[..length]).into_owned(), new))
}

fn unspecified(like: SocketAddr) -> SocketAddr {
    if like.is_ipv4() {
        SocketAddr::from(([0, 0, 0, 0], 0))
    } else {
        SocketAddr::from(([0u16; 8], 0))
    }
}

/// Divides `total` among `tasks` and adds up what they saw.
async fn spread<W, F>(netns: &Netns, total: u64, tasks: u64, work: W) -> Result<Tally>
where
    W: Fn(u64) -> F + Send + 'static,
    F: Future<Output = Tally> + Send + 'static,
{
    inside(netns, move || async move {
        let start = Instant::now();
        let mut running = JoinSet::new();
        for task in 0..tasks {
            running.spawn(work(total / tasks + u64::from(task < total % tasks)));
        }
        let mut sum = Tally::default();
        while let Some(tally) = running.join_next().await {
            sum.merge(tally?);
        }
        sum.elapsed = start.elapsed();
        Ok(sum)
    })
    .await
}

async fn patient<T>(exchange: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(PATIENCE, exchange)
        .await
        .context("no answer within 5 s")?
}

async fn tcp_exchange(vip: SocketAddr, payload: usize) -> Result<String> {
    let mut client = TcpClient::connect(vip).await?;
    client.echo(&vec![b'x'; payload]).await?;
    Ok(client.name)
}

/// A TCP connection to a [`Service::Tcp`](crate::Service::Tcp) member.
struct TcpClient {
    stream: BufReader<TcpStream>,
    name: String,
}

impl TcpClient {
    async fn connect(vip: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(vip).await.context("connect")?;
        stream.set_nodelay(true)?;
        let mut stream = BufReader::new(stream);
        let mut name = String::new();
        stream.read_line(&mut name).await.context("read name")?;
        ensure!(name.ends_with('\n'), "closed before it said its name");
        name.pop();
        Ok(Self { stream, name })
    }

    async fn echo(&mut self, payload: &[u8]) -> Result<()> {
        self.stream.write_all(payload).await.context("write")?;
        let mut answer = vec![0; payload.len()];
        self.stream
            .read_exact(&mut answer)
            .await
            .context("read echo")?;
        ensure!(answer == payload, "the echo differs");
        Ok(())
    }
}

/// A keep-alive client that counts what it sends and receives.
#[derive(Default)]
struct HttpClient {
    stream: Option<BufReader<TcpStream>>,
    connections: u64,
    bytes_sent: u64,
    bytes_received: u64,
}

impl HttpClient {
    /// One request; a new connection only when there is none or the server announced the end of the last one.
    async fn request(&mut self, vip: SocketAddr) -> Result<String> {
        let outcome = patient(self.exchange(vip)).await;
        if outcome.is_err() {
            self.stream = None;
        }
        outcome
    }

    async fn exchange(&mut self, vip: SocketAddr) -> Result<String> {
        if self.stream.is_none() {
            let stream = TcpStream::connect(vip).await.context("connect")?;
            stream.set_nodelay(true)?;
            self.connections += 1;
            self.stream = Some(BufReader::new(stream));
        }
        let stream = self.stream.as_mut().context("no connection")?;
        let request = format!("GET / HTTP/1.1\r\nHost: {vip}\r\n\r\n");
        stream
            .write_all(request.as_bytes())
            .await
            .context("write")?;
        self.bytes_sent += request.len() as u64;
        let mut line = String::new();
        let mut status = None;
        let mut length = 0;
        let mut close = false;
        loop {
            line.clear();
            if stream.read_line(&mut line).await.context("read head")? == 0 {
                bail!("closed before the end of the head");
            }
            self.bytes_received += line.len() as u64;
            let text = line.trim_end().to_ascii_lowercase();
            if text.is_empty() {
                break;
            }
            if status.is_none() {
                status = Some(text.clone());
            } else if let Some(value) = text.strip_prefix("content-length:") {
                length = value.trim().parse().context("content-length")?;
            } else if let Some(value) = text.strip_prefix("connection:") {
                close = value.trim() == "close";
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.context("read body")?;
        self.bytes_received += body.len() as u64;
        if close {
            self.stream = None;
        }
        let status = status.unwrap_or_default();
        ensure!(status.contains(" 200 "), "answered {status}");
        Ok(String::from_utf8_lossy(&body).into_owned())
    }
}

/// Connections that stay open while things change.
#[derive(Debug)]
pub struct LongLived {
    exchanges: Arc<AtomicU64>,
    task: Background<Tally>,
}

/// What long-lived connections carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Traffic {
    /// One TCP connection each, echoing; a closed one is a failure.
    Tcp,
    /// Keep-alive HTTP; a connection that the server ends after `Connection: close` is replaced.
    Http,
    /// One UDP socket each; an unanswered datagram is a failure.
    Udp,
}

impl LongLived {
    /// Opens `count` connections, each with one exchange every `pause`, until stopped.
    pub fn start(
        netns: &Netns,
        vip: SocketAddr,
        traffic: Traffic,
        count: u64,
        pause: Duration,
    ) -> Self {
        let exchanges = Arc::new(AtomicU64::new(0));
        let counter = exchanges.clone();
        let task = Background::start(netns, move |stop| async move {
            let start = Instant::now();
            let mut running = JoinSet::new();
            for _ in 0..count {
                let (stop, counter) = (stop.clone(), counter.clone());
                running.spawn(async move {
                    let mut connection = Connection::new(traffic, vip);
                    let mut tally = Tally::default();
                    while !stop.is_stopped() {
                        let outcome = patient(connection.exchange()).await;
                        let failed = outcome.is_err();
                        tally.record(outcome);
                        counter.fetch_add(1, Ordering::Relaxed);
                        if failed && traffic == Traffic::Tcp {
                            break;
                        }
                        tokio::time::sleep(pause).await;
                    }
                    tally.connections = connection.opened();
                    tally
                });
            }
            let mut sum = Tally::default();
            while let Some(tally) = running.join_next().await {
                sum.merge(tally?);
            }
            sum.elapsed = start.elapsed();
            Ok(sum)
        });
        Self { exchanges, task }
    }

    /// Exchanges so far, good and bad.
    pub fn exchanges(&self) -> u64 {
        self.exchanges.load(Ordering::Relaxed)
    }

    /// Returns once there were `more` further exchanges.
    pub async fn wait_for_exchanges(&self, more: u64) -> Result<()> {
        let wanted = self.exchanges() + more;
        let start = Instant::now();
        while self.exchanges() < wanted {
            ensure!(
                start.elapsed() < Duration::from_secs(60),
                "waited 60 s for {wanted} exchanges, last seen {}",
                self.exchanges()
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    pub fn stop(self) -> Result<Tally> {
        self.task.stop()
    }
}

enum Connection {
    Tcp(SocketAddr, Option<TcpClient>),
    Http(SocketAddr, HttpClient),
    Udp(SocketAddr, Option<UdpSocket>),
}

impl Connection {
    fn new(traffic: Traffic, vip: SocketAddr) -> Self {
        match traffic {
            Traffic::Tcp => Self::Tcp(vip, None),
            Traffic::Http => Self::Http(vip, HttpClient::default()),
            Traffic::Udp => Self::Udp(vip, None),
        }
    }

    fn opened(&self) -> u64 {
        match self {
            Self::Tcp(_, client) => u64::from(client.is_some()),
            Self::Http(_, client) => client.connections,
            Self::Udp(_, socket) => u64::from(socket.is_some()),
        }
    }

    async fn exchange(&mut self) -> Result<String> {
        match self {
            Self::Tcp(vip, client) => {
                let client = match client {
                    Some(client) => client,
                    None => client.insert(TcpClient::connect(*vip).await?),
                };
                client.echo(b"ping").await?;
                Ok(client.name.clone())
            }
            Self::Http(vip, client) => client.request(*vip).await,
            Self::Udp(vip, socket) => {
                let socket = match socket {
                    Some(socket) => socket,
                    None => {
                        let fresh = UdpSocket::bind(unspecified(*vip)).await?;
                        fresh.connect(*vip).await?;
                        socket.insert(fresh)
                    }
                };
                socket.send(UDP_QUESTION).await?;
                let mut answer = [0; 256];
                let length = socket.recv(&mut answer).await?;
                Ok(String::from_utf8_lossy(&answer[..length]).into_owned())
            }
        }
    }
}

/// Fresh connections, one after another, to see when a VIP serves and when it does not.
#[derive(Debug)]
pub struct Probe {
    task: Background<Vec<Sample>>,
}

/// One attempt: when it began, and who answered.
#[derive(Debug, Clone)]
pub struct Sample {
    pub at: Instant,
    pub answered: Result<String, String>,
}

impl Probe {
    /// One fresh HTTP or TCP connection every `pause`, given up after `patience`.
    pub fn start(
        netns: &Netns,
        vip: SocketAddr,
        traffic: Traffic,
        pause: Duration,
        patience: Duration,
    ) -> Self {
        let task = Background::start(netns, move |stop| async move {
            let mut samples = Vec::new();
            while !stop.is_stopped() {
                let at = Instant::now();
                let mut connection = Connection::new(traffic, vip);
                let answered = match tokio::time::timeout(patience, connection.exchange()).await {
                    Ok(Ok(name)) => Ok(name),
                    Ok(Err(error)) => Err(format!("{error:#}")),
                    Err(_) => Err("no answer in time".to_owned()),
                };
                samples.push(Sample { at, answered });
                tokio::time::sleep(pause).await;
            }
            Ok(samples)
        });
        Self { task }
    }

    pub fn stop(self) -> Result<Vec<Sample>> {
        self.task.stop()
    }
}

/// Makes fresh connections until one is answered; how long that took.
pub async fn first_answer(
    netns: &Netns,
    vip: SocketAddr,
    traffic: Traffic,
    deadline: Duration,
) -> Result<Duration> {
    inside(netns, move || async move {
        let start = Instant::now();
        loop {
            let mut connection = Connection::new(traffic, vip);
            let attempt = connection.exchange();
            match tokio::time::timeout(Duration::from_millis(200), attempt).await {
                Ok(Ok(_)) => return Ok(start.elapsed()),
                last if start.elapsed() > deadline => {
                    bail!("no answer from {vip} within {deadline:?}, last: {last:?}")
                }
                _ => tokio::time::sleep(Duration::from_millis(2)).await,
            }
        }
    })
    .await
}
