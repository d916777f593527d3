//! HTTP/1.1 listeners: one task a client connection, which serves its requests in order.
//!
//! Sending a request twice. A request is sent on a connection that has served before only if
//! losing it there does no harm: it is idempotent and wholly in our buffer, so that it can be sent
//! again when the member closes the connection without a byte of answer; or the client's own
//! connection has served before, so that the client itself must reckon with such an end (what
//! HAProxy calls "safe" reuse). Only the first kind is sent again, once, on a new connection.

pub(crate) mod answer;
pub(crate) mod body;
pub(crate) mod exchange;
pub(crate) mod head;
pub(crate) mod request;
pub(crate) mod response;

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, timeout};

use crate::buffer::{Buffer, LARGE, SMALL};
use crate::dial::{DialError, Dialed, dial};
use crate::http::answer::{Answer, ConnectionField};
use crate::http::body::{Framing, is_token};
use crate::http::exchange::{Cause, Exchange, Failure, Timeouts};
use crate::http::head::{Scan, scan_head};
use crate::http::request::{Origin, Request};
use crate::pump::{Pump, poll_fill};
use crate::router::Route;
use crate::stats::{Shard, add};
use crate::timer::Timer;
use crate::transport::{Counted, Peer, Stream};
use crate::tunnel;
use crate::worker::Worker;

/// Empty lines tolerated in front of a request (RFC 9112 section 2.2).
const MAX_EMPTY_LINES: u8 = 4;
/// How long, and for how many bytes, a client that is still sending is listened to after an answer
/// that ends its connection: closing at once would reset the connection and lose the answer.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES: usize = 1 << 20;

/// Serves a connection to its end.
pub(crate) async fn serve<S: Stream>(
    worker: &Worker,
    stream: S,
    peer: SocketAddr,
    local: SocketAddr,
    route: Route,
) {
    let counters = Arc::clone(&route.listener.counters);
    let mut connection = Connection {
        worker,
        client: Counted::new(stream, Peer::Client, counters, worker.index),
        peer,
        local,
        route,
        buffer: Buffer::default(),
        timer: Timer::default(),
        served: false,
    };
    while let Next::Request = connection.serve_one().await {}
}

/// What becomes of the connection after a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Request,
    Close,
}

struct Connection<'a, S> {
    worker: &'a Worker,
    client: Counted<S>,
    peer: SocketAddr,
    local: SocketAddr,
    route: Route,
    /// Bytes from the client that belong to no request yet.
    buffer: Buffer,
    timer: Timer,
    /// A request was answered on this connection.
    served: bool,
}

enum HeadEvent {
    Complete(usize),
    /// The client ended, or stayed silent, between requests.
    Idle,
    /// It ended within a head.
    Broken,
    Refused(Answer),
}

