//! The agent over a data plane that only remembers.

use std::collections::{BTreeMap, VecDeque};

use amphora_api::ListenerStats;
use async_trait::async_trait;

use super::*;
use crate::samples;

/// Remembers what it was told and answers as it was set up to.
#[derive(Default)]
pub(crate) struct Remembering {
    pub(crate) applied: Mutex<Vec<u64>>,
    /// Answers of the next calls of `apply`; after them all is well.
    pub(crate) outcomes: Mutex<VecDeque<Outcome>>,
    pub(crate) counters: Mutex<AmphoraStats>,
    changed: Notify,
}

#[async_trait]
impl DataPlane for Remembering {
    async fn apply(&self, document: &AmphoraConfig) -> Outcome {
        self.applied.lock().unwrap().push(document.generation);
        let outcome = self.outcomes.lock().unwrap().pop_front();
        outcome.unwrap_or_default()
    }

    async fn refresh(&self, _: &AmphoraConfig) -> Outcome {
        Outcome::default()
    }

    async fn member_changed(&self) {
        self.changed.notified().await;
    }

    async fn readings(&self) -> Readings {
        Readings {
            proxy: Some(self.counters.lock().unwrap().clone()),
            ..Readings::default()
        }
    }

    async fn stop(&self) {}
}

pub(crate) struct Fixture {
    pub(crate) agent: Arc<Agent>,
    pub(crate) plane: Arc<Remembering>,
    pub(crate) directory: tempfile::TempDir,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Fixture::on(tempfile::tempdir().unwrap())
    }

    fn on(directory: tempfile::TempDir) -> Self {
        let plane = Arc::new(Remembering::default());
        let settings = Settings {
            amphora_id: samples::AMPHORA,
            state_dir: directory.path().to_owned(),
            controllers: vec!["198.18.0.9:5555".parse().unwrap()],
            heartbeat_interval: Duration::from_secs(10),
            heartbeat_key: Secret::new("k".into()),
        };
        let agent = Agent::new(settings, Arc::clone(&plane) as Arc<dyn DataPlane>).unwrap();
        Fixture {
            agent,
            plane,
            directory,
        }
    }

    /// The agent's process ends and another begins on the same disk.
    fn restart(self) -> Self {
        Fixture::on(self.directory)
    }

    /// Puts the sample document of this generation.
    async fn put(&self, generation: u64) -> Result<ApplyReport, PutError> {
        self.agent.put_config(samples::document(generation)).await
    }

    /// The next applies leave a problem each.
    fn break_applies(&self, count: usize) {
        let broken = Outcome {
            problems: vec!["no interface yet".into()],
            ..Outcome::default()
        };
        let mut outcomes = self.plane.outcomes.lock().unwrap();
        outcomes.extend(std::iter::repeat_n(broken, count));
    }

    /// The proxy has counted so many connections of the HTTP listener.
    fn count(&self, total_connections: u64) {
        let counters = ListenerStats {
            total_connections,
            ..ListenerStats::default()
        };
        let listeners = BTreeMap::from([(samples::HTTP_LISTENER, counters)]);
        *self.plane.counters.lock().unwrap() = AmphoraStats {
            listeners,
            ..AmphoraStats::default()
        };
    }

    fn applied(&self) -> Vec<u64> {
        self.plane.applied.lock().unwrap().clone()
    }
}

#[tokio::test]
async fn a_document_is_stored_applied_and_shown() {
    let fixture = Fixture::new();
    let report = fixture.put(3).await.unwrap();
    assert!(report.changed);
    assert_eq!(fixture.applied(), [3]);
    let info = fixture.agent.info();
    assert_eq!(info.generation, Some(3));
    assert_eq!(info.config_digest, Some(samples::document(3).digest()));
}

#[tokio::test]
async fn the_same_document_again_changes_nothing() {
    let fixture = Fixture::new();
    fixture.put(3).await.unwrap();
    let report = fixture.put(3).await.unwrap();
    assert!(!report.changed);
}

#[tokio::test]
async fn an_older_generation_is_refused() {
    let fixture = Fixture::new();
    fixture.put(3).await.unwrap();
    let error = fixture.put(2).await.unwrap_err();
    assert!(matches!(
        error,
        PutError::Older {
            got: 2,
            in_force: 3
        }
    ));
    assert_eq!(fixture.applied(), [3]);
}

#[tokio::test]
async fn the_same_generation_with_new_content_is_refused() {
    let fixture = Fixture::new();
    fixture.put(3).await.unwrap();
    let mut other = samples::document(3);
    other.listeners.pop();
    let error = fixture.agent.put_config(other).await.unwrap_err();
    assert!(matches!(error, PutError::Conflict { generation: 3 }));
    assert_eq!(
        fixture.agent.info().config_digest,
        Some(samples::document(3).digest())
    );
}

