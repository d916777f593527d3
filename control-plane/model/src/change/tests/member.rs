//! Rules of a member, and the batch update of all members of a pool.

use serde_json::{Value, json};

use super::{LATER, active, batch, merge, statuses, text};
use crate::change::create_member;
use crate::spec::MemberCreate;
use crate::{MemberId, OperatingStatus, Rules};

#[test]
fn rules_of_a_member() {
    let cases: Vec<(Value, &str)> = vec![
        (json!({}), "ok"),
        (json!({"subnet_id": ""}), "ok"),
        (json!({"weight": 256}), "ok"),
        (
            json!({"weight": 257}),
            "Invalid input for field/attribute weight. Value: '257'. Value should be lower or equal to 256",
        ),
        (
            json!({"address": "10.0.0.21"}),
            "Another member on this pool is already using ip 10.0.0.21 on protocol_port 80",
        ),
        (json!({"address": "10.0.0.21", "protocol_port": 81}), "ok"),
        (
            json!({"address": "169.254.169.254"}),
            "169.254.169.254 is not a valid option for member address",
        ),
        (
            json!({"address": "::ffff:169.254.169.254"}),
            "::ffff:169.254.169.254 is not a valid option for member address",
        ),
        (
            json!({"address": "web1"}),
            "Invalid input for field/attribute address. Value: 'web1'. Value should be IPv4 or IPv6 format",
        ),
        (
            json!({"request_sriov": true}),
            "Validation failure: The flavor of the load balancer does not allow SR-IOV members.",
        ),
        (
            json!({"subnet_id": "x"}),
            "Invalid input for field/attribute subnet_id. Value: 'x'. Value should be UUID format",
        ),
    ];
    for (fields, expected) in cases {
        let mut graph = active();
        let mut object = json!({"address": "10.0.0.30", "protocol_port": 80});
        merge(&mut object, fields.clone());
        let pool = graph.pools[0].id;
        let result = MemberCreate::decode(&json!({"member": object})).and_then(|spec| {
            create_member(
                &mut graph,
                pool,
                &spec,
                MemberId::random(),
                &Rules::default(),
                LATER,
            )
        });
        assert_eq!(text(result), expected, "{fields}");
    }
}

#[test]
fn a_new_member_is_offline_when_its_pool_is_monitored_and_no_monitor_otherwise() {
    for (monitored, expected) in [
        (true, OperatingStatus::Offline),
        (false, OperatingStatus::NoMonitor),
    ] {
        let mut graph = active();
        if !monitored {
            graph.pools[0].health_monitor = None;
        }
        let pool = graph.pools[0].id;
        let spec =
            MemberCreate::decode(&json!({"member": {"address": "10.0.0.30", "protocol_port": 80}}))
                .unwrap();
        create_member(
            &mut graph,
            pool,
            &spec,
            MemberId::random(),
            &Rules::default(),
            LATER,
        )
        .unwrap();
        assert_eq!(graph.pools[0].members[2].operating_status, expected);
    }
}

#[test]
fn a_batch_resets_what_it_leaves_out_and_keeps_name_and_tags() {
    let mut graph = active();
    let member = &mut graph.pools[0].members[0];
    member.weight = 9;
    member.backup = true;
    member.monitor_port = Some(99);
    member.tags = vec!["t".into()];
    let name = member.name.clone();
    batch(
        &mut graph,
        json!([{"address": "10.0.0.21", "protocol_port": 80}]),
        true,
    )
    .unwrap();
    let member = &graph.pools[0].members[0];
    assert_eq!(
        (member.weight, member.backup, member.monitor_port),
        (1, false, None)
    );
    assert_eq!(
        (&member.name, member.tags.as_slice()),
        (&name, ["t".to_owned()].as_slice())
    );
    assert_eq!(statuses(&graph), "UUUU...");
}

#[test]
fn a_batch_that_asks_for_what_is_there_changes_nothing() {
    let mut graph = active();
    let before = graph.clone();
    batch(
        &mut graph,
        json!([
            {"address": "10.0.0.21", "protocol_port": 80},
            {"address": "10.0.0.22", "protocol_port": 80},
        ]),
        false,
    )
    .unwrap();
    assert_eq!(graph, before);
}

#[test]
fn an_empty_batch_deletes_every_member_unless_it_only_adds() {
    let mut graph = active();
    batch(&mut graph, json!([]), true).unwrap();
    assert_eq!(statuses(&graph), ".......");
    batch(&mut graph, json!([]), false).unwrap();
    assert_eq!(statuses(&graph), "UUUDD..");
}

/// P06
#[test]
fn the_same_member_twice_in_a_batch_is_refused_and_nothing_changes() {
    let old = json!({"address": "10.0.0.21", "protocol_port": 80});
    let new = json!({"address": "10.0.0.99", "protocol_port": 80});
    for (members, twice) in [
        (json!([old, old]), "10.0.0.21:80"),
        (json!([new, new]), "10.0.0.99:80"),
        (json!([old, new, old]), "10.0.0.21:80"),
    ] {
        let mut graph = active();
        let before = graph.clone();
        assert_eq!(
            text(batch(&mut graph, members, false)),
            format!("Validation failure: Member {twice} is given more than once.")
        );
        assert_eq!(graph, before);
    }
}
