//! Body of `PUT /quotas/{project}`.

use serde_json::Value;

use super::decode::{Field, Object, integer};
use crate::{Fault, PerResource};

/// Largest limit there is.
const MAX: i64 = 2_000_000_000;

/// What limits are called, by both generations of clients.
pub const QUOTA_LIMITS: [&str; 9] = [
    "loadbalancer",
    "load_balancer",
    "listener",
    "pool",
    "member",
    "healthmonitor",
    "health_monitor",
    "l7policy",
    "l7rule",
];

/// New limits; null gives one back to the default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaUpdate(pub PerResource<Field<i32>>);

impl QuotaUpdate {
    pub fn decode(body: &Value) -> Result<Self, Fault> {
        let object = Object::root(body, "quota")?;
        object.only(&[&QUOTA_LIMITS])?;
        let limit = |name: &str| object.field(name, integer(-1, MAX));
        // Two have two names, for two generations of clients: the one without an underscore wins.
        let either = |name: &str, other: &str| {
            let (given, other) = (limit(name)?, limit(other)?);
            Ok::<_, Fault>(if given.is_absent() { other } else { given })
        };
        Ok(Self(PerResource {
            load_balancer: either("loadbalancer", "load_balancer")?,
            listener: limit("listener")?,
            pool: limit("pool")?,
            member: limit("member")?,
            health_monitor: either("healthmonitor", "health_monitor")?,
            l7policy: limit("l7policy")?,
            l7rule: limit("l7rule")?,
        }))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn limits_are_minus_one_to_two_thousand_millions() {
        for (value, expected) in [
            (json!(-1), Some(-1)),
            (json!(0), Some(0)),
            (json!("12"), Some(12)),
            (json!(2_000_000_000), Some(2_000_000_000)),
            (json!(2_000_000_001), None),
            (json!(-2), None),
            (json!("many"), None),
            (json!(true), None),
        ] {
            let decoded = QuotaUpdate::decode(&json!({"quota": {"listener": value}}));
            let expected = expected.map(Field::Value);
            assert_eq!(
                decoded.ok().map(|spec| spec.0.listener),
                expected,
                "{value}"
            );
        }
    }

    #[test]
    fn either_name_is_taken_and_the_one_without_an_underscore_wins() {
        let decode = |quota| QuotaUpdate::decode(&json!({ "quota": quota })).unwrap().0;
        let only = decode(json!({"load_balancer": 3, "health_monitor": null}));
        assert_eq!(only.load_balancer, Field::Value(3));
        assert_eq!(only.health_monitor, Field::Null);
        let both = decode(json!({"load_balancer": 3, "loadbalancer": 4}));
        assert_eq!(both.load_balancer, Field::Value(4));
        assert!(QuotaUpdate::decode(&json!({"quota": {"project_id": "p"}})).is_err());
    }
}