impl<S: Stream> Connection<'_, S> {
    async fn serve_one(&mut self) -> Next {
        self.route.refresh(&self.worker.shared);
        let len = match self.read_head().await {
            HeadEvent::Complete(len) => len,
            HeadEvent::Idle => return Next::Close,
            HeadEvent::Broken => {
                self.count(|shard| add(&shard.request_errors, 1));
                return Next::Close;
            }
            HeadEvent::Refused(answer) => return self.refuse(answer).await,
        };
        self.route.refresh(&self.worker.shared);
        let mut up = Pump::new(Framing::NONE);
        let origin = Origin {
            client: self.peer.ip().to_canonical(),
            port: self.local.port(),
            scheme: "http",
            insert: self.route.listener.config.insert_headers,
        };
        let head = self.buffer.filled().get(..len).unwrap_or_default();
        let request = match request::rewrite(head, &origin, &mut up.head) {
            Ok(request) => request,
            Err(answer) => return self.refuse(answer).await,
        };
        self.buffer.consume(len);
        up.buffer = std::mem::take(&mut self.buffer);
        up.framing = request.framing.clone();
        if up.join_head_and_body().is_err() {
            return self.refuse(Answer::BadRequest).await;
        }
        self.count(|shard| add(&shard.requests, 1));
        // On the heap, so that a connection waiting for its next request is small.
        let next = Box::pin(self.exchange(&request, &mut up)).await;
        self.buffer = std::mem::take(&mut up.buffer);
        self.served = true;
        next
    }

    /// Waits for a whole request head. While nothing has come it holds no buffer.
    async fn read_head(&mut self) -> HeadEvent {
        let limit = self.route.listener.config.timeout_client_data;
        let (mut scanned, mut empty_lines) = (0, 0);
        let mut since: Option<Instant> = None;
        std::future::poll_fn(|cx| {
            loop {
                while self.buffer.filled().starts_with(b"\r\n") && scanned == 0 {
                    self.buffer.consume(2);
                    empty_lines += 1;
                    if empty_lines > MAX_EMPTY_LINES {
                        return Poll::Ready(HeadEvent::Refused(Answer::BadRequest));
                    }
                }
                let bytes = self.buffer.filled();
                match bytes {
                    [] | [b'\r'] => {}
                    [first, ..] if !is_token(*first) => {
                        return Poll::Ready(HeadEvent::Refused(Answer::BadRequest));
                    }
                    _ => match scan_head(bytes, &mut scanned) {
                        Scan::Complete(len) if len <= LARGE => {
                            return Poll::Ready(HeadEvent::Complete(len));
                        }
                        Scan::BareLf => {
                            return Poll::Ready(HeadEvent::Refused(Answer::BadRequest));
                        }
                        Scan::Partial if bytes.len() < LARGE => {}
                        Scan::Partial | Scan::Complete(_) => {
                            let line_is_all = !bytes.contains(&b'\n');
                            return Poll::Ready(HeadEvent::Refused(if line_is_all {
                                Answer::UriTooLong
                            } else {
                                Answer::HeadTooLarge
                            }));
                        }
                    },
                }
                let size = if self.buffer.len() < SMALL {
                    SMALL
                } else {
                    LARGE
                };
                match poll_fill(cx, &mut self.client, &mut self.buffer, size) {
                    Poll::Ready(Ok(n)) if n > 0 => {
                        // The clock of the head starts with its first byte.
                        if self.buffer.len() == n {
                            since = None;
                        }
                    }
                    Poll::Ready(_) if self.buffer.is_empty() => {
                        return Poll::Ready(HeadEvent::Idle);
                    }
                    Poll::Ready(_) => return Poll::Ready(HeadEvent::Broken),
                    Poll::Pending => {
                        let since = *since.get_or_insert_with(Instant::now);
                        if self.timer.poll_deadline(cx, since + limit).is_pending() {
                            return Poll::Pending;
                        }
                        return Poll::Ready(if self.buffer.is_empty() {
                            HeadEvent::Idle
                        } else {
                            HeadEvent::Refused(Answer::RequestTimeout)
                        });
                    }
                }
            }
        })
        .await
    }

    /// Sends the request to a member and the response to the client.
    async fn exchange(&mut self, request: &Request, up: &mut Pump) -> Next {
        let repeatable = request.is_idempotent && up.is_all_in_head();
        up.keep_head = repeatable;
        let mut reuse = repeatable || self.served;
        let mut prefer = None;
        loop {
            let client = self.peer.ip();
            let mut dialed = match dial(self.worker, &mut self.route, client, reuse, prefer).await {
                Ok(dialed) => dialed,
                Err(error) => {
                    let answer = match error {
                        DialError::NoMember => Answer::NoMember,
                        DialError::ConnectFailed => Answer::ConnectFailed,
                    };
                    return self.answer(answer, request, up).await;
                }
            };
            let member = Arc::clone(dialed.in_flight.counters());
            let shard = member.shard(self.worker.index);
            add(&shard.requests, 1);
            let mut down = Pump::new(Framing::NONE);
            let config = &self.route.listener.config;
            let timeouts = Timeouts {
                client: config.timeout_client_data,
                member: config.timeout_member_data,
            };
            let outcome = {
                let mut exchange = Exchange::new(request, up, &mut down, timeouts);
                let (route, shared) = (&mut self.route, &self.worker.shared);
                let mut may_keep = || route.may_keep(shared);
                std::future::poll_fn(|cx: &mut Context<'_>| {
                    exchange.poll(
                        cx,
                        &mut self.client,
                        &mut dialed.stream,
                        &mut self.timer,
                        &mut may_keep,
                    )
                })
                .await
            };
            match outcome {
                Ok(finished) if finished.switched => {
                    self.tunnel(dialed, up, down, timeouts).await;
                    return Next::Close;
                }
                Ok(finished) => {
                    if finished.member_reusable {
                        let stream = dialed.stream.into_inner();
                        self.worker.idle.borrow_mut().put(dialed.address, stream);
                    }
                    if finished.client_reusable {
                        return Next::Request;
                    }
                    // A client that did not ask for the end may have sent more already.
                    if request.keep_alive || !up.is_source_read() {
                        drop(dialed.in_flight);
                        self.linger().await;
                    }
                    return Next::Close;
                }
                Err(failure) => {
                    let lost_on_reuse = failure.cause == Cause::MemberGone
                        && !failure.member_spoke
                        && dialed.reused;
                    if lost_on_reuse && repeatable {
                        up.send_head_again();
                        reuse = false;
                        prefer = Some(dialed.member);
                        continue;
                    }
                    drop(dialed);
                    return self.fail(failure, shard, request, up).await;
                }
            }
        }
    }

    async fn tunnel(&mut self, mut dialed: Dialed, up: &mut Pump, down: Pump, limits: Timeouts) {
        let mut rest = Pump::new(Framing::NONE);
        rest.buffer = std::mem::take(&mut up.buffer);
        tunnel::join(
            &mut self.client,
            &mut dialed.stream,
            rest,
            down,
            limits.client.min(limits.member),
            &mut self.timer,
        )
        .await;
    }

    /// After an exchange that did not work.
    async fn fail(
        &mut self,
        failure: Failure,
        member: &Shard,
        request: &Request,
        up: &mut Pump,
    ) -> Next {
        let answer = match failure.cause {
            Cause::ClientGone => {
                self.count(|shard| add(&shard.request_errors, 1));
                return Next::Close;
            }
            Cause::ClientMalformed => Answer::BadRequest,
            Cause::ClientTimeout => Answer::RequestTimeout,
            Cause::MemberGone | Cause::MemberMalformed => Answer::BadGateway,
            Cause::MemberTimeout => Answer::GatewayTimeout,
        };
        match failure.cause {
            Cause::ClientGone | Cause::ClientMalformed | Cause::ClientTimeout => {
                self.count(|shard| add(&shard.request_errors, 1));
            }
            Cause::MemberGone | Cause::MemberMalformed | Cause::MemberTimeout => {
                add(&member.request_errors, 1);
            }
        }
        if failure.response_begun {
            // Nothing but an early end can tell the client now.
            self.worker.shared.refusals.count(answer.refusal());
            return Next::Close;
        }
        self.answer(answer, request, up).await
    }

    /// Answers a request whose head could not be used, and ends the connection.
    async fn refuse(&mut self, answer: Answer) -> Next {
        self.count(|shard| add(&shard.request_errors, 1));
        self.worker.shared.refusals.count(answer.refusal());
        self.send_answer(answer, false, ConnectionField::Close)
            .await;
        self.linger().await;
        Next::Close
    }

    /// Answers a request in place of a member. The connection goes on when the whole request has
    /// been read.
    async fn answer(&mut self, answer: Answer, request: &Request, up: &Pump) -> Next {
        self.worker.shared.refusals.count(answer.refusal());
        let whole = up.is_source_read();
        let keep = whole && request.keep_alive && self.route.may_keep(&self.worker.shared);
        let connection = match (keep, request.is_http_11) {
            (true, true) => ConnectionField::Nothing,
            (true, false) => ConnectionField::KeepAlive,
            (false, _) => ConnectionField::Close,
        };
        if !self.send_answer(answer, request.is_head, connection).await {
            return Next::Close;
        }
        if keep {
            return Next::Request;
        }
        if request.keep_alive || !whole {
            self.linger().await;
        }
        Next::Close
    }

    async fn send_answer(
        &mut self,
        answer: Answer,
        is_head: bool,
        connection: ConnectionField,
    ) -> bool {
        let mut out = Buffer::default();
        answer.write(&mut out, is_head, connection);
        let limit = self.route.listener.config.timeout_client_data;
        matches!(
            timeout(limit, self.client.write_all(out.filled())).await,
            Ok(Ok(()))
        )
    }

    /// Says that no more will come, and reads on for a while so that the client gets to read it.
    async fn linger(&mut self) {
        let mut sink = Buffer::default();
        let read_to_end = async {
            if self.client.shutdown().await.is_err() {
                return;
            }
            let mut read = 0;
            while read < LINGER_BYTES {
                sink.clear();
                let n =
                    std::future::poll_fn(|cx| poll_fill(cx, &mut self.client, &mut sink, SMALL))
                        .await;
                match n {
                    Ok(n) if n > 0 => read += n,
                    _ => return,
                }
            }
        };
        let _ = timeout(LINGER, pin!(read_to_end)).await;
    }

    fn count(&self, add_to: impl FnOnce(&Shard)) {
        add_to(self.route.listener.counters.shard(self.worker.index));
    }
}
