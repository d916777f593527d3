//! Bodies of `POST` and `PUT /pools`, and pools within a fully populated create.

use serde_json::Value;

use super::decode::{Field, Object, boolean, integer, list, one_of, tags, text, uuid, word};
use super::listener::{ALPN_PROTOCOLS, TLS_VERSIONS};
use super::{MemberCreate, NewHealthMonitor};
use crate::{Fault, LbAlgorithm, ListenerId, LoadBalancerId, PoolProtocol, SessionPersistenceType};

/// Session persistence as sent; `kind` may be left out of a PUT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionPersistenceSpec {
    pub kind: Option<SessionPersistenceType>,
    pub cookie_name: Option<String>,
    pub persistence_timeout: Option<u32>,
    pub persistence_granularity: Option<String>,
}

impl SessionPersistenceSpec {
    fn decode(object: &Object<'_>) -> Result<Self, Fault> {
        object.only(&[&[
            "type",
            "cookie_name",
            "persistence_timeout",
            "persistence_granularity",
        ]])?;
        Ok(Self {
            kind: object.optional("type", word(SessionPersistenceType::ALL))?,
            cookie_name: object.optional("cookie_name", text(255))?,
            persistence_timeout: object
                .optional("persistence_timeout", integer(0, i64::from(u32::MAX)))?,
            persistence_granularity: object.optional("persistence_granularity", granularity)?,
        })
    }
}

fn granularity(value: &Value) -> Result<String, String> {
    super::decode::ip(value)?;
    text(64)(value)
}

/// A pool to be; what is `None` gets its default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPool {
    pub name: String,
    pub description: String,
    pub admin_state_up: bool,
    pub protocol: PoolProtocol,
    pub lb_algorithm: LbAlgorithm,
    pub session_persistence: Option<SessionPersistenceSpec>,
    pub tls_container_ref: Option<String>,
    pub ca_tls_container_ref: Option<String>,
    pub crl_container_ref: Option<String>,
    pub tls_enabled: bool,
    pub tls_ciphers: Option<String>,
    pub tls_versions: Option<Vec<String>>,
    pub alpn_protocols: Option<Vec<String>>,
    pub tags: Vec<String>,
}

const CREATE: &[&str] = &[
    "name",
    "description",
    "admin_state_up",
    "protocol",
    "lb_algorithm",
    "session_persistence",
    "tls_container_ref",
    "ca_tls_container_ref",
    "crl_container_ref",
    "tls_enabled",
    "tls_ciphers",
    "tls_versions",
    "alpn_protocols",
    "tags",
    // Taken and not used: a pool belongs to the project of its load balancer.
    "project_id",
    "tenant_id",
];

