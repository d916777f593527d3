//! Rules of an L7 policy, what its action keeps, and where it stands.

use serde_json::{Value, json};

use super::{LATER, active, everything, letters, merge, text};
use crate::change::{create_l7policy, delete_l7policy, update_l7policy};
use crate::sample;
use crate::spec::{L7PolicyCreate, L7PolicyUpdate};
use crate::{
    Fault, Graph, L7Policy, L7PolicyAction, L7PolicyId, ListenerProtocol,
    ProvisioningStatus as Status, Settlement, settle,
};

fn create(graph: &mut Graph, fields: Value) -> Result<(), Fault> {
    let listener = graph.listeners[0].id;
    let mut object = json!({"listener_id": listener, "action": "REJECT"});
    merge(&mut object, fields);
    let spec = L7PolicyCreate::decode(&json!({"l7policy": object}))?;
    let id = L7PolicyId::random();
    create_l7policy(
        graph,
        spec.listener_id,
        &spec.l7policy,
        id,
        &everything(),
        LATER,
    )
}

fn update(graph: &mut Graph, fields: Value) -> Result<(), Fault> {
    let id = graph.listeners[0].l7policies[0].id;
    let spec = L7PolicyUpdate::decode(&json!({"l7policy": fields}))?;
    update_l7policy(graph, id, &spec, &everything(), LATER)
}

/// Action, pool, URL, prefix and code.
fn target(policy: &L7Policy) -> String {
    let shown = |text: Option<&str>| text.unwrap_or("-").to_owned();
    format!(
        "{} {} {} {} {}",
        policy.action,
        policy.redirect_pool_id.map_or("-", |_| "pool"),
        shown(policy.redirect_url.as_deref()),
        shown(policy.redirect_prefix.as_deref()),
        policy
            .redirect_http_code
            .map_or("-".to_owned(), |code| code.to_string()),
    )
}

#[test]
fn a_new_policy_keeps_the_fields_of_its_action_and_needs_them() {
    let pool = active().pools[0].id;
    let tcp_pool = active().pools[1].id;
    let unknown = sample::uuid(0xdead);
    let url = "http://u";
    let cases: Vec<(Value, String)> = vec![
        (json!({}), "REJECT - - - -".into()),
        (
            json!({"redirect_pool_id": pool, "redirect_url": url, "redirect_prefix": url, "redirect_http_code": 301}),
            "REJECT - - - 301".into(),
        ),
        (
            json!({"action": "REDIRECT_TO_URL", "redirect_url": url}),
            "REDIRECT_TO_URL - http://u - 302".into(),
        ),
        (
            json!({"action": "REDIRECT_TO_URL", "redirect_url": url, "redirect_pool_id": pool, "redirect_prefix": url, "redirect_http_code": "307"}),
            "REDIRECT_TO_URL - http://u - 307".into(),
        ),
        (
            json!({"action": "REDIRECT_PREFIX", "redirect_prefix": url, "redirect_url": url, "redirect_http_code": 308}),
            "REDIRECT_PREFIX - - http://u 308".into(),
        ),
        (
            json!({"action": "REDIRECT_TO_POOL", "redirect_pool_id": pool, "redirect_url": url, "redirect_http_code": 303}),
            "REDIRECT_TO_POOL pool - - -".into(),
        ),
        (
            json!({"action": "REDIRECT_TO_POOL", "redirect_pool_id": pool, "redirect_prefix": url}),
            "Invalid L7 Policy arguments: redirect_pool_id and redirect_prefix exclude each other".into(),
        ),
        (
            json!({"action": "REDIRECT_PREFIX", "redirect_pool_id": pool, "redirect_prefix": url}),
            "Invalid L7 Policy arguments: redirect_pool_id and redirect_prefix exclude each other".into(),
        ),
        (
            json!({"action": "REDIRECT_TO_URL"}),
            "Invalid L7 Policy arguments: redirect_url must not be None for action REDIRECT_TO_URL".into(),
        ),
        (
            json!({"action": "REDIRECT_PREFIX", "redirect_url": url}),
            "Invalid L7 Policy arguments: redirect_prefix must not be None for action REDIRECT_PREFIX".into(),
        ),
        (
            json!({"action": "REDIRECT_TO_POOL"}),
            "Invalid L7 Policy arguments: redirect_pool_id must not be None for action REDIRECT_TO_POOL".into(),
        ),
        (
            json!({"action": "REDIRECT_TO_POOL", "redirect_pool_id": unknown}),
            format!("Pool {unknown} not found."),
        ),
        (
            json!({"action": "REDIRECT_TO_POOL", "redirect_pool_id": tcp_pool}),
            "Validation failure: The pool protocol 'TCP' is invalid while the listener protocol is 'HTTP'.".into(),
        ),
        (
            json!({"action": "FORWARD"}),
            "Invalid input for field/attribute action. Value: 'FORWARD'. Value should be one of: REDIRECT_PREFIX, REDIRECT_TO_POOL, REDIRECT_TO_URL, REJECT".into(),
        ),
        (
            json!({"redirect_url": "/relative"}),
            "Invalid input for field/attribute redirect_url. Value: '/relative'. Value should be an absolute http or https URL".into(),
        ),
        (
            json!({"redirect_http_code": 304}),
            "Invalid input for field/attribute redirect_http_code. Value: '304'. Value should be one of: 301, 302, 303, 307, 308".into(),
        ),
        (
            json!({"position": 0}),
            "Invalid input for field/attribute position. Value: '0'. Value should be greater or equal to 1".into(),
        ),
        (
            json!({"rules": [{"type": "PATH"}]}),
            "Validation failure: rules can only be given within a fully populated load balancer create".into(),
        ),
        (
            json!({"redirect_pool": {"name": "x"}}),
            "Validation failure: redirect_pool can only be given within a fully populated load balancer create".into(),
        ),
    ];
    for (fields, expected) in cases {
        let mut graph = active();
        let result = create(&mut graph, fields.clone());
        let found = match result {
            Ok(()) => target(&graph.listeners[0].l7policies[0]),
            Err(fault) => fault.to_string(),
        };
        assert_eq!(found, expected, "{fields}");
    }
}

