//! A byte stream to a client or a member, and the counting of what goes through it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

use crate::stats::{Counters, add};

/// What the proxy needs of a connection: TCP now, TLS the same way.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin {
    /// Whether closing tells the peer all that a shutdown would.
    const CLOSE_IS_END: bool;

    /// Ready when a read would (probably) not wait. Needs no buffer, so an idle connection has none.
    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Writes the last bytes before a shutdown or close that follows at once: they may leave with it.
    fn poll_write_last(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;
}

impl Stream for TcpStream {
    const CLOSE_IS_END: bool = true;

    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        TcpStream::poll_read_ready(self, cx)
    }

    /// One packet with the last data and the FIN, and one acknowledgement, where there would be two of each.
    fn poll_write_last(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        const FLAGS: libc::c_int = libc::MSG_MORE | libc::MSG_NOSIGNAL;
        loop {
            ready!(self.poll_write_ready(cx))?;
            let socket = SockRef::from(&*self);
            let sent = self.try_io(Interest::WRITABLE, || socket.send_with_flags(bytes, FLAGS));
            match sent {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                sent => return Poll::Ready(sent),
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    Client,
    Member,
}

/// A stream whose bytes are counted for a listener or a member.
pub(crate) struct Counted<S> {
    stream: S,
    peer: Peer,
    counters: Arc<Counters>,
    thread: usize,
}

impl<S> Counted<S> {
    pub(crate) fn new(stream: S, peer: Peer, counters: Arc<Counters>, thread: usize) -> Self {
        Counted {
            stream,
            peer,
            counters,
            thread,
        }
    }

    pub(crate) fn into_inner(self) -> S {
        self.stream
    }

    fn count_received(&self, n: usize) {
        let shard = self.counters.shard(self.thread);
        match self.peer {
            Peer::Client => add(&shard.bytes_in, n as u64),
            Peer::Member => add(&shard.bytes_out, n as u64),
        }
    }

    fn count_sent(&self, n: usize) {
        let shard = self.counters.shard(self.thread);
        match self.peer {
            Peer::Client => add(&shard.bytes_out, n as u64),
            Peer::Member => add(&shard.bytes_in, n as u64),
        }
    }
}

impl<S: Stream> Stream for Counted<S> {
    const CLOSE_IS_END: bool = S::CLOSE_IS_END;

    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_readable(cx)
    }

    fn poll_write_last(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let result = self.stream.poll_write_last(cx, bytes);
        if let Poll::Ready(Ok(n)) = result {
            self.count_sent(n);
        }
        result
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let result = Pin::new(&mut self.stream).poll_read(cx, buf);
        if let Poll::Ready(Ok(())) = result {
            self.count_received(buf.filled().len() - before);
        }
        result
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if let Poll::Ready(Ok(n)) = result {
            self.count_sent(n);
        }
        result
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Counts something as in flight until it is dropped.
pub(crate) struct InFlight {
    counters: Arc<Counters>,
    thread: usize,
}

impl InFlight {
    pub(crate) fn new(counters: Arc<Counters>, thread: usize) -> Self {
        add(&counters.shard(thread).opened, 1);
        InFlight { counters, thread }
    }

    pub(crate) fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        add(&self.counters.shard(self.thread).closed, 1);
    }
}
