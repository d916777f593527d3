//! A deadline that is cheap to move.
//!
//! A connection moves its deadline with every read; the runtime's timer wheel is only touched when
//! the deadline moves forward of where the timer stands, or when the timer fires early and is set
//! again.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::time::{Instant, Sleep, sleep_until};

#[derive(Default)]
pub(crate) struct Timer {
    sleep: Option<Pin<Box<Sleep>>>,
    /// Whether `sleep` is set for a time to come.
    armed: bool,
}

impl Timer {
    /// Ready once `deadline` is past.
    pub(crate) fn poll_deadline(&mut self, cx: &mut Context<'_>, deadline: Instant) -> Poll<()> {
        let sleep = self
            .sleep
            .get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if !self.armed || deadline < sleep.deadline() {
            sleep.as_mut().reset(deadline);
            self.armed = true;
        }
        loop {
            ready!(sleep.as_mut().poll(cx));
            self.armed = false;
            if sleep.deadline() >= deadline || Instant::now() >= deadline {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(deadline);
            self.armed = true;
        }
    }
}
