//! Clients: connections, keep-alive requests, bulk transfer and UDP exchanges, in closed loops.

use std::io::{Error, ErrorKind};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use super::Threads;
use crate::netns::Netns;

/// Whatever takes longer is an error and starts anew.
const PATIENCE: Duration = Duration::from_secs(2);
/// After so long without an answer a flow sends anew; lost and late cannot be told apart.
const DATAGRAM_PATIENCE: Duration = Duration::from_millis(50);
const BULK_BYTES: u64 = 1 << 30;
const BULK_BUFFER: usize = 256 * 1024;
/// With its headers it makes a frame of 64 bytes.
const DATAGRAM: [u8; 22] = [b'x'; 22];

/// What clients do, and what one unit of it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Workload {
    /// Connect, one request, answer, close.
    Connection,
    /// A request of 64 bytes' answer on a connection that stays.
    Request,
    /// A datagram there and one back.
    Datagram,
    /// Gigabits of answers.
    Bulk,
}

impl Workload {
    pub(crate) const ALL: [Workload; 4] = [
        Workload::Connection,
        Workload::Request,
        Workload::Datagram,
        Workload::Bulk,
    ];

    /// Loops at work at the same time.
    fn loops(self) -> usize {
        match self {
            Workload::Connection | Workload::Request => 32,
            Workload::Datagram => 16,
            Workload::Bulk => 4,
        }
    }
}

/// What clients got done so far.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Connections, requests, exchanges; for bulk: bytes.
    pub(crate) done: AtomicU64,
    pub(crate) errors: AtomicU64,
    /// The first error, in words.
    pub(crate) first_error: Mutex<Option<String>>,
}

impl Counters {
    fn failed(&self, target: SocketAddr, error: &Error) {
        self.errors.fetch_add(1, Relaxed);
        let mut first = self
            .first_error
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        first.get_or_insert_with(|| format!("{target}: {error}"));
    }
}

/// At work until dropped.
#[derive(Debug)]
pub(crate) struct Clients {
    pub(crate) counters: Arc<Counters>,
    #[expect(dead_code, reason = "stops the threads when dropped")]
    threads: Threads,
}

impl Clients {
    /// Starts the loops of `workload`, spread evenly over `targets`.
    pub(crate) fn start(
        netns: &Netns,
        workload: Workload,
        targets: Vec<SocketAddr>,
    ) -> Result<Self> {
        let counters = Arc::new(Counters::default());
        let count = super::threads();
        let shared = counters.clone();
        let threads = Threads::run("client", netns.name(), count, move |thread| {
            let (shared, targets) = (shared.clone(), targets.clone());
            async move {
                for index in (thread..workload.loops()).step_by(count) {
                    let target = targets[index % targets.len()];
                    tokio::spawn(work(workload, target, shared.clone()));
                }
                Ok(())
            }
        })?;
        Ok(Clients { counters, threads })
    }
}

