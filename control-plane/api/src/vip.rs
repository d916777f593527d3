//! Virtual addresses: which port, network, subnet and address a create request means, and the port itself.
//!
//! The port exists before the create call is answered. It carries the load balancer's id in name and device, so that a
//! crash between port and row leaves something that can be told from a VIP in use, and removed.

use std::net::IpAddr;

use lb_drivers::Caller;
use lb_drivers::network::{FixedIpSpec, Port, PortFilter, Subnet, vip_port_spec};
use lb_model::change::ResolvedVip;
use lb_model::spec::LoadBalancerCreate;
use lb_model::{
    AdditionalVip, Fault, LoadBalancerId, NetworkId, PortId, SubnetId, Topology, Vip, VnicType,
};
use lb_store::{Filter, Query};
use uuid::Uuid;

use crate::ApiState;
use crate::fault::Result;

/// Where a VIP will be.
pub(crate) enum VipPlan {
    /// A port the caller made; it is used as it is and never deleted.
    TenantPort(ResolvedVip),
    /// A port to be made.
    Create {
        network_id: NetworkId,
        /// Primary first.
        addresses: Vec<FixedIpSpec>,
        /// For rules that ask for the address family before there is an address.
        families: Vec<IpAddr>,
    },
}

pub(crate) async fn plan(
    state: &ApiState,
    caller: &Caller,
    project_id: &str,
    spec: &LoadBalancerCreate,
) -> Result<VipPlan> {
    let config = &state.config;
    let given = [
        (
            "vip_port_id",
            spec.vip_port_id.is_some(),
            config.allow_vip_port_id,
        ),
        (
            "vip_network_id",
            spec.vip_network_id.is_some(),
            config.allow_vip_network_id,
        ),
        (
            "vip_subnet_id",
            spec.vip_subnet_id.is_some(),
            config.allow_vip_subnet_id,
        ),
    ];
    for (name, given, allowed) in given {
        if given && !allowed {
            return Err(invalid(format!(
                "use of {name} is disallowed by this deployment."
            )));
        }
    }
    let scope = Scope {
        state,
        caller,
        project_id,
    };
    if let Some(port) = spec.vip_port_id {
        return scope.tenant_port(port, spec).await.map(VipPlan::TenantPort);
    }
    let subnet = match (spec.vip_network_id, spec.vip_subnet_id) {
        (Some(network), Some(subnet)) => scope
            .subnet_in(network, subnet)
            .await?
            .ok_or_else(|| missing("Subnet", subnet))?,
        (None, Some(subnet)) => scope.subnet(subnet).await?,
        (Some(network), None) => scope.choose_subnet(network, spec.vip_address).await?,
        (None, None) => {
            let allowed: Vec<&str> = given
                .iter()
                .filter(|(_, _, allowed)| *allowed)
                .map(|(name, _, _)| *name)
                .collect();
            return Err(invalid(format!(
                "VIP must contain one of: {}.",
                allowed.join(", ")
            )));
        }
    };
    let mut addresses = vec![FixedIpSpec {
        subnet_id: subnet.id,
        ip_address: spec.vip_address,
    }];
    let mut families = vec![subnet.cidr.network()];
    for vip in &spec.additional_vips {
        let id = scope.subnet(vip.subnet_id).await?.id;
        let additional = scope.subnet_in(subnet.network_id, id).await?;
        let additional = additional.ok_or_else(|| {
            invalid(format!(
                "Subnet {id} of an additional VIP is not in the network of the VIP."
            ))
        })?;
        addresses.push(FixedIpSpec {
            subnet_id: additional.id,
            ip_address: vip.ip_address,
        });
        families.push(additional.cidr.network());
    }
    distinct(addresses.iter().map(|address| address.subnet_id))?;
    Ok(VipPlan::Create {
        network_id: subnet.network_id,
        addresses,
        families,
    })
}

impl VipPlan {
    pub(crate) fn network_id(&self) -> NetworkId {
        match self {
            Self::TenantPort(vip) => vip.vip.network_id,
            Self::Create { network_id, .. } => *network_id,
        }
    }

    /// The VIP as far as it is known: enough to check every rule before anything is made.
    pub(crate) fn provisional(&self) -> ResolvedVip {
        match self {
            Self::TenantPort(vip) => vip.clone(),
            Self::Create {
                network_id,
                addresses,
                families,
            } => {
                let nil = PortId(Uuid::nil());
                let mut vips = addresses.iter().zip(families);
                let unspecified = IpAddr::from([0, 0, 0, 0]);
                let (subnet_id, address) = vips
                    .next()
                    .map_or((SubnetId(Uuid::nil()), unspecified), |(spec, family)| {
                        (spec.subnet_id, spec.ip_address.unwrap_or(*family))
                    });
                ResolvedVip {
                    vip: new_vip(address, nil, subnet_id, *network_id, true),
                    additional: vips
                        .map(|(spec, family)| AdditionalVip {
                            subnet_id: spec.subnet_id,
                            ip_address: spec.ip_address.unwrap_or(*family),
                            port_id: nil,
                        })
                        .collect(),
                }
            }
        }
    }

