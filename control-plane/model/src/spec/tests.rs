//! Any JSON at all is decoded or refused; nothing panics, and what is decoded can be built.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::change::{GraphSeed, ResolvedVip, build_graph};
use crate::{Rules, sample};

const NAMES: &[&str] = &[
    "name",
    "description",
    "admin_state_up",
    "tags",
    "protocol",
    "protocol_port",
    "listeners",
    "pools",
    "default_pool",
    "l7policies",
    "rules",
    "action",
    "position",
    "redirect_url",
    "redirect_pool",
    "redirect_pool_id",
    "redirect_http_code",
    "listener_id",
    "compare_type",
    "key",
    "value",
    "invert",
    "members",
    "healthmonitor",
    "lb_algorithm",
    "session_persistence",
    "type",
    "cookie_name",
    "address",
    "weight",
    "subnet_id",
    "delay",
    "timeout",
    "max_retries",
    "url_path",
    "expected_codes",
    "http_version",
    "domain_name",
    "allowed_cidrs",
    "insert_headers",
    "hsts_max_age",
    "connection_limit",
    "vip_subnet_id",
    "additional_vips",
    "vip_address",
    "loadbalancer_id",
    "pool_id",
    "tls_versions",
    "timeout_client_data",
    "colour",
];
const WORDS: &[&str] = &[
    "",
    "TCP",
    "HTTP",
    "UDP",
    "ROUND_ROBIN",
    "SOURCE_IP",
    "true",
    "80",
    "-1",
    "1.1",
    "10.0.0.1",
    "10.0.0.1/99",
    "::",
    "200-204",
    "/x",
    "a",
    "REDIRECT_TO_POOL",
    "REJECT",
    "http://a",
    "PATH",
    "REGEX",
    "(",
    "8f2b7a4e-1c3d-4e5f-8a9b-0c1d2e3f4a5b",
    "\u{0}",
    "é",
];

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (0_i64..300).prop_map(Value::from),
        prop::sample::select(WORDS).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((prop::sample::select(NAMES), inner), 0..8).prop_map(|pairs| {
                let map: Map<String, Value> = pairs
                    .into_iter()
                    .map(|(name, value)| (name.to_owned(), value))
                    .collect();
                Value::Object(map)
            }),
        ]
    })
}

fn build(spec: &LoadBalancerCreate) -> bool {
    let lb = sample::load_balancer(1);
    let seed = GraphSeed {
        id: lb.id,
        project_id: lb.project_id,
        provider: lb.provider,
        topology: lb.topology,
        vip: ResolvedVip {
            vip: lb.vip,
            additional: Vec::new(),
        },
    };
    build_graph(spec, seed, &Rules::default(), sample::NOW).is_ok()
}

proptest! {
    #[test]
    fn no_json_makes_a_decoder_panic(value in any_json()) {
        for root in [
            "loadbalancer", "listener", "pool", "member", "members", "healthmonitor", "l7policy", "rule",
        ] {
            let body = json!({root: value});
            if let Ok(spec) = LoadBalancerCreate::decode(&body) {
                build(&spec);
            }
            let refused = [
                LoadBalancerUpdate::decode(&body).is_err(),
                ListenerCreate::decode(&body).is_err(),
                ListenerUpdate::decode(&body).is_err(),
                PoolCreate::decode(&body).is_err(),
                PoolUpdate::decode(&body).is_err(),
                MemberCreate::decode(&body).is_err(),
                MemberUpdate::decode(&body).is_err(),
                MemberBatch::decode(&body, false).is_err(),
                HealthMonitorCreate::decode(&body).is_err(),
                HealthMonitorUpdate::decode(&body).is_err(),
                L7PolicyCreate::decode(&body).is_err(),
                L7PolicyUpdate::decode(&body).is_err(),
                NewL7Rule::decode(&body).is_err(),
                L7RuleUpdate::decode(&body).is_err(),
            ];
            // Each root belongs to two decoders at most.
            prop_assert!(refused.iter().filter(|refused| !**refused).count() <= 2);
        }
        prop_assert!(LoadBalancerCreate::decode(&value).is_err());
    }
}
