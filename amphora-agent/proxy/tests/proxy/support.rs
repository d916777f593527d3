//! Scripted members, raw clients, and a proxy between them.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use amphora_proxy::{
    Algorithm, InsertHeaders, Listener, Member, Options, Pool, Protocol, Proxy, Snapshot,
};
use uuid::Uuid;

/// Nothing in these tests takes so long unless it hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) const LISTENER: Uuid = Uuid::from_u128(1);
pub(crate) const POOL: Uuid = Uuid::from_u128(2);

/// A loopback address and port that no other test and no other process uses.
pub(crate) fn unused_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(8000);
    let pid = std::process::id().to_be_bytes();
    let host = Ipv4Addr::new(127, 64 | (pid[1] & 63), pid[2], pid[3]);
    SocketAddr::from((host, NEXT.fetch_add(1, Ordering::Relaxed)))
}

pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < end, "waited in vain until {what}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// A running proxy with one listener and one pool, and the snapshot to change.
pub(crate) struct Rig {
    pub(crate) proxy: Proxy,
    pub(crate) snapshot: Snapshot,
    pub(crate) address: SocketAddr,
}

impl Rig {
    pub(crate) fn http(members: &[SocketAddr]) -> Rig {
        Rig::new(2, Protocol::Http, members, |_| {})
    }

    pub(crate) fn new(
        threads: usize,
        protocol: Protocol,
        members: &[SocketAddr],
        change: impl FnOnce(&mut Snapshot),
    ) -> Rig {
        let address = unused_address();
        let mut snapshot = Snapshot {
            listeners: vec![listener(address, protocol)],
            pools: vec![Pool {
                id: POOL,
                algorithm: Algorithm::RoundRobin,
                members: (0..).zip(members).map(|(n, a)| member(n, *a)).collect(),
            }],
        };
        change(&mut snapshot);
        let options = Options {
            threads,
            on_thread_start: None,
        };
        let rig = Rig {
            proxy: Proxy::start(options).unwrap(),
            snapshot,
            address,
        };
        rig.apply();
        rig
    }

    pub(crate) fn apply(&self) {
        let report = self.proxy.apply(self.snapshot.clone());
        assert!(report.errors.is_empty(), "{:?}", report.errors);
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.address)
    }

    pub(crate) fn active(&self) -> u64 {
        self.proxy
            .stats()
            .listener(LISTENER)
            .unwrap()
            .active_connections
    }
}

pub(crate) fn listener(address: SocketAddr, protocol: Protocol) -> Listener {
    Listener {
        id: LISTENER,
        binds: vec![address],
        protocol,
        default_pool: Some(POOL),
        connection_limit: None,
        insert_headers: InsertHeaders::default(),
        timeout_client_data: PATIENCE,
        timeout_member_connect: PATIENCE,
        timeout_member_data: PATIENCE,
        draining: false,
    }
}

pub(crate) fn member_id(n: usize) -> Uuid {
    Uuid::from_u128(100 + n as u128)
}

pub(crate) fn member(n: usize, address: SocketAddr) -> Member {
    Member {
        id: member_id(n),
        address,
        weight: 1,
        backup: false,
        up: true,
    }
}

/// A server whose every connection is handled by a script in a thread of its own.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    connections: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
}

impl Server {
    /// The script gets the connection and its number, from 0.
    pub(crate) fn scripted(
        script: impl Fn(&mut Connection, usize) -> io::Result<()> + Send + Sync + 'static,
    ) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Server {
            address: listener.local_addr().unwrap(),
            connections: Arc::default(),
            requests: Arc::default(),
        };
        let (connections, requests) = (
            Arc::clone(&server.connections),
            Arc::clone(&server.requests),
        );
        let script = Arc::new(script);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let number = connections.fetch_add(1, Ordering::SeqCst);
                let (script, requests) = (Arc::clone(&script), Arc::clone(&requests));
                std::thread::spawn(move || {
                    let mut connection = Connection {
                        stream: BufReader::new(stream),
                        requests,
                    };
                    let _ = script(&mut connection, number);
                });
            }
        });
        server
    }

    /// Answers every request on a kept connection.
    pub(crate) fn http(answer: impl Fn(&Message) -> String + Send + Sync + 'static) -> Server {
        Server::scripted(move |connection, _| {
            while let Some(request) = connection.read_request()? {
                connection.write(answer(&request))?;
            }
            Ok(())
        })
    }

    /// Answers every request with `name`.
    pub(crate) fn named(name: &'static str) -> Server {
        Server::http(move |_| ok(name))
    }

    pub(crate) fn echo() -> Server {
        Server::scripted(|connection, _| {
            let mut out = connection.stream.get_ref().try_clone()?;
            io::copy(&mut connection.stream, &mut out)?;
            out.shutdown(Shutdown::Write)
        })
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

/// A member address where nobody listens.
pub(crate) fn refusing() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
}

