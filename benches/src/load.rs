//! Load: the same clients and the same member servers for every contender.
//!
//! Both live in this process, on threads inside the rig's namespaces, one current-thread runtime each. The
//! loops are closed: so many connections, each asking again as soon as it was answered.

mod client;
mod server;

pub(crate) use client::{Clients, Workload};
pub(crate) use server::Servers;

use std::future::Future;
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use tokio::sync::watch;

use crate::netns;

/// Threads with a runtime each, inside a namespace, until dropped.
#[derive(Debug)]
struct Threads {
    stop: watch::Sender<bool>,
    handles: Vec<JoinHandle<()>>,
}

impl Threads {
    /// Starts `count` threads; each calls `start` in its runtime, and everything that spawns runs until the end.
    /// Returns when every thread's `start` is through.
    fn run<F, Fut>(name: &str, namespace: &str, count: usize, start: F) -> Result<Self>
    where
        F: Fn(usize) -> Fut + Clone + Send + 'static,
        Fut: Future<Output = Result<()>>,
    {
        let (stop, stopped) = watch::channel(false);
        let (ready, started) = std::sync::mpsc::channel::<Result<()>>();
        let mut threads = Threads {
            stop,
            handles: Vec::new(),
        };
        for index in 0..count {
            let (namespace, start, ready) = (namespace.to_owned(), start.clone(), ready.clone());
            let mut stopped = stopped.clone();
            let handle = std::thread::Builder::new()
                .name(format!("{name}{index}"))
                .spawn(move || {
                    let runtime = netns::enter(&namespace).and_then(|()| {
                        tokio::runtime::Builder::new_current_thread()
                            .enable_all()
                            .build()
                            .context("make a runtime")
                    });
                    match runtime {
                        Ok(runtime) => runtime.block_on(async {
                            // A receiver that is gone gave up already.
                            drop(ready.send(start(index).await));
                            drop(stopped.wait_for(|stop| *stop).await);
                        }),
                        Err(error) => drop(ready.send(Err(error))),
                    }
                })
                .with_context(|| format!("start thread {name}{index}"))?;
            threads.handles.push(handle);
        }
        drop(ready);
        for _ in 0..count {
            started
                .recv()
                .context("a load thread ended before it was ready")??;
        }
        Ok(threads)
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        for handle in self.handles.drain(..) {
            if handle.join().is_err() {
                eprintln!("a load thread panicked");
            }
        }
    }
}

/// One thread a core on each side.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
