//! The rules of the API, one for each operation, by Octavia's names; and what they are when nothing overrides them.

/// `Variant "type:action" => default`, once each.
macro_rules! rules {
    ($($variant:ident $name:literal => $default:literal,)*) => {
        /// An operation that policy decides on.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Rule {
            $($variant,)*
        }

        impl Rule {
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// As in a policy file.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => concat!("os_load-balancer_api:", $name),)*
                }
            }

            pub(super) const fn default_text(self) -> &'static str {
                match self {
                    $(Self::$variant => concat!("rule:", $default),)*
                }
            }
        }
    };
}

rules! {
    LoadBalancerGetAll "loadbalancer:get_all" => "load-balancer:read",
    LoadBalancerGetAllGlobal "loadbalancer:get_all-global" => "load-balancer:read-global",
    LoadBalancerPost "loadbalancer:post" => "load-balancer:write",
    LoadBalancerPostVipSgIds "loadbalancer:post:vip_sg_ids" => "load-balancer:write",
    LoadBalancerGetOne "loadbalancer:get_one" => "load-balancer:read",
    LoadBalancerPut "loadbalancer:put" => "load-balancer:write",
    LoadBalancerPutVipSgIds "loadbalancer:put:vip_sg_ids" => "load-balancer:write",
    LoadBalancerDelete "loadbalancer:delete" => "load-balancer:write",
    LoadBalancerGetStats "loadbalancer:get_stats" => "load-balancer:read",
    LoadBalancerGetStatus "loadbalancer:get_status" => "load-balancer:read",
    LoadBalancerPutFailover "loadbalancer:put_failover" => "load-balancer:admin",
    // Not of Octavia: the record of what was done for a load balancer.
    LoadBalancerGetReconcile "loadbalancer:get_reconcile" => "load-balancer:admin",

    ListenerGetAll "listener:get_all" => "load-balancer:read",
    ListenerGetAllGlobal "listener:get_all-global" => "load-balancer:read-global",
    ListenerPost "listener:post" => "load-balancer:write",
    ListenerGetOne "listener:get_one" => "load-balancer:read",
    ListenerPut "listener:put" => "load-balancer:write",
    ListenerDelete "listener:delete" => "load-balancer:write",
    ListenerGetStats "listener:get_stats" => "load-balancer:read",

    PoolGetAll "pool:get_all" => "load-balancer:read",
    PoolGetAllGlobal "pool:get_all-global" => "load-balancer:read-global",
    PoolPost "pool:post" => "load-balancer:write",
    PoolGetOne "pool:get_one" => "load-balancer:read",
    PoolPut "pool:put" => "load-balancer:write",
    PoolDelete "pool:delete" => "load-balancer:write",

    // Telemetry lists members by the service role.
    MemberGetAll "member:get_all" => "load-balancer:read or rule:service",
    MemberPost "member:post" => "load-balancer:write",
    MemberGetOne "member:get_one" => "load-balancer:read",
    MemberPut "member:put" => "load-balancer:write",
    MemberDelete "member:delete" => "load-balancer:write",

    HealthMonitorGetAll "healthmonitor:get_all" => "load-balancer:read",
    HealthMonitorGetAllGlobal "healthmonitor:get_all-global" => "load-balancer:read-global",
    HealthMonitorPost "healthmonitor:post" => "load-balancer:write",
    HealthMonitorGetOne "healthmonitor:get_one" => "load-balancer:read",
    HealthMonitorPut "healthmonitor:put" => "load-balancer:write",
    HealthMonitorDelete "healthmonitor:delete" => "load-balancer:write",

    L7PolicyGetAll "l7policy:get_all" => "load-balancer:read",
    L7PolicyGetAllGlobal "l7policy:get_all-global" => "load-balancer:read-global",
    L7PolicyPost "l7policy:post" => "load-balancer:write",
    L7PolicyGetOne "l7policy:get_one" => "load-balancer:read",
    L7PolicyPut "l7policy:put" => "load-balancer:write",
    L7PolicyDelete "l7policy:delete" => "load-balancer:write",

    L7RuleGetAll "l7rule:get_all" => "load-balancer:read",
    L7RulePost "l7rule:post" => "load-balancer:write",
    L7RuleGetOne "l7rule:get_one" => "load-balancer:read",
    L7RulePut "l7rule:put" => "load-balancer:write",
    L7RuleDelete "l7rule:delete" => "load-balancer:write",

    QuotaGetAll "quota:get_all" => "load-balancer:read-quota",
    QuotaGetAllGlobal "quota:get_all-global" => "load-balancer:read-quota-global",
    QuotaGetOne "quota:get_one" => "load-balancer:read-quota",
    QuotaGetDefaults "quota:get_defaults" => "load-balancer:read-quota",
    QuotaPut "quota:put" => "load-balancer:write-quota",
    QuotaDelete "quota:delete" => "load-balancer:write-quota",

    AmphoraGetAll "amphora:get_all" => "load-balancer:admin",
    AmphoraGetOne "amphora:get_one" => "load-balancer:admin",
    AmphoraDelete "amphora:delete" => "load-balancer:admin",
    AmphoraPutConfig "amphora:put_config" => "load-balancer:admin",
    AmphoraPutFailover "amphora:put_failover" => "load-balancer:admin",
    AmphoraGetStats "amphora:get_stats" => "load-balancer:admin",

    ProviderGetAll "provider:get_all" => "load-balancer:read",
    ProviderFlavorGetAll "provider-flavor:get_all" => "load-balancer:admin",
    ProviderAvailabilityZoneGetAll "provider-availability-zone:get_all" => "load-balancer:admin",

    FlavorGetAll "flavor:get_all" => "load-balancer:read",
    FlavorPost "flavor:post" => "load-balancer:admin",
    FlavorGetOne "flavor:get_one" => "load-balancer:read",
    FlavorPut "flavor:put" => "load-balancer:admin",
    FlavorDelete "flavor:delete" => "load-balancer:admin",

    FlavorProfileGetAll "flavor-profile:get_all" => "load-balancer:admin",
    FlavorProfilePost "flavor-profile:post" => "load-balancer:admin",
    FlavorProfileGetOne "flavor-profile:get_one" => "load-balancer:admin",
    FlavorProfilePut "flavor-profile:put" => "load-balancer:admin",
    FlavorProfileDelete "flavor-profile:delete" => "load-balancer:admin",

    AvailabilityZoneGetAll "availability-zone:get_all" => "load-balancer:read",
    AvailabilityZonePost "availability-zone:post" => "load-balancer:admin",
    AvailabilityZoneGetOne "availability-zone:get_one" => "load-balancer:read",
    AvailabilityZonePut "availability-zone:put" => "load-balancer:admin",
    AvailabilityZoneDelete "availability-zone:delete" => "load-balancer:admin",

    AvailabilityZoneProfileGetAll "availability-zone-profile:get_all" => "load-balancer:admin",
    AvailabilityZoneProfilePost "availability-zone-profile:post" => "load-balancer:admin",
    AvailabilityZoneProfileGetOne "availability-zone-profile:get_one" => "load-balancer:admin",
    AvailabilityZoneProfilePut "availability-zone-profile:put" => "load-balancer:admin",
    AvailabilityZoneProfileDelete "availability-zone-profile:delete" => "load-balancer:admin",
}

