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
    up.framing = Framing::until_close();
    down.framing = Framing::until_close();
    let (mut up_side, mut down_side) = (Side::Open, Side::Open);
    let mut since = Instant::now();
    std::future::poll_fn(|cx| {
        let ended = up_side.poll(cx, &mut up, client, member).is_err()
            || down_side.poll(cx, &mut down, member, client).is_err();
        if ended || (up_side == Side::Ended && down_side == Side::Ended) {
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
    fn poll<S: Stream, D: Stream>(
        &mut self,
        cx: &mut Context<'_>,
        pump: &mut Pump,
        source: &mut S,
        sink: &mut D,
    ) -> Result<(), PumpError> {
        if *self == Side::Open {
            match pump.poll(cx, source, sink) {
                Poll::Ready(Ok(())) => *self = Side::Ending,
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => {}
            }
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
