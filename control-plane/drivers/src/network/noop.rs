//! Networks and ports that are not there: see [`noop`](crate::noop).

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use lb_model::{NetworkId, PortId, SubnetId};

use crate::network::{
    FixedIp, FixedIpSpec, Port, PortFilter, PortSpec, PortUpdate, Subnet, TenantNetwork,
};
use crate::noop::{Recent, address_of, id_of, lock, mac_of};
use crate::{DriverError, Network};

/// Every id is that of a network, a subnet or a port, whichever is asked for; every address is free, in every subnet.
#[derive(Debug, Clone, Default)]
pub struct NoopNetwork {
    memory: Arc<Mutex<Memory>>,
}

#[derive(Debug, Default)]
struct Memory {
    made: Recent<PortId, Port>,
    deleted: Recent<PortId, ()>,
}

/// The two subnets of a network of which only the id is known.
const FAMILIES: [&str; 2] = ["IPv4", "IPv6"];

fn subnets_of(network: NetworkId) -> [SubnetId; 2] {
    FAMILIES.map(|family| SubnetId(id_of(family, &network.to_string())))
}

fn network(id: NetworkId) -> TenantNetwork {
    TenantNetwork {
        id,
        name: id.to_string(),
        mtu_bytes: 1500,
        project_id: None,
        subnets: subnets_of(id).to_vec(),
    }
}

/// A subnet with an address for everybody.
fn subnet(id: SubnetId, network_id: NetworkId) -> Subnet {
    let [_, ipv6] = subnets_of(network_id);
    let (cidr, last) = if id == ipv6 {
        (
            IpNet::V6(Ipv6Net::default()),
            Ipv6Addr::from(u128::MAX).into(),
        )
    } else {
        (IpNet::V4(Ipv4Net::default()), Ipv4Addr::BROADCAST.into())
    };
    Subnet {
        id,
        name: id.to_string(),
        network_id,
        project_id: None,
        cidr,
        gateway_ip: None,
        host_routes: Vec::new(),
        allocation_pools: vec![(cidr.addr(), last)],
    }
}

/// The network of a subnet of which only the id is known.
fn network_of(subnet: SubnetId) -> NetworkId {
    NetworkId(id_of("network", &subnet.to_string()))
}

/// A port of which only the id is known.
fn port(id: PortId) -> Port {
    let name = id.to_string();
    let subnet_id = SubnetId(id_of("subnet", &name));
    Port {
        id,
        name: name.clone(),
        network_id: network_of(subnet_id),
        mac_address: mac_of(&name),
        fixed_ips: vec![FixedIp {
            subnet_id,
            ip_address: address_of("port", &name),
        }],
        device_id: String::new(),
        device_owner: String::new(),
        project_id: None,
        allowed_address_pairs: Vec::new(),
        admin_state_up: true,
    }
}

fn fixed_ip(port: PortId, wanted: &FixedIpSpec) -> FixedIp {
    let name = format!("{port} {}", wanted.subnet_id);
    FixedIp {
        subnet_id: wanted.subnet_id,
        ip_address: wanted
            .ip_address
            .unwrap_or_else(|| address_of("port", &name)),
    }
}

impl Memory {
    fn port(&self, id: PortId) -> Option<Port> {
        if self.deleted.get(&id).is_some() {
            return None;
        }
        Some(self.made.get(&id).cloned().unwrap_or_else(|| port(id)))
    }
}

#[async_trait]
impl Network for NoopNetwork {
    /// None: names are not known here, only ids.
    async fn list_networks(&self) -> Result<Vec<TenantNetwork>, DriverError> {
        Ok(Vec::new())
    }

    async fn network(&self, id: NetworkId) -> Result<Option<TenantNetwork>, DriverError> {
        Ok(Some(network(id)))
    }

    async fn list_subnets(&self) -> Result<Vec<Subnet>, DriverError> {
        Ok(Vec::new())
    }

    async fn subnet(&self, id: SubnetId) -> Result<Option<Subnet>, DriverError> {
        Ok(Some(subnet(id, network_of(id))))
    }

    async fn subnet_in(
        &self,
        network: NetworkId,
        id: SubnetId,
    ) -> Result<Option<Subnet>, DriverError> {
        Ok(Some(subnet(id, network)))
    }