#[test]
fn giving_a_target_switches_the_action_and_clears_the_other_targets() {
    let pool = active().pools[0].id;
    // Starts as REDIRECT_TO_URL http://u 301.
    let cases: Vec<(Value, &str)> = vec![
        (json!({"name": "n"}), "REDIRECT_TO_URL - http://u - 301"),
        (
            json!({"redirect_url": "http://v"}),
            "REDIRECT_TO_URL - http://v - 301",
        ),
        (
            json!({"redirect_http_code": null}),
            "REDIRECT_TO_URL - http://u - 302",
        ),
        (
            json!({"redirect_http_code": 303}),
            "REDIRECT_TO_URL - http://u - 303",
        ),
        (
            json!({"redirect_pool_id": pool}),
            "REDIRECT_TO_POOL pool - - -",
        ),
        (
            json!({"redirect_prefix": "http://p"}),
            "REDIRECT_PREFIX - - http://p 302",
        ),
        (
            json!({"redirect_prefix": "http://p", "redirect_http_code": 307}),
            "REDIRECT_PREFIX - - http://p 307",
        ),
        (json!({"action": "REJECT"}), "REJECT - - - -"),
        (
            json!({"action": "REJECT", "redirect_url": "http://v"}),
            "REJECT - - - -",
        ),
        (
            json!({"action": "REDIRECT_TO_POOL", "redirect_pool_id": pool}),
            "REDIRECT_TO_POOL pool - - -",
        ),
        (
            json!({"action": "REDIRECT_TO_POOL"}),
            "Invalid L7 Policy arguments: redirect_pool_id must not be None for action REDIRECT_TO_POOL",
        ),
        (
            json!({"redirect_url": null}),
            "Invalid L7 Policy arguments: redirect_url must not be None for action REDIRECT_TO_URL",
        ),
        (
            json!({"redirect_pool_id": pool, "redirect_url": "http://v"}),
            "Invalid L7 Policy arguments: redirect_pool_id and redirect_url exclude each other",
        ),
        (
            json!({"redirect_pool_id": pool, "redirect_prefix": "http://v"}),
            "Invalid L7 Policy arguments: redirect_pool_id and redirect_prefix exclude each other",
        ),
        (
            json!({"redirect_url": "http://v", "redirect_prefix": "http://v"}),
            "Invalid L7 Policy arguments: redirect_url and redirect_prefix exclude each other",
        ),
        (
            json!({}),
            "Invalid L7 Policy arguments: Invalid update options",
        ),
        (
            json!({"action": null}),
            "Invalid input for field/attribute action. Value: 'None'. Value must not be null.",
        ),
        (
            json!({"listener_id": sample::uuid(1)}),
            "Unknown attribute for argument l7policy: listener_id",
        ),
    ];
    for (fields, expected) in cases {
        let mut graph = active();
        let mut policy = sample::l7policy(1, L7PolicyAction::RedirectToUrl);
        policy.redirect_url = Some("http://u".to_owned());
        policy.redirect_http_code = Some(301);
        policy.provisioning_status = Status::Error;
        graph.listeners[0].l7policies = vec![policy];
        let found = match update(&mut graph, fields.clone()) {
            Ok(()) => target(&graph.listeners[0].l7policies[0]),
            Err(fault) => fault.to_string(),
        };
        assert_eq!(found, expected, "{fields}");
    }
}

