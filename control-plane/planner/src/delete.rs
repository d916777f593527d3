//! The end of a load balancer: everything outside goes before its row does.

use lb_model::{AmphoraStatus, Graph};

use crate::converge::Context;
use crate::{Phase, Plan, Settings, Step, World};

pub(crate) fn plan(intent: &Graph, world: &World, settings: &Settings) -> Plan {
    let context = Context {
        graph: intent,
        world,
        settings,
    };
    let mut plan = Plan::default();
    if world.out_of_time {
        return plan;
    }
    for row in &intent.amphorae {
        match row.status {
            AmphoraStatus::Deleted => {}
            AmphoraStatus::PendingDelete => context.remove(&mut plan, row, Phase::Remove),
            AmphoraStatus::Booting
            | AmphoraStatus::Allocated
            | AmphoraStatus::Ready
            | AmphoraStatus::PendingCreate
            | AmphoraStatus::PendingUpdate
            | AmphoraStatus::Error
            | AmphoraStatus::FailoverStopped => {
                context.discard(&mut plan, row, "its load balancer goes");
            }
        }
    }
    if intent.load_balancer.vip.port_is_ours {
        for port in world.ports.iter().filter(|port| port.purpose.is_none()) {
            plan.add(
                Phase::RemovePorts,
                Step::DeletePort {
                    port: port.id,
                    amphora: None,
                },
            );
        }
    }
    plan
}
