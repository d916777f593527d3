//! One request to one member and its response: both directions at once, in one task.
//!
//! The upload goes on while the response comes in (early answers, `100 Continue`, streaming both
//! ways). Each side has a clock that only runs while the exchange waits for that side.

use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;

use crate::buffer::{HUGE, LARGE};
use crate::http::body::Framing;
use crate::http::head::{Scan, scan_head};
use crate::http::request::Request;
use crate::http::response::{self, Response};
use crate::pump::{Pump, PumpError, Waiting, poll_fill};
use crate::timer::Timer;
use crate::transport::Stream;

/// How an exchange that worked leaves its connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Finished {
    /// The member's connection can take another request.
    pub(crate) member_reusable: bool,
    /// The client's connection can take another request.
    pub(crate) client_reusable: bool,
    /// Both sides speak another protocol now; the pumps hold what came with the switch.
    pub(crate) switched: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    ClientMalformed,
    ClientGone,
    ClientTimeout,
    /// Ended or broke.
    MemberGone,
    MemberMalformed,
    MemberTimeout,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) cause: Cause,
    /// The member sent something.
    pub(crate) member_spoke: bool,
    /// The client may have seen a part of the final response: no other answer is possible.
    pub(crate) response_begun: bool,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Timeouts {
    pub(crate) client: Duration,
    pub(crate) member: Duration,
}

enum Phase {
    /// Waiting for a head; so much of it has been looked at.
    Head {
        scanned: usize,
    },
    /// Sending an interim response on.
    Interim,
    Body,
}

pub(crate) struct Exchange<'a> {
    request: &'a Request,
    /// Client to member.
    up: &'a mut Pump,
    /// Member to client.
    down: &'a mut Pump,
    timeouts: Timeouts,
    phase: Phase,
    up_done: bool,
    /// The member takes no more of the request. It may still answer.
    up_broken: bool,
    member_spoke: bool,
    response_begun: bool,
    member_keeps: bool,
    client_keeps: bool,
    switched: bool,
    client_since: Option<Instant>,
    member_since: Option<Instant>,
}

impl<'a> Exchange<'a> {
    pub(crate) fn new(
        request: &'a Request,
        up: &'a mut Pump,
        down: &'a mut Pump,
        timeouts: Timeouts,
    ) -> Self {
        Exchange {
            request,
            up,
            down,
            timeouts,
            phase: Phase::Head { scanned: 0 },
            up_done: false,
            up_broken: false,
            member_spoke: false,
            response_begun: false,
            member_keeps: false,
            client_keeps: false,
            switched: false,
            client_since: None,
            member_since: None,
        }
    }

    /// `may_keep` is asked when the response head is there: whether the client's connection is to
    /// be kept, as far as the configuration is concerned.
    pub(crate) fn poll<C: Stream, M: Stream>(
        &mut self,
        cx: &mut Context<'_>,
        client: &mut C,
        member: &mut M,
        timer: &mut Timer,
        may_keep: &mut impl FnMut() -> bool,
    ) -> Poll<Result<Finished, Failure>> {
        if !self.up_done && !self.up_broken {
            match self.up.poll(cx, client, member) {
                Poll::Ready(Ok(())) => self.up_done = true,
                Poll::Ready(Err(PumpError::Sink)) => self.up_broken = true,
                Poll::Ready(Err(PumpError::Malformed)) => {
                    return self.fail(Cause::ClientMalformed);
                }
                Poll::Ready(Err(PumpError::Source | PumpError::SourceEnded)) => {
                    return self.fail(Cause::ClientGone);
                }
                Poll::Pending => {}
            }
        }
        match self.poll_response(cx, client, member, may_keep) {
            Poll::Ready(Ok(())) => {
                return Poll::Ready(Ok(Finished {
                    member_reusable: self.up_done
                        && self.member_keeps
                        && self.down.buffer.is_empty(),
                    client_reusable: self.up_done && self.client_keeps,
                    switched: self.switched,
                }));
            }
            Poll::Ready(Err(cause)) => return self.fail(cause),
            Poll::Pending => {}
        }
        self.poll_clocks(cx, timer)
    }

    fn fail(&self, cause: Cause) -> Poll<Result<Finished, Failure>> {
        Poll::Ready(Err(Failure {
            cause,
            member_spoke: self.member_spoke,
            response_begun: self.response_begun,
        }))
    }

