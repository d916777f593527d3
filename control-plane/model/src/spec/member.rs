//! Bodies of `POST`, `PUT` and the batch `PUT` of `/pools/{id}/members`.

use serde_json::Value;

use super::decode::{
    Field, Object, boolean, integer, root_value, spelled_ip, tags, text, uuid_or_empty,
};
use crate::{Fault, SpelledIp, SubnetId};

/// A member to be. In a batch what is `None` may also mean "as it is".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberCreate {
    pub name: Option<String>,
    pub admin_state_up: Option<bool>,
    pub address: SpelledIp,
    pub protocol_port: u16,
    pub weight: Option<u16>,
    pub backup: Option<bool>,
    pub subnet_id: Option<SubnetId>,
    pub monitor_address: Option<SpelledIp>,
    pub monitor_port: Option<u16>,
    pub tags: Option<Vec<String>>,
    pub request_sriov: bool,
}

const CREATE: &[&str] = &[
    "name",
    "admin_state_up",
    "address",
    "protocol_port",
    "weight",
    "backup",
    "subnet_id",
    "monitor_address",
    "monitor_port",
    "tags",
    "request_sriov",
    // Taken and not used: a member belongs to the project of its load balancer.
    "project_id",
    "tenant_id",
];

impl MemberCreate {
    pub fn decode(body: &Value) -> Result<Self, Fault> {
        Self::decode_object(&Object::root(body, "member")?)
    }

    pub(super) fn decode_object(object: &Object<'_>) -> Result<Self, Fault> {
        object.only(&[CREATE])?;
        object.optional("project_id", text(36))?;
        object.optional("tenant_id", text(36))?;
        Ok(Self {
            name: object.optional("name", text(255))?,
            admin_state_up: object.optional("admin_state_up", boolean)?,
            address: object.required("address", spelled_ip)?,
            protocol_port: object.required("protocol_port", port())?,
            weight: object.optional("weight", weight())?,
            backup: object.optional("backup", boolean)?,
            subnet_id: object.optional("subnet_id", uuid_or_empty)?.flatten(),
            monitor_address: object.optional("monitor_address", spelled_ip)?,
            monitor_port: object.optional("monitor_port", port())?,
            tags: object.optional("tags", tags)?,
            request_sriov: object.optional("request_sriov", boolean)?.unwrap_or(false),
        })
    }
}

/// The members a pool shall have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberBatch {
    pub members: Vec<MemberCreate>,
    /// Members that are not listed stay.
    pub additive_only: bool,
}

impl MemberBatch {
    pub fn decode(body: &Value, additive_only: bool) -> Result<Self, Fault> {
        let Value::Array(items) = root_value(body, "members")? else {
            return Err(Fault::InvalidInput {
                field: "members".to_owned(),
                value: "members".to_owned(),
                reason: "Value should be a list".to_owned(),
            });
        };
        let members = items
            .iter()
            .map(|item| MemberCreate::decode_object(&Object::item("body", "members", item)?))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            members,
            additive_only,
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MemberUpdate {
    pub name: Field<String>,
    pub admin_state_up: Field<bool>,
    pub weight: Field<u16>,
    pub backup: Field<bool>,
    pub monitor_address: Field<SpelledIp>,
    pub monitor_port: Field<u16>,
    pub tags: Field<Vec<String>>,
}

impl MemberUpdate {
    pub fn decode(body: &Value) -> Result<Self, Fault> {
        let object = Object::root(body, "member")?;
        object.only(&[&[
            "name",
            "admin_state_up",
            "weight",
            "backup",
            "monitor_address",
            "monitor_port",
            "tags",
        ]])?;
        Ok(Self {
            name: object.field("name", text(255))?,
            admin_state_up: object.field("admin_state_up", boolean)?,
            weight: object.field("weight", weight())?,
            backup: object.field("backup", boolean)?,
            monitor_address: object.field("monitor_address", spelled_ip)?,
            monitor_port: object.field("monitor_port", port())?,
            tags: object.field("tags", tags)?,
        })
    }
}

fn port() -> impl Fn(&Value) -> Result<u16, String> {
    integer(1, 65535)
}

fn weight() -> impl Fn(&Value) -> Result<u16, String> {
    integer(0, 256)
}
