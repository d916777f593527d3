//! The thread that owns the fast path.
//!
//! It lives in the tenant's namespace, since programs and interfaces belong there, and does one thing at a time: the
//! calls it is sent, and once a second a sweep. The fast path is opened when it is first needed; when that fails the
//! next apply tries again. Ending the thread leaves everything attached: traffic goes on without the agent.

use std::io;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::statfs::{BPF_FS_MAGIC, statfs};
use tokio::sync::oneshot;
use xdp_lb::FastPath;

use super::namespace::Namespace;
use super::tenant::entering;
use crate::agent::chain;

const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

enum Command {
    Open(oneshot::Sender<Result<(), String>>),
    Apply(
        Box<xdp_lb::Config>,
        oneshot::Sender<Result<xdp_lb::Report, String>>,
    ),
    Stats(oneshot::Sender<Option<xdp_lb::Stats>>),
}

pub(super) struct FastThread {
    commands: Mutex<Option<Sender<Command>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    pin_dir: PathBuf,
}

impl FastThread {
    pub(super) fn start(namespace: &Namespace, options: xdp_lb::Options) -> io::Result<Self> {
        let (commands, receiver) = channel();
        let enter = entering(namespace);
        let pin_dir = options.pin_dir.clone();
        let thread = std::thread::Builder::new()
            .name("fast-path".to_owned())
            .spawn(move || {
                enter();
                run(&options, &receiver);
            })?;
        Ok(FastThread {
            commands: Mutex::new(Some(commands)),
            thread: Mutex::new(Some(thread)),
            pin_dir,
        })
    }

    /// Whether an earlier life of the agent left programs and maps to adopt.
    pub(super) fn has_pins(&self) -> bool {
        std::fs::read_dir(&self.pin_dir).is_ok_and(|mut entries| entries.next().is_some())
    }

    /// Makes sure that there is a fast path, or says why there is none.
    pub(super) async fn open(&self) -> Result<(), String> {
        self.call(Command::Open)
            .await
            .unwrap_or_else(|| Err(ended()))
    }

    pub(super) async fn apply(&self, config: xdp_lb::Config) -> Result<xdp_lb::Report, String> {
        self.call(|reply| Command::Apply(Box::new(config), reply))
            .await
            .unwrap_or_else(|| Err(ended()))
    }

    /// `None` while there is no fast path.
    pub(super) async fn stats(&self) -> Option<xdp_lb::Stats> {
        self.call(Command::Stats).await.flatten()
    }

    async fn call<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        let sent = {
            let commands = lock(&self.commands);
            commands.as_ref()?.send(command(reply)).is_ok()
        };
        if !sent {
            return None;
        }
        answer.await.ok()
    }

    /// Ends the thread; what is attached stays attached.
    pub(super) fn stop(&self) {
        lock(&self.commands).take();
        if let Some(thread) = lock(&self.thread).take()
            && thread.join().is_err()
        {
            tracing::error!("fast path thread panicked");
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn ended() -> String {
    "the fast path's thread has ended".to_owned()
}

fn run(options: &xdp_lb::Options, commands: &Receiver<Command>) {
    let mut fast: Option<FastPath> = None;
    let mut sweep_at = Instant::now() + SWEEP_INTERVAL;
    loop {
        let wait = sweep_at.saturating_duration_since(Instant::now());
        match commands.recv_timeout(wait) {
            // Whoever asked may have gone; there is nobody to tell then.
            Ok(Command::Open(reply)) => drop(reply.send(open(&mut fast, options).map(|_| ()))),
            Ok(Command::Apply(config, reply)) => {
                let applied = open(&mut fast, options)
                    .and_then(|fast| fast.apply(&config).map_err(|error| chain(&error)));
                drop(reply.send(applied));
            }
            Ok(Command::Stats(reply)) => drop(reply.send(stats(fast.as_ref()))),
            Err(RecvTimeoutError::Timeout) => {
                sweep_at = Instant::now() + SWEEP_INTERVAL;
                if let Some(fast) = &mut fast
                    && let Err(error) = fast.sweep()
                {
                    tracing::warn!(error = chain(&error), "sweep flows");
                }
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn open<'a>(
    fast: &'a mut Option<FastPath>,
    options: &xdp_lb::Options,
) -> Result<&'a mut FastPath, String> {
    if let Some(fast) = fast {
        return Ok(fast);
    }
    check_bpffs(options)?;
    let opened = FastPath::open(options.clone()).map_err(|error| chain(&error))?;
    tracing::info!("fast path is open");
    Ok(fast.insert(opened))
}

/// Makes the pin directory, and says plainly when it would not be on a bpffs.
fn check_bpffs(options: &xdp_lb::Options) -> Result<(), String> {
    let directory = &options.pin_dir;
    let existing = directory
        .ancestors()
        .find(|ancestor| ancestor.exists())
        .unwrap_or(directory);
    let stat =
        statfs(existing).map_err(|error| format!("look at {}: {error}", existing.display()))?;
    if stat.filesystem_type() != BPF_FS_MAGIC {
        return Err(format!(
            "{} is not on a bpffs; mount one (mount -t bpf bpf DIRECTORY) and set [amphora_agent] bpf_dir",
            directory.display()
        ));
    }
    std::fs::create_dir_all(directory)
        .map_err(|error| format!("create {}: {error}", directory.display()))
}

fn stats(fast: Option<&FastPath>) -> Option<xdp_lb::Stats> {
    match fast?.stats() {
        Ok(stats) => Some(stats),
        Err(error) => {
            tracing::warn!(error = chain(&error), "read the fast path's counters");
            None
        }
    }
}
