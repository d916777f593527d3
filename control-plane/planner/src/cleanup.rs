//! The end of amphorae: those that were replaced, and those that came to nothing.

use amphora_api::VipState;
use lb_model::{Amphora, AmphoraStatus, Graph, ProvisioningStatus, Timestamp};

use crate::converge::Context;
use crate::{Phase, Plan, ServerView, Step};

impl Context<'_> {
    /// Whether an amphora that is to go still has connections to finish, and can.
    pub(crate) fn drains(&self, row: &Amphora) -> bool {
        if !row.failover_requested || self.world.base_port(row.id).is_none() {
            return false;
        }
        let Some(agent) = self.world.agent(row.id) else {
            return false;
        };
        let since = row.updated_at.unwrap_or(row.created_at);
        let limit = i64::try_from(self.settings.drain_timeout.as_millis()).unwrap_or(i64::MAX);
        agent.active_connections != Some(0) && self.world.now.millis_since(since) < limit
    }

    /// An amphora that is to go: passive before another one is active, then drained, then removed. One that does
    /// not answer, or that nobody succeeds, is removed first of all.
    pub(crate) fn end(&self, plan: &mut Plan, row: &Amphora, succeeded: bool) {
        let answers = self.world.agent(row.id).is_some() && self.world.base_port(row.id).is_some();
        if !succeeded || !answers {
            self.remove(plan, row, Phase::Fence);
            return;
        }
        self.quiesce(plan, row);
        if self.drains(row) {
            plan.draining.push(row.id);
        } else {
            self.remove(plan, row, Phase::Remove);
        }
    }

    /// Takes the VIP from an amphora that has a document.
    pub(crate) fn quiesce(&self, plan: &mut Plan, row: &Amphora) {
        let has_document = self
            .world
            .agent(row.id)
            .is_some_and(|agent| agent.generation.is_some());
        if has_document && let Some((document, false)) = self.compile(plan, row, &VipState::Passive)
        {
            self.push(plan, Phase::Quiesce, row.id, document, "gives up the VIP");
        }
    }

    /// Plans the end of all there is of an amphora: server, ports, row.
    pub(crate) fn remove(&self, plan: &mut Plan, row: &Amphora, server_phase: Phase) {
        if *self.world.server(row.id) != ServerView::Absent {
            plan.add(server_phase, Step::DeleteServer { amphora: row.id });
        }
        for port in self.world.ports_of(row.id) {
            plan.add(
                Phase::RemovePorts,
                Step::DeletePort {
                    port: port.id,
                    amphora: Some(row.id),
                },
            );
        }
        plan.add(Phase::Forget, Step::Forget { amphora: row.id });
    }

    /// Retires an amphora that is not needed, and removes it before anything else is pushed.
    pub(crate) fn discard(&self, plan: &mut Plan, row: &Amphora, why: &'static str) {
        plan.add(
            Phase::Record,
            Step::Retire {
                amphora: row.id,
                drain: false,
                why,
            },
        );
        self.remove(plan, row, Phase::Fence);
    }
}

/// Marks in the rows what a worker that cannot even look leaves half made, so that it is removed when the world
/// answers again. Whoever serves stays.
pub fn abandon(graph: &mut Graph, now: Timestamp) {
    let creating = graph.load_balancer.provisioning_status == ProvisioningStatus::PendingCreate;
    for row in &mut graph.amphorae {
        let goes = match row.status {
            AmphoraStatus::PendingCreate | AmphoraStatus::Booting | AmphoraStatus::Error => true,
            AmphoraStatus::Allocated
            | AmphoraStatus::Ready
            | AmphoraStatus::PendingUpdate
            | AmphoraStatus::FailoverStopped => creating,
            AmphoraStatus::PendingDelete | AmphoraStatus::Deleted => continue,
        };
        row.failover_requested = false;
        if goes {
            row.status = AmphoraStatus::PendingDelete;
            row.updated_at = Some(now);
        }
    }
}
