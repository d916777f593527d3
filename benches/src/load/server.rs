//! Member servers: HTTP/1.1 `GET /<bytes>` answers so many bytes, and UDP echo.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

use super::Threads;
use crate::netns::Netns;
use crate::rig::PORT;

const CHUNK: usize = 64 * 1024;
const MAX_HEAD: usize = 8 * 1024;

/// Serving until dropped.
#[derive(Debug)]
pub(crate) struct Servers(#[expect(dead_code, reason = "stops the threads when dropped")] Threads);

impl Servers {
    /// Serves TCP on every address of the namespace, UDP on `datagrams`.
    pub(crate) fn start(netns: &Netns, datagrams: Vec<SocketAddr>) -> Result<Self> {
        let datagrams: Arc<[SocketAddr]> = datagrams.into();
        Threads::run("server", netns.name(), super::threads(), move |_| {
            let datagrams = datagrams.clone();
            async move {
                let listener = TcpListener::from_std(socket(
                    SocketAddr::from(([0, 0, 0, 0], PORT)),
                    Type::STREAM,
                )?)?;
                tokio::spawn(accept(listener));
                // A socket for each address: an answer then comes from where it was asked.
                for address in datagrams.iter() {
                    tokio::spawn(echo(UdpSocket::from_std(socket(*address, Type::DGRAM)?)?));
                }
                Ok(())
            }
        })
        .map(Servers)
    }
}

fn socket<S: From<Socket>>(address: SocketAddr, kind: Type) -> Result<S> {
    let protocol = if kind == Type::STREAM {
        Protocol::TCP
    } else {
        Protocol::UDP
    };
    let socket = Socket::new(Domain::IPV4, kind, Some(protocol)).context("make a socket")?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket
        .bind(&address.into())
        .with_context(|| format!("bind {address}"))?;
    if kind == Type::STREAM {
        socket.listen(4096).context("listen")?;
    }
    Ok(socket.into())
}

async fn accept(listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(async move {
                    // A client that went away is not this side's problem; the client counts it.
                    drop(serve(stream).await);
                });
            }
            Err(error) => {
                eprintln!("accept at a member: {error}");
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        }
    }
}

async fn serve(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let body = [b'x'; 1024];
    let mut head = Vec::with_capacity(1024);
    loop {
        let Some(request) = read_request(&mut stream, &mut head).await? else {
            return Ok(());
        };
        let answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n{}\r\n",
            request.bytes,
            if request.close {
                "Connection: close\r\n"
            } else {
                ""
            }
        );
        let mut answer = answer.into_bytes();
        if let Some(small) = usize::try_from(request.bytes)
            .ok()
            .and_then(|bytes| body.get(..bytes))
        {
            answer.extend_from_slice(small);
            stream.write_all(&answer).await?;
        } else {
            stream.write_all(&answer).await?;
            let chunk = vec![b'x'; CHUNK];
            let mut left = request.bytes;
            while left > 0 {
                let now = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
                stream.write_all(&chunk[..now]).await?;
                left -= now as u64;
            }
        }
        if request.close {
            stream.shutdown().await?;
            return Ok(());
        }
    }
}

struct Request {
    bytes: u64,
    close: bool,
}

/// The next request; `None` when the client is through. What follows its head stays in `buffer`.
async fn read_request(
    stream: &mut TcpStream,
    buffer: &mut Vec<u8>,
) -> std::io::Result<Option<Request>> {
    let invalid = |what: &'static str| std::io::Error::new(std::io::ErrorKind::InvalidData, what);
    loop {
        let mut headers = [httparse::EMPTY_HEADER; 32];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(buffer) {
            Ok(httparse::Status::Complete(length)) => {
                let bytes = request
                    .path
                    .and_then(|path| path.strip_prefix('/')?.parse().ok())
                    .ok_or_else(|| invalid("the path is not a number"))?;
                let close = request.headers.iter().any(|header| {
                    header.name.eq_ignore_ascii_case("connection")
                        && header.value.eq_ignore_ascii_case(b"close")
                });
                buffer.drain(..length);
                return Ok(Some(Request { bytes, close }));
            }
            Ok(httparse::Status::Partial) if buffer.len() < MAX_HEAD => {}
            Ok(httparse::Status::Partial) => return Err(invalid("the request head is too long")),
            Err(_) => return Err(invalid("this is no HTTP request")),
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
}

async fn echo(socket: UdpSocket) {
    let mut buffer = [0; 2048];
    loop {
        if let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            // A full buffer or an unreachable client is a lost datagram; the client counts those.
            drop(socket.send_to(&buffer[..length], from).await);
        }
    }
}
