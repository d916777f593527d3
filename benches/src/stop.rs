//! Ctrl-C as a value: waits end early, and everything that owns a namespace or a process unwinds.

use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{SigSet, Signal};

/// Whether the user asked to stop.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stop(Arc<(Mutex<bool>, Condvar)>);

impl Stop {
    /// Takes SIGINT and SIGTERM over. Call it before any other thread is started, as threads inherit
    /// the signal mask.
    pub(crate) fn on_signals() -> Result<Self> {
        let mut signals = SigSet::empty();
        signals.add(Signal::SIGINT);
        signals.add(Signal::SIGTERM);
        signals.thread_block().context("block SIGINT and SIGTERM")?;
        let stop = Stop::default();
        let told = stop.clone();
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || {
                if signals.wait().is_ok() {
                    told.tell();
                }
            })
            .context("start the signal thread")?;
        Ok(stop)
    }

    fn tell(&self) {
        *self.flag() = true;
        self.0.1.notify_all();
    }

    /// Whether the user asked already.
    pub(crate) fn told(&self) -> bool {
        *self.flag()
    }

    /// Lets `time` pass; an error when the user asks to stop meanwhile.
    pub(crate) fn pause(&self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        let mut told = self.flag();
        while !*told {
            let Some(left) = end.checked_duration_since(Instant::now()) else {
                return Ok(());
            };
            told = match self.0.1.wait_timeout(told, left) {
                Ok((told, _)) => told,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
        bail!("stopped by a signal");
    }

    /// Asks again and again, until it is true or `patience` is over (then: false).
    pub(crate) fn wait_for(
        &self,
        patience: Duration,
        mut condition: impl FnMut() -> bool,
    ) -> Result<bool> {
        let end = Instant::now() + patience;
        loop {
            if condition() {
                return Ok(true);
            }
            if Instant::now() >= end {
                return Ok(false);
            }
            self.pause(Duration::from_millis(5))?;
        }
    }

    fn flag(&self) -> std::sync::MutexGuard<'_, bool> {
        self.0
            .0
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
