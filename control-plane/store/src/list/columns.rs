//! What each list can be filtered and sorted by: the names of the API, and the columns behind them.

/// How a column's values are read from the text of a query string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    /// A UUID in any spelling.
    Id,
    /// An IP address, in the spelling it is shown in or as RFC 5952 writes it.
    Ip,
    Number,
    Flag,
    /// Microseconds, shown as whole seconds.
    Time,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Column {
    pub(super) name: &'static str,
    pub(super) sql: &'static str,
    pub(super) kind: Kind,
    pub(super) nullable: bool,
}

#[derive(Debug)]
pub(crate) struct Resource {
    pub(super) table: &'static str,
    /// The column that tells objects apart, and decides their order last.
    pub(super) key: &'static str,
    columns: &'static [&'static [Column]],
}

impl Resource {
    /// The column of an API name, or of the other name Octavia knows it by.
    pub(super) fn column(&self, name: &str) -> Option<&'static Column> {
        let named = |name: &str| {
            let mut columns = self.columns.iter().copied().flatten();
            columns.find(|column| column.name == name)
        };
        named(name).or_else(|| {
            named(match name {
                "enabled" => "admin_state_up",
                "load_balancer_id" => "loadbalancer_id",
                "load_balancer" => "loadbalancer",
                "health_monitor" => "healthmonitor",
                "ip_address" => "address",
                _ => return None,
            })
        })
    }
}

/// Rows of `name: Kind`, with `name = sql` where the column is called otherwise, and `null` where it may be null.
macro_rules! columns {
    (@sql $name:ident) => { stringify!($name) };
    (@sql $name:ident $sql:ident) => { stringify!($sql) };
    (@null) => { false };
    (@null null) => { true };
    ($($name:ident $(= $sql:ident)?: $kind:ident $($null:ident)?),+ $(,)?) => {
        &[$(Column {
            name: stringify!($name),
            sql: columns!(@sql $name $($sql)?),
            kind: Kind::$kind,
            nullable: columns!(@null $($null)?),
        }),+]
    };
}

/// What every resource of a tenant has.
const COMMON: &[Column] = columns! {
    id: Id,
    project_id: Text,
    admin_state_up: Flag,
    provisioning_status: Text,
    operating_status: Text,
    created_at: Time,
    updated_at: Time null,
};

const NAMED: &[Column] = columns! {
    name: Text,
};

const DESCRIBED: &[Column] = columns! {
    description: Text,
};

const OFFER: &[Column] = columns! {
    name: Text,
    description: Text,
    enabled: Flag,
};

const PROFILE: &[Column] = columns! {
    id: Id,
    name: Text,
    provider_name: Text,
};

const CHILD: &[Column] = columns! {
    loadbalancer_id = load_balancer_id: Id,
};

pub(super) static LOAD_BALANCER: Resource = Resource {
    table: "load_balancer",
    key: "id",
    columns: &[
        COMMON,
        NAMED,
        DESCRIBED,
        columns! {
            vip_address: Ip,
            vip_port_id: Id,
            vip_subnet_id: Id,
            vip_network_id: Id,
            vip_qos_policy_id: Id null,
            vip_vnic_type: Text,
            provider: Text,
            topology: Text,
            flavor_id: Id null,
            availability_zone: Text null,
        },
    ],
};

pub(super) static LISTENER: Resource = Resource {
    table: "listener",
    key: "id",
    columns: &[
        COMMON,
        NAMED,
        DESCRIBED,
        CHILD,
        columns! {
            protocol: Text,
            protocol_port: Number,
            connection_limit: Number,
            default_pool_id: Id null,
            default_tls_container_ref: Text null,
            timeout_client_data: Number,
            timeout_member_connect: Number,
            timeout_member_data: Number,
            timeout_tcp_inspect: Number,
            client_ca_tls_container_ref: Text null,
            client_authentication: Text,
            client_crl_container_ref: Text null,
            tls_ciphers: Text null,
            hsts_max_age: Number null,
            hsts_include_subdomains: Flag,
            hsts_preload: Flag,
        },
    ],
};

