//! Tenant hosts: namespaces with a link on a tenant network, for members and clients of demos and tests.

use std::net::IpAddr;

use ipnet::IpNet;

use super::Stack;
use super::config::{Offload, bridge_name, parse_mac, port_link_name};
use super::links::{VethPair, in_netns};
use super::netns::Netns;
use super::{fabric, offload, process};
use crate::DriverError;
use crate::network::{FixedIpSpec, Port, PortFilter, PortSpec, Subnet, TenantNetwork};

/// `device_owner` of a host's ports.
const HOST_OWNER: &str = "compute:local";

/// A tenant host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    pub netns: Netns,
    pub port: Port,
    /// Name of the host's link on the network.
    pub link: String,
}

fn device_id(host: &str) -> String {
    format!("host-{host}")
}

/// Makes a host with a link on a network and these addresses (one of each subnet when none is given). Called for
/// another network, it gives the host a second link.
pub(crate) fn ensure(
    stack: &Stack,
    name: &str,
    network: &str,
    addresses: &[IpAddr],
) -> Result<Host, DriverError> {
    let netns = stack.layout.host(name)?;
    let network = stack
        .declaration
        .find_network(network)
        .ok_or_else(|| DriverError::Invalid {
            what: format!("network {network}"),
            reason: "is not in the networks file".to_owned(),
        })?;
    let port =
        crate::network::ensure_local_port(stack, &port_spec(stack, name, network, addresses)?)?;
    let link = port_link_name(port.id);
    netns.ensure()?;
    fabric::prepare_guest(&netns)?;
    let mac = parse_mac(&port.mac_address)?;
    in_netns(&stack.fabric, |links| {
        links.ensure_veth(&VethPair {
            name: &link,
            bridge: &bridge_name(network.id),
            mtu_bytes: network.mtu_bytes,
            isolated: false,
            peer: &link,
            peer_mac: mac,
            peer_netns: &netns,
        })
    })?;
    in_netns(&netns, |links| {
        links.set_up(&link)?;
        if stack.offload == Offload::Xdp {
            offload::disable_transmit_checksums(&link)?;
        }
        for fixed in &port.fixed_ips {
            let subnet = stack
                .declaration
                .subnet(fixed.subnet_id)
                .ok_or(DriverError::UnknownSubnet(fixed.subnet_id))?;
            links.ensure_address(&link, with_prefix(subnet, fixed.ip_address)?)?;
            for route in &subnet.host_routes {
                links.ensure_route(&link, route.destination, route.nexthop)?;
            }
            if let Some(gateway) = subnet.gateway_ip.filter(|_| stack.declaration.routing) {
                let everywhere = match gateway {
                    IpAddr::V4(_) => IpNet::V4(ipnet::Ipv4Net::default()),
                    IpAddr::V6(_) => IpNet::V6(ipnet::Ipv6Net::default()),
                };
                links.ensure_route(&link, everywhere, gateway)?;
            }
        }
        Ok(())
    })?;
    Ok(Host { netns, port, link })
}

/// Removes a host, its processes and its ports; absent is fine.
pub(crate) fn delete(stack: &Stack, name: &str) -> Result<(), DriverError> {
    let netns = stack.layout.host(name)?;
    process::kill_all_in(&netns)?;
    let filter = PortFilter {
        device_id: Some(device_id(name)),
        device_owner: Some(HOST_OWNER.to_owned()),
        ..PortFilter::default()
    };
    for port in crate::network::list_local_ports(stack, &filter)? {
        crate::network::delete_local_port(stack, port.id)?;
    }
    netns.delete()
}

fn port_spec(
    stack: &Stack,
    name: &str,
    network: &TenantNetwork,
    addresses: &[IpAddr],
) -> Result<PortSpec, DriverError> {
    let subnets: Vec<&Subnet> = stack.declaration.subnets_of(network.id).collect();
    let fixed_ips = if addresses.is_empty() {
        subnets
            .iter()
            .map(|subnet| FixedIpSpec {
                subnet_id: subnet.id,
                ip_address: None,
            })
            .collect()
    } else {
        addresses
            .iter()
            .map(|address| {
                subnets
                    .iter()
                    .find(|subnet| subnet.cidr.contains(address))
                    .map(|subnet| FixedIpSpec {
                        subnet_id: subnet.id,
                        ip_address: Some(*address),
                    })
                    .ok_or_else(|| DriverError::Invalid {
                        what: format!("address {address} of host {name}"),
                        reason: format!("is in no subnet of network {}", network.name),
                    })
            })
            .collect::<Result<_, _>>()?
    };
    Ok(PortSpec {
        name: format!("host-{name}-{}", network.name),
        network_id: network.id,
        fixed_ips,
        device_id: device_id(name),
        device_owner: HOST_OWNER.to_owned(),
        project_id: network.project_id.clone(),
        allowed_address_pairs: Vec::new(),
        admin_state_up: true,
    })
}

fn with_prefix(subnet: &Subnet, address: IpAddr) -> Result<IpNet, DriverError> {
    IpNet::new(address, subnet.cidr.prefix_len()).map_err(|_| DriverError::AddressOutsideSubnet {
        address,
        subnet: subnet.id,
    })
}
