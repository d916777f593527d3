//! The agent proper: which document is in force, and what became of it.
//!
//! Documents are admitted one after the other: checked, written to the ledger, put into force. What could not be done
//! is tried again every second until it is, or until another document comes. The document in force is always the one
//! in the ledger. The REST interface and the heartbeat read from here; neither knows the data plane.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use amphora_api::{
    API_VERSION, AmphoraConfig, AmphoraInfo, AmphoraStats, ApplyReport, ConfigError,
    HeartbeatMessage,
};
use tokio::sync::Notify;
use tracing::Instrument;
use uuid::Uuid;

use crate::dataplane::{DataPlane, Outcome, Readings};
use crate::heartbeat::{self, Facts};
use crate::ledger::{Admission, Ledger, LedgerError, admit};
use crate::secret::Secret;
use crate::stats::Totals;

/// How often what could not be done is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// What the agent is made of.
pub struct Settings {
    pub amphora_id: Uuid,
    pub state_dir: PathBuf,
    /// Until a document says otherwise.
    pub controllers: Vec<SocketAddr>,
    /// Until a document says otherwise.
    pub heartbeat_interval: Duration,
    pub heartbeat_key: Secret,
}

pub struct Agent {
    settings: Settings,
    ledger: Arc<Ledger>,
    plane: Arc<dyn DataPlane>,
    /// Held while a document, or a member's new state, is put into force.
    applying: tokio::sync::Mutex<()>,
    state: RwLock<State>,
    totals: Mutex<Totals>,
    /// Something the next heartbeat should tell at once.
    news: Notify,
    pub(crate) refusals: Refusals,
}

#[derive(Default)]
struct State {
    document: Option<Arc<AmphoraConfig>>,
    outcome: Outcome,
    /// Troubles of the agent itself (unreadable ledger).
    own_problems: Vec<String>,
}

/// What the REST interface turned away.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    /// TLS handshakes that failed, among them clients without our certificate.
    pub(crate) handshakes: AtomicU64,
    /// Requests answered with a 4xx status.
    pub(crate) requests: AtomicU64,
}

