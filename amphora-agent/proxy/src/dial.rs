//! Getting a connection to a member.
//!
//! A failed connect is tried three more times: twice at the same member, then at another one. The
//! configuration is read again for each try, so a member that the health checks took out meanwhile
//! is left at once. A refusal is followed by a short pause (the member may be restarting), a
//! time-out by none.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::timeout;
use uuid::Uuid;

use crate::pool::Member;
use crate::router::Route;
use crate::stats::add;
use crate::transport::{Counted, InFlight, Peer};
use crate::worker::Worker;

const TRIES: u32 = 4;
const FIRST_PAUSE: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DialError {
    /// No pool, or nobody usable in it.
    NoMember,
    ConnectFailed,
}

pub(crate) struct Dialed {
    pub(crate) stream: Counted<TcpStream>,
    pub(crate) address: SocketAddr,
    pub(crate) member: Uuid,
    /// Counts as in flight at the member.
    pub(crate) in_flight: InFlight,
    /// The connection has served before, so the member may be closing it.
    pub(crate) reused: bool,
}

/// `prefer` names the member of a request that is sent again.
pub(crate) async fn dial(
    worker: &Worker,
    route: &mut Route,
    client: IpAddr,
    reuse: bool,
    prefer: Option<Uuid>,
) -> Result<Dialed, DialError> {
    let mut wanted = prefer;
    let mut failed: Option<Uuid> = None;
    for attempt in 1..=TRIES {
        route.refresh(&worker.shared);
        let pool = route.listener.pool.as_ref().ok_or(DialError::NoMember)?;
        let member = match (wanted.and_then(|id| pool.usable(id)), failed) {
            (Some(member), _) => Some(member),
            (None, Some(failed)) => pool.pick_other(client, failed),
            (None, None) => pool.pick(client),
        };
        let member = member.ok_or(DialError::NoMember)?;
        let in_flight = InFlight::new(Arc::clone(&member.counters), worker.index);
        let idle = reuse.then(|| worker.idle.borrow_mut().take(member.address));
        if let Some(stream) = idle.flatten() {
            return Ok(dialed(worker, &member, in_flight, stream, true));
        }
        let limit = route.listener.config.timeout_member_connect;
        let shard = member.counters.shard(worker.index);
        match timeout(limit, connect(member.address)).await {
            Ok(Ok(stream)) => {
                add(&shard.connections, 1);
                return Ok(dialed(worker, &member, in_flight, stream, false));
            }
            Ok(Err(error)) => {
                add(&shard.connect_failures, 1);
                tracing::debug!(member = %member.id, address = %member.address, %error, "connect to member");
                if attempt < TRIES - 1 {
                    tokio::time::sleep(FIRST_PAUSE * attempt).await;
                }
            }
            Err(_) => {
                add(&shard.connect_failures, 1);
                tracing::debug!(member = %member.id, address = %member.address, "connect to member timed out");
            }
        }
        failed = Some(member.id);
        // The last try goes to another member.
        wanted = Some(member.id).filter(|_| attempt < TRIES - 1);
    }
    Err(DialError::ConnectFailed)
}

fn dialed(
    worker: &Worker,
    member: &Member,
    in_flight: InFlight,
    stream: TcpStream,
    reused: bool,
) -> Dialed {
    Dialed {
        stream: Counted::new(
            stream,
            Peer::Member,
            Arc::clone(&member.counters),
            worker.index,
        ),
        address: member.address,
        member: member.id,
        in_flight,
        reused,
    }
}

/// As `TcpStream::connect`, but asks for the error only when there is one.
async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let kind = Type::STREAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address(address), kind, Some(Protocol::TCP))?;
    socket.set_tcp_nodelay(true)?;
    match socket.connect(&address.into()) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let stream = TcpStream::from_std(socket.into())?;
    let ready = stream.ready(Interest::WRITABLE).await?;
    if ready.is_write_closed()
        && let Some(error) = stream.take_error()?
    {
        return Err(error);
    }
    Ok(stream)
}
