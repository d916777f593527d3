//! Rules of an L7 rule: types, comparisons, keys and values.

use serde_json::{Value, json};

use super::{LATER, active, everything, letters, merge, text};
use crate::change::{create_l7rule, delete_l7rule, update_l7rule};
use crate::sample;
use crate::spec::{L7RuleUpdate, NewL7Rule};
use crate::{
    Fault, Graph, L7PolicyAction, L7PolicyId, L7Rule, L7RuleCompareType, L7RuleId, L7RuleType,
    ProvisioningStatus as Status, Rules,
};

/// A policy with one ACTIVE rule on paths.
fn with_policy() -> (Graph, L7PolicyId) {
    let mut graph = active();
    let mut policy = sample::l7policy(1, L7PolicyAction::Reject);
    policy.rules = vec![sample::l7rule(1)];
    let id = policy.id;
    graph.listeners[0].l7policies = vec![policy];
    sample::set_status(&mut graph, Status::Active);
    (graph, id)
}

fn create(graph: &mut Graph, fields: Value) -> Result<(), Fault> {
    let policy = graph.listeners[0].l7policies[0].id;
    let mut object = json!({"type": "PATH", "compare_type": "EQUAL_TO", "value": "/"});
    merge(&mut object, fields);
    let spec = NewL7Rule::decode(&json!({"rule": object}))?;
    create_l7rule(
        graph,
        policy,
        &spec,
        L7RuleId::random(),
        &everything(),
        LATER,
    )
}

fn update(graph: &mut Graph, fields: Value) -> Result<L7Rule, Fault> {
    let policy = &graph.listeners[0].l7policies[0];
    let (policy, id) = (policy.id, policy.rules[0].id);
    let spec = L7RuleUpdate::decode(&json!({"rule": fields}))?;
    update_l7rule(graph, policy, id, &spec, &everything(), LATER)?;
    Ok(graph.listeners[0].l7policies[0].rules[0].clone())
}

#[test]
fn each_type_takes_its_own_comparisons_and_key() {
    let value = |kind: L7RuleType| match kind {
        L7RuleType::SslConnHasCert => "True",
        L7RuleType::SslVerifyResult => "0",
        _ => "a",
    };
    for kind in L7RuleType::ALL {
        for compare in L7RuleCompareType::ALL {
            let allowed = match kind {
                L7RuleType::FileType => matches!(
                    compare,
                    L7RuleCompareType::Regex | L7RuleCompareType::EqualTo
                ),
                L7RuleType::SslConnHasCert | L7RuleType::SslVerifyResult => {
                    *compare == L7RuleCompareType::EqualTo
                }
                _ => true,
            };
            let needs_key = matches!(
                kind,
                L7RuleType::Header | L7RuleType::Cookie | L7RuleType::SslDnField
            );
            let takes_key = !matches!(
                kind,
                L7RuleType::SslConnHasCert | L7RuleType::SslVerifyResult
            );
            for key in [json!(null), json!("O-1")] {
                let fields = json!({"type": kind, "compare_type": compare, "key": key, "value": value(*kind)});
                let expected = if !allowed {
                    format!(
                        "Error parsing L7Rule: compare_type {compare} is invalid for rule type {kind}"
                    )
                } else if key.is_null() && needs_key {
                    format!("Error parsing L7Rule: rule type {kind} needs a key")
                } else if !key.is_null() && !takes_key {
                    format!("Error parsing L7Rule: rule type {kind} does not take a key")
                } else {
                    "ok".to_owned()
                };
                let (mut graph, _) = with_policy();
                assert_eq!(
                    text(create(&mut graph, fields.clone())),
                    expected,
                    "{fields}"
                );
            }
        }
    }
}

