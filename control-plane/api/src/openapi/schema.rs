//! The objects of the API as JSON schemas: one table of attributes a resource, from which the schemas of create,
//! update and answer are made.

use std::fmt::Display;

use lb_model::spec::QUOTA_LIMITS;
use lb_model::{
    AmphoraRole, AmphoraStatus, ClientAuthentication, L7PolicyAction, L7RuleCompareType,
    L7RuleType, LbAlgorithm, ListenerProtocol, MonitorType, OperatingStatus, PoolProtocol,
    ProvisioningStatus, SessionPersistenceType, VnicType,
};
use serde_json::{Map, Value, json};

/// Where an attribute occurs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// Answers only.
    Shown,
    /// Create and answers.
    Created,
    /// Create, where it must be given, and answers.
    Required,
    /// Create, update and answers.
    Changed,
    /// As `Changed`, and must be given to create.
    RequiredChanged,
    /// Update and answers.
    ChangedOnly,
    /// Create only: the answer tells it in another way.
    CreatedHidden,
    /// As `CreatedHidden`, and must be given.
    RequiredHidden,
}

pub(super) struct Attribute {
    pub(super) name: &'static str,
    pub(super) used: Use,
    schema: Value,
}

fn attribute(name: &'static str, used: Use, schema: Value) -> Attribute {
    Attribute { name, used, schema }
}

/// Which schema of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Create,
    Update,
    Answer,
}

impl Form {
    const fn has(self, used: Use) -> bool {
        match (self, used) {
            (Self::Answer, Use::CreatedHidden | Use::RequiredHidden) => false,
            (Self::Answer, _) => true,
            (
                Self::Create,
                Use::Created
                | Use::Required
                | Use::Changed
                | Use::RequiredChanged
                | Use::CreatedHidden
                | Use::RequiredHidden,
            ) => true,
            (Self::Update, Use::Changed | Use::RequiredChanged | Use::ChangedOnly) => true,
            (Self::Create, Use::Shown | Use::ChangedOnly) => false,
            (
                Self::Update,
                Use::Shown
                | Use::Created
                | Use::Required
                | Use::CreatedHidden
                | Use::RequiredHidden,
            ) => false,
        }
    }
}

/// A resource of the API.
pub(super) struct Resource {
    /// Name of its schemas, and the root key of one object.
    pub(super) name: &'static str,
    /// Root key of a list.
    pub(super) plural: &'static str,
    /// Key of the links of a list.
    pub(super) links: Option<&'static str>,
    pub(super) attributes: Vec<Attribute>,
}

impl Resource {
    pub(super) fn schema(&self, form: Form) -> Value {
        let mut properties = Map::new();
        let mut required = Vec::new();
        for attribute in &self.attributes {
            if !form.has(attribute.used) {
                continue;
            }
            let must = matches!(
                attribute.used,
                Use::Required | Use::RequiredChanged | Use::RequiredHidden
            );
            if form == Form::Create && must {
                required.push(attribute.name);
            }
            properties.insert(attribute.name.to_owned(), attribute.schema.clone());
        }
        let mut schema = json!({
            "type": "object",
            "properties": properties,
            // Bodies with anything else are refused; answers may grow.
            "additionalProperties": form == Form::Answer,
        });
        if !required.is_empty() {
            schema["required"] = json!(required);
        }
        schema
    }
}

fn or_null(mut schema: Value) -> Value {
    match schema["type"].take() {
        Value::String(kind) => schema["type"] = json!([kind, "null"]),
        other => schema["type"] = other,
    }
    if let Some(words) = schema.get_mut("enum").and_then(Value::as_array_mut) {
        words.push(Value::Null);
    }
    schema
}

fn text(max: u32) -> Value {
    json!({"type": "string", "maxLength": max})
}

fn uuid() -> Value {
    json!({"type": "string", "format": "uuid"})
}

fn address() -> Value {
    json!({"type": "string", "description": "IPv4 or IPv6 address"})
}

fn flag() -> Value {
    json!({"type": "boolean"})
}

fn moment() -> Value {
    json!({"type": ["string", "null"], "description": "YYYY-MM-DDTHH:MM:SS, UTC"})
}

fn number(min: i64, max: i64) -> Value {
    json!({"type": "integer", "minimum": min, "maximum": max})
}

fn word<T: Display>(all: &[T]) -> Value {
    let words: Vec<String> = all.iter().map(ToString::to_string).collect();
    json!({"type": "string", "enum": words})
}

fn list(items: Value) -> Value {
    json!({"type": "array", "items": items})
}

fn references() -> Value {
    list(json!({"type": "object", "properties": {"id": uuid()}}))
}

