//! Listening sockets, the accept loop, and the connection limit.
//!
//! Each thread has a socket of its own on every address (`SO_REUSEPORT`). At the connection limit
//! no thread accepts: clients wait in the kernel's queue and are not refused. A socket that is no
//! longer wanted takes in what has already queued before it closes.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use tokio::net::{TcpListener, TcpStream};

use crate::router::Listener;
use crate::stats::Refusal;
use crate::worker::Worker;

const BACKLOG: i32 = 4096;
/// After an accept that failed for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Must be called on a runtime. The address need not be on an interface.
pub(crate) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let kind = Type::STREAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address(address), kind, None)?;
    match address {
        SocketAddr::V4(_) => socket.set_freebind_v4(true)?,
        SocketAddr::V6(_) => {
            socket.set_only_v6(true)?;
            socket.set_freebind_v6(true)?;
        }
    }
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    // Accepted sockets inherit it.
    socket.set_tcp_nodelay(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// The connections a listener has and may have, over all threads.
#[derive(Debug)]
pub(crate) struct Slots {
    limit: AtomicU64,
    open: AtomicU64,
    /// Accept loops that found no slot.
    waiting: Mutex<Vec<Waker>>,
}

impl Default for Slots {
    fn default() -> Self {
        Slots {
            limit: AtomicU64::new(u64::MAX),
            open: AtomicU64::new(0),
            waiting: Mutex::new(Vec::new()),
        }
    }
}

impl Slots {
    pub(crate) fn set_limit(&self, limit: Option<u32>) {
        let limit = limit.map_or(u64::MAX, u64::from);
        if self.limit.swap(limit, Ordering::SeqCst) != limit {
            self.wake_all();
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.open.load(Ordering::SeqCst) >= self.limit.load(Ordering::SeqCst)
    }

    fn try_take(self: &Arc<Self>) -> Option<Slot> {
        let mut open = self.open.load(Ordering::SeqCst);
        loop {
            if open >= self.limit.load(Ordering::SeqCst) {
                return None;
            }
            match self.open.compare_exchange_weak(
                open,
                open + 1,
                Ordering::SeqCst,
                Ordering::SeqCst,
            ) {
                Ok(_) => return Some(Slot(Arc::clone(self))),
                Err(now) => open = now,
            }
        }
    }

    fn poll_take(self: &Arc<Self>, cx: &Context<'_>) -> Poll<Slot> {
        if let Some(slot) = self.try_take() {
            return Poll::Ready(slot);
        }
        self.lock_waiting().push(cx.waker().clone());
        // A slot given back between the look and the entry in the list woke nobody.
        match self.try_take() {
            Some(slot) => Poll::Ready(slot),
            None => Poll::Pending,
        }
    }

    pub(crate) fn wake_all(&self) {
        let waiting = std::mem::take(&mut *self.lock_waiting());
        for waker in waiting {
            waker.wake();
        }
    }

    fn lock_waiting(&self) -> std::sync::MutexGuard<'_, Vec<Waker>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One connection's place under the limit.
pub(crate) struct Slot(Arc<Slots>);

impl Drop for Slot {
    fn drop(&mut self) {
        let open = self.0.open.fetch_sub(1, Ordering::SeqCst);
        if self.0.limit.load(Ordering::SeqCst) != u64::MAX
            && open <= self.0.limit.load(Ordering::SeqCst)
        {
            self.0.wake_all();
        }
    }
}

/// One listening socket of one thread.
pub(crate) struct Binding {
    closing: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Binding {
    /// Starts the accept loop on the current thread.
    pub(crate) fn start(worker: &Rc<Worker>, address: SocketAddr) -> io::Result<Rc<Binding>> {
        let socket = bind(address)?;
        let binding = Rc::new(Binding {
            closing: Cell::new(false),
            waker: RefCell::new(None),
        });
        tokio::task::spawn_local(accept_loop(
            Rc::clone(worker),
            Rc::clone(&binding),
            socket,
            address,
        ));
        Ok(binding)
    }

    /// Closes the socket after the connections that have queued are taken in.
    pub(crate) fn close(&self) {
        self.closing.set(true);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

enum Accepted {
    Connection(TcpStream, SocketAddr, Arc<Listener>, Slot),
    Failed(io::Error),
    /// Closing, and the queue is empty.
    Closed,
}

async fn accept_loop(
    worker: Rc<Worker>,
    binding: Rc<Binding>,
    socket: TcpListener,
    address: SocketAddr,
) {
    // The last listener of this address: what queued before it was removed is still its.
    let mut last: Option<Arc<Listener>> = None;
    loop {
        let accepted = std::future::poll_fn(|cx| {
            if let Some(listener) = worker.shared.current().by_bind.get(&address) {
                last = Some(Arc::clone(listener));
            }
            poll_accept(cx, &binding, &socket, last.as_ref())
        })
        .await;
        match accepted {
            Accepted::Connection(stream, peer, listener, slot) => {
                if !worker.shared.admission.allows(address, peer.ip()) {
                    worker.shared.refusals.count(Refusal::NotAllowed);
                    // A reset rather than an orderly end: nobody served here.
                    let _ = socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
                    continue;
                }
                worker.serve(stream, peer, address, listener, slot);
            }
            Accepted::Closed => return,
            Accepted::Failed(error) => {
                if is_of_one_connection(&error) {
                    continue;
                }
                worker.shared.refusals.count(Refusal::AcceptFailed);
                tracing::warn!(%address, %error, "accept connection");
                worker.idle.borrow_mut().clear();
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn poll_accept(
    cx: &mut Context<'_>,
    binding: &Binding,
    socket: &TcpListener,
    listener: Option<&Arc<Listener>>,
) -> Poll<Accepted> {
    let closing = binding.closing.get();
    if !closing {
        *binding.waker.borrow_mut() = Some(cx.waker().clone());
    }
    let Some(listener) = listener else {
        // Never configured: nothing to serve.
        return if closing {
            Poll::Ready(Accepted::Closed)
        } else {
            Poll::Pending
        };
    };
    let slot = match listener.slots.poll_take(cx) {
        Poll::Ready(slot) => slot,
        // Closing does not wait for slots: what is in the queue is reset with the socket.
        Poll::Pending if closing => return Poll::Ready(Accepted::Closed),
        Poll::Pending => return Poll::Pending,
    };
    match socket.poll_accept(cx) {
        Poll::Ready(Ok((stream, peer))) => Poll::Ready(Accepted::Connection(
            stream,
            peer,
            Arc::clone(listener),
            slot,
        )),
        Poll::Ready(Err(error)) => Poll::Ready(Accepted::Failed(error)),
        Poll::Pending if closing => Poll::Ready(Accepted::Closed),
        Poll::Pending => Poll::Pending,
    }
}

/// The client was gone before it was accepted, or its network failed (accept(2), "Error handling").
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::NetworkDown
            | io::ErrorKind::TimedOut
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_slots_than_the_limit_and_a_raised_limit_gives_more() {
        let slots: Arc<Slots> = Arc::default();
        slots.set_limit(Some(2));
        let first = slots.try_take().unwrap();
        let _second = slots.try_take().unwrap();
        assert!(slots.is_full());
        assert!(slots.try_take().is_none());
        slots.set_limit(Some(3));
        let _third = slots.try_take().unwrap();
        assert!(slots.try_take().is_none());
        slots.set_limit(Some(1));
        drop(first);
        assert!(slots.try_take().is_none(), "still two where one may be");
        slots.set_limit(None);
        assert!(slots.try_take().is_some());
    }
}