/// P53
#[test]
fn keys_and_values_cannot_break_out_of_what_they_are_compared_with() {
    let cases: Vec<(Value, &str)> = vec![
        (json!({"value": "/a?b=c&d#e"}), "ok"),
        (json!({"value": "\"two words\""}), "ok"),
        (
            json!({"value": "two words"}),
            "Error parsing L7Rule: Invalid characters in value",
        ),
        (
            json!({"value": "\"open quote"}),
            "Error parsing L7Rule: Invalid characters in value",
        ),
        (
            json!({"value": "é"}),
            "Error parsing L7Rule: Invalid characters in value",
        ),
        (
            json!({"value": "a\r\nb"}),
            "Invalid input for field/attribute value. Value: 'a\r\nb'. Value should be a single line",
        ),
        (
            json!({"value": "a\u{0}"}),
            "Invalid input for field/attribute value. Value: 'a\u{0}'. Value should not contain a NUL character",
        ),
        (
            json!({"value": ""}),
            "Invalid input for field/attribute value. Value: ''. Value should not be empty",
        ),
        (
            json!({"value": null}),
            "Invalid input for field/attribute value. Value: 'None'. Mandatory field missing.",
        ),
        (
            json!({"value": 5}),
            "Invalid input for field/attribute value. Value: '5'. Wrong type. Expected 'str'",
        ),
        (json!({"type": "COOKIE", "key": "a", "value": "b=c"}), "ok"),
        (
            json!({"type": "COOKIE", "key": "a", "value": "b;c"}),
            "Error parsing L7Rule: Invalid characters in value",
        ),
        (
            json!({"type": "COOKIE", "key": "a", "value": "\"b\""}),
            "Error parsing L7Rule: Invalid characters in value",
        ),
        (
            json!({"type": "HEADER", "key": "a b"}),
            "Error parsing L7Rule: Invalid characters in key",
        ),
        (
            json!({"type": "HEADER", "key": "a:"}),
            "Error parsing L7Rule: Invalid characters in key",
        ),
        (
            json!({"type": "HEADER", "key": "a\nb"}),
            "Invalid input for field/attribute key. Value: 'a\nb'. Value should be a single line",
        ),
        (json!({"type": "HEADER", "key": "X_a!"}), "ok"),
        (
            json!({"type": "SSL_DN_FIELD", "key": "1a"}),
            "Error parsing L7Rule: Invalid characters in key",
        ),
        (
            json!({"type": "SSL_DN_FIELD", "key": "a_b"}),
            "Error parsing L7Rule: Invalid characters in key",
        ),
        (
            json!({"type": "SSL_DN_FIELD", "key": "CN", "value": "two words"}),
            "ok",
        ),
        (json!({"type": "SSL_CONN_HAS_CERT", "value": "tRuE"}), "ok"),
        (
            json!({"type": "SSL_CONN_HAS_CERT", "value": "false"}),
            "Error parsing L7Rule: rule type SSL_CONN_HAS_CERT needs the value True",
        ),
        (json!({"type": "SSL_VERIFY_RESULT", "value": "19"}), "ok"),
        (
            json!({"type": "SSL_VERIFY_RESULT", "value": "-1"}),
            "Error parsing L7Rule: rule type SSL_VERIFY_RESULT needs a value that is a number from 0",
        ),
        (
            json!({"compare_type": "REGEX", "value": "^/(a|b)+ .*$"}),
            "ok",
        ),
        (
            json!({"compare_type": "REGEX", "value": "(a"}),
            "Error parsing L7Rule: invalid regular expression: error: unclosed group",
        ),
        (
            json!({"compare_type": "REGEX", "value": "(a{1000}){1000}"}),
            "Error parsing L7Rule: the regular expression is too large",
        ),
        (
            json!({"type": "SSL_DN_FIELD", "key": "CN", "compare_type": "REGEX", "value": "["}),
            "Error parsing L7Rule: invalid regular expression: error: unclosed character class",
        ),
        (
            json!({"type": "METHOD"}),
            "Invalid input for field/attribute type. Value: 'METHOD'. Value should be one of: COOKIE, FILE_TYPE, HEADER, HOST_NAME, PATH, SSL_CONN_HAS_CERT, SSL_VERIFY_RESULT, SSL_DN_FIELD",
        ),
    ];
    for (fields, expected) in cases {
        let (mut graph, _) = with_policy();
        assert_eq!(
            text(create(&mut graph, fields.clone())),
            expected,
            "{fields}"
        );
    }
}