impl NewPool {
    fn decode(object: &Object<'_>) -> Result<Self, Fault> {
        object.optional("project_id", text(36))?;
        object.optional("tenant_id", text(36))?;
        Ok(Self {
            name: object.optional("name", text(255))?.unwrap_or_default(),
            description: object
                .optional("description", text(255))?
                .unwrap_or_default(),
            admin_state_up: object.optional("admin_state_up", boolean)?.unwrap_or(true),
            protocol: object.required("protocol", word(PoolProtocol::ALL))?,
            lb_algorithm: object.required("lb_algorithm", word(LbAlgorithm::ALL))?,
            session_persistence: object
                .object("session_persistence")?
                .map(|persistence| SessionPersistenceSpec::decode(&persistence))
                .transpose()?,
            tls_container_ref: object.optional("tls_container_ref", text(255))?,
            ca_tls_container_ref: object.optional("ca_tls_container_ref", text(255))?,
            crl_container_ref: object.optional("crl_container_ref", text(255))?,
            tls_enabled: object.optional("tls_enabled", boolean)?.unwrap_or(false),
            tls_ciphers: object.optional("tls_ciphers", text(2048))?,
            tls_versions: object.optional("tls_versions", list(one_of(TLS_VERSIONS)))?,
            alpn_protocols: object.optional("alpn_protocols", list(one_of(ALPN_PROTOCOLS)))?,
            tags: object.optional("tags", tags)?.unwrap_or_default(),
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolCreate {
    pub load_balancer_id: Option<LoadBalancerId>,
    pub listener_id: Option<ListenerId>,
    pub pool: NewPool,
}

impl PoolCreate {
    pub fn decode(body: &Value) -> Result<Self, Fault> {
        let object = Object::root(body, "pool")?;
        object.only(&[
            CREATE,
            &["loadbalancer_id", "listener_id", "members", "healthmonitor"],
        ])?;
        object.refuse_nested(&["members", "healthmonitor"])?;
        let load_balancer_id = object.optional("loadbalancer_id", uuid)?;
        let listener_id = object.optional("listener_id", uuid)?;
        let pool = NewPool::decode(&object)?;
        if load_balancer_id.is_none() && listener_id.is_none() {
            return Err(Fault::validation(
                "Must provide at least one of: loadbalancer_id, listener_id",
            ));
        }
        Ok(Self {
            load_balancer_id,
            listener_id,
            pool,
        })
    }
}

/// A pool within a fully populated create: in full, or by the name of one that is given in full elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GraphPool {
    Reference(String),
    Definition(Box<PoolDefinition>),
}

impl GraphPool {
    pub fn name(&self) -> &str {
        match self {
            Self::Reference(name) => name,
            Self::Definition(definition) => &definition.pool.name,
        }
    }

    pub fn definition(&self) -> Option<&PoolDefinition> {
        match self {
            Self::Reference(_) => None,
            Self::Definition(definition) => Some(definition),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolDefinition {
    pub pool: NewPool,
    pub members: Vec<MemberCreate>,
    pub health_monitor: Option<NewHealthMonitor>,
}

impl GraphPool {
    pub(super) fn decode(object: &Object<'_>) -> Result<Self, Fault> {
        object.only(&[CREATE, &["members", "healthmonitor"]])?;
        let name = object
            .optional("name", text(255))?
            .filter(|name| !name.is_empty())
            .ok_or_else(|| {
                Fault::validation(
                    "Pools must be named when creating a fully populated loadbalancer.",
                )
            })?;
        if object.has_only("name") {
            return Ok(Self::Reference(name));
        }
        Ok(Self::Definition(Box::new(PoolDefinition {
            pool: NewPool::decode(object)?,
            members: object
                .objects("members")?
                .iter()
                .map(MemberCreate::decode_object)
                .collect::<Result<_, _>>()?,
            health_monitor: object
                .object("healthmonitor")?
                .map(|monitor| NewHealthMonitor::decode(&monitor))
                .transpose()?,
        })))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PoolUpdate {
    pub name: Field<String>,
    pub description: Field<String>,
    pub admin_state_up: Field<bool>,
    pub lb_algorithm: Option<LbAlgorithm>,
    pub session_persistence: Field<SessionPersistenceSpec>,
    pub tls_container_ref: Field<String>,
    pub ca_tls_container_ref: Field<String>,
    pub crl_container_ref: Field<String>,
    pub tls_enabled: Field<bool>,
    pub tls_ciphers: Field<String>,
    pub tls_versions: Field<Vec<String>>,
    pub alpn_protocols: Field<Vec<String>>,
    pub tags: Field<Vec<String>>,
}

impl PoolUpdate {
    pub fn decode(body: &Value) -> Result<Self, Fault> {
        let object = Object::root(body, "pool")?;
        object.only(&[&[
            "name",
            "description",
            "admin_state_up",
            "lb_algorithm",
            "session_persistence",
            "tls_container_ref",
            "ca_tls_container_ref",
            "crl_container_ref",
            "tls_enabled",
            "tls_ciphers",
            "tls_versions",
            "alpn_protocols",
            "tags",
        ]])?;
        // Null and absent differ, and the object inside needs a walker of its own.
        let session_persistence = match object.field("session_persistence", |_| Ok(()))? {
            Field::Absent => Field::Absent,
            Field::Null => Field::Null,
            Field::Value(()) => match object.object("session_persistence")? {
                Some(inner) => Field::Value(SessionPersistenceSpec::decode(&inner)?),
                None => Field::Null,
            },
        };
        Ok(Self {
            name: object.field("name", text(255))?,
            description: object.field("description", text(255))?,
            admin_state_up: object.field("admin_state_up", boolean)?,
            lb_algorithm: object.not_null("lb_algorithm", word(LbAlgorithm::ALL))?,
            session_persistence,
            tls_container_ref: object.field("tls_container_ref", text(255))?,
            ca_tls_container_ref: object.field("ca_tls_container_ref", text(255))?,
            crl_container_ref: object.field("crl_container_ref", text(255))?,
            tls_enabled: object.field("tls_enabled", boolean)?,
            tls_ciphers: object.field("tls_ciphers", text(2048))?,
            tls_versions: object.field("tls_versions", list(one_of(TLS_VERSIONS)))?,
            alpn_protocols: object.field("alpn_protocols", list(one_of(ALPN_PROTOCOLS)))?,
            tags: object.field("tags", tags)?,
        })
    }
}
