//! Servers of a tenant: each answers with its own name, so that a client can tell who served it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, bail};
use lb_drivers::local::Netns;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::inside::{Background, Stop};

/// What a member speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// Answers each request with its name; keep-alive.
    Http,
    /// Sends its name and a newline, then echoes.
    Tcp,
    /// Answers each datagram with its name.
    Udp,
}

/// A running server; it is gone, with all its connections, when dropped.
#[derive(Debug)]
pub struct Member {
    pub name: String,
    pub address: SocketAddr,
    served: Arc<AtomicU64>,
    _task: Background<()>,
}

impl Member {
    /// Starts a server inside the namespace; it is listening when this returns.
    pub async fn start(
        netns: &Netns,
        name: &str,
        address: SocketAddr,
        service: Service,
    ) -> Result<Self> {
        let served = Arc::new(AtomicU64::new(0));
        let (ready, is_ready) = oneshot::channel();
        let work = {
            let (name, served) = (Arc::<str>::from(name), served.clone());
            move |stop| serve(name, address, service, served, ready, stop)
        };
        let task = Background::start(netns, work);
        if is_ready.await.is_err() {
            return match task.stop() {
                Ok(()) => bail!("member {name} at {address} ended at once"),
                Err(error) => Err(error.context(format!("member {name} at {address}"))),
            };
        }
        Ok(Self {
            name: name.to_owned(),
            address,
            served,
            _task: task,
        })
    }

    /// Requests (HTTP), connections (TCP) or datagrams (UDP) answered so far.
    pub fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }
}

async fn serve(
    name: Arc<str>,
    address: SocketAddr,
    service: Service,
    served: Arc<AtomicU64>,
    ready: oneshot::Sender<()>,
    mut stop: Stop,
) -> Result<()> {
    match service {
        Service::Udp => {
            let socket = UdpSocket::bind(address).await.context("bind UDP")?;
            let _ = ready.send(());
            let mut datagram = vec![0; 65_536];
            loop {
                let (_, client) = tokio::select! {
                    received = socket.recv_from(&mut datagram) => received?,
                    () = stop.stopped() => return Ok(()),
                };
                served.fetch_add(1, Ordering::Relaxed);
                socket.send_to(name.as_bytes(), client).await?;
            }
        }
        Service::Http | Service::Tcp => {
            let listener = TcpListener::bind(address).await.context("bind TCP")?;
            let _ = ready.send(());
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = tokio::select! {
                    accepted = listener.accept() => accepted?,
                    _ = connections.join_next(), if !connections.is_empty() => continue,
                    () = stop.stopped() => return Ok(()),
                };
                let (name, served) = (name.clone(), served.clone());
                connections.spawn(async move {
                    // A client that goes away is its own affair.
                    let _ = match service {
                        Service::Http => serve_http(stream, &name, &served).await,
                        Service::Tcp | Service::Udp => serve_tcp(stream, &name, &served).await,
                    };
                });
            }
        }
    }
}

async fn serve_http(stream: TcpStream, name: &str, served: &AtomicU64) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{name}",
        name.len()
    );
    let mut line = String::new();
    loop {
        line.clear();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(());
        }
        if line == "\r\n" {
            served.fetch_add(1, Ordering::Relaxed);
            stream.write_all(answer.as_bytes()).await?;
        }
    }
}

async fn serve_tcp(mut stream: TcpStream, name: &str, served: &AtomicU64) -> Result<()> {
    stream.set_nodelay(true)?;
    served.fetch_add(1, Ordering::Relaxed);
    stream.write_all(format!("{name}\n").as_bytes()).await?;
    let mut buffer = vec![0; 16_384];
    loop {
        let length = stream.read(&mut buffer).await?;
        if length == 0 {
            return Ok(());
        }
        stream.write_all(&buffer[..length]).await?;
    }
}
