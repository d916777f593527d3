//! Create, update and failover: one loop with other intent.
//!
//! Failover of a SINGLE load balancer, make before break. Rows tell where it stands, so that any worker goes on:
//!
//! ```text
//!            old row            new row
//!   asked    ALLOCATED, flagged  -
//!   build    ALLOCATED, flagged  PENDING_CREATE, BOOTING   server, ports, document with the VIP passive
//!   switch   PENDING_DELETE      ALLOCATED                 one write; then old passive, new active with handover
//!   drain    PENDING_DELETE      ALLOCATED                 load balancer is ACTIVE already
//!   end      DELETED             ALLOCATED                 new without handover, old server, old ports
//! ```
//!
//! When the old agent does not answer there is nothing to hand over: its server is removed before the new one
//! becomes active, so that a zombie cannot answer for the VIP.

use amphora_api::VipState;
use lb_model::{
    Amphora, AmphoraRole, AmphoraStatus, Graph, ProvisioningStatus, Topology, Unserved,
    UnservedObject,
};

use crate::converge::Context;
use crate::{FreshIds, Phase, Plan, ServerView, Settings, Step, World, delete};

/// What to do next for a load balancer. Empty when everything that can be reached is.
pub fn plan(intent: &Graph, world: &World, settings: &Settings, fresh: &mut impl FreshIds) -> Plan {
    match intent.load_balancer.provisioning_status {
        ProvisioningStatus::Deleted => Plan::default(),
        ProvisioningStatus::PendingDelete => delete::plan(intent, world, settings),
        ProvisioningStatus::Active
        | ProvisioningStatus::PendingCreate
        | ProvisioningStatus::PendingUpdate
        | ProvisioningStatus::Error => serve(intent, world, settings, fresh),
    }
}

fn serve(intent: &Graph, world: &World, settings: &Settings, fresh: &mut impl FreshIds) -> Plan {
    let context = Context {
        graph: intent,
        world,
        settings,
    };
    let mut plan = Plan::default();
    let cast = Cast::of(intent, world);
    if world.out_of_time {
        context.give_up(&mut plan, &cast);
        return plan;
    }
    if let Some(reason) = obstacle(intent, world) {
        plan.blocked_by.push(reason);
        return plan;
    }
    let pending = intent.load_balancer.provisioning_status.is_pending();
    if pending && !world.has_vip_port() {
        plan.add(Phase::Build, vip_port(intent));
    }
    for row in &cast.retired {
        context.end(&mut plan, row, cast.serving.is_some());
    }
    if pending {
        for (row, why) in &cast.surplus {
            context.discard(&mut plan, row, why);
        }
    }
    match cast.serving {
        Some(row) => {
            let predecessor = cast.retired.iter().find(|row| context.drains(row));
            context.keep(&mut plan, row, predecessor.copied());
        }
        None if pending => context.replace(&mut plan, &cast, fresh),
        None => {}
    }
    plan
}

fn vip_port(intent: &Graph) -> Step {
    let lb = &intent.load_balancer;
    Step::EnsureVipPort {
        network_id: lb.vip.network_id,
        addresses: std::iter::once((lb.vip.subnet_id, lb.vip.address))
            .chain(
                lb.additional_vips
                    .iter()
                    .map(|vip| (vip.subnet_id, vip.ip_address)),
            )
            .collect(),
    }
}

/// What no waiting removes.
fn obstacle(intent: &Graph, world: &World) -> Option<String> {
    let lb = &intent.load_balancer;
    match lb.topology {
        Topology::Single => {}
        Topology::ActiveStandby => return Some("topology ACTIVE_STANDBY is not served yet".into()),
    }
    std::iter::once(lb.vip.subnet_id)
        .chain(lb.additional_vips.iter().map(|vip| vip.subnet_id))
        .find(|subnet| !world.subnets.contains_key(subnet))
        .map(|subnet| format!("VIP subnet {subnet} does not exist"))
}

/// Who plays which part.
struct Cast<'a> {
    /// Serves and stays.
    serving: Option<&'a Amphora>,
    /// Serves, or did, and is to be replaced.
    leaving: Option<&'a Amphora>,
    /// Is being built.
    coming: Option<&'a Amphora>,
    /// Not needed, with the reason.
    surplus: Vec<(&'a Amphora, &'static str)>,
    /// On its way out.
    retired: Vec<&'a Amphora>,
}

impl<'a> Cast<'a> {
    fn of(intent: &'a Graph, world: &World) -> Self {
        let mut cast = Self {
            serving: None,
            leaving: None,
            coming: None,
            surplus: Vec::new(),
            retired: Vec::new(),
        };
        let mut rows: Vec<&Amphora> = intent.amphorae.iter().collect();
        rows.sort_by_key(|row| (row.created_at, row.id));
        for row in rows {
            cast.place(row, world);
        }
        if cast.serving.is_some() {
            cast.surplus
                .extend(cast.coming.take().map(|row| (row, "one serves already")));
            cast.surplus
                .extend(cast.leaving.take().map(|row| (row, "another one serves")));
        }
        cast
    }