fn timeout() -> Value {
    let mut schema = number(0, 2_073_600_000);
    schema["description"] = json!("milliseconds");
    schema
}

/// What almost every resource has.
fn common(name: bool, description: bool) -> Vec<Attribute> {
    let mut attributes = vec![
        attribute("id", Use::Shown, uuid()),
        attribute("admin_state_up", Use::Changed, or_null(flag())),
        attribute("project_id", Use::Created, or_null(text(36))),
        attribute("tenant_id", Use::Created, or_null(text(36))),
        attribute(
            "provisioning_status",
            Use::Shown,
            word(ProvisioningStatus::ALL),
        ),
        attribute("operating_status", Use::Shown, word(OperatingStatus::ALL)),
        attribute("tags", Use::Changed, or_null(list(text(255)))),
        attribute("created_at", Use::Shown, moment()),
        attribute("updated_at", Use::Shown, moment()),
    ];
    if name {
        attributes.push(attribute("name", Use::Changed, or_null(text(255))));
    }
    if description {
        attributes.push(attribute("description", Use::Changed, or_null(text(255))));
    }
    attributes
}

fn resource(
    name: &'static str,
    plural: &'static str,
    links: &'static str,
    common: Vec<Attribute>,
    own: Vec<Attribute>,
) -> Resource {
    let mut attributes = common;
    attributes.extend(own);
    Resource {
        name,
        plural,
        links: Some(links),
        attributes,
    }
}

fn load_balancer() -> Resource {
    let vip = json!({"type": "object", "properties": {
        "subnet_id": uuid(), "ip_address": or_null(address()), "port_id": or_null(uuid()),
    }, "required": ["subnet_id"]});
    let nested = |name: &str| {
        or_null(list(
            json!({"type": "object", "description": format!("{name} with all that belongs to it")}),
        ))
    };
    resource(
        "loadbalancer",
        "loadbalancers",
        "loadbalancers_links",
        common(true, true),
        vec![
            attribute("provider", Use::Created, or_null(text(64))),
            attribute("vip_address", Use::Created, or_null(address())),
            attribute("vip_port_id", Use::Created, or_null(uuid())),
            attribute("vip_subnet_id", Use::Created, or_null(uuid())),
            attribute("vip_network_id", Use::Created, or_null(uuid())),
            attribute("vip_qos_policy_id", Use::Changed, or_null(uuid())),
            attribute("vip_vnic_type", Use::Shown, word(VnicType::ALL)),
            attribute("vip_sg_ids", Use::Changed, or_null(list(uuid()))),
            attribute("additional_vips", Use::Created, or_null(list(vip))),
            attribute("flavor_id", Use::Created, or_null(uuid())),
            attribute("availability_zone", Use::Created, or_null(text(255))),
            attribute("listeners", Use::Created, nested("listeners")),
            attribute("pools", Use::Created, nested("pools")),
        ],
    )
}

fn listener() -> Resource {
    resource(
        "listener",
        "listeners",
        "listeners_links",
        common(true, true),
        vec![
            attribute("loadbalancer_id", Use::RequiredHidden, uuid()),
            attribute("loadbalancers", Use::Shown, references()),
            attribute("protocol", Use::Required, word(ListenerProtocol::ALL)),
            attribute("protocol_port", Use::Required, number(1, 65535)),
            attribute(
                "connection_limit",
                Use::Changed,
                or_null(number(-1, i64::from(i32::MAX))),
            ),
            attribute("default_pool_id", Use::Changed, or_null(uuid())),
            attribute(
                "default_tls_container_ref",
                Use::Changed,
                or_null(text(255)),
            ),
            attribute("sni_container_refs", Use::Changed, or_null(list(text(255)))),
            attribute(
                "insert_headers",
                Use::Changed,
                json!({"type": ["object", "null"], "additionalProperties": text(255)}),
            ),
            attribute("timeout_client_data", Use::Changed, or_null(timeout())),
            attribute("timeout_member_connect", Use::Changed, or_null(timeout())),
            attribute("timeout_member_data", Use::Changed, or_null(timeout())),
            attribute("timeout_tcp_inspect", Use::Changed, or_null(timeout())),
            attribute(
                "client_ca_tls_container_ref",
                Use::Changed,
                or_null(text(255)),
            ),
            attribute(
                "client_authentication",
                Use::Changed,
                or_null(word(ClientAuthentication::ALL)),
            ),
            attribute("client_crl_container_ref", Use::Changed, or_null(text(255))),
            attribute("allowed_cidrs", Use::Changed, or_null(list(text(64)))),
            attribute("tls_ciphers", Use::Changed, or_null(text(2048))),
            attribute("tls_versions", Use::Changed, or_null(list(text(32)))),
            attribute("alpn_protocols", Use::Changed, or_null(list(text(32)))),
            attribute(
                "hsts_max_age",
                Use::Changed,
                or_null(number(0, i64::from(i32::MAX))),
            ),
            attribute("hsts_include_subdomains", Use::Changed, or_null(flag())),
            attribute("hsts_preload", Use::Changed, or_null(flag())),
            attribute("l7policies", Use::Shown, references()),
        ],
    )
}

