//! Member connections that wait for their next request. One set a thread.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;

/// Servers commonly keep an idle connection for 5 s; let go first, so that no request meets a
/// connection on its way out.
const KEEP: Duration = Duration::from_secs(4);
/// Of one thread. Above it connections are closed after their response.
const MAX: usize = 2048;

pub(crate) const REAP_INTERVAL: Duration = Duration::from_secs(1);

struct Idle {
    stream: TcpStream,
    since: Instant,
}

#[derive(Default)]
pub(crate) struct IdleConnections {
    by_address: HashMap<SocketAddr, Vec<Idle>>,
    total: usize,
}

impl IdleConnections {
    /// The connection used last, if it is still open.
    pub(crate) fn take(&mut self, address: SocketAddr) -> Option<TcpStream> {
        let idle = self.by_address.get_mut(&address)?;
        while let Some(mut found) = idle.pop() {
            self.total -= 1;
            if is_silent(&mut found.stream) {
                return Some(found.stream);
            }
        }
        None
    }

    pub(crate) fn put(&mut self, address: SocketAddr, stream: TcpStream) {
        if self.total < MAX {
            self.total += 1;
            self.by_address.entry(address).or_default().push(Idle {
                stream,
                since: Instant::now(),
            });
        }
    }

    /// Closes those that waited too long or that the member has closed.
    pub(crate) fn reap(&mut self) {
        let now = Instant::now();
        self.by_address.retain(|_, idle| {
            idle.retain_mut(|idle| {
                now.duration_since(idle.since) < KEEP && is_silent(&mut idle.stream)
            });
            !idle.is_empty()
        });
        self.total = self.by_address.values().map(Vec::len).sum();
    }

    pub(crate) fn clear(&mut self) {
        self.by_address.clear();
        self.total = 0;
    }
}

/// Neither ended nor with bytes nobody asked for. Costs no system call unless something arrived.
fn is_silent(stream: &mut TcpStream) -> bool {
    let mut byte = [0];
    let mut cx = Context::from_waker(Waker::noop());
    matches!(
        Pin::new(stream).poll_read(&mut cx, &mut ReadBuf::new(&mut byte)),
        Poll::Pending
    )
}