    fn poll_response<C: Stream, M: Stream>(
        &mut self,
        cx: &mut Context<'_>,
        client: &mut C,
        member: &mut M,
        may_keep: &mut impl FnMut() -> bool,
    ) -> Poll<Result<(), Cause>> {
        loop {
            match &mut self.phase {
                Phase::Head { scanned } => {
                    match scan_head(self.down.buffer.filled(), scanned) {
                        Scan::Complete(len) => {
                            self.phase = self.read_head(len, may_keep)?;
                            continue;
                        }
                        Scan::BareLf => return Poll::Ready(Err(Cause::MemberMalformed)),
                        Scan::Partial => {}
                    }
                    let size = match self.down.buffer.len() {
                        len if len < LARGE => LARGE,
                        len if len < HUGE => HUGE,
                        _ => return Poll::Ready(Err(Cause::MemberMalformed)),
                    };
                    match poll_fill(cx, member, &mut self.down.buffer, size) {
                        Poll::Ready(Ok(0)) | Poll::Ready(Err(_)) => {
                            return Poll::Ready(Err(Cause::MemberGone));
                        }
                        Poll::Ready(Ok(_)) => {
                            self.member_spoke = true;
                            self.down.source_moved = true;
                        }
                        Poll::Pending => {
                            self.down.waiting = Waiting::Source;
                            return Poll::Pending;
                        }
                    }
                }
                Phase::Interim | Phase::Body => match self.down.poll(cx, member, client) {
                    Poll::Ready(Ok(())) => {
                        if matches!(self.phase, Phase::Interim) {
                            self.phase = Phase::Head { scanned: 0 };
                        } else {
                            return Poll::Ready(Ok(()));
                        }
                    }
                    Poll::Ready(Err(PumpError::Sink)) => {
                        return Poll::Ready(Err(Cause::ClientGone));
                    }
                    Poll::Ready(Err(PumpError::Malformed)) => {
                        return Poll::Ready(Err(Cause::MemberMalformed));
                    }
                    Poll::Ready(Err(PumpError::Source | PumpError::SourceEnded)) => {
                        return Poll::Ready(Err(Cause::MemberGone));
                    }
                    Poll::Pending => return Poll::Pending,
                },
            }
        }
    }

    fn read_head(
        &mut self,
        len: usize,
        may_keep: &mut impl FnMut() -> bool,
    ) -> Result<Phase, Cause> {
        let head = &self.down.buffer.filled()[..len];
        let response = response::rewrite(head, self.request, may_keep(), &mut self.down.head)
            .map_err(|_| Cause::MemberMalformed)?;
        self.down.buffer.consume(len);
        match response {
            Response::Interim => Ok(Phase::Interim),
            Response::Switching => {
                self.response_begun = true;
                self.switched = true;
                self.down.framing = Framing::NONE;
                Ok(Phase::Body)
            }
            Response::Final {
                framing,
                member_keeps,
                client_keeps,
            } => {
                self.down.framing = framing;
                self.down.closes = !client_keeps;
                self.down
                    .join_head_and_body()
                    .map_err(|_| Cause::MemberMalformed)?;
                self.response_begun = true;
                self.member_keeps = member_keeps;
                self.client_keeps = client_keeps;
                Ok(Phase::Body)
            }
        }
    }

    /// Restarts the clock of a side that moved, and ends the exchange when the side it waits for
    /// has stood still for too long.
    fn poll_clocks(
        &mut self,
        cx: &mut Context<'_>,
        timer: &mut Timer,
    ) -> Poll<Result<Finished, Failure>> {
        let client_moved =
            std::mem::take(&mut self.up.source_moved) | std::mem::take(&mut self.down.sink_moved);
        let member_moved =
            std::mem::take(&mut self.up.sink_moved) | std::mem::take(&mut self.down.source_moved);
        let now = Instant::now();
        if client_moved || self.client_since.is_none() {
            self.client_since = Some(now);
        }
        if member_moved || self.member_since.is_none() {
            self.member_since = Some(now);
        }
        let up_waits = !self.up_done && !self.up_broken;
        let in_body = matches!(self.phase, Phase::Body);
        let for_client =
            (up_waits && self.up.waiting == Waiting::Source) || self.down.waiting == Waiting::Sink;
        // A member need not answer before it has the whole request.
        let for_member = (up_waits && self.up.waiting == Waiting::Sink)
            || (self.down.waiting == Waiting::Source && (!up_waits || in_body));
        let client_end = self.client_since.map(|since| since + self.timeouts.client);
        let member_end = self.member_since.map(|since| since + self.timeouts.member);
        let ends = [
            (client_end.filter(|_| for_client), Cause::ClientTimeout),
            (member_end.filter(|_| for_member), Cause::MemberTimeout),
        ];
        let first = ends
            .into_iter()
            .filter_map(|(end, cause)| end.map(|end| (end, cause)))
            .min_by_key(|(end, _)| *end);
        if let Some((end, cause)) = first
            && timer.poll_deadline(cx, end).is_ready()
        {
            return self.fail(cause);
        }
        Poll::Pending
    }
}