/// Why a document was not put into force as a whole.
#[derive(Debug, thiserror::Error)]
pub enum PutError {
    #[error("document is not valid")]
    Invalid(#[source] ConfigError),
    #[error("document is of generation {got}, the one in force is {in_force}")]
    Older { got: u64, in_force: u64 },
    #[error("generation {generation} is in force with other content")]
    Conflict { generation: u64 },
    /// The old document stays in force.
    #[error("store the document")]
    Ledger(#[source] LedgerError),
    /// It is in the ledger and in force as far as it could be; the agent goes on trying.
    #[error("document of generation {generation} is in force in part: {}", problems.join("; "))]
    Incomplete {
        generation: u64,
        problems: Vec<String>,
    },
}

impl Agent {
    /// Reads the ledger and the counters; puts nothing into force yet (see [`Agent::resume`]).
    pub fn new(settings: Settings, plane: Arc<dyn DataPlane>) -> Result<Arc<Self>, LedgerError> {
        let ledger = Ledger::open(&settings.state_dir)?;
        let mut state = State::default();
        match ledger.load() {
            Ok(document) => state.document = document.map(Arc::new),
            Err(error) => {
                let text = chain(&error);
                tracing::error!(error = text, "start without a document");
                state.own_problems.push(text);
            }
        }
        if let Some(document) = &state.document
            && document.amphora_id != settings.amphora_id
        {
            let text = format!(
                "ledger is of amphora {}: not taken over",
                document.amphora_id
            );
            tracing::error!(error = text, "start without a document");
            state.own_problems.push(text);
            state.document = None;
        }
        let totals = Totals::load(&settings.state_dir).unwrap_or_else(|error| {
            tracing::warn!(%error, "counters of earlier lives are lost");
            Totals::default()
        });
        Ok(Arc::new(Agent {
            settings,
            ledger: Arc::new(ledger),
            plane,
            applying: tokio::sync::Mutex::new(()),
            state: RwLock::new(state),
            totals: Mutex::new(totals),
            news: Notify::new(),
            refusals: Refusals::default(),
        }))
    }

    /// Puts the ledger's document into force again, after a start.
    pub async fn resume(&self) {
        let _applying = self.applying.lock().await;
        if let Some(document) = self.document() {
            self.apply(&document).await;
        }
    }

    /// Admits a document and puts it into force. Run it to its end: spawn it.
    pub async fn put_config(&self, document: AmphoraConfig) -> Result<ApplyReport, PutError> {
        document.validate().map_err(PutError::Invalid)?;
        if document.amphora_id != self.settings.amphora_id {
            return Err(PutError::Invalid(ConfigError {
                field: "amphora_id".to_owned(),
                value: document.amphora_id.to_string(),
                reason: "is not this amphora",
            }));
        }
        let _applying = self.applying.lock().await;
        let in_force = self.document();
        let generation = document.generation;
        let changed = match admit(in_force.as_deref(), &document) {
            Admission::New => true,
            Admission::Same => false,
            Admission::Older => {
                return Err(PutError::Older {
                    got: generation,
                    in_force: in_force.map_or(0, |document| document.generation),
                });
            }
            Admission::Conflict => return Err(PutError::Conflict { generation }),
        };
        let document = Arc::new(document);
        if changed {
            self.store(&document).await.map_err(PutError::Ledger)?;
            let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
            state.document = Some(Arc::clone(&document));
            state.own_problems.clear();
        }
        let outcome = self.apply(&document).await;
        self.news.notify_one();
        if !outcome.problems.is_empty() {
            return Err(PutError::Incomplete {
                generation,
                problems: outcome.problems,
            });
        }
        Ok(ApplyReport {
            generation,
            changed,
            actions: outcome.actions,
            failed_listeners: outcome.failed_listeners,
        })
    }

    async fn store(&self, document: &Arc<AmphoraConfig>) -> Result<(), LedgerError> {
        let (ledger, document) = (Arc::clone(&self.ledger), Arc::clone(document));
        let path = self.ledger.path();
        tokio::task::spawn_blocking(move || ledger.store(&document))
            .await
            .unwrap_or_else(|error| {
                Err(LedgerError::Write {
                    path,
                    source: std::io::Error::other(error),
                })
            })
    }

    async fn apply(&self, document: &AmphoraConfig) -> Outcome {
        let span = tracing::info_span!(
            "apply",
            amphora_id = %document.amphora_id,
            load_balancer_id = %document.load_balancer_id,
            generation = document.generation,
        );
        let outcome = self.plane.apply(document).instrument(span.clone()).await;
        span.in_scope(|| {
            for action in &outcome.actions {
                tracing::info!(action, "done");
            }
        });
        self.keep(outcome.clone(), &span);
        outcome
    }

    /// Remembers an outcome, and says what is new in it.
    fn keep(&self, outcome: Outcome, span: &tracing::Span) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        span.in_scope(|| {
            for problem in &outcome.problems {
                if !state.outcome.problems.contains(problem) {
                    tracing::warn!(problem, "not as the document says; trying again");
                }
            }
            for (listener_id, reason) in &outcome.failed_listeners {
                if state.outcome.failed_listeners.get(listener_id) != Some(reason) {
                    tracing::warn!(%listener_id, reason, "listener is not served");
                }
            }
            if outcome.problems.is_empty() && !state.outcome.problems.is_empty() {
                tracing::info!("all is as the document says");
            }
        });
        state.outcome = outcome;
    }

    /// Follows the members' states and tries again what could not be done, until it is dropped.
    pub async fn keep_in_force(self: Arc<Self>) {
        loop {
            let changed = tokio::select! {
                () = self.plane.member_changed() => true,
                () = tokio::time::sleep(RETRY) => false,
            };
            // Looked at under the lock: a document may just have left its problems.
            let _applying = self.applying.lock().await;
            let broken = {
                let state = self.read_state();
                !state.outcome.problems.is_empty() || !state.outcome.failed_listeners.is_empty()
            };
            if !changed && !broken {
                continue;
            }
            let Some(document) = self.document() else {
                continue;
            };
            // An apply does all that a refresh does, and keeps sight of what is still not done.
            if changed && !broken {
                let span = tracing::info_span!("refresh", generation = document.generation);
                let outcome = self.plane.refresh(&document).instrument(span.clone()).await;
                self.keep(outcome, &span);
            } else {
                self.apply(&document).await;
            }
            if changed {
                self.news.notify_one();
            }
        }
    }

    pub fn info(&self) -> AmphoraInfo {
        let state = self.read_state();
        let document = state.document.as_deref();
        let failed = state
            .outcome
            .failed_listeners
            .iter()
            .map(|(listener, reason)| format!("listener {listener}: {reason}"));
        AmphoraInfo {
            api_version: API_VERSION.to_owned(),
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            hostname: nix::sys::utsname::uname()
                .map(|name| name.nodename().to_string_lossy().into_owned())
                .unwrap_or_default(),
            amphora_id: self.settings.amphora_id,
            generation: document.map(|document| document.generation),
            config_digest: document.map(AmphoraConfig::digest),
            missing_secrets: Vec::new(),
            interfaces: state.outcome.interfaces.clone(),
            listeners: state.outcome.listeners.clone(),
            failed_listeners: state.outcome.failed_listeners.clone(),
            problems: state
                .own_problems
                .iter()
                .chain(&state.outcome.problems)
                .cloned()
                .chain(failed)
                .collect(),
        }
    }

    pub async fn stats(&self) -> AmphoraStats {
        let readings = self.plane.readings().await;
        let document = self.document();
        let mut stats = {
            let mut totals = self.lock_totals();
            take_counters(&mut totals, &readings);
            let stats = totals.tell(listeners(document.as_deref()), heartbeat::now_ms());
            self.save(&totals);
            stats
        };
        for (name, count) in [
            ("agent_handshake_refused", &self.refusals.handshakes),
            ("agent_request_refused", &self.refusals.requests),
        ] {
            stats.verdicts.insert(name.to_owned(), count.load(Relaxed));
        }
        stats
    }

    /// The next heartbeat and where it may go.
    pub(crate) async fn heartbeat(
        &self,
        seq: u64,
        sent_at_ms: u64,
    ) -> (HeartbeatMessage, Vec<SocketAddr>) {
        let readings = self.plane.readings().await;
        let (document, failed) = {
            let state = self.read_state();
            let failed = state.outcome.failed_listeners.keys().copied().collect();
            (state.document.clone(), failed)
        };
        let report = {
            let mut totals = self.lock_totals();
            take_counters(&mut totals, &readings);
            if let Some(document) = &document {
                totals.retain(document);
            }
            let report = totals.report(listeners(document.as_deref()), sent_at_ms);
            self.save(&totals);
            report
        };
        let facts = Facts {
            seq,
            sent_at_ms,
            stats: report.deltas,
            totals: report.totals,
            full: readings.full,
            members: readings.members,
            failed,
        };
        let message = heartbeat::message(self.settings.amphora_id, document.as_deref(), &facts);
        let controllers = document
            .map(|document| document.heartbeat.controllers.clone())
            .filter(|controllers| !controllers.is_empty())
            .unwrap_or_else(|| self.settings.controllers.clone());
        (message, controllers)
    }

    pub(crate) fn heartbeat_interval(&self) -> Duration {
        self.document()
            .map_or(self.settings.heartbeat_interval, |document| {
                Duration::from_millis(document.heartbeat.interval_ms)
            })
    }

    pub(crate) fn heartbeat_key(&self) -> &[u8] {
        self.settings.heartbeat_key.expose()
    }

    pub(crate) async fn news(&self) {
        self.news.notified().await;
    }

    /// Saves the counters and ends what lives in this process only.
    pub async fn stop(&self) {
        let _applying = self.applying.lock().await;
        let readings = self.plane.readings().await;
        let saved = {
            let mut totals = self.lock_totals();
            take_counters(&mut totals, &readings);
            totals.save(&self.settings.state_dir)
        };
        if let Err(error) = saved {
            tracing::warn!(%error, "counters not saved");
        }
        self.plane.stop().await;
    }

    /// Before they are told: counts that are lost with the answer are better than counts told twice.
    fn save(&self, totals: &Totals) {
        if let Err(error) = totals.save(&self.settings.state_dir) {
            tracing::debug!(%error, "counters not saved");
        }
    }

    fn document(&self) -> Option<Arc<AmphoraConfig>> {
        self.read_state().document.clone()
    }

    fn read_state(&self) -> std::sync::RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_totals(&self) -> std::sync::MutexGuard<'_, Totals> {
        self.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn listeners(document: Option<&AmphoraConfig>) -> impl Iterator<Item = Uuid> + '_ {
    document
        .into_iter()
        .flat_map(|document| document.listeners.iter().map(|listener| listener.id))
}

fn take_counters(totals: &mut Totals, readings: &Readings) {
    if let Some(fast) = &readings.fast {
        totals.read_fast(fast.clone());
    }
    if let Some(proxy) = &readings.proxy {
        totals.read_proxy(proxy.clone());
    }
}

/// An error with its causes, for a log line or an answer.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}

#[cfg(test)]
pub(crate) mod tests;
