//! Two streams joined: plain TCP, and HTTP after a protocol switch.
//!
//! Bytes go both ways until both sides have ended; the end of one is passed on and the other may
//! go on. A tunnel ends when neither side has moved a byte for the shorter of the two timeouts.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;

use crate::http::body::Framing;
use crate::pump::{Pump, PumpError};
use crate::timer::Timer;
use crate::transport::Stream;

/// Runs to the end. `up` and `down` may hold bytes that came before the tunnel began.
pub(crate) async fn join<A: Stream, B: Stream>(
    client: &mut A,
    member: &mut B,
    mut up: Pump,
    mut down: Pump,
    timeout: Duration,
    timer: &mut Timer,
) {
    for pump in [&mut up, &mut down] {
        pump.framing = Framing::until_close();
        pump.closes = true;
    }
    let (mut up_side, mut down_side) = (Side::Open, Side::Open);
    let mut since = Instant::now();
    std::future::poll_fn(|cx| {
        let is_last = down_side == Side::Ended;
        let mut broken = up_side.poll(cx, &mut up, client, member, is_last).is_err();
        let is_last = up_side == Side::Ended;
        broken = broken
            || down_side
                .poll(cx, &mut down, member, client, is_last)
                .is_err();
        if broken || (up_side == Side::Ended && down_side == Side::Ended) {
            return Poll::Ready(());
        }
        let moved = [
            &mut up.source_moved,
            &mut up.sink_moved,
            &mut down.source_moved,
            &mut down.sink_moved,
        ]
        .into_iter()
        .fold(false, |any, moved| any | std::mem::take(moved));
        if moved {
            since = Instant::now();
        }
        timer.poll_deadline(cx, since + timeout)
    })
    .await;
}

#[derive(PartialEq, Eq)]
enum Side {
    Open,
    /// Everything was sent; the end is still to be passed on.
    Ending,
    Ended,
}

impl Side {
    /// `is_last`: the other side has ended, so that both streams are closed when this one has.
    fn poll<S: Stream, D: Stream>(
        &mut self,
        cx: &mut Context<'_>,
        pump: &mut Pump,
        source: &mut S,
        sink: &mut D,
        is_last: bool,
    ) -> Result<(), PumpError> {
        if *self == Side::Open {
            match pump.poll(cx, source, sink) {
                Poll::Ready(Ok(())) => *self = Side::Ending,
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => {}
            }
        }
        if *self == Side::Ending && is_last && D::CLOSE_IS_END {
            *self = Side::Ended;
        }
        if *self == Side::Ending {
            match Pin::new(sink).poll_shutdown(cx) {
                Poll::Ready(Ok(())) => *self = Side::Ended,
                Poll::Ready(Err(_)) => return Err(PumpError::Sink),
                Poll::Pending => {}
            }
        }
        Ok(())
    }
}
