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
    pub(super) columns: &'static [Column],
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
        self.columns.iter().find(|column| column.name == name)
    }
}

const fn column(name: &'static str, sql: &'static str, kind: Kind) -> Column {
    Column {
        name,
        sql,
        kind,
        nullable: false,
    }
}

const fn nullable(name: &'static str, sql: &'static str, kind: Kind) -> Column {
    Column {
        name,
        sql,
        kind,
        nullable: true,
    }
}

pub(super) static LOAD_BALANCER: Resource = Resource {
    table: "load_balancer",
    columns: &[
        column("id", "id", Kind::Id),
        column("project_id", "project_id", Kind::Text),
        column("admin_state_up", "admin_state_up", Kind::Flag),
        column("provisioning_status", "provisioning_status", Kind::Text),
        column("operating_status", "operating_status", Kind::Text),
        column("created_at", "created_at", Kind::Time),
        nullable("updated_at", "updated_at", Kind::Time),
        column("vip_address", "vip_address", Kind::Ip),
        column("vip_port_id", "vip_port_id", Kind::Id),
        column("vip_subnet_id", "vip_subnet_id", Kind::Id),
        column("vip_network_id", "vip_network_id", Kind::Id),
        nullable("vip_qos_policy_id", "vip_qos_policy_id", Kind::Id),
        column("vip_vnic_type", "vip_vnic_type", Kind::Text),
        column("provider", "provider", Kind::Text),
        column("topology", "topology", Kind::Text),
        nullable("flavor_id", "flavor_id", Kind::Id),
        nullable("availability_zone", "availability_zone", Kind::Text),
        column("description", "description", Kind::Text),
        column("name", "name", Kind::Text),
    ],
};

pub(super) static LISTENER: Resource = Resource {
    table: "listener",
    columns: &[
        column("id", "id", Kind::Id),
        column("project_id", "project_id", Kind::Text),
        column("admin_state_up", "admin_state_up", Kind::Flag),
        column("provisioning_status", "provisioning_status", Kind::Text),
        column("operating_status", "operating_status", Kind::Text),
        column("created_at", "created_at", Kind::Time),
        nullable("updated_at", "updated_at", Kind::Time),
        column("name", "name", Kind::Text),
        column("description", "description", Kind::Text),
        column("loadbalancer_id", "load_balancer_id", Kind::Id),
        column("protocol", "protocol", Kind::Text),
        column("protocol_port", "protocol_port", Kind::Number),
        column("connection_limit", "connection_limit", Kind::Number),
        nullable("default_pool_id", "default_pool_id", Kind::Id),
        nullable(
            "default_tls_container_ref",
            "default_tls_container_ref",
            Kind::Text,
        ),
        column("timeout_client_data", "timeout_client_data", Kind::Number),
        column(
            "timeout_member_connect",
            "timeout_member_connect",
            Kind::Number,
        ),
        column("timeout_member_data", "timeout_member_data", Kind::Number),
        column("timeout_tcp_inspect", "timeout_tcp_inspect", Kind::Number),
        nullable(
            "client_ca_tls_container_ref",
            "client_ca_tls_container_ref",
            Kind::Text,
        ),
        column("client_authentication", "client_authentication", Kind::Text),
        nullable(
            "client_crl_container_ref",
            "client_crl_container_ref",
            Kind::Text,
        ),
        nullable("tls_ciphers", "tls_ciphers", Kind::Text),
        nullable("hsts_max_age", "hsts_max_age", Kind::Number),
        column(
            "hsts_include_subdomains",
            "hsts_include_subdomains",
            Kind::Flag,
        ),
        column("hsts_preload", "hsts_preload", Kind::Flag),
    ],
};

