use amphora_api::{HeartbeatError, encode_heartbeat};

use super::graphs::{graph, healthy};
use crate::health_manager::HeartbeatKeys;
use crate::health_manager::process::samples_of;
use crate::health_manager::service::decode;

#[test]
fn either_of_two_keys_is_good_while_one_replaces_the_other() {
    let message = healthy(&graph(1), 1);
    let keys = HeartbeatKeys::new([b"new".to_vec(), b"old".to_vec()]);
    for key in [&b"new"[..], b"old"] {
        let datagram = encode_heartbeat(&message, key).unwrap();
        assert_eq!(decode(&datagram, &keys), Ok(message.clone()));
    }
    let forged = encode_heartbeat(&message, b"guess").unwrap();
    assert_eq!(decode(&forged, &keys), Err(HeartbeatError::BadHmac));
    let none = HeartbeatKeys::new([]);
    assert_eq!(decode(&forged, &none), Err(HeartbeatError::BadHmac));
}

#[test]
fn keys_do_not_show_in_debug_output() {
    let keys = HeartbeatKeys::new([b"secret".to_vec()]);
    assert_eq!(format!("{keys:?}"), "HeartbeatKeys(1 redacted)");
}

#[test]
fn counters_are_read_as_the_version_of_the_message_means_them() {
    use lb_store::Reading;
    let graph = graph(0);
    let id = graph.amphorae[0].id;
    let mut message = healthy(&graph, 1);
    let reading = |message: &_| samples_of(id, message)[0].reading;
    assert!(matches!(reading(&message), Reading::Deltas(_)));
    message.ver = 2;
    assert!(matches!(
        reading(&message),
        Reading::Totals { epoch: 0, .. }
    ));
    message.ver = 3;
    message.totals.insert(
        graph.listeners[0].id.0,
        amphora_api::HeartbeatTotals {
            epoch: 7,
            ..Default::default()
        },
    );
    assert_eq!(samples_of(id, &message).len(), 1);
    assert!(matches!(
        reading(&message),
        Reading::Totals { epoch: 7, .. }
    ));
}
