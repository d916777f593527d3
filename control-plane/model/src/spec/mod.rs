//! What a request asks for: bodies decoded once, at the edge, into types. Field types and sizes are checked here;
//! rules that involve other fields or other objects are in `validate`, and the changes themselves in `change`.

pub(crate) mod decode;
mod health_monitor;
mod l7policy;
mod l7rule;
mod listener;
mod load_balancer;
mod member;
mod offer;
mod pool;
mod quota;

pub use decode::{Field, lenient_bool, parse_uuid};
pub use health_monitor::{HealthMonitorCreate, HealthMonitorUpdate, NewHealthMonitor};
pub use l7policy::{GraphL7Policy, L7PolicyCreate, L7PolicyUpdate, NewL7Policy};
pub use l7rule::{L7RuleUpdate, NewL7Rule};
pub use listener::{GraphListener, ListenerCreate, ListenerUpdate, NewListener};
pub use load_balancer::{AdditionalVipSpec, LoadBalancerCreate, LoadBalancerUpdate};
pub use member::{MemberBatch, MemberCreate, MemberUpdate};
pub use offer::{OfferCreate, OfferUpdate, ProfileCreate, ProfileUpdate};
pub use pool::{
    GraphPool, NewPool, PoolCreate, PoolDefinition, PoolUpdate, SessionPersistenceSpec,
};
pub use quota::{QUOTA_LIMITS, QuotaUpdate};

#[cfg(test)]
mod tests;
