//! Running asynchronous work inside a network namespace, on a thread of its own.

use std::future::Future;
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow};
use lb_drivers::local::Netns;
use tokio::sync::watch;

/// Work that goes on inside a namespace until it is stopped or dropped.
#[derive(Debug)]
pub struct Background<T> {
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<Result<T>>>,
}

/// Tells background work that it is to end.
#[derive(Debug, Clone)]
pub struct Stop(watch::Receiver<bool>);

impl Stop {
    /// Returns once the work is to end.
    pub async fn stopped(&mut self) {
        // A dropped sender means the same.
        let _ = self.0.wait_for(|stop| *stop).await;
    }

    pub fn is_stopped(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }
}

impl<T: Send + 'static> Background<T> {
    /// Starts `work` with a runtime of one thread, inside the namespace.
    pub fn start<F, W>(netns: &Netns, work: W) -> Self
    where
        W: FnOnce(Stop) -> F + Send + 'static,
        F: Future<Output = Result<T>>,
    {
        let (stop, stopped) = watch::channel(false);
        let netns = netns.clone();
        let thread = std::thread::spawn(move || run(&netns, || work(Stop(stopped)))?);
        Self {
            stop,
            thread: Some(thread),
        }
    }

    /// Ends the work and returns what it found.
    pub fn stop(mut self) -> Result<T> {
        self.end()
            .ok_or_else(|| anyhow!("background work was stopped twice"))?
    }

    fn end(&mut self) -> Option<Result<T>> {
        self.stop.send_replace(true);
        let joined = self.thread.take()?.join();
        Some(joined.unwrap_or_else(|_| Err(anyhow!("background work panicked"))))
    }
}

impl<T> Drop for Background<T> {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            // What it found is not wanted any more.
            let _ = thread.join();
        }
    }
}

/// Runs `work` to its end inside the namespace, without blocking the caller's runtime.
pub async fn inside<T, F, W>(netns: &Netns, work: W) -> Result<T>
where
    T: Send + 'static,
    W: FnOnce() -> F + Send + 'static,
    F: Future<Output = Result<T>>,
{
    let netns = netns.clone();
    tokio::task::spawn_blocking(move || run(&netns, work)?)
        .await
        .context("work inside a network namespace panicked")?
}

fn run<T, F, W>(netns: &Netns, work: W) -> Result<F::Output>
where
    T: Send,
    W: FnOnce() -> F + Send,
    F: Future<Output = Result<T>>,
{
    netns
        .run_in(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .context("build runtime")?;
            Ok(runtime.block_on(work()))
        })
        .context("enter network namespace")?
}
