//! Bringing one amphora to what it is to be: server, ports, document.

use amphora_api::VipState;
use lb_model::{Amphora, AmphoraId, Graph};

use crate::document::address_in;
use crate::step::RowFacts;
use crate::{
    Document, Phase, Plan, PortPurpose, PortView, PortWish, ServerView, Settings, Step,
    WantedNetwork, World, document, wanted_networks,
};

/// What a plan is made from.
pub(crate) struct Context<'a> {
    pub(crate) graph: &'a Graph,
    pub(crate) world: &'a World,
    pub(crate) settings: &'a Settings,
}

impl Context<'_> {
    /// Writes into the amphora's row what was learned since.
    pub(crate) fn record(&self, plan: &mut Plan, row: &Amphora) {
        let lb = &self.graph.load_balancer;
        let facts = RowFacts {
            server: match self.world.server(row.id) {
                ServerView::Running(facts) => Some(facts.clone()),
                ServerView::Absent
                | ServerView::Unsure
                | ServerView::Building
                | ServerView::Stopped
                | ServerView::Failed => None,
            },
            base: self
                .world
                .base_port(row.id)
                .map(|port| (port.id, address_in(port, lb.vip.subnet_id))),
            ha_ip: lb.vip.address,
            ha_port_id: lb.vip.port_id,
        };
        if facts.write(&mut row.clone()) {
            plan.add(
                Phase::Record,
                Step::Record {
                    amphora: row.id,
                    facts: Box::new(facts),
                },
            );
        }
    }

    /// Plans what is missing of the server and the ports; true when nothing is.
    pub(crate) fn build(&self, plan: &mut Plan, amphora: AmphoraId) -> bool {
        let why = match self.world.server(amphora) {
            ServerView::Absent => Some("there is none"),
            ServerView::Unsure => Some("it is half made"),
            ServerView::Stopped => Some("it stopped"),
            ServerView::Failed => Some("it failed"),
            ServerView::Building | ServerView::Running(_) => None,
        };
        if let Some(why) = why {
            plan.add(Phase::Build, Step::EnsureServer { amphora, why });
        }
        let mut complete = why.is_none();
        let (networks, _) = wanted_networks(self.graph, self.world);
        for (index, network) in networks.iter().enumerate() {
            let purpose = if index == 0 {
                PortPurpose::Base
            } else {
                PortPurpose::Member
            };
            complete &= self.build_port(plan, amphora, purpose, network);
        }
        complete
    }

    fn build_port(
        &self,
        plan: &mut Plan,
        amphora: AmphoraId,
        purpose: PortPurpose,
        network: &WantedNetwork,
    ) -> bool {
        let port = self.world.ports_of(amphora).find(|port| {
            port.purpose == Some((amphora, purpose)) && port.network_id == network.network_id
        });
        let Some(port) = port else {
            let allowed_addresses = match purpose {
                PortPurpose::Base => self.graph.load_balancer.vip_addresses().collect(),
                PortPurpose::Member => Vec::new(),
            };
            plan.add(
                Phase::Build,
                Step::EnsurePort(PortWish {
                    amphora,
                    purpose,
                    network_id: network.network_id,
                    subnets: network.subnets.clone(),
                    allowed_addresses,
                }),
            );
            return false;
        };
        let missing: Vec<_> = network
            .subnets
            .iter()
            .copied()
            .filter(|subnet| address_in(port, *subnet).is_none())
            .collect();
        if missing.is_empty() {
            return true;
        }
        plan.add(
            Phase::Build,
            Step::AddAddresses {
                amphora,
                port: port.id,
                subnets: missing,
            },
        );
        false
    }

    /// Plugs in every port the agent does not report, and waits for an agent that does not answer.
    pub(crate) fn connect(&self, plan: &mut Plan, amphora: AmphoraId) {
        let agent = self.world.agent(amphora);
        if agent.is_none() {
            plan.add(Phase::Connect, Step::AwaitAgent { amphora });
        }
        let (networks, _) = wanted_networks(self.graph, self.world);
        for port in self.world.ports_of(amphora) {
            let reported =
                agent.is_some_and(|agent| agent.interfaces.contains_key(&port.mac_address));
            if !reported && is_wanted(port, &networks) {
                plan.add(
                    Phase::Connect,
                    Step::AttachPort {
                        amphora,
                        port: port.id,
                    },
                );
            }
        }
    }

    /// The amphora's document with the VIPs in this state, and whether it is in force already.
    pub(crate) fn compile(
        &self,
        plan: &mut Plan,
        row: &Amphora,
        vips: &VipState,
    ) -> Option<(Document, bool)> {
        let agent = self.world.agent(row.id);
        let known = agent.and_then(|agent| agent.generation);
        let compiled = document(
            self.graph,
            row.id,
            self.world,
            self.settings,
            known.unwrap_or_default(),
            vips,
        );
        let mut document = match compiled {
            Ok(document) => document,
            Err(error) => {
                plan.blocked_by.push(error.to_string());
                return None;
            }
        };
        let digest = agent.and_then(|agent| agent.digest.as_ref());
        let in_force =
            known.is_some() && digest.is_some_and(|digest| *digest == document.config.digest());
        if !in_force {
            let newest = row.config_generation.max(known.unwrap_or_default());
            document.config.generation = newest.saturating_add(1);
        }
        Some((document, in_force))
    }

    /// Plans a push.
    pub(crate) fn push(
        &self,
        plan: &mut Plan,
        phase: Phase,
        amphora: AmphoraId,
        document: Document,
        why: &str,
    ) {
        let why = match self.world.agent(amphora).and_then(|agent| agent.generation) {
            Some(generation) => format!("{why}; {generation} is in force"),
            None => why.to_owned(),
        };
        plan.add(
            phase,
            Step::PushDocument {
                amphora,
                document: Box::new(document.config),
                why,
            },
        );
    }

    /// Plans the end of ports and addresses that no document names any more.
    pub(crate) fn unplug(&self, plan: &mut Plan, amphora: AmphoraId) {
        let (networks, _) = wanted_networks(self.graph, self.world);
        for port in self.world.ports_of(amphora) {
            if !is_wanted(port, &networks) {
                plan.add(
                    Phase::Unplug,
                    Step::DetachPort {
                        amphora,
                        port: port.id,
                    },
                );
                plan.add(
                    Phase::RemovePorts,
                    Step::DeletePort {
                        port: port.id,
                        amphora: Some(amphora),
                    },
                );
                continue;
            }
            let addresses: Vec<_> = port
                .fixed_ips
                .iter()
                .filter(|(subnet, _)| {
                    !networks.iter().any(|network| {
                        network.network_id == port.network_id && network.subnets.contains(subnet)
                    })
                })
                .map(|(_, address)| *address)
                .collect();
            if !addresses.is_empty() {
                plan.add(
                    Phase::Unplug,
                    Step::RemoveAddresses {
                        amphora,
                        port: port.id,
                        addresses,
                    },
                );
            }
        }
    }
}

fn is_wanted(port: &PortView, networks: &[WantedNetwork]) -> bool {
    match port.purpose {
        Some((_, PortPurpose::Base)) => true,
        Some((_, PortPurpose::Member)) => networks
            .iter()
            .skip(1)
            .any(|network| network.network_id == port.network_id),
        None => false,
    }
}