pub(super) static POOL: Resource = Resource {
    table: "pool",
    key: "id",
    columns: &[
        COMMON,
        NAMED,
        DESCRIBED,
        CHILD,
        columns! {
            protocol: Text,
            lb_algorithm: Text,
            tls_container_ref: Text null,
            ca_tls_container_ref: Text null,
            crl_container_ref: Text null,
            tls_enabled: Flag,
            tls_ciphers: Text null,
        },
    ],
};

pub(super) static MEMBER: Resource = Resource {
    table: "member",
    key: "id",
    columns: &[
        COMMON,
        NAMED,
        columns! {
            pool_id: Id,
            address: Ip,
            protocol_port: Number,
            weight: Number,
            backup: Flag,
            subnet_id: Id null,
            monitor_address: Ip null,
            monitor_port: Number null,
            vnic_type: Text,
        },
    ],
};

pub(super) static HEALTH_MONITOR: Resource = Resource {
    table: "health_monitor",
    key: "id",
    columns: &[
        COMMON,
        NAMED,
        columns! {
            pool_id: Id,
            type = monitor_type: Text,
            delay: Number,
            timeout: Number,
            max_retries: Number,
            max_retries_down: Number,
            http_method: Text null,
            url_path: Text null,
            expected_codes: Text null,
            http_version: Text null,
            domain_name: Text null,
        },
    ],
};

pub(super) static L7POLICY: Resource = Resource {
    table: "l7policy",
    key: "id",
    columns: &[
        COMMON,
        NAMED,
        DESCRIBED,
        columns! {
            listener_id: Id,
            action: Text,
            redirect_pool_id: Id null,
            redirect_url: Text null,
            redirect_prefix: Text null,
            redirect_http_code: Number null,
            position: Number,
        },
    ],
};

pub(super) static L7RULE: Resource = Resource {
    table: "l7rule",
    key: "id",
    columns: &[
        COMMON,
        columns! {
            l7policy_id: Id,
            type = rule_type: Text,
            compare_type: Text,
            key = rule_key: Text null,
            value = rule_value: Text,
            invert: Flag,
        },
    ],
};

pub(super) static AMPHORA: Resource = Resource {
    table: "amphora",
    key: "id",
    columns: &[
        CHILD,
        columns! {
            id: Id,
            created_at: Time,
            updated_at: Time null,
            status: Text,
            role: Text null,
            compute_id: Text null,
            lb_network_ip: Ip null,
            vrrp_ip: Ip null,
            ha_ip: Ip null,
            vrrp_port_id: Id null,
            ha_port_id: Id null,
            vrrp_interface: Text null,
            vrrp_id: Number null,
            vrrp_priority: Number null,
            cert_expiration: Time null,
            cert_busy: Flag,
            cached_zone: Text null,
            image_id: Text null,
            compute_flavor: Text null,
        },
    ],
};

pub(crate) static QUOTA: Resource = Resource {
    table: "quota",
    key: "project_id",
    columns: &[columns! {
        project_id: Text,
        loadbalancer = load_balancer: Number null,
        listener: Number null,
        pool: Number null,
        member: Number null,
        healthmonitor = health_monitor: Number null,
        l7policy: Number null,
        l7rule: Number null,
    }],
};

pub(crate) static FLAVOR: Resource = Resource {
    table: "flavor",
    key: "id",
    columns: &[
        OFFER,
        columns! {
            id: Id,
            flavor_profile_id = profile_id: Id,
        },
    ],
};

pub(crate) static FLAVOR_PROFILE: Resource = Resource {
    table: "flavor_profile",
    key: "id",
    columns: &[
        PROFILE,
        columns! {
            flavor_data = data: Text,
        },
    ],
};

pub(crate) static AVAILABILITY_ZONE: Resource = Resource {
    table: "availability_zone",
    key: "name",
    columns: &[
        OFFER,
        columns! {
            availability_zone_profile_id = profile_id: Id,
        },
    ],
};

pub(crate) static AVAILABILITY_ZONE_PROFILE: Resource = Resource {
    table: "availability_zone_profile",
    key: "id",
    columns: &[
        PROFILE,
        columns! {
            availability_zone_data = data: Text,
        },
    ],
};