#[tokio::test]
async fn another_amphoras_document_is_refused() {
    let fixture = Fixture::new();
    let mut document = samples::document(1);
    document.amphora_id = Uuid::from_u128(0xdead);
    let error = fixture.agent.put_config(document).await.unwrap_err();
    assert!(matches!(error, PutError::Invalid(ref fault) if fault.field == "amphora_id"));
}

#[tokio::test]
async fn a_full_disk_keeps_the_old_document_in_force() {
    let fixture = Fixture::new();
    fixture.put(3).await.unwrap();
    let beside = fixture.directory.path().join("config.json.new");
    std::os::unix::fs::symlink("/dev/full", beside).unwrap();
    let error = fixture.put(4).await.unwrap_err();
    assert!(matches!(error, PutError::Ledger(_)));
    assert_eq!(fixture.agent.info().generation, Some(3));
    assert_eq!(fixture.applied(), [3]);
    // Room again: the same document is taken.
    fixture.put(4).await.unwrap();
    assert_eq!(fixture.agent.info().generation, Some(4));
}

#[tokio::test]
async fn a_restarted_agent_puts_its_ledger_into_force() {
    let fixture = Fixture::new();
    fixture.put(3).await.unwrap();
    let fixture = fixture.restart();
    fixture.agent.resume().await;
    assert_eq!(fixture.applied(), [3]);
    let error = fixture.put(2).await.unwrap_err();
    assert!(matches!(error, PutError::Older { .. }));
}

#[tokio::test]
async fn a_corrupt_ledger_is_shown_and_the_next_document_heals_it() {
    let fixture = Fixture::new();
    std::fs::write(fixture.directory.path().join("config.json"), "{").unwrap();
    let fixture = fixture.restart();
    let info = fixture.agent.info();
    assert_eq!(info.generation, None);
    assert!(info.problems[0].contains("understand ledger"));
    fixture.put(1).await.unwrap();
    assert!(fixture.agent.info().problems.is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_done_is_tried_again() {
    let fixture = Fixture::new();
    fixture.break_applies(1);
    let error = fixture.put(3).await.unwrap_err();
    assert!(matches!(error, PutError::Incomplete { generation: 3, .. }));
    assert_eq!(fixture.agent.info().problems, ["no interface yet"]);
    let keeper = tokio::spawn(Arc::clone(&fixture.agent).keep_in_force());
    tokio::time::sleep(RETRY * 3).await;
    keeper.abort();
    assert_eq!(fixture.applied(), [3, 3]);
    assert!(fixture.agent.info().problems.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_members_change_does_not_hide_what_is_still_not_done() {
    let fixture = Fixture::new();
    fixture.break_applies(2);
    fixture.put(3).await.unwrap_err();
    let keeper = tokio::spawn(Arc::clone(&fixture.agent).keep_in_force());
    fixture.plane.changed.notify_one();
    // Less than it takes until the next try.
    tokio::time::sleep(RETRY / 2).await;
    assert_eq!(fixture.agent.info().problems, ["no interface yet"]);
    tokio::time::sleep(RETRY * 2).await;
    keeper.abort();
    assert!(fixture.agent.info().problems.is_empty());
}

#[tokio::test]
async fn counters_do_not_fall_when_the_agent_is_restarted() {
    let fixture = Fixture::new();
    fixture.put(3).await.unwrap();
    fixture.count(7);
    let (message, controllers) = fixture.agent.heartbeat(0, 1).await;
    assert_eq!(message.listeners[&samples::HTTP_LISTENER].stats.totconns, 7);
    assert_eq!(controllers, ["198.18.0.1:5555".parse().unwrap()]);
    fixture.agent.stop().await;

    let fixture = fixture.restart();
    fixture.count(2);
    let stats = fixture.agent.stats().await;
    assert_eq!(
        stats.listeners[&samples::HTTP_LISTENER].total_connections,
        9
    );
    let (message, _) = fixture.agent.heartbeat(0, 1).await;
    assert_eq!(message.listeners[&samples::HTTP_LISTENER].stats.totconns, 2);
}

#[tokio::test]
async fn before_the_first_document_heartbeats_go_where_the_file_says() {
    let fixture = Fixture::new();
    let (message, controllers) = fixture.agent.heartbeat(0, 1).await;
    assert!(message.listeners.is_empty());
    assert_eq!(controllers, ["198.18.0.9:5555".parse().unwrap()]);
    assert_eq!(fixture.agent.heartbeat_interval(), Duration::from_secs(10));
}