async fn work(workload: Workload, target: SocketAddr, counters: Arc<Counters>) {
    loop {
        let outcome = match workload {
            Workload::Connection => connections(target, &counters).await,
            Workload::Request => requests(target, &counters).await,
            Workload::Datagram => datagrams(target, &counters).await,
            Workload::Bulk => bulk(target, &counters).await,
        };
        if let Err(error) = outcome {
            counters.failed(target, &error);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

async fn connections(target: SocketAddr, counters: &Counters) -> Result<(), Error> {
    let request = b"GET /64 HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n";
    let mut buffer = Vec::with_capacity(1024);
    loop {
        let exchange = async {
            let mut stream = connect(target).await?;
            stream.write_all(request).await?;
            read_answer(&mut stream, &mut buffer).await?;
            // The server closes first.
            while stream.read_buf(&mut buffer).await? > 0 {}
            buffer.clear();
            Ok::<_, Error>(())
        };
        patiently(exchange).await?;
        counters.done.fetch_add(1, Relaxed);
    }
}

async fn requests(target: SocketAddr, counters: &Counters) -> Result<(), Error> {
    let request = b"GET /64 HTTP/1.1\r\nHost: bench\r\n\r\n";
    let mut buffer = Vec::with_capacity(1024);
    let mut stream = patiently(connect(target)).await?;
    loop {
        let exchange = async {
            stream.write_all(request).await?;
            read_answer(&mut stream, &mut buffer).await
        };
        patiently(exchange).await?;
        counters.done.fetch_add(1, Relaxed);
    }
}

async fn bulk(target: SocketAddr, counters: &Counters) -> Result<(), Error> {
    let request = format!("GET /{BULK_BYTES} HTTP/1.1\r\nHost: bench\r\n\r\n");
    let mut stream = patiently(connect(target)).await?;
    let mut buffer = vec![0; BULK_BUFFER];
    loop {
        stream.write_all(request.as_bytes()).await?;
        // The head is a small part of a gigabyte: count it as the rest, and stop where the body ends.
        let mut head = Vec::with_capacity(4096);
        let (length, have) = patiently(read_head(&mut stream, &mut head)).await?;
        counters.done.fetch_add(have, Relaxed);
        let mut left = length.saturating_sub(have);
        while left > 0 {
            let want = usize::try_from(left)
                .unwrap_or(BULK_BUFFER)
                .min(BULK_BUFFER);
            let got = patiently(stream.read(&mut buffer[..want])).await?;
            if got == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            left -= got as u64;
            counters.done.fetch_add(got as u64, Relaxed);
        }
    }
}

/// Keeps four datagrams on their way.
async fn datagrams(target: SocketAddr, counters: &Counters) -> Result<(), Error> {
    let socket = UdpSocket::bind(("0.0.0.0", 0)).await?;
    socket.connect(target).await?;
    let mut buffer = [0; 128];
    loop {
        for _ in 0..4 {
            socket.send(&DATAGRAM).await?;
        }
        loop {
            match timeout(DATAGRAM_PATIENCE, socket.recv(&mut buffer)).await {
                Ok(length) => {
                    length?;
                    counters.done.fetch_add(1, Relaxed);
                    socket.send(&DATAGRAM).await?;
                }
                Err(_) => {
                    let error = Error::new(
                        ErrorKind::TimedOut,
                        "no datagram of a flow was answered in 50 ms",
                    );
                    counters.failed(target, &error);
                    break;
                }
            }
        }
    }
}

async fn connect(target: SocketAddr) -> Result<TcpStream, Error> {
    let stream = TcpStream::connect(target).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

async fn patiently<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    timeout(PATIENCE, work)
        .await
        .unwrap_or_else(|_| Err(Error::new(ErrorKind::TimedOut, "no answer in 2 s")))
}

/// One answer, whole; leaves `buffer` empty.
async fn read_answer(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Result<(), Error> {
    let (length, mut have) = read_head(stream, buffer).await?;
    while have < length {
        let got = stream.read_buf(buffer).await?;
        if got == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        have += got as u64;
    }
    if have > length {
        return Err(Error::new(
            ErrorKind::InvalidData,
            "more than the answer came",
        ));
    }
    buffer.clear();
    Ok(())
}

/// Reads up to the end of the head: (announced length, bytes of the body that came along).
async fn read_head(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Result<(u64, u64), Error> {
    let invalid = |what: String| Error::new(ErrorKind::InvalidData, what);
    loop {
        if stream.read_buf(buffer).await? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let mut headers = [httparse::EMPTY_HEADER; 32];
        let mut answer = httparse::Response::new(&mut headers);
        let status = answer
            .parse(buffer)
            .map_err(|error| invalid(format!("the answer is not HTTP: {error}")))?;
        let httparse::Status::Complete(head) = status else {
            continue;
        };
        if answer.code != Some(200) {
            return Err(invalid(format!("status {:?}", answer.code)));
        }
        let length = answer
            .headers
            .iter()
            .find(|header| header.name.eq_ignore_ascii_case("content-length"))
            .and_then(|header| std::str::from_utf8(header.value).ok()?.parse().ok())
            .ok_or_else(|| invalid("the answer has no length".into()))?;
        return Ok((length, (buffer.len() - head) as u64));
    }
}