    fn place(&mut self, row: &'a Amphora, world: &World) {
        let server = world.server(row.id);
        match row.status {
            AmphoraStatus::Deleted => {}
            AmphoraStatus::PendingDelete => self.retired.push(row),
            AmphoraStatus::Error => self.surplus.push((row, "its build failed")),
            AmphoraStatus::PendingCreate | AmphoraStatus::Booting => {
                if row.failover_requested || *server == ServerView::Failed {
                    self.surplus.push((row, "its build is given up"));
                } else if self.coming.is_some() {
                    self.surplus.push((row, "another one is being built"));
                } else {
                    self.coming = Some(row);
                }
            }
            AmphoraStatus::Allocated
            | AmphoraStatus::Ready
            | AmphoraStatus::PendingUpdate
            | AmphoraStatus::FailoverStopped => {
                let lost = matches!(server, ServerView::Absent | ServerView::Failed);
                let part = if row.failover_requested || lost {
                    &mut self.leaving
                } else {
                    &mut self.serving
                };
                if part.is_some() {
                    self.surplus.push((row, "more than the topology asks for"));
                } else {
                    *part = Some(row);
                }
            }
        }
    }
}

const ACTIVE: VipState = VipState::Active { handover_mac: None };

impl Context<'_> {
    /// The amphora that serves goes on, with what changed.
    fn keep(&self, plan: &mut Plan, row: &Amphora, predecessor: Option<&Amphora>) {
        self.record(plan, row);
        if !self.build(plan, row.id) {
            return;
        }
        let Some(agent) = self.world.agent(row.id) else {
            self.connect(plan, row.id);
            return;
        };
        let Some((document, in_force)) = self.compile(plan, row, &self.active(predecessor)) else {
            return;
        };
        plan.unserved.clone_from(&document.unserved);
        if !in_force {
            self.connect(plan, row.id);
            self.push(plan, Phase::Push, row.id, document, "its content changed");
        } else {
            let failed = agent.failed_listeners.iter();
            plan.unserved.extend(failed.map(|(id, reason)| Unserved {
                object: UnservedObject::Listener(*id),
                reason: reason.clone(),
            }));
        }
        self.unplug(plan, row.id);
    }

    fn active(&self, predecessor: Option<&Amphora>) -> VipState {
        VipState::Active {
            handover_mac: predecessor
                .and_then(|row| self.world.base_port(row.id))
                .map(|port| port.mac_address.clone()),
        }
    }

    /// Nobody serves who is to stay: build one, and let it take over.
    fn replace(&self, plan: &mut Plan, cast: &Cast<'_>, fresh: &mut impl FreshIds) {
        let Some(row) = cast.coming else {
            let amphora = fresh.amphora();
            plan.add(
                Phase::Record,
                Step::CreateAmphora {
                    amphora,
                    role: AmphoraRole::Standalone,
                    why: match cast.leaving {
                        Some(_) => "replaces one",
                        None => "none serves",
                    },
                },
            );
            self.build(plan, amphora);
            return;
        };
        self.record(plan, row);
        if !self.build(plan, row.id) {
            return;
        }
        match cast.leaving {
            None => self.take_over(plan, row),
            Some(old) if self.hands_over(old) => self.hand_over(plan, old, row),
            Some(old) if self.world.agent(row.id).is_some() => {
                self.retire(plan, old, false, "it does not answer");
                self.remove(plan, old, Phase::Fence);
                self.take_over(plan, row);
            }
            // The old one is removed only when the new one is sure to be able.
            Some(_) => self.connect(plan, row.id),
        }
    }

    fn hands_over(&self, old: &Amphora) -> bool {
        self.world.agent(old.id).is_some() && self.world.base_port(old.id).is_some()
    }

    fn take_over(&self, plan: &mut Plan, row: &Amphora) {
        self.connect(plan, row.id);
        let Some((document, in_force)) = self.compile(plan, row, &ACTIVE) else {
            return;
        };
        plan.unserved.clone_from(&document.unserved);
        plan.add(Phase::Switch, Step::TakeOver { amphora: row.id });
        if !in_force {
            self.push(plan, Phase::Push, row.id, document, "takes the VIP");
        }
    }

    fn hand_over(&self, plan: &mut Plan, old: &Amphora, row: &Amphora) {
        let Some((prepared, in_force)) = self.compile(plan, row, &VipState::Passive) else {
            return;
        };
        plan.unserved.clone_from(&prepared.unserved);
        if !in_force {
            self.connect(plan, row.id);
            self.push(
                plan,
                Phase::Push,
                row.id,
                prepared,
                "is made ready before the switch",
            );
            return;
        }
        self.retire(plan, old, true, "another one is ready");
        plan.add(Phase::Switch, Step::TakeOver { amphora: row.id });
        self.quiesce(plan, old);
        plan.draining.push(old.id);
        let vips = self.active(Some(old));
        if let Some((document, false)) = self.compile(plan, row, &vips) {
            self.push(plan, Phase::Push, row.id, document, "takes the VIP");
        }
    }

    fn retire(&self, plan: &mut Plan, row: &Amphora, drain: bool, why: &'static str) {
        plan.add(
            Phase::Switch,
            Step::Retire {
                amphora: row.id,
                drain,
                why,
            },
        );
    }

    /// The time is over: what is half made goes, what serves stays.
    fn give_up(&self, plan: &mut Plan, cast: &Cast<'_>) {
        let creating =
            self.graph.load_balancer.provisioning_status == ProvisioningStatus::PendingCreate;
        let staying = [cast.serving, cast.leaving];
        for row in staying.into_iter().flatten() {
            if creating {
                self.discard(plan, row, "its load balancer could not be made");
            } else if row.failover_requested {
                plan.add(Phase::Record, Step::Keep { amphora: row.id });
            }
        }
        if let Some(row) = cast.coming {
            self.discard(plan, row, "it could not be made in time");
        }
        for (row, why) in &cast.surplus {
            self.discard(plan, row, why);
        }
        for row in &cast.retired {
            if creating || cast.serving.is_none() || !self.drains(row) {
                self.remove(plan, row, Phase::Remove);
            } else {
                plan.draining.push(row.id);
            }
        }
    }
}