    /// Makes the port exist, if it is ours to make.
    pub(crate) async fn ensure(
        &self,
        state: &ApiState,
        id: LoadBalancerId,
        project_id: &str,
    ) -> Result<ResolvedVip> {
        let (network_id, addresses) = match self {
            Self::TenantPort(vip) => return Ok(vip.clone()),
            Self::Create {
                network_id,
                addresses,
                ..
            } => (*network_id, addresses),
        };
        let port = state
            .network
            .ensure_port(&vip_port_spec(
                id,
                project_id,
                network_id,
                addresses.clone(),
            ))
            .await?;
        match resolved(&port, addresses) {
            Some(vip) => Ok(vip),
            None => {
                state.network.delete_port(port.id).await?;
                Err(invalid(format!(
                    "the network service gave port {} other addresses than asked for.",
                    port.id
                )))
            }
        }
    }
}

fn resolved(port: &Port, addresses: &[FixedIpSpec]) -> Option<ResolvedVip> {
    let address_in = |subnet: SubnetId| {
        port.fixed_ips
            .iter()
            .find(|fixed| fixed.subnet_id == subnet)
            .map(|fixed| fixed.ip_address)
    };
    let mut specs = addresses.iter();
    let primary = specs.next()?;
    let additional = specs
        .map(|spec| {
            Some(AdditionalVip {
                subnet_id: spec.subnet_id,
                ip_address: address_in(spec.subnet_id)?,
                port_id: port.id,
            })
        })
        .collect::<Option<Vec<_>>>()?;
    Some(ResolvedVip {
        vip: new_vip(
            address_in(primary.subnet_id)?,
            port.id,
            primary.subnet_id,
            port.network_id,
            true,
        ),
        additional,
    })
}

fn new_vip(
    address: IpAddr,
    port_id: PortId,
    subnet_id: SubnetId,
    network_id: NetworkId,
    port_is_ours: bool,
) -> Vip {
    Vip {
        address,
        port_id,
        subnet_id,
        network_id,
        qos_policy_id: None,
        vnic_type: VnicType::Normal,
        sg_ids: Vec::new(),
        port_is_ours,
    }
}

/// The network service as one caller may use it.
struct Scope<'a> {
    state: &'a ApiState,
    caller: &'a Caller,
    project_id: &'a str,
}