pub(crate) fn ok(body: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// A head with its body as it is on the wire, chunks and all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Message {
    pub(crate) fn status(&self) -> u16 {
        self.head
            .split(' ')
            .nth(1)
            .and_then(|code| code.get(..3))
            .and_then(|code| code.parse().ok())
            .unwrap_or_else(|| panic!("no status in {:?}", self.head))
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.head
            .lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(field, _)| field.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim())
    }
}

/// One end of a connection that reads whole messages.
pub(crate) struct Connection {
    pub(crate) stream: BufReader<TcpStream>,
    requests: Arc<AtomicUsize>,
}

pub(crate) type Client = Connection;

impl Connection {
    pub(crate) fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Connection {
            stream: BufReader::new(stream),
            requests: Arc::default(),
        }
    }

    pub(crate) fn write(&mut self, text: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.get_mut().write_all(text.as_ref())
    }

    pub(crate) fn send(&mut self, text: impl AsRef<[u8]>) -> &mut Self {
        self.write(text).unwrap();
        self
    }

    pub(crate) fn get(&mut self, path: &str) -> Message {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n"))
            .response()
    }

    pub(crate) fn response(&mut self) -> Message {
        self.read_response(false).unwrap()
    }

    pub(crate) fn response_to_head(&mut self) -> Message {
        self.read_response(true).unwrap()
    }

    pub(crate) fn read_response(&mut self, to_head: bool) -> io::Result<Message> {
        let head = self.read_head()?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut message = Message {
            head,
            body: Vec::new(),
        };
        let status = message.status();
        if to_head || status < 200 || status == 204 || status == 304 {
            return Ok(message);
        }
        if !self.read_framed_body(&mut message)? {
            self.stream.read_to_end(&mut message.body)?;
        }
        Ok(message)
    }

    pub(crate) fn read_request(&mut self) -> io::Result<Option<Message>> {
        let Some(head) = self.read_head()? else {
            return Ok(None);
        };
        let mut message = Message {
            head,
            body: Vec::new(),
        };
        self.read_framed_body(&mut message)?;
        self.requests.fetch_add(1, Ordering::SeqCst);
        Ok(Some(message))
    }

    pub(crate) fn read_head(&mut self) -> io::Result<Option<String>> {
        let mut head = String::new();
        loop {
            let before = head.len();
            if self.stream.read_line(&mut head)? == 0 {
                return if head.is_empty() {
                    Ok(None)
                } else {
                    Err(io::ErrorKind::UnexpectedEof.into())
                };
            }
            if &head[before..] == "\r\n" {
                return Ok(Some(head));
            }
        }
    }

    /// False when the body has no framing.
    fn read_framed_body(&mut self, message: &mut Message) -> io::Result<bool> {
        if let Some(length) = message.field("content-length") {
            let length = length.parse().unwrap();
            message.body.resize(length, 0);
            self.stream.read_exact(&mut message.body)?;
            return Ok(true);
        }
        if message.field("transfer-encoding").is_none() {
            return Ok(false);
        }
        loop {
            let mut line = Vec::new();
            self.stream.read_until(b'\n', &mut line)?;
            message.body.extend_from_slice(&line);
            let size = std::str::from_utf8(&line).unwrap();
            let size = size.split(';').next().unwrap().trim();
            let size = usize::from_str_radix(size, 16).unwrap();
            if size == 0 {
                // Trailers, and the empty line.
                let trailers = self.read_head()?.ok_or(io::ErrorKind::UnexpectedEof)?;
                message.body.extend_from_slice(trailers.as_bytes());
                return Ok(true);
            }
            let mut chunk = vec![0; size + 2];
            self.stream.read_exact(&mut chunk)?;
            message.body.extend_from_slice(&chunk);
        }
    }

    /// Everything until the other side ends.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest).unwrap();
        rest
    }

    pub(crate) fn finish_sending(&mut self) {
        self.stream.get_ref().shutdown(Shutdown::Write).unwrap();
    }

    pub(crate) fn read_exactly(&mut self, n: usize) -> Vec<u8> {
        let mut bytes = vec![0; n];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }
}