    async fn list_ports(&self, filter: &PortFilter) -> Result<Vec<Port>, DriverError> {
        Ok(lock(&self.memory)
            .made
            .values()
            .filter(|port| filter.matches(port))
            .cloned()
            .collect())
    }

    async fn port(&self, id: PortId) -> Result<Option<Port>, DriverError> {
        Ok(lock(&self.memory).port(id))
    }

    async fn ensure_port(&self, spec: &PortSpec) -> Result<Port, DriverError> {
        let id = PortId(id_of("port", &format!("{} {}", spec.device_id, spec.name)));
        let mut port = spec.port(id, mac_of(&id.to_string()));
        port.fixed_ips = spec
            .fixed_ips
            .iter()
            .map(|wanted| fixed_ip(id, wanted))
            .collect();
        let mut memory = lock(&self.memory);
        memory.deleted.remove(&id);
        memory.made.insert(id, port.clone());
        Ok(port)
    }

    async fn update_port(&self, id: PortId, update: &PortUpdate) -> Result<Port, DriverError> {
        let mut memory = lock(&self.memory);
        let mut port = memory.port(id).ok_or(DriverError::UnknownPort(id))?;
        update.apply_to(&mut port);
        let added = update.add_fixed_ips.iter();
        port.fixed_ips
            .extend(added.map(|wanted| fixed_ip(id, wanted)));
        memory.made.insert(id, port.clone());
        Ok(port)
    }

    async fn delete_port(&self, id: PortId) -> Result<(), DriverError> {
        let mut memory = lock(&self.memory);
        memory.made.remove(&id);
        memory.deleted.insert(id, ());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn spec(network_id: NetworkId, subnet_id: SubnetId, ip_address: Option<IpAddr>) -> PortSpec {
        PortSpec {
            name: "octavia-lb-1".to_owned(),
            network_id,
            fixed_ips: vec![FixedIpSpec {
                subnet_id,
                ip_address,
            }],
            device_id: "lb-1".to_owned(),
            device_owner: "Octavia".to_owned(),
            project_id: None,
            allowed_address_pairs: Vec::new(),
            admin_state_up: false,
        }
    }

    #[tokio::test]
    async fn a_port_is_the_same_for_every_replica() {
        let (network, subnet) = (NetworkId::random(), SubnetId::random());
        let spec = spec(network, subnet, None);
        let one = NoopNetwork::default().ensure_port(&spec).await.unwrap();
        let other = NoopNetwork::default().ensure_port(&spec).await.unwrap();
        assert_eq!(one, other);
    }

    #[tokio::test]
    async fn an_address_that_is_asked_for_is_given_in_either_family() {
        let driver = NoopNetwork::default();
        for address in ["198.18.33.33", "2001:db8::33"] {
            let address = address.parse().unwrap();
            let spec = spec(NetworkId::random(), SubnetId::random(), Some(address));
            let port = driver.ensure_port(&spec).await.unwrap();
            assert_eq!(port.fixed_ips[0].ip_address, address);
        }
    }

    #[tokio::test]
    async fn a_port_nobody_made_exists_until_it_is_deleted() {
        let driver = NoopNetwork::default();
        let id = PortId::random();
        assert!(driver.port(id).await.unwrap().is_some());
        driver.delete_port(id).await.unwrap();
        assert!(driver.port(id).await.unwrap().is_none());
        let update = driver.update_port(id, &PortUpdate::default()).await;
        assert!(matches!(update, Err(DriverError::UnknownPort(_))));
    }

    #[tokio::test]
    async fn one_subnet_lies_in_every_network() {
        let driver = NoopNetwork::default();
        let id = SubnetId::random();
        for network in [NetworkId::random(), NetworkId::random()] {
            let subnet = driver.subnet_in(network, id).await.unwrap().unwrap();
            assert_eq!((subnet.id, subnet.network_id), (id, network));
        }
    }

    #[tokio::test]
    async fn the_subnets_of_a_network_hold_addresses_of_both_families() {
        let driver = NoopNetwork::default();
        let network = driver.network(NetworkId::random()).await.unwrap().unwrap();
        let mut versions = Vec::new();
        for id in &network.subnets {
            let subnet = driver.subnet_in(network.id, *id).await.unwrap().unwrap();
            versions.push(subnet.ip_version());
        }
        assert_eq!(versions, [4, 6]);
    }
}