fn pool() -> Resource {
    let persistence = json!({"type": ["object", "null"], "properties": {
        "type": word(SessionPersistenceType::ALL),
        "cookie_name": or_null(text(255)),
        "persistence_timeout": {"type": ["integer", "null"]},
        "persistence_granularity": or_null(text(64)),
    }});
    resource(
        "pool",
        "pools",
        "pools_links",
        common(true, true),
        vec![
            attribute("loadbalancer_id", Use::CreatedHidden, or_null(uuid())),
            attribute("listener_id", Use::CreatedHidden, or_null(uuid())),
            attribute("loadbalancers", Use::Shown, references()),
            attribute("listeners", Use::Shown, references()),
            attribute("members", Use::Shown, references()),
            attribute("healthmonitor_id", Use::Shown, uuid()),
            attribute("protocol", Use::Required, word(PoolProtocol::ALL)),
            attribute("lb_algorithm", Use::RequiredChanged, word(LbAlgorithm::ALL)),
            attribute("session_persistence", Use::Changed, persistence),
            attribute("tls_enabled", Use::Changed, or_null(flag())),
            attribute("tls_container_ref", Use::Changed, or_null(text(255))),
            attribute("ca_tls_container_ref", Use::Changed, or_null(text(255))),
            attribute("crl_container_ref", Use::Changed, or_null(text(255))),
            attribute("tls_ciphers", Use::Changed, or_null(text(2048))),
            attribute("tls_versions", Use::Changed, or_null(list(text(32)))),
            attribute("alpn_protocols", Use::Changed, or_null(list(text(32)))),
        ],
    )
}

fn member() -> Resource {
    resource(
        "member",
        "members",
        "members_links",
        common(true, false),
        vec![
            attribute("address", Use::Required, address()),
            attribute("protocol_port", Use::Required, number(1, 65535)),
            attribute("weight", Use::Changed, or_null(number(0, 256))),
            attribute("backup", Use::Changed, or_null(flag())),
            attribute("subnet_id", Use::Created, or_null(text(36))),
            attribute("monitor_address", Use::Changed, or_null(address())),
            attribute("monitor_port", Use::Changed, or_null(number(1, 65535))),
            attribute("request_sriov", Use::CreatedHidden, or_null(flag())),
            attribute("vnic_type", Use::Shown, word(VnicType::ALL)),
        ],
    )
}

fn health_monitor() -> Resource {
    let seconds = || number(0, i64::from(i32::MAX));
    resource(
        "healthmonitor",
        "healthmonitors",
        "healthmonitors_links",
        common(true, false),
        vec![
            attribute("pool_id", Use::RequiredHidden, uuid()),
            attribute("pools", Use::Shown, references()),
            attribute("type", Use::Required, word(MonitorType::ALL)),
            attribute("delay", Use::RequiredChanged, seconds()),
            attribute("timeout", Use::RequiredChanged, seconds()),
            attribute("max_retries", Use::RequiredChanged, number(1, 10)),
            attribute("max_retries_down", Use::Changed, or_null(number(1, 10))),
            attribute("http_method", Use::Changed, or_null(text(16))),
            attribute("url_path", Use::Changed, or_null(text(2048))),
            attribute("expected_codes", Use::Changed, or_null(text(64))),
            attribute(
                "http_version",
                Use::Changed,
                json!({"enum": [1.0, 1.1, null]}),
            ),
            attribute("domain_name", Use::Changed, or_null(text(255))),
        ],
    )
}

fn l7policy() -> Resource {
    resource(
        "l7policy",
        "l7policies",
        "l7policies_links",
        common(true, true),
        vec![
            attribute("listener_id", Use::Required, uuid()),
            attribute("action", Use::RequiredChanged, word(L7PolicyAction::ALL)),
            attribute("redirect_pool_id", Use::Changed, or_null(uuid())),
            attribute("redirect_url", Use::Changed, or_null(text(255))),
            attribute("redirect_prefix", Use::Changed, or_null(text(255))),
            attribute(
                "redirect_http_code",
                Use::Changed,
                json!({"enum": [301, 302, 303, 307, 308, null]}),
            ),
            attribute(
                "position",
                Use::Changed,
                or_null(number(1, i64::from(i32::MAX))),
            ),
            attribute("rules", Use::Shown, references()),
        ],
    )
}