/// P76
#[test]
fn only_a_listener_that_reads_http_has_policies() {
    for protocol in ListenerProtocol::ALL {
        let expected = match protocol {
            ListenerProtocol::Http | ListenerProtocol::TerminatedHttps => "ok".to_owned(),
            ListenerProtocol::Prometheus => {
                "Protocol PROMETHEUS listeners can not have child objects.".to_owned()
            }
            other => {
                format!(
                    "Validation failure: L7 policies are not allowed on {other} protocol listeners."
                )
            }
        };
        let mut graph = active();
        graph.listeners[0].protocol = *protocol;
        assert_eq!(text(create(&mut graph, json!({}))), expected, "{protocol}");
    }
}

/// Names by position.
fn order(graph: &Graph) -> String {
    let policies = &graph.listeners[0].l7policies;
    for (policy, position) in policies.iter().zip(1..) {
        assert_eq!(policy.position, position, "{}", policy.name);
    }
    policies.iter().map(|policy| policy.name.as_str()).collect()
}

#[test]
fn positions_stay_contiguous_through_inserts_moves_and_deletes() {
    let mut graph = active();
    for (name, position, expected) in [
        ("a", json!(5), "a"),
        ("b", json!(null), "ab"),
        ("c", json!(1), "cab"),
        ("d", json!(3), "cadb"),
        ("e", json!(2_147_483_647), "cadbe"),
    ] {
        create(&mut graph, json!({"name": name, "position": position})).unwrap();
        assert_eq!(order(&graph), expected);
        settle(&mut graph, &Settlement::default(), LATER);
    }
    for (position, expected) in [(4, "adbce"), (9, "dbcea"), (1, "dbcea"), (2, "bdcea")] {
        update(&mut graph, json!({"position": position})).unwrap();
        assert_eq!(order(&graph), expected);
        settle(&mut graph, &Settlement::default(), LATER);
    }
    let id = graph.listeners[0].l7policies[1].id;
    delete_l7policy(&mut graph, id, LATER).unwrap();
    assert_eq!(order(&graph), "bdcea");
    settle(&mut graph, &Settlement::default(), LATER);
    assert_eq!(order(&graph), "bcea");
}

#[test]
fn writes_lock_the_listener_and_need_only_the_load_balancer_active() {
    type Change = fn(&mut Graph) -> Result<(), Fault>;
    // Load balancer, listener, its policies.
    let calls: [(&str, Change, &str); 3] = [
        ("POST", |graph| create(graph, json!({})), "UUEC"),
        ("PUT", |graph| update(graph, json!({"name": "x"})), "UUU"),
        (
            "DELETE",
            |graph| {
                let id = graph.listeners[0].l7policies[0].id;
                delete_l7policy(graph, id, LATER)
            },
            "UUD",
        ),
    ];
    for (name, call, expected) in calls {
        let mut graph = active();
        let mut policy = sample::l7policy(1, L7PolicyAction::Reject);
        policy.provisioning_status = Status::Error;
        graph.listeners[0].l7policies = vec![policy];
        for status in Status::ALL {
            let mut graph = graph.clone();
            graph.load_balancer.provisioning_status = *status;
            let id = graph.load_balancer.id;
            let immutable = format!("Load Balancer {id} is immutable and cannot be updated.");
            let result = text(call(&mut graph));
            if *status == Status::Active {
                assert_eq!(result, "ok", "{name}");
                let listener = &graph.listeners[0];
                let found = letters(
                    [
                        graph.load_balancer.provisioning_status,
                        listener.provisioning_status,
                    ]
                    .into_iter()
                    .chain(
                        listener
                            .l7policies
                            .iter()
                            .map(|policy| policy.provisioning_status),
                    ),
                );
                assert_eq!(found, expected, "{name}");
            } else {
                assert_eq!(result, immutable, "{name} while {status}");
            }
        }
    }
}
