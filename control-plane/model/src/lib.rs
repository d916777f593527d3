//! The Octavia domain: load balancers and all that belongs to them.
//!
//! Pure: no IO, no async, no reading of clocks. Each resource is one file; [`Graph`] is a load balancer with all
//! its children and the unit in which everything is read, changed and written.

mod amphora;
pub mod change;
mod fault;
mod graph;
mod health_monitor;
mod id;
mod l7policy;
mod l7rule;
mod listener;
mod load_balancer;
mod member;
mod offer;
mod offer_data;
mod outcome;
mod pool;
mod provider;
mod quota;
mod rules;
#[cfg(any(test, feature = "sample"))]
pub mod sample;
pub mod spec;
mod spelled_ip;
mod status;
mod text;
mod timestamp;
mod validate;

pub use amphora::{Amphora, AmphoraRole};
pub use fault::{Fault, FaultKind, Resource};
pub use graph::Graph;
pub use health_monitor::{ExpectedCodes, HealthMonitor, HttpVersion, MonitorType};
pub use id::{
    AmphoraId, FlavorId, HealthMonitorId, L7PolicyId, L7RuleId, ListenerId, LoadBalancerId,
    MemberId, NetworkId, OfferId, PoolId, PortId, ProfileId, SubnetId,
};
pub use l7policy::{L7Policy, L7PolicyAction};
pub use l7rule::{L7Rule, L7RuleCompareType, L7RuleType};
pub use listener::{ClientAuthentication, Listener, ListenerProtocol, Transport};
pub use load_balancer::{AdditionalVip, LoadBalancer, Topology, Vip, VnicType};
pub use member::Member;
pub use offer::{Offer, OfferKind, Profile};
pub use offer_data::{FlavorData, OfferOption, ZoneData};
pub use outcome::{Settlement, Unserved, UnservedObject, settle};
pub use pool::{LbAlgorithm, Pool, PoolProtocol, SessionPersistence, SessionPersistenceType};
pub use provider::{Provider, ProviderFeature, ProviderSupport};
pub use quota::{COUNTED, PerResource, Quota, QuotaDemand, QuotaUse, UNLIMITED};
pub use rules::Rules;
pub use spelled_ip::SpelledIp;
pub use status::{AmphoraStatus, OperatingStatus, ProvisioningStatus};
pub use text::UnknownWord;
pub use timestamp::{Clock, Timestamp};
