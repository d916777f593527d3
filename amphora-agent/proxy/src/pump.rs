//! One direction of a connection: bytes from a source to a sink, as far as a framing says.
//!
//! Holds at most one buffer of bytes: a slow sink stops the reading of the source. Without bytes it
//! holds no memory.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::ReadBuf;

use crate::buffer::{Buffer, HUGE, LARGE};
use crate::http::body::{Framing, Malformed};
use crate::transport::Stream;

#[derive(Debug)]
pub(crate) enum PumpError {
    /// The source broke.
    Source,
    /// The source ended before its framing was complete.
    SourceEnded,
    /// The source's framing is not valid.
    Malformed,
    /// The sink broke.
    Sink,
}

impl From<Malformed> for PumpError {
    fn from(Malformed: Malformed) -> Self {
        PumpError::Malformed
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiting {
    Source,
    Sink,
}

pub(crate) struct Pump {
    /// Sent first: a message head, with as much of its body as was at hand.
    pub(crate) head: Buffer,
    head_sent: usize,
    /// Bytes from the source. The first `ready` of them are framed and may be sent.
    pub(crate) buffer: Buffer,
    ready: usize,
    pub(crate) framing: Framing,
    /// Keep `head` after it was sent, to send it again elsewhere.
    pub(crate) keep_head: bool,
    /// The sink is shut down or closed right after the last byte.
    pub(crate) closes: bool,
    /// What the last pending poll waited for.
    pub(crate) waiting: Waiting,
    /// Set when bytes moved; the owner resets them.
    pub(crate) source_moved: bool,
    pub(crate) sink_moved: bool,
    unflushed: bool,
    read_size: usize,
    /// The source gave less than there was room for, so what it gave may be its last.
    ran_dry: bool,
    /// The source broke; what it gave before is still sent.
    broken: bool,
}

impl Pump {
    pub(crate) fn new(framing: Framing) -> Self {
        Pump {
            head: Buffer::default(),
            head_sent: 0,
            buffer: Buffer::default(),
            ready: 0,
            framing,
            keep_head: false,
            closes: false,
            waiting: Waiting::Source,
            source_moved: false,
            sink_moved: false,
            unflushed: false,
            read_size: LARGE,
            ran_dry: false,
            broken: false,
        }
    }

    /// Moves body bytes that are already buffered behind the head, so that both leave in one write.
    pub(crate) fn join_head_and_body(&mut self) -> Result<(), Malformed> {
        if !self.buffer.is_empty() && !self.framing.is_done() {
            self.ready += self.framing.advance(&mut self.buffer)?;
            if self.ready > 0 && self.head.len() + self.ready <= 2 * LARGE {
                self.head.extend(&self.buffer.filled()[..self.ready]);
                self.buffer.consume(self.ready);
                self.ready = 0;
            }
        }
        Ok(())
    }

    /// Whether everything there is to send is in `head`.
    pub(crate) fn is_all_in_head(&self) -> bool {
        self.framing.is_done() && self.ready == 0
    }

    pub(crate) fn send_head_again(&mut self) {
        self.head_sent = 0;
    }

    /// Whether the source has been read to the end of its message.
    pub(crate) fn is_source_read(&self) -> bool {
        self.framing.is_done()
    }

    /// Ready when everything framed was sent.
    pub(crate) fn poll<S: Stream, D: Stream>(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut S,
        sink: &mut D,
    ) -> Poll<Result<(), PumpError>> {
        loop {
            let in_head = self.head_sent < self.head.len();
            if in_head || self.ready > 0 {
                if !in_head && self.closes && self.ran_dry {
                    self.look_for_end(cx, source);
                }
                let bytes = if in_head {
                    &self.head.filled()[self.head_sent..]
                } else {
                    &self.buffer.filled()[..self.ready]
                };
                let is_last =
                    self.closes && self.framing.is_done() && (!in_head || self.ready == 0);
                let written = if is_last {
                    sink.poll_write_last(cx, bytes)
                } else {
                    Pin::new(&mut *sink).poll_write(cx, bytes)
                };
                match written {
                    Poll::Ready(Ok(0)) => {
                        return Poll::Ready(Err(PumpError::Sink));
                    }
                    Poll::Ready(Ok(n)) if in_head => self.head_sent += n,
                    Poll::Ready(Ok(n)) => {
                        self.buffer.consume(n);
                        self.ready -= n;
                    }
                    Poll::Ready(Err(_)) => return Poll::Ready(Err(PumpError::Sink)),
                    Poll::Pending => {
                        self.waiting = Waiting::Sink;
                        return Poll::Pending;
                    }
                }
                self.sink_moved = true;
                self.unflushed = true;
                continue;
            }
            if !self.keep_head && self.head.capacity() > 0 {
                self.head = Buffer::default();
                self.head_sent = 0;
            }
            if !self.framing.is_done() && !self.buffer.is_empty() {
                self.ready = self.framing.advance(&mut self.buffer)?;
                continue;
            }
            if self.unflushed {
                self.waiting = Waiting::Sink;
                match Pin::new(&mut *sink).poll_flush(cx) {
                    Poll::Ready(Ok(())) => self.unflushed = false,
                    Poll::Ready(Err(_)) => return Poll::Ready(Err(PumpError::Sink)),
                    Poll::Pending => return Poll::Pending,
                }
            }
            if self.broken {
                return Poll::Ready(Err(PumpError::Source));
            }
            if self.framing.is_done() {
                return Poll::Ready(Ok(()));
            }
            match self.poll_fill(cx, source) {
                Poll::Ready(Ok(0)) => {
                    if !self.framing.end() {
                        return Poll::Ready(Err(PumpError::SourceEnded));
                    }
                }
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(_)) => return Poll::Ready(Err(PumpError::Source)),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Reads once more before what was read is sent, for the end may be there already. Costs no system call when
    /// nothing is.
    fn look_for_end<S: Stream>(&mut self, cx: &mut Context<'_>, source: &mut S) {
        self.ran_dry = false;
        if !matches!(self.framing, Framing::UntilClose { ended: false }) {
            return;
        }
        match self.poll_fill(cx, source) {
            Poll::Ready(Ok(0)) => {
                self.framing.end();
            }
            Poll::Ready(Ok(_)) => self.ready = self.buffer.len(),
            Poll::Ready(Err(_)) => self.broken = true,
            Poll::Pending => {}
        }
    }

    /// Reads once. Takes memory only when there is something to read, and more of it when the
    /// last read filled all there was.
    pub(crate) fn poll_fill<S: Stream>(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut S,
    ) -> Poll<io::Result<usize>> {
        let result = poll_fill(cx, source, &mut self.buffer, self.read_size);
        match result {
            Poll::Ready(Ok(n)) => {
                self.source_moved |= n > 0;
                self.ran_dry = n > 0 && !self.buffer.is_full();
                if n >= self.read_size && self.read_size < HUGE {
                    self.read_size = HUGE;
                }
            }
            Poll::Ready(Err(_)) => {}
            Poll::Pending => self.waiting = Waiting::Source,
        }
        result
    }
}

/// Reads once from `source` behind what is in `buffer`, which gets a capacity of at least `size`
/// when there is something to read, and gives its memory back when there is not.
pub(crate) fn poll_fill<S: Stream>(
    cx: &mut Context<'_>,
    source: &mut S,
    buffer: &mut Buffer,
    size: usize,
) -> Poll<io::Result<usize>> {
    match source.poll_readable(cx) {
        Poll::Ready(Ok(())) => {}
        Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
        Poll::Pending => {
            buffer.release();
            return Poll::Pending;
        }
    }
    buffer.reserve_total(size);
    let mut space = ReadBuf::new(buffer.space());
    match Pin::new(source).poll_read(cx, &mut space) {
        Poll::Ready(Ok(())) => {
            let n = space.filled().len();
            buffer.filled_by(n);
            Poll::Ready(Ok(n))
        }
        Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
        Poll::Pending => {
            buffer.release();
            Poll::Pending
        }
    }
}
