//! Bodies of `POST` and `PUT /loadbalancers`.

use std::net::IpAddr;

use serde_json::Value;
use uuid::Uuid;

use super::decode::{Field, Object, boolean, ip, list, tags, text, uuid};
use super::{GraphListener, GraphPool};
use crate::{Fault, FlavorId, NetworkId, PortId, SubnetId};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadBalancerCreate {
    pub name: String,
    pub description: String,
    pub admin_state_up: bool,
    pub project_id: Option<String>,
    pub provider: Option<String>,
    pub vip_address: Option<IpAddr>,
    pub vip_port_id: Option<PortId>,
    pub vip_subnet_id: Option<SubnetId>,
    pub vip_network_id: Option<NetworkId>,
    pub vip_qos_policy_id: Option<Uuid>,
    pub vip_sg_ids: Vec<Uuid>,
    pub additional_vips: Vec<AdditionalVipSpec>,
    pub flavor_id: Option<FlavorId>,
    pub availability_zone: Option<String>,
    pub tags: Vec<String>,
    pub listeners: Vec<GraphListener>,
    pub pools: Vec<GraphPool>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdditionalVipSpec {
    pub subnet_id: SubnetId,
    pub ip_address: Option<IpAddr>,
    pub port_id: Option<PortId>,
}

const CREATE: &[&str] = &[
    "name",
    "description",
    "admin_state_up",
    "project_id",
    "tenant_id",
    "provider",
    "vip_address",
    "vip_port_id",
    "vip_subnet_id",
    "vip_network_id",
    "vip_qos_policy_id",
    "vip_sg_ids",
    "additional_vips",
    "flavor_id",
    "availability_zone",
    "tags",
    "listeners",
    "pools",
];

impl LoadBalancerCreate {
    pub fn decode(body: &Value) -> Result<Self, Fault> {
        let object = Object::root(body, "loadbalancer")?;
        object.only(&[CREATE])?;
        let project_id = object.optional("project_id", text(36))?;
        let tenant_id = object.optional("tenant_id", text(36))?;
        Ok(Self {
            name: object.optional("name", text(255))?.unwrap_or_default(),
            description: object
                .optional("description", text(255))?
                .unwrap_or_default(),
            admin_state_up: object.optional("admin_state_up", boolean)?.unwrap_or(true),
            project_id: tenant_id.or(project_id),
            provider: object.optional("provider", text(64))?,
            vip_address: object.optional("vip_address", ip)?,
            vip_port_id: object.optional("vip_port_id", uuid)?,
            vip_subnet_id: object.optional("vip_subnet_id", uuid)?,
            vip_network_id: object.optional("vip_network_id", uuid)?,
            vip_qos_policy_id: object.optional("vip_qos_policy_id", uuid)?,
            vip_sg_ids: object
                .optional("vip_sg_ids", list(uuid))?
                .unwrap_or_default(),
            additional_vips: object
                .objects("additional_vips")?
                .iter()
                .map(AdditionalVipSpec::decode)
                .collect::<Result<_, _>>()?,
            flavor_id: object.optional("flavor_id", uuid)?,
            availability_zone: object.optional("availability_zone", text(255))?,
            tags: object.optional("tags", tags)?.unwrap_or_default(),
            listeners: object
                .objects("listeners")?
                .iter()
                .map(GraphListener::decode)
                .collect::<Result<_, _>>()?,
            pools: object
                .objects("pools")?
                .iter()
                .map(GraphPool::decode)
                .collect::<Result<_, _>>()?,
        })
    }
}

impl LoadBalancerCreate {
    /// Every pool the request speaks of: under `pools`, as default pool, and as the target of a policy.
    pub fn graph_pools(&self) -> impl Iterator<Item = &GraphPool> {
        let nested = self.listeners.iter().flat_map(|listener| {
            let redirects = listener
                .l7policies
                .iter()
                .filter_map(|policy| policy.redirect_pool.as_ref());
            listener.default_pool.iter().chain(redirects)
        });
        self.pools.iter().chain(nested)
    }
}

impl AdditionalVipSpec {
    fn decode(object: &Object<'_>) -> Result<Self, Fault> {
        object.only(&[&["subnet_id", "ip_address", "port_id"]])?;
        Ok(Self {
            subnet_id: object.required("subnet_id", uuid)?,
            ip_address: object.optional("ip_address", ip)?,
            port_id: object.optional("port_id", uuid)?,
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LoadBalancerUpdate {
    pub name: Field<String>,
    pub description: Field<String>,
    pub admin_state_up: Field<bool>,
    pub vip_qos_policy_id: Field<Uuid>,
    pub vip_sg_ids: Field<Vec<Uuid>>,
    pub tags: Field<Vec<String>>,
}

impl LoadBalancerUpdate {
    pub fn decode(body: &Value) -> Result<Self, Fault> {
        let object = Object::root(body, "loadbalancer")?;
        object.only(&[&[
            "name",
            "description",
            "admin_state_up",
            "vip_qos_policy_id",
            "vip_sg_ids",
            "tags",
        ]])?;
        Ok(Self {
            name: object.field("name", text(255))?,
            description: object.field("description", text(255))?,
            admin_state_up: object.field("admin_state_up", boolean)?,
            vip_qos_policy_id: object.field("vip_qos_policy_id", uuid)?,
            vip_sg_ids: object.field("vip_sg_ids", list(uuid))?,
            tags: object.field("tags", tags)?,
        })
    }
}