impl Rule {
    /// Kind of object, as in the name.
    pub fn resource(self) -> &'static str {
        self.name().split(':').nth(1).unwrap_or_default()
    }

    /// What is done to it, as in the name.
    pub fn action(self) -> &'static str {
        self.name().splitn(3, ':').nth(2).unwrap_or_default()
    }

    /// The rule that lets a list go over every project.
    pub(super) const fn global(self) -> Option<Self> {
        Some(match self {
            Self::LoadBalancerGetAll => Self::LoadBalancerGetAllGlobal,
            Self::ListenerGetAll => Self::ListenerGetAllGlobal,
            Self::PoolGetAll => Self::PoolGetAllGlobal,
            Self::HealthMonitorGetAll => Self::HealthMonitorGetAllGlobal,
            Self::L7PolicyGetAll => Self::L7PolicyGetAllGlobal,
            Self::QuotaGetAll => Self::QuotaGetAllGlobal,
            _ => return None,
        })
    }
}

/// Whose roles the defaults know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Defaults {
    /// Keystone's: admin, member, reader (`oslo_policy.enforce_new_defaults = True`).
    Keystone,
    /// The `load-balancer_*` roles besides.
    KeystoneAndAdvanced,
}

/// A rule that others refer to.
pub(super) struct Base {
    pub(super) name: &'static str,
    pub(super) text: &'static str,
    /// Holds too with [`Defaults::KeystoneAndAdvanced`].
    pub(super) advanced: Option<&'static str>,
}

/// Who somebody is, by roles alone.
pub(super) const CONTEXT_IS_ADMIN: &str = "context_is_admin";

pub(super) const BASE: &[Base] = &[
    base(
        CONTEXT_IS_ADMIN,
        "role:admin",
        Some("role:load-balancer_admin"),
    ),
    base(
        "project-member",
        "role:member and project_id:%(project_id)s",
        None,
    ),
    base(
        "project-reader",
        "role:reader and project_id:%(project_id)s",
        None,
    ),
    base("service", "role:service", None),
    base("load-balancer:owner", "project_id:%(project_id)s", None),
    base(
        "load-balancer:admin",
        "is_admin:True or role:admin",
        Some("role:load-balancer_admin"),
    ),
    base(
        "load-balancer:global_observer",
        "role:admin",
        Some("role:load-balancer_global_observer"),
    ),
    base(
        "load-balancer:quota-admin",
        "role:admin",
        Some("role:load-balancer_quota_admin"),
    ),
    base(
        "load-balancer:member_and_owner",
        "rule:project-member",
        Some("role:load-balancer_member and rule:load-balancer:owner"),
    ),
    base(
        "load-balancer:observer_and_owner",
        "rule:project-reader",
        Some("role:load-balancer_observer and rule:load-balancer:owner"),
    ),
    base(
        "load-balancer:read",
        "rule:load-balancer:observer_and_owner or rule:load-balancer:global_observer or \
         rule:load-balancer:member_and_owner or rule:load-balancer:admin",
        None,
    ),
    base(
        "load-balancer:read-global",
        "rule:load-balancer:global_observer or rule:load-balancer:admin",
        None,
    ),
    base(
        "load-balancer:write",
        "rule:load-balancer:member_and_owner or rule:load-balancer:admin",
        None,
    ),
    base(
        "load-balancer:read-quota",
        "rule:load-balancer:observer_and_owner or rule:load-balancer:global_observer or \
         rule:load-balancer:member_and_owner or rule:load-balancer:quota-admin or \
         rule:load-balancer:admin",
        None,
    ),
    base(
        "load-balancer:read-quota-global",
        "rule:load-balancer:global_observer or rule:load-balancer:quota-admin or \
         rule:load-balancer:admin",
        None,
    ),
    base(
        "load-balancer:write-quota",
        "rule:load-balancer:quota-admin or rule:load-balancer:admin",
        None,
    ),
];

const fn base(name: &'static str, text: &'static str, advanced: Option<&'static str>) -> Base {
    Base {
        name,
        text,
        advanced,
    }
}
