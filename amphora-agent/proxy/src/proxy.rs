//! The handle of the proxy: starts the threads, hands them snapshots, reads the counters.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ipnet::IpNet;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::Instant;
use uuid::Uuid;

use crate::config::{Options, Snapshot};
use crate::error::{ApplyReport, BindError, Error};
use crate::router::{Registry, Shared};
use crate::stats::Stats;
use crate::worker::{self, Command};

/// A running proxy. Dropping it ends all its connections at once; see [`Proxy::shutdown`].
pub struct Proxy {
    shared: Arc<Shared>,
    threads: Vec<Thread>,
    state: Mutex<State>,
}

struct Thread {
    commands: UnboundedSender<Command>,
    handle: JoinHandle<()>,
}

#[derive(Default)]
struct State {
    registry: Registry,
    /// Addresses every thread listens on.
    bound: HashSet<SocketAddr>,
}

impl Proxy {
    /// Starts the threads. Nothing is listened on before the first [`Proxy::apply`].
    pub fn start(options: Options) -> Result<Proxy, Error> {
        let count = match options.threads {
            0 => thread::available_parallelism().map_or(1, usize::from),
            count => count,
        };
        let mut proxy = Proxy {
            shared: Arc::new(Shared::new(count)),
            threads: Vec::new(),
            state: Mutex::default(),
        };
        for index in 0..count {
            let (commands, receiver) = unbounded_channel();
            let (ready, is_ready) = mpsc::channel();
            let (shared, options) = (Arc::clone(&proxy.shared), options.clone());
            let handle = thread::Builder::new()
                .name(format!("proxy-{index}"))
                .spawn(move || worker::run(index, shared, &options, &ready, receiver))
                .map_err(|source| Error::StartThread { index, source })?;
            proxy.threads.push(Thread { commands, handle });
            is_ready
                .recv()
                .unwrap_or_else(|_| Err("the thread ended".to_owned()))
                .map_err(|reason| Error::SetUpThread { index, reason })?;
        }
        Ok(proxy)
    }

    /// Puts `snapshot` in force in place of the one before. New listeners are bound and removed
    /// ones unbound before this returns; it blocks for that, which takes the threads a moment.
    ///
    /// No connection is closed by it. Requests that come from now on go by the new snapshot. A
    /// removed listener accepts no more, and each of its HTTP connections ends with the response
    /// to its current (or, when idle, next) request, which the listener's last state answers.
    pub fn apply(&self, snapshot: Snapshot) -> ApplyReport {
        let mut state = self.lock_state();
        let mut report = ApplyReport::default();
        let mut wanted: HashMap<SocketAddr, Uuid> = HashMap::new();
        for listener in &snapshot.listeners {
            for bind in &listener.binds {
                match wanted.get(bind) {
                    None => {
                        wanted.insert(*bind, listener.id);
                    }
                    Some(owner) if *owner == listener.id => {}
                    Some(owner) => report.errors.push(BindError {
                        listener: listener.id,
                        address: *bind,
                        source: io::Error::new(
                            io::ErrorKind::AddrInUse,
                            format!("listener {owner} of the same snapshot has it"),
                        ),
                    }),
                }
            }
        }
        let before = self.shared.current();
        let compiled = state
            .registry
            .compile(&snapshot, &before, self.shared.threads);
        self.shared.publish(compiled);
        // An address may have passed to another listener whose limit is not reached.
        state.registry.wake_acceptors();

        let bind: Vec<SocketAddr> = wanted
            .keys()
            .filter(|address| !state.bound.contains(*address))
            .copied()
            .collect();
        let unbind: Vec<SocketAddr> = state
            .bound
            .iter()
            .filter(|address| !wanted.contains_key(*address))
            .copied()
            .collect();
        if !bind.is_empty() || !unbind.is_empty() {
            let failed = self.listen(&bind, &unbind);
            if !failed.is_empty() {
                // Some threads may have what others could not get: all or none.
                let partly: Vec<SocketAddr> = failed.keys().copied().collect();
                self.listen(&[], &partly);
            }
            for address in bind {
                if !failed.contains_key(&address) {
                    state.bound.insert(address);
                    report.bound.push(address);
                }
            }
            for address in &unbind {
                state.bound.remove(address);
            }
            report.unbound = unbind;
            for (address, source) in failed {
                if let Some(listener) = wanted.get(&address) {
                    report.errors.push(BindError {
                        listener: *listener,
                        address,
                        source,
                    });
                }
            }
        }
        report
    }

    /// Has every thread bind and unbind, and returns what could not be bound by all of them.
    fn listen(&self, bind: &[SocketAddr], unbind: &[SocketAddr]) -> HashMap<SocketAddr, io::Error> {
        let (failed, failures) = mpsc::channel();
        for thread in &self.threads {
            // A thread that is gone drops the sender, which shows as one answer too few.
            let _ = thread.commands.send(Command::Listen {
                bind: bind.to_vec(),
                unbind: unbind.to_vec(),
                failed: failed.clone(),
            });
        }
        drop(failed);
        let mut answers = 0;
        let mut all: HashMap<SocketAddr, io::Error> = HashMap::new();
        for failures in failures {
            answers += 1;
            all.extend(failures);
        }
        if answers < self.threads.len() {
            for address in bind {
                all.entry(*address)
                    .or_insert_with(|| io::Error::other("a proxy thread has ended"));
            }
        }
        all
    }

    /// Lets only clients of these networks connect to these addresses; whoever connects to another address is
    /// served. Replaces what was set before; call it before the [`Proxy::apply`] that listens on them.
    pub fn restrict(&self, networks: HashMap<SocketAddr, Vec<IpNet>>) {
        self.shared.admission.restrict(networks);
    }

    pub fn stats(&self) -> Stats {
        self.lock_state().registry.stats(&self.shared)
    }

    /// Stops accepting, lets each connection end with its current response, and returns when all
    /// have ended or `grace` is over; then what is left is closed. Blocks for that time.
    pub fn shutdown(mut self, grace: Duration) {
        self.end(grace);
    }

    fn end(&mut self, grace: Duration) {
        self.shared.end();
        let deadline = Instant::now() + grace;
        for thread in &self.threads {
            let _ = thread.commands.send(Command::End { deadline });
        }
        for thread in self.threads.drain(..) {
            if thread.handle.join().is_err() {
                tracing::error!("a proxy thread panicked");
            }
        }
    }

    fn lock_state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.end(Duration::ZERO);
    }
}
