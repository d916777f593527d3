//! A worker thread: its runtime, its listening sockets, its connections.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::sync::{Arc, mpsc};

use tokio::net::TcpStream;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, timeout_at};

use crate::config::{Options, Protocol};
use crate::idle::{IdleConnections, REAP_INTERVAL};
use crate::listener::{Binding, Slot};
use crate::router::{Listener, Route, Shared};
use crate::stats::add;
use crate::transport::InFlight;
use crate::{http, tcp};

pub(crate) enum Command {
    /// Sets the addresses to listen on. Answers with those that could not be had.
    Listen {
        bind: Vec<SocketAddr>,
        unbind: Vec<SocketAddr>,
        failed: mpsc::Sender<Vec<(SocketAddr, io::Error)>>,
    },
    /// Stops accepting, and ends when the last connection has, at `deadline` at the latest.
    End { deadline: Instant },
}

pub(crate) struct Worker {
    pub(crate) index: usize,
    pub(crate) shared: Arc<Shared>,
    pub(crate) idle: RefCell<IdleConnections>,
    open: Cell<usize>,
    one_ended: Notify,
}

/// The body of a worker thread. `ready` hears how the set-up went.
pub(crate) fn run(
    index: usize,
    shared: Arc<Shared>,
    options: &Options,
    ready: &mpsc::Sender<Result<(), String>>,
    commands: UnboundedReceiver<Command>,
) {
    if let Some(on_thread_start) = &options.on_thread_start
        && std::panic::catch_unwind(AssertUnwindSafe(|| on_thread_start())).is_err()
    {
        let _ = ready.send(Err("on_thread_start panicked".to_owned()));
        return;
    }
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default());
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = ready.send(Err(format!("make runtime: {error}")));
            return;
        }
    };
    let _ = ready.send(Ok(()));
    runtime.block_on(async {
        let worker = Rc::new(Worker {
            index,
            shared,
            idle: RefCell::default(),
            open: Cell::new(0),
            one_ended: Notify::new(),
        });
        worker.obey(commands).await;
    });
}

impl Worker {
    async fn obey(self: &Rc<Self>, mut commands: UnboundedReceiver<Command>) {
        let reaper = tokio::task::spawn_local(Rc::clone(self).reap_idle());
        let mut bindings: HashMap<SocketAddr, Rc<Binding>> = HashMap::new();
        while let Some(command) = commands.recv().await {
            match command {
                Command::Listen {
                    bind,
                    unbind,
                    failed,
                } => {
                    let mut failures = Vec::new();
                    for address in bind {
                        if bindings.contains_key(&address) {
                            continue;
                        }
                        match Binding::start(self, address) {
                            Ok(binding) => {
                                bindings.insert(address, binding);
                            }
                            Err(error) => failures.push((address, error)),
                        }
                    }
                    for address in unbind {
                        if let Some(binding) = bindings.remove(&address) {
                            binding.close();
                        }
                    }
                    let _ = failed.send(failures);
                }
                Command::End { deadline } => {
                    for binding in bindings.values() {
                        binding.close();
                    }
                    while self.open.get() > 0 {
                        if timeout_at(deadline, self.one_ended.notified())
                            .await
                            .is_err()
                        {
                            break;
                        }
                    }
                    break;
                }
            }
        }
        reaper.abort();
    }

    async fn reap_idle(self: Rc<Self>) {
        let mut ticks = tokio::time::interval(REAP_INTERVAL);
        loop {
            ticks.tick().await;
            self.idle.borrow_mut().reap();
        }
    }

    /// Serves an accepted connection in a task of its own.
    pub(crate) fn serve(
        self: &Rc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        local: SocketAddr,
        listener: Arc<Listener>,
        slot: Slot,
    ) {
        let guard = Open::new(self, &listener, slot);
        let worker = Rc::clone(self);
        match listener.config.protocol {
            Protocol::Http => {
                tokio::task::spawn_local(async move {
                    http::serve(&worker, stream, peer, local, Route::new(listener)).await;
                    drop(guard);
                });
            }
            Protocol::Tcp => {
                tokio::task::spawn_local(async move {
                    tcp::serve(&worker, stream, peer, Route::new(listener)).await;
                    drop(guard);
                });
            }
        }
    }
}

/// A client connection, for as long as it is open.
struct Open {
    worker: Rc<Worker>,
    _in_flight: InFlight,
    _slot: Slot,
}

impl Open {
    fn new(worker: &Rc<Worker>, listener: &Listener, slot: Slot) -> Self {
        add(&listener.counters.shard(worker.index).connections, 1);
        worker.open.set(worker.open.get() + 1);
        Open {
            worker: Rc::clone(worker),
            _in_flight: InFlight::new(Arc::clone(&listener.counters), worker.index),
            _slot: slot,
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.worker.open.set(self.worker.open.get() - 1);
        self.worker.one_ended.notify_one();
    }
}
