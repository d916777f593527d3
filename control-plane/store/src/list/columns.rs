//! What each list can be filtered and sorted by: the names of the API, and the columns behind them.

/// How a column's values are read from the text of a query string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    /// A UUID in any spelling.
    Id,
    /// An IP address in any spelling.
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
pub(super) struct Resource {
    pub(super) table: &'static str,
    columns: &'static [&'static [Column]],
}

impl Resource {
    /// The column of an API name, or of the other name Octavia knows it by.
    pub(super) fn column(&self, name: &str) -> Option<&'static Column> {
        let name = match name {
            "enabled" => "admin_state_up",
            "load_balancer_id" => "loadbalancer_id",
            "ip_address" => "address",
            name => name,
        };
        self.columns
            .iter()
            .copied()
            .flatten()
            .find(|column| column.name == name)
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

const CHILD: &[Column] = columns! {
    loadbalancer_id = load_balancer_id: Id,
};

pub(super) static LOAD_BALANCER: Resource = Resource {
    table: "load_balancer",
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
    columns: &[
        COMMON,
        NAMED,
        columns! {
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
    columns: &[
        COMMON,
        columns! {
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