fn l7rule() -> Resource {
    resource(
        "rule",
        "rules",
        "rules_links",
        common(false, false),
        vec![
            attribute("type", Use::RequiredChanged, word(L7RuleType::ALL)),
            attribute(
                "compare_type",
                Use::RequiredChanged,
                word(L7RuleCompareType::ALL),
            ),
            attribute("key", Use::Changed, or_null(text(255))),
            attribute("value", Use::RequiredChanged, text(255)),
            attribute("invert", Use::Changed, or_null(flag())),
        ],
    )
}

fn quota() -> Resource {
    let mut attributes = vec![
        attribute("project_id", Use::Shown, text(255)),
        attribute("tenant_id", Use::Shown, text(255)),
    ];
    for name in QUOTA_LIMITS {
        attributes.push(attribute(
            name,
            Use::ChangedOnly,
            or_null(number(-1, 2_000_000_000)),
        ));
    }
    resource("quota", "quotas", "quotas_links", attributes, Vec::new())
}

fn offer(name: &'static str, plural: &'static str, links: &'static str) -> Resource {
    let flavor = name == "flavor";
    let mut attributes = vec![
        attribute(
            "name",
            if flavor {
                Use::RequiredChanged
            } else {
                Use::Required
            },
            text(255),
        ),
        attribute("description", Use::Changed, or_null(text(255))),
        attribute("enabled", Use::Changed, flag()),
    ];
    if flavor {
        attributes.push(attribute("id", Use::Shown, uuid()));
        attributes.push(attribute("flavor_profile_id", Use::Required, uuid()));
    } else {
        let profile = attribute("availability_zone_profile_id", Use::Required, uuid());
        attributes.push(profile);
    }
    resource(name, plural, links, attributes, Vec::new())
}

fn profile(
    name: &'static str,
    plural: &'static str,
    links: &'static str,
    data: &'static str,
) -> Resource {
    let attributes = vec![
        attribute("id", Use::Shown, uuid()),
        attribute("name", Use::RequiredChanged, text(255)),
        attribute("provider_name", Use::RequiredChanged, text(255)),
        attribute(data, Use::RequiredChanged, text(4096)),
    ];
    resource(name, plural, links, attributes, Vec::new())
}

fn amphora() -> Resource {
    let shown = |name, schema| attribute(name, Use::Shown, schema);
    let attributes = vec![
        shown("id", uuid()),
        shown("loadbalancer_id", uuid()),
        shown("compute_id", or_null(text(255))),
        shown("lb_network_ip", or_null(address())),
        shown("vrrp_ip", or_null(address())),
        shown("ha_ip", or_null(address())),
        shown("vrrp_port_id", or_null(uuid())),
        shown("ha_port_id", or_null(uuid())),
        shown("cert_expiration", moment()),
        shown("cert_busy", flag()),
        shown("role", or_null(word(AmphoraRole::ALL))),
        shown("status", word(AmphoraStatus::ALL)),
        shown("vrrp_interface", or_null(text(16))),
        shown("vrrp_id", json!({"type": ["integer", "null"]})),
        shown("vrrp_priority", json!({"type": ["integer", "null"]})),
        shown("cached_zone", or_null(text(255))),
        shown("created_at", moment()),
        shown("updated_at", moment()),
        shown("image_id", or_null(text(255))),
        shown("compute_flavor", or_null(text(255))),
    ];
    resource(
        "amphora",
        "amphorae",
        "amphorae_links",
        attributes,
        Vec::new(),
    )
}

fn described(name: &'static str, plural: &'static str) -> Resource {
    Resource {
        name,
        plural,
        links: None,
        attributes: vec![
            attribute("name", Use::Shown, text(255)),
            attribute("description", Use::Shown, text(1024)),
        ],
    }
}

/// Every resource.
pub(super) fn resources() -> Vec<Resource> {
    vec![
        load_balancer(),
        listener(),
        pool(),
        member(),
        health_monitor(),
        l7policy(),
        l7rule(),
        quota(),
        offer("flavor", "flavors", "flavors_links"),
        offer(
            "availability_zone",
            "availability_zones",
            "availability_zones_links",
        ),
        profile(
            "flavorprofile",
            "flavorprofiles",
            "flavorprofile_links",
            "flavor_data",
        ),
        profile(
            "availability_zone_profile",
            "availability_zone_profiles",
            "availability_zone_profile_links",
            "availability_zone_data",
        ),
        amphora(),
        described("provider", "providers"),
        described("flavor_capability", "flavor_capabilities"),
        described(
            "availability_zone_capability",
            "availability_zone_capabilities",
        ),
    ]
}
