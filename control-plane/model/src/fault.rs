//! Why a request is refused. Knows nothing of HTTP: the API maps [`Fault::kind`] to a status, last.
//!
//! The texts are part of the contract with clients: they are Octavia's wherever Octavia has one.

use std::fmt;
use std::net::IpAddr;

use uuid::Uuid;

use crate::{FlavorId, ListenerProtocol, PoolProtocol, ProvisioningStatus};

/// A refusal, worded for the caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The body is no JSON, or no object.
    #[error("Malformed request body: {0}")]
    Malformed(String),
    #[error("Missing argument: \"{0}\"")]
    MissingArgument(String),
    /// `argument` is the dotted path of the object that has no such attribute.
    #[error("Unknown attribute for argument {argument}: {attribute}")]
    UnknownAttribute { argument: String, attribute: String },
    #[error("Invalid input for field/attribute {field}. Value: '{value}'. {reason}")]
    InvalidInput {
        field: String,
        value: String,
        reason: String,
    },
    #[error("Validation failure: {0}")]
    Validation(String),
    #[error("{value} is not a valid option for {option}")]
    InvalidOption { value: String, option: String },
    /// The operator has switched it off.
    #[error("The selected {option} is not allowed in this deployment: {value}")]
    DisabledOption { option: String, value: String },
    #[error("Protocol {0} listeners can not have child objects.")]
    ListenerNoChildren(ListenerProtocol),
    #[error(
        "Validation failure: The pool protocol '{pool}' is invalid while the listener protocol is '{listener}'."
    )]
    ProtocolMismatch {
        listener: ListenerProtocol,
        pool: PoolProtocol,
    },
    /// Something named in the body belongs to another service and is not there.
    #[error("{resource} {id} not found.")]
    InvalidReference { resource: &'static str, id: String },
    #[error("Validation failure: Cannot delete Load Balancer {0} - it has children")]
    HasChildren(Uuid),
    #[error("Missing project ID in request where one is required.")]
    MissingProject,
    #[error("Provider '{0}' is not enabled.")]
    ProviderNotEnabled(String),
    #[error("Invalid L7 Policy arguments: {0}")]
    InvalidL7Policy(String),
    #[error("Error parsing L7Rule: {0}")]
    InvalidL7Rule(String),
    #[error("Flavor '{flavor}' is not compatible with provider '{provider}'")]
    FlavorMismatch { flavor: FlavorId, provider: String },

    #[error("Quota has been met for resources: {0}")]
    QuotaReached(Resource),

    #[error("{resource} {id} not found.")]
    NotFound { resource: Resource, id: String },

    #[error("{resource} {id} is immutable and cannot be updated.")]
    Immutable { resource: Resource, id: Uuid },
    #[error("Invalid state {state} of loadbalancer resource {id}")]
    InvalidState { id: Uuid, state: ProvisioningStatus },
    /// Names the protocol of the listener that is there already.
    #[error(
        "Another Listener on this Load Balancer is already using protocol {protocol} and protocol_port {port}"
    )]
    DuplicateListener {
        protocol: ListenerProtocol,
        port: u16,
    },
    #[error("Another member on this pool is already using ip {address} on protocol_port {port}")]
    DuplicateMember { address: IpAddr, port: u16 },
    #[error("This pool already has a health monitor")]
    DuplicateHealthMonitor,
    #[error("This listener already has a default pool")]
    DuplicatePool,
    #[error("Pool {pool} is in use by L7 policy {policy}")]
    PoolInUse { pool: Uuid, policy: Uuid },
    #[error("Too many rules on L7 policy {0}")]
    TooManyL7Rules(Uuid),
    #[error("{resource} {id} is in use and cannot be modified.")]
    InUse { resource: Resource, id: String },
    #[error("A {kind} of {name} already exists.")]
    AlreadyExists { kind: &'static str, name: String },
    #[error("IP address {0} is already in use")]
    AddressInUse(IpAddr),

    #[error("Provider '{provider}' does not support a requested option: {detail}")]
    UnsupportedOption { provider: String, detail: String },
}

/// What a caller can do about a [`Fault`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// The request itself is wrong: change it.
    Invalid,
    /// The project may not have more.
    Forbidden,
    NotFound,
    /// Right in itself, at odds with the present state: wait or choose otherwise.
    Conflict,
    /// The provider cannot do it.
    Unsupported,
}

impl Fault {
    pub const fn kind(&self) -> FaultKind {
        match self {
            Self::Malformed(_)
            | Self::MissingArgument(_)
            | Self::UnknownAttribute { .. }
            | Self::InvalidInput { .. }
            | Self::Validation(_)
            | Self::InvalidOption { .. }
            | Self::DisabledOption { .. }
            | Self::ListenerNoChildren(_)
            | Self::ProtocolMismatch { .. }
            | Self::InvalidReference { .. }
            | Self::HasChildren(_)
            | Self::MissingProject
            | Self::ProviderNotEnabled(_)
            | Self::InvalidL7Policy(_)
            | Self::InvalidL7Rule(_)
            | Self::FlavorMismatch { .. } => FaultKind::Invalid,
            Self::QuotaReached(_) => FaultKind::Forbidden,
            Self::NotFound { .. } => FaultKind::NotFound,
            Self::Immutable { .. }
            | Self::InvalidState { .. }
            | Self::DuplicateListener { .. }
            | Self::DuplicateMember { .. }
            | Self::DuplicateHealthMonitor
            | Self::DuplicatePool
            | Self::PoolInUse { .. }
            | Self::TooManyL7Rules(_)
            | Self::InUse { .. }
            | Self::AlreadyExists { .. }
            | Self::AddressInUse(_) => FaultKind::Conflict,
            Self::UnsupportedOption { .. } => FaultKind::Unsupported,
        }
    }

    /// The id may be anything a caller sent; a long one is not sent back whole.
    pub fn not_found(resource: Resource, id: impl fmt::Display) -> Self {
        Self::NotFound {
            resource,
            id: id.to_string().chars().take(255).collect(),
        }
    }

    pub(crate) fn immutable(resource: Resource, id: impl Into<Uuid>) -> Self {
        Self::Immutable {
            resource,
            id: id.into(),
        }
    }

    pub(crate) fn validation(detail: impl Into<String>) -> Self {
        Self::Validation(detail.into())
    }

    pub(crate) fn option(value: impl fmt::Display, option: &str) -> Self {
        Self::InvalidOption {
            value: value.to_string(),
            option: option.to_owned(),
        }
    }
}

/// Display names of resources in messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    LoadBalancer,
    Listener,
    Pool,
    Member,
    HealthMonitor,
    L7Policy,
    L7Rule,
    Quotas,
    Amphora,
    Flavor,
    FlavorProfile,
    AvailabilityZone,
    AvailabilityZoneProfile,
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LoadBalancer => "Load Balancer",
            Self::Listener => "Listener",
            Self::Pool => "Pool",
            Self::Member => "Member",
            Self::HealthMonitor => "Health Monitor",
            Self::L7Policy => "L7 Policy",
            Self::L7Rule => "L7 Rule",
            Self::Quotas => "Quotas",
            Self::Amphora => "Amphora",
            Self::Flavor => "Flavor",
            Self::FlavorProfile => "Flavor Profile",
            Self::AvailabilityZone => "Availability Zone",
            Self::AvailabilityZoneProfile => "Availability Zone Profile",
        })
    }
}
