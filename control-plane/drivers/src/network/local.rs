//! The network driver of a local stack: declared networks, recorded ports.
//!
//! Allowed address pairs are recorded and not enforced: a bridge of a local stack lets a device use any address.

mod table;

use std::sync::Arc;

use async_trait::async_trait;
use lb_model::{NetworkId, PortId, SubnetId};

use super::{Network, Port, PortFilter, PortSpec, PortUpdate, Subnet, TenantNetwork};
use crate::DriverError;
use crate::local::{self, FileLock, Stack, blocking, in_netns, port_link_name};
use table::PortTable;

/// See [`LocalStack`](crate::LocalStack).
#[derive(Debug, Clone)]
pub struct LocalNetwork {
    stack: Arc<Stack>,
}

impl LocalNetwork {
    pub(crate) fn new(stack: Arc<Stack>) -> Self {
        Self { stack }
    }
}

#[async_trait]
impl Network for LocalNetwork {
    async fn list_networks(&self) -> Result<Vec<TenantNetwork>, DriverError> {
        Ok(self.stack.declaration.networks.clone())
    }

    async fn network(&self, id: NetworkId) -> Result<Option<TenantNetwork>, DriverError> {
        Ok(self.stack.declaration.network(id).cloned())
    }

    async fn list_subnets(&self) -> Result<Vec<Subnet>, DriverError> {
        Ok(self.stack.declaration.subnets.clone())
    }

    async fn subnet(&self, id: SubnetId) -> Result<Option<Subnet>, DriverError> {
        Ok(self.stack.declaration.subnet(id).cloned())
    }

    async fn list_ports(&self, filter: &PortFilter) -> Result<Vec<Port>, DriverError> {
        let (stack, filter) = (Arc::clone(&self.stack), filter.clone());
        blocking(move || list_ports(&stack, &filter)).await
    }

    async fn port(&self, id: PortId) -> Result<Option<Port>, DriverError> {
        let stack = Arc::clone(&self.stack);
        blocking(move || Ok(read_table(&stack)?.port(id).cloned())).await
    }

    async fn ensure_port(&self, spec: &PortSpec) -> Result<Port, DriverError> {
        let (stack, spec) = (Arc::clone(&self.stack), spec.clone());
        blocking(move || ensure_port(&stack, &spec)).await
    }

    async fn update_port(&self, id: PortId, update: &PortUpdate) -> Result<Port, DriverError> {
        let (stack, update) = (Arc::clone(&self.stack), update.clone());
        blocking(move || {
            change_table(&stack, |table| {
                table.update(&stack.declaration, id, &update)
            })
        })
        .await
    }

    async fn delete_port(&self, id: PortId) -> Result<(), DriverError> {
        let stack = Arc::clone(&self.stack);
        blocking(move || delete_port(&stack, id)).await
    }
}

pub(crate) fn list_ports(stack: &Stack, filter: &PortFilter) -> Result<Vec<Port>, DriverError> {
    let mut ports = read_table(stack)?.ports;
    ports.retain(|port| filter.matches(port));
    Ok(ports)
}

pub(crate) fn ensure_port(stack: &Stack, spec: &PortSpec) -> Result<Port, DriverError> {
    change_table(stack, |table| table.ensure(&stack.declaration, spec))
}

/// Unplugs first: while the record is there, whoever is interrupted can go on.
pub(crate) fn delete_port(stack: &Stack, id: PortId) -> Result<(), DriverError> {
    in_netns(&stack.fabric, |links| links.delete(&port_link_name(id)))?;
    change_table(stack, |table| {
        table.remove(id);
        Ok(())
    })
}

/// Readers need no lock: the file is replaced in one step.
fn read_table(stack: &Stack) -> Result<PortTable, DriverError> {
    Ok(local::read(&stack.layout.ports())?.unwrap_or_default())
}

fn change_table<T>(
    stack: &Stack,
    change: impl FnOnce(&mut PortTable) -> Result<T, DriverError>,
) -> Result<T, DriverError> {
    let _lock = FileLock::acquire(&stack.layout.lock())?;
    let before = read_table(stack)?;
    let mut table = before.clone();
    let done = change(&mut table)?;
    if table != before {
        local::write(&stack.layout.ports(), &table)?;
    }
    Ok(done)
}