#[test]
fn an_update_merges_with_what_is_stored_and_checks_the_result() {
    let (mut graph, _) = with_policy();
    let fault = update(&mut graph.clone(), json!({"type": "HEADER"})).unwrap_err();
    assert_eq!(
        fault.to_string(),
        "Error parsing L7Rule: rule type HEADER needs a key"
    );
    let rule = update(&mut graph, json!({"type": "HEADER", "key": "X-A"})).unwrap();
    assert_eq!((rule.kind, rule.value.as_str()), (L7RuleType::Header, "/1"));
    assert_eq!(rule.key.as_deref(), Some("X-A"));
    sample::set_status(&mut graph, Status::Active);
    // A path has no key, whatever was there.
    let rule = update(&mut graph, json!({"type": "PATH", "invert": true})).unwrap();
    assert_eq!((rule.key, rule.invert), (None, true));
    sample::set_status(&mut graph, Status::Active);
    let rule = update(
        &mut graph,
        json!({"invert": null, "admin_state_up": null, "tags": null}),
    )
    .unwrap();
    assert_eq!((rule.invert, rule.admin_state_up), (false, false));
    for field in ["type", "compare_type", "value"] {
        let (mut graph, _) = with_policy();
        let fault = update(&mut graph, json!({field: null})).unwrap_err();
        assert_eq!(
            fault.to_string(),
            format!(
                "Invalid input for field/attribute {field}. Value: 'None'. Value must not be null."
            )
        );
    }
}

#[test]
fn a_key_that_is_not_used_is_stored_at_first_and_gone_after_an_update() {
    let (mut graph, _) = with_policy();
    create(
        &mut graph,
        json!({"type": "HOST_NAME", "value": "a", "key": "k"}),
    )
    .unwrap();
    let rules = &graph.listeners[0].l7policies[0].rules;
    assert_eq!(rules[1].key.as_deref(), Some("k"));
}

#[test]
fn the_fifty_first_rule_is_too_many() {
    let (mut graph, policy) = with_policy();
    graph.listeners[0].l7policies[0].rules = (0..49).map(sample::l7rule).collect();
    assert_eq!(text(create(&mut graph, json!({}))), "ok");
    sample::set_status(&mut graph, Status::Active);
    assert_eq!(
        text(create(&mut graph, json!({}))),
        format!("Too many rules on L7 policy {policy}")
    );
}

#[test]
fn writes_lock_listener_and_policy_and_need_policy_and_load_balancer_active() {
    type Change = fn(&mut Graph) -> Result<(), Fault>;
    // Load balancer, listener, policy, its rules.
    let calls: [(&str, Change, &str); 3] = [
        ("POST", |graph| create(graph, json!({})), "UUU.C"),
        ("PUT", |graph| update(graph, json!({})).map(drop), "UUUU"),
        (
            "DELETE",
            |graph| {
                let policy = &graph.listeners[0].l7policies[0];
                let (policy, id) = (policy.id, policy.rules[0].id);
                delete_l7rule(graph, policy, id, LATER)
            },
            "UUUD",
        ),
    ];
    for (name, call, expected) in calls {
        let (graph, policy) = with_policy();
        let mut done = graph.clone();
        assert_eq!(text(call(&mut done)), "ok", "{name}");
        let listener = &done.listeners[0];
        let mut words = vec![
            done.load_balancer.provisioning_status,
            listener.provisioning_status,
            listener.l7policies[0].provisioning_status,
        ];
        words.extend(
            listener.l7policies[0]
                .rules
                .iter()
                .map(|rule| rule.provisioning_status),
        );
        assert_eq!(letters(words), expected, "{name}");

        let mut locked = graph.clone();
        locked.listeners[0].l7policies[0].provisioning_status = Status::Error;
        assert_eq!(
            text(call(&mut locked)),
            format!("L7 Policy {policy} is immutable and cannot be updated."),
            "{name}"
        );
        let mut locked = graph.clone();
        locked.load_balancer.provisioning_status = Status::PendingUpdate;
        let id = graph.load_balancer.id;
        assert_eq!(
            text(call(&mut locked)),
            format!("Load Balancer {id} is immutable and cannot be updated."),
            "{name}"
        );
    }
}

#[test]
fn a_provider_without_a_rule_type_says_so() {
    let (mut graph, policy) = with_policy();
    let spec = NewL7Rule::decode(
        &json!({"rule": {"type": "PATH", "compare_type": "EQUAL_TO", "value": "/"}}),
    )
    .unwrap();
    let id = L7RuleId::random();
    assert_eq!(
        text(create_l7rule(
            &mut graph,
            policy,
            &spec,
            id,
            &Rules::default(),
            LATER
        )),
        "Provider 'amphora' does not support a requested option: PATH L7 rule"
    );
}
