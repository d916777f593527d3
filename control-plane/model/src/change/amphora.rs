//! Replacing and removing one amphora on request.

use super::{require_mutable, set_load_balancer};
use crate::{AmphoraId, AmphoraStatus, Fault, Graph, ProvisioningStatus, Resource, Timestamp};

/// The load balancer must be ACTIVE: unlike its own failover, ERROR is refused.
pub fn request_amphora_failover(
    graph: &mut Graph,
    id: AmphoraId,
    now: Timestamp,
) -> Result<(), Fault> {
    let position = graph
        .amphorae
        .iter()
        .position(|amphora| amphora.id == id && may_be_replaced(amphora.status))
        .ok_or_else(|| Fault::not_found(Resource::Amphora, id))?;
    require_mutable(&graph.load_balancer)?;
    if let Some(amphora) = graph.amphorae.get_mut(position) {
        amphora.failover_requested = true;
        amphora.updated_at = Some(now);
    }
    set_load_balancer(graph, ProvisioningStatus::PendingUpdate, now);
    Ok(())
}

/// Only one that has failed may be removed: those that serve are replaced instead. The load balancer stays as it is.
pub fn delete_amphora(graph: &mut Graph, id: AmphoraId, now: Timestamp) -> Result<(), Fault> {
    let amphora = graph
        .amphorae
        .iter_mut()
        .find(|amphora| amphora.id == id && amphora.status != AmphoraStatus::Deleted)
        .ok_or_else(|| Fault::not_found(Resource::Amphora, id))?;
    if amphora.status != AmphoraStatus::Error {
        return Err(Fault::Immutable {
            resource: Resource::Amphora,
            id: id.0,
        });
    }
    amphora.status = AmphoraStatus::PendingDelete;
    amphora.failover_requested = false;
    amphora.updated_at = Some(now);
    Ok(())
}

/// Not on its way out already.
pub(super) const fn may_be_replaced(status: AmphoraStatus) -> bool {
    match status {
        AmphoraStatus::Booting
        | AmphoraStatus::Allocated
        | AmphoraStatus::Ready
        | AmphoraStatus::PendingCreate
        | AmphoraStatus::PendingUpdate
        | AmphoraStatus::Error
        | AmphoraStatus::FailoverStopped => true,
        AmphoraStatus::PendingDelete | AmphoraStatus::Deleted => false,
    }
}