impl Scope<'_> {
    /// Another project's object is as good as absent; one without a project is everybody's.
    fn may_use(&self, owner: Option<&str>) -> bool {
        self.state.policy.is_admin(self.caller)
            || owner.is_none_or(|owner| owner == self.project_id)
    }

    async fn subnet(&self, id: SubnetId) -> Result<Subnet> {
        self.state
            .network
            .subnet(id)
            .await?
            .filter(|subnet| self.may_use(subnet.project_id.as_deref()))
            .ok_or_else(|| missing("Subnet", id))
    }

    async fn subnet_in(&self, network: NetworkId, id: SubnetId) -> Result<Option<Subnet>> {
        let subnet = self.state.network.subnet_in(network, id).await?;
        Ok(subnet.filter(|subnet| self.may_use(subnet.project_id.as_deref())))
    }

    /// The subnet that has the address; without one the first of IPv4 with room, else the first with room.
    async fn choose_subnet(&self, id: NetworkId, address: Option<IpAddr>) -> Result<Subnet> {
        let network = &self.state.network;
        let found = network
            .network(id)
            .await?
            .filter(|network| self.may_use(network.project_id.as_deref()))
            .ok_or_else(|| missing("Network", id))?;
        let mut subnets = Vec::new();
        for subnet in found.subnets {
            subnets.extend(network.subnet_in(id, subnet).await?);
        }
        if let Some(address) = address {
            return subnets
                .into_iter()
                .find(|subnet| subnet.cidr.contains(&address))
                .ok_or_else(|| {
                    invalid(format!(
                        "Supplied VIP address {address} is not in any subnet of network {id}."
                    ))
                });
        }
        let ports = network
            .list_ports(&PortFilter {
                network_id: Some(id),
                ..PortFilter::default()
            })
            .await?;
        let needed = match self.state.config.topology {
            Topology::Single => 2,
            Topology::ActiveStandby => 3,
        };
        subnets.sort_by_key(Subnet::ip_version);
        subnets
            .into_iter()
            .find(|subnet| free_addresses(subnet, &ports) >= needed)
            .ok_or_else(|| {
                invalid(format!(
                    "no subnet of network {id} has enough free addresses for a load balancer."
                ))
            })
    }

    async fn tenant_port(&self, id: PortId, spec: &LoadBalancerCreate) -> Result<ResolvedVip> {
        let port = self
            .state
            .network
            .port(id)
            .await?
            .filter(|port| self.may_use(port.project_id.as_deref()))
            .ok_or_else(|| missing("Port", id))?;
        if !port.device_id.is_empty() || self.is_vip_port(id).await? {
            return Err(invalid(format!(
                "Port {id} is already used by another device."
            )));
        }
        let primary = match (spec.vip_subnet_id, spec.vip_address) {
            (None, None) => match port.fixed_ips.as_slice() {
                [only] => Some(only),
                _ => {
                    return Err(invalid(format!(
                        "VIP port's subnet could not be determined: port {id} does not have exactly one fixed IP. Please specify either a VIP subnet or address."
                    )));
                }
            },
            (subnet, address) => port.fixed_ips.iter().find(|fixed| {
                subnet.is_none_or(|subnet| subnet == fixed.subnet_id)
                    && address.is_none_or(|address| address == fixed.ip_address)
            }),
        };
        let primary = primary.ok_or_else(|| {
            invalid(format!(
                "Specified VIP address or subnet is not one of the fixed IPs of port {id}."
            ))
        })?;
        let mut additional = Vec::new();
        for vip in &spec.additional_vips {
            let fixed = port.fixed_ips.iter().find(|fixed| {
                fixed.subnet_id == vip.subnet_id
                    && vip
                        .ip_address
                        .is_none_or(|address| address == fixed.ip_address)
            });
            let fixed = fixed.ok_or_else(|| {
                invalid(format!(
                    "Additional VIP in subnet {} is not one of the fixed IPs of port {id}.",
                    vip.subnet_id
                ))
            })?;
            additional.push(AdditionalVip {
                subnet_id: fixed.subnet_id,
                ip_address: fixed.ip_address,
                port_id: id,
            });
        }
        distinct(
            std::iter::once(primary.subnet_id).chain(additional.iter().map(|vip| vip.subnet_id)),
        )?;
        Ok(ResolvedVip {
            vip: new_vip(
                primary.ip_address,
                id,
                primary.subnet_id,
                port.network_id,
                false,
            ),
            additional,
        })
    }

    /// A tenant's port carries no mark of ours, so the database is asked.
    async fn is_vip_port(&self, id: PortId) -> Result<bool> {
        let query = Query {
            filters: vec![Filter {
                column: "vip_port_id".to_owned(),
                value: id.to_string(),
            }],
            limit: Some(1),
            ..Query::default()
        };
        Ok(!self
            .state
            .store
            .list_load_balancers(&query)
            .await?
            .is_empty())
    }
}

fn distinct(subnets: impl Iterator<Item = SubnetId>) -> Result<()> {
    let mut seen = std::collections::BTreeSet::new();
    for subnet in subnets {
        if !seen.insert(subnet) {
            return Err(invalid(format!(
                "Duplicate VIP subnet(s): {subnet}. All VIP subnets must be unique."
            )));
        }
    }
    Ok(())
}

fn free_addresses(subnet: &Subnet, ports: &[Port]) -> u128 {
    let number = |address: IpAddr| match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    };
    let total = subnet
        .allocation_pools
        .iter()
        .map(|(first, last)| {
            number(*last)
                .saturating_sub(number(*first))
                .saturating_add(1)
        })
        .fold(0_u128, u128::saturating_add);
    let used = ports
        .iter()
        .flat_map(|port| &port.fixed_ips)
        .filter(|fixed| fixed.subnet_id == subnet.id)
        .fold(0_u128, |count, _| count.saturating_add(1));
    total.saturating_sub(used)
}

fn invalid(detail: String) -> crate::fault::ApiFault {
    Fault::Validation(detail).into()
}

fn missing(resource: &'static str, id: impl std::fmt::Display) -> crate::fault::ApiFault {
    Fault::InvalidReference {
        resource,
        id: id.to_string(),
    }
    .into()
}

/// Member subnets must exist for the caller.
pub(crate) async fn check_member_subnets(
    state: &ApiState,
    caller: &Caller,
    project_id: Option<&str>,
    subnets: impl Iterator<Item = SubnetId>,
) -> Result<()> {
    let wanted: std::collections::BTreeSet<SubnetId> = subnets.collect();
    let scope = Scope {
        state,
        caller,
        project_id: project_id
            .or(caller.project_id.as_deref())
            .unwrap_or_default(),
    };
    for subnet in wanted {
        scope.subnet(subnet).await?;
    }
    Ok(())
}
