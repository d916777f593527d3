//! Which networks an amphora is on, and with which subnets (Octavia's network delta).
//!
//! One interface a network, one fixed address a subnet: the VIP network first, then each network with a member.

use std::collections::{BTreeMap, BTreeSet};

use lb_model::{Graph, NetworkId, ProvisioningStatus, SubnetId, Unserved, UnservedObject};

use crate::World;

/// A network and the subnets an amphora needs an address in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedNetwork {
    pub network_id: NetworkId,
    pub subnets: Vec<SubnetId>,
}

/// The VIP network, then the member networks by id; and the members whose subnet does not exist.
pub fn wanted_networks(graph: &Graph, world: &World) -> (Vec<WantedNetwork>, Vec<Unserved>) {
    let lb = &graph.load_balancer;
    let mut vip = WantedNetwork {
        network_id: lb.vip.network_id,
        subnets: vec![lb.vip.subnet_id],
    };
    for additional in &lb.additional_vips {
        push_new(&mut vip.subnets, additional.subnet_id);
    }
    let mut others: BTreeMap<NetworkId, BTreeSet<SubnetId>> = BTreeMap::new();
    let mut unserved = Vec::new();
    for pool in &graph.pools {
        if pool.provisioning_status == ProvisioningStatus::PendingDelete {
            continue;
        }
        for member in &pool.members {
            let Some(subnet_id) = member.subnet_id else {
                continue;
            };
            if member.provisioning_status == ProvisioningStatus::PendingDelete {
                continue;
            }
            match world.subnets.get(&subnet_id) {
                Some(subnet) => {
                    others
                        .entry(subnet.network_id)
                        .or_default()
                        .insert(subnet_id);
                }
                None => unserved.push(Unserved {
                    object: UnservedObject::Member(member.id),
                    reason: format!("subnet {subnet_id} does not exist"),
                }),
            }
        }
    }
    for subnet in others.remove(&vip.network_id).unwrap_or_default() {
        push_new(&mut vip.subnets, subnet);
    }
    let mut networks = vec![vip];
    networks.extend(
        others
            .into_iter()
            .map(|(network_id, subnets)| WantedNetwork {
                network_id,
                subnets: subnets.into_iter().collect(),
            }),
    );
    (networks, unserved)
}

fn push_new(subnets: &mut Vec<SubnetId>, subnet: SubnetId) {
    if !subnets.contains(&subnet) {
        subnets.push(subnet);
    }
}
