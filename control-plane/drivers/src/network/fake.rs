//! Networks and ports in memory.

use std::net::IpAddr;

use async_trait::async_trait;
use lb_model::{NetworkId, PortId, SubnetId};

use crate::fake::{FakeCloud, State};
use crate::network::{
    FixedIp, FixedIpSpec, Port, PortFilter, PortSpec, PortUpdate, Subnet, TenantNetwork,
};
use crate::{DriverError, Network};

fn injected(operation: &str) -> DriverError {
    DriverError::Unavailable {
        operation: operation.to_owned(),
        reason: "injected".to_owned(),
    }
}

#[async_trait]
impl Network for FakeCloud {
    async fn list_networks(&self) -> Result<Vec<TenantNetwork>, DriverError> {
        const NAME: &str = "list networks";
        self.call(
            NAME,
            || injected(NAME),
            |state| Ok(state.networks.values().cloned().collect()),
        )
        .await
    }

    async fn network(&self, id: NetworkId) -> Result<Option<TenantNetwork>, DriverError> {
        const NAME: &str = "show network";
        self.call(
            NAME,
            || injected(NAME),
            |state| Ok(state.networks.get(&id).cloned()),
        )
        .await
    }

    async fn list_subnets(&self) -> Result<Vec<Subnet>, DriverError> {
        const NAME: &str = "list subnets";
        self.call(
            NAME,
            || injected(NAME),
            |state| Ok(state.subnets.values().cloned().collect()),
        )
        .await
    }

    async fn subnet(&self, id: SubnetId) -> Result<Option<Subnet>, DriverError> {
        const NAME: &str = "show subnet";
        self.call(
            NAME,
            || injected(NAME),
            |state| Ok(state.subnets.get(&id).cloned()),
        )
        .await
    }

    async fn list_ports(&self, filter: &PortFilter) -> Result<Vec<Port>, DriverError> {
        const NAME: &str = "list ports";
        self.call(
            NAME,
            || injected(NAME),
            |state| {
                Ok(state
                    .ports
                    .values()
                    .filter(|port| filter.matches(port))
                    .cloned()
                    .collect())
            },
        )
        .await
    }

    async fn port(&self, id: PortId) -> Result<Option<Port>, DriverError> {
        const NAME: &str = "show port";
        self.call(
            NAME,
            || injected(NAME),
            |state| Ok(state.ports.get(&id).cloned()),
        )
        .await
    }

    async fn ensure_port(&self, spec: &PortSpec) -> Result<Port, DriverError> {
        const NAME: &str = "ensure port";
        self.call(NAME, || injected(NAME), |state| ensure(state, spec))
            .await
    }

    async fn update_port(&self, id: PortId, update: &PortUpdate) -> Result<Port, DriverError> {
        const NAME: &str = "update port";
        self.call(
            NAME,
            || injected(NAME),
            |state| {
                let mut port = state
                    .ports
                    .get(&id)
                    .cloned()
                    .ok_or(DriverError::UnknownPort(id))?;
                apply(state, &mut port, update)?;
                state.ports.insert(id, port.clone());
                Ok(port)
            },
        )
        .await
    }

    async fn delete_port(&self, id: PortId) -> Result<(), DriverError> {
        const NAME: &str = "delete port";
        self.call(
            NAME,
            || injected(NAME),
            |state| {
                state.ports.remove(&id);
                for server in state.servers.values_mut() {
                    server.ports.remove(&id);
                }
                Ok(())
            },
        )
        .await
    }
}

fn ensure(state: &mut State, spec: &PortSpec) -> Result<Port, DriverError> {
    if !state.networks.contains_key(&spec.network_id) {
        return Err(DriverError::UnknownNetwork(spec.network_id));
    }
    let existing = state
        .ports
        .values()
        .find(|port| port.device_id == spec.device_id && port.name == spec.name);
    if let Some(port) = existing {
        let same_subnets = spec.fixed_ips.iter().all(|wanted| {
            port.fixed_ips
                .iter()
                .any(|fixed| fixed.subnet_id == wanted.subnet_id)
        });
        if port.network_id != spec.network_id || !same_subnets {
            return Err(DriverError::PortConflict {
                name: spec.name.clone(),
                reason: "another network or subnet".to_owned(),
            });
        }
        let mut port = port.clone();
        port.allowed_address_pairs
            .clone_from(&spec.allowed_address_pairs);
        state.ports.insert(port.id, port.clone());
        return Ok(port);
    }
    let mut port = spec.port(PortId::random(), state.mac());
    for wanted in &spec.fixed_ips {
        let fixed = allocate(state, &port, wanted)?;
        port.fixed_ips.push(fixed);
    }
    state.ports.insert(port.id, port.clone());
    Ok(port)
}

fn apply(state: &State, port: &mut Port, update: &PortUpdate) -> Result<(), DriverError> {
    update.apply_to(port);
    for wanted in &update.add_fixed_ips {
        let fixed = allocate(state, port, wanted)?;
        port.fixed_ips.push(fixed);
    }
    Ok(())
}

fn allocate(state: &State, port: &Port, wanted: &FixedIpSpec) -> Result<FixedIp, DriverError> {
    let id = wanted.subnet_id;
    let subnet = state
        .subnets
        .get(&id)
        .filter(|subnet| subnet.network_id == port.network_id)
        .ok_or(DriverError::UnknownSubnet(id))?;
    let taken = |address: IpAddr| {
        Some(address) == subnet.gateway_ip
            || state
                .ports
                .values()
                .chain(std::iter::once(port))
                .flat_map(|port| &port.fixed_ips)
                .any(|fixed| fixed.ip_address == address)
    };
    let address = match wanted.ip_address {
        Some(address) if !subnet.cidr.contains(&address) => {
            return Err(DriverError::AddressOutsideSubnet {
                address,
                subnet: id,
            });
        }
        Some(address) if taken(address) => return Err(DriverError::AddressInUse { address }),
        Some(address) => address,
        None if state.exhausted.contains(&id) => {
            return Err(DriverError::NoFreeAddress { subnet: id });
        }
        None => subnet
            .cidr
            .hosts()
            .take(65_536)
            .find(|address| !taken(*address))
            .ok_or(DriverError::NoFreeAddress { subnet: id })?,
    };
    Ok(FixedIp {
        subnet_id: id,
        ip_address: address,
    })
}
