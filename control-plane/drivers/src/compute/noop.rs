//! Servers that are not there: see [`noop`](crate::noop).

use async_trait::async_trait;
use lb_model::{AmphoraId, PortId};

use crate::network::Port;
use crate::noop::{address_of, id_of};
use crate::{Compute, DriverError, Observed, Server, ServerSpec, ServerStatus};

/// Every amphora has a server that runs, as long as anyone asks for it.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoopCompute;

fn server(amphora: AmphoraId) -> Server {
    let name = amphora.to_string();
    Server {
        amphora_id: amphora,
        compute_id: id_of("server", &name).to_string(),
        status: ServerStatus::Active,
        lb_network_ip: Some(address_of("management", &name)),
        image_id: None,
        cached_zone: None,
    }
}

#[async_trait]
impl Compute for NoopCompute {
    async fn ensure_server(&self, spec: &ServerSpec) -> Result<Server, DriverError> {
        Ok(server(spec.amphora_id))
    }

    async fn observe_server(&self, amphora: AmphoraId) -> Result<Observed<Server>, DriverError> {
        Ok(Observed::Present(server(amphora)))
    }

    /// None: there is nothing to find that anybody forgot.
    async fn list_servers(&self) -> Result<Vec<Server>, DriverError> {
        Ok(Vec::new())
    }

    async fn attach_port(&self, _amphora: AmphoraId, _port: &Port) -> Result<(), DriverError> {
        Ok(())
    }

    async fn detach_port(&self, _amphora: AmphoraId, _port: PortId) -> Result<(), DriverError> {
        Ok(())
    }

    async fn delete_server(&self, _amphora: AmphoraId) -> Result<(), DriverError> {
        Ok(())
    }
}
