use lb_model::{AmphoraId, AmphoraStatus, ProvisioningStatus};

use super::fixtures::{at, database, heard_at, plain_graph};
use crate::{Heard, MessageMark};

#[tokio::test]
async fn silence_counts_from_the_last_heartbeat_or_else_from_the_last_change() {
    let database = database().await;
    let store = database.store;
    // status, updated, heard, stale before 100
    let cases = [
        (AmphoraStatus::Allocated, None, Some(50), true),
        (AmphoraStatus::Allocated, None, Some(150), false),
        (AmphoraStatus::Allocated, None, None, true),
        (AmphoraStatus::Allocated, Some(150), None, false),
        (AmphoraStatus::Allocated, Some(150), Some(50), true),
        (AmphoraStatus::FailoverStopped, None, Some(50), true),
        (AmphoraStatus::Booting, None, None, false),
        (AmphoraStatus::PendingDelete, None, Some(50), false),
        (AmphoraStatus::Error, None, Some(50), false),
        (AmphoraStatus::Deleted, None, Some(50), false),
    ];
    let mut expected = Vec::new();
    for (status, updated, heard, stale) in cases {
        let mut graph = plain_graph(ProvisioningStatus::Active);
        graph.amphorae[0].status = status;
        graph.amphorae[0].updated_at = updated.map(at);
        store.insert_graph(&graph).await.unwrap();
        let id = graph.amphorae[0].id;
        if let Some(heard) = heard {
            store
                .record_heartbeats(&[heard_at(id, heard), heard_at(id, heard - 5)])
                .await
                .unwrap();
        }
        if stale {
            expected.push((id, heard.map(at)));
        }
    }
    expected.sort();
    let found: Vec<_> = store
        .stale_amphorae(at(100))
        .await
        .unwrap()
        .into_iter()
        .map(|stale| (stale.amphora_id, stale.last_update))
        .collect();
    assert_eq!(found, expected);
    assert_eq!(store.watched_amphorae().await.unwrap(), 6);
}

#[tokio::test]
async fn a_busy_mark_survives_heartbeats() {
    let database = database().await;
    let store = database.store;
    let graph = plain_graph(ProvisioningStatus::Active);
    store.insert_graph(&graph).await.unwrap();
    let id = graph.amphorae[0].id;
    store.record_heartbeats(&[heard_at(id, 1)]).await.unwrap();
    store.set_busy(&[id], true).await.unwrap();
    store.record_heartbeats(&[heard_at(id, 2)]).await.unwrap();
    let stale = store.stale_amphorae(at(100)).await.unwrap();
    assert!(stale[0].busy);
    assert_eq!(stale[0].last_update, Some(at(2)));
}

#[tokio::test]
async fn a_target_tells_status_revision_and_newest_message() {
    let database = database().await;
    let store = database.store;
    let graph = plain_graph(ProvisioningStatus::Active);
    store.insert_graph(&graph).await.unwrap();
    let id = graph.amphorae[0].id;
    let unknown = AmphoraId::random();
    let before = store.heartbeat_targets(&[id, unknown]).await.unwrap();
    assert_eq!(before.len(), 1);
    assert_eq!(before[&id].load_balancer_id, graph.load_balancer.id);
    let update = store
        .update_operating_statuses(graph.load_balancer.id, |graph| {
            graph.load_balancer.operating_status = lb_model::OperatingStatus::Error;
        })
        .await
        .unwrap()
        .unwrap();
    let after = store.heartbeat_targets(&[id]).await.unwrap();
    assert!(after[&id].revision > before[&id].revision);
    assert_eq!(after[&id].revision, update.revision);
    assert_eq!(after[&id].newest, None);
    let newest = MessageMark {
        seq: 7,
        sent_at_ms: None,
    };
    let heard = Heard {
        newest,
        ..heard_at(id, 3)
    };
    store.record_heartbeats(&[heard]).await.unwrap();
    let after = store.heartbeat_targets(&[id]).await.unwrap();
    assert_eq!(after[&id].newest, Some(newest));
}

#[tokio::test]
async fn amphorae_move_only_from_the_status_named() {
    let database = database().await;
    let store = database.store;
    let mut ids = Vec::new();
    for status in [AmphoraStatus::Allocated, AmphoraStatus::PendingDelete] {
        let mut graph = plain_graph(ProvisioningStatus::Active);
        graph.amphorae[0].status = status;
        store.insert_graph(&graph).await.unwrap();
        ids.push(graph.amphorae[0].id);
    }
    let moved = store
        .move_amphorae(
            &ids,
            AmphoraStatus::Allocated,
            AmphoraStatus::FailoverStopped,
        )
        .await
        .unwrap();
    assert_eq!(moved, 1);
    assert_eq!(store.stopped_amphorae().await.unwrap(), vec![ids[0]]);
}