pub(super) static POOL: Resource = Resource {
    table: "pool",
    columns: &[
        column("id", "id", Kind::Id),
        column("project_id", "project_id", Kind::Text),
        column("admin_state_up", "admin_state_up", Kind::Flag),
        column("provisioning_status", "provisioning_status", Kind::Text),
        column("operating_status", "operating_status", Kind::Text),
        column("created_at", "created_at", Kind::Time),
        nullable("updated_at", "updated_at", Kind::Time),
        column("name", "name", Kind::Text),
        column("description", "description", Kind::Text),
        column("loadbalancer_id", "load_balancer_id", Kind::Id),
        column("protocol", "protocol", Kind::Text),
        column("lb_algorithm", "lb_algorithm", Kind::Text),
        nullable("tls_container_ref", "tls_container_ref", Kind::Text),
        nullable("ca_tls_container_ref", "ca_tls_container_ref", Kind::Text),
        nullable("crl_container_ref", "crl_container_ref", Kind::Text),
        column("tls_enabled", "tls_enabled", Kind::Flag),
        nullable("tls_ciphers", "tls_ciphers", Kind::Text),
    ],
};

pub(super) static MEMBER: Resource = Resource {
    table: "member",
    columns: &[
        column("id", "id", Kind::Id),
        column("project_id", "project_id", Kind::Text),
        column("admin_state_up", "admin_state_up", Kind::Flag),
        column("provisioning_status", "provisioning_status", Kind::Text),
        column("operating_status", "operating_status", Kind::Text),
        column("created_at", "created_at", Kind::Time),
        nullable("updated_at", "updated_at", Kind::Time),
        column("name", "name", Kind::Text),
        column("address", "address", Kind::Ip),
        column("protocol_port", "protocol_port", Kind::Number),
        column("weight", "weight", Kind::Number),
        column("backup", "backup", Kind::Flag),
        nullable("subnet_id", "subnet_id", Kind::Id),
        nullable("monitor_address", "monitor_address", Kind::Ip),
        nullable("monitor_port", "monitor_port", Kind::Number),
        column("vnic_type", "vnic_type", Kind::Text),
    ],
};

pub(super) static HEALTH_MONITOR: Resource = Resource {
    table: "health_monitor",
    columns: &[
        column("id", "id", Kind::Id),
        column("project_id", "project_id", Kind::Text),
        column("admin_state_up", "admin_state_up", Kind::Flag),
        column("provisioning_status", "provisioning_status", Kind::Text),
        column("operating_status", "operating_status", Kind::Text),
        column("created_at", "created_at", Kind::Time),
        nullable("updated_at", "updated_at", Kind::Time),
        column("name", "name", Kind::Text),
        column("pool_id", "pool_id", Kind::Id),
        column("type", "monitor_type", Kind::Text),
        column("delay", "delay", Kind::Number),
        column("timeout", "timeout", Kind::Number),
        column("max_retries", "max_retries", Kind::Number),
        column("max_retries_down", "max_retries_down", Kind::Number),
        nullable("http_method", "http_method", Kind::Text),
        nullable("url_path", "url_path", Kind::Text),
        nullable("expected_codes", "expected_codes", Kind::Text),
        nullable("http_version", "http_version", Kind::Text),
        nullable("domain_name", "domain_name", Kind::Text),
    ],
};

pub(super) static AMPHORA: Resource = Resource {
    table: "amphora",
    columns: &[
        column("id", "id", Kind::Id),
        column("created_at", "created_at", Kind::Time),
        nullable("updated_at", "updated_at", Kind::Time),
        column("loadbalancer_id", "load_balancer_id", Kind::Id),
        column("status", "status", Kind::Text),
        nullable("role", "role", Kind::Text),
        nullable("compute_id", "compute_id", Kind::Text),
        nullable("lb_network_ip", "lb_network_ip", Kind::Ip),
        nullable("vrrp_ip", "vrrp_ip", Kind::Ip),
        nullable("ha_ip", "ha_ip", Kind::Ip),
        nullable("vrrp_port_id", "vrrp_port_id", Kind::Id),
        nullable("ha_port_id", "ha_port_id", Kind::Id),
        nullable("vrrp_interface", "vrrp_interface", Kind::Text),
        nullable("vrrp_id", "vrrp_id", Kind::Number),
        nullable("vrrp_priority", "vrrp_priority", Kind::Number),
        nullable("cert_expiration", "cert_expiration", Kind::Time),
        column("cert_busy", "cert_busy", Kind::Flag),
        nullable("cached_zone", "cached_zone", Kind::Text),
        nullable("image_id", "image_id", Kind::Text),
        nullable("compute_flavor", "compute_flavor", Kind::Text),
    ],
};
