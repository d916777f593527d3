//! What the provider, the flavor and the availability zone of a create come to.

use lb_model::spec::LoadBalancerCreate;
use lb_model::{
    Fault, FlavorData, FlavorId, NetworkId, Offer, OfferKind, Profile, Topology, VnicType, ZoneData,
};

use crate::fault::Result;
use crate::v2::enabled_provider;
use crate::{ApiConfig, ApiState};

pub(crate) struct Choice {
    pub(crate) provider: String,
    pub(crate) topology: Topology,
    pub(crate) vnic_type: VnicType,
    /// None: what the deployment allows.
    valid_vip_networks: Vec<NetworkId>,
}

/// A provider that is not named is the flavor's, else the deployment's.
pub(crate) async fn choose(state: &ApiState, spec: &LoadBalancerCreate) -> Result<Choice> {
    let flavor = match spec.flavor_id {
        None => None,
        Some(id) => Some((id, flavor(state, id).await?)),
    };
    let provider = match (&spec.provider, &flavor) {
        (Some(named), Some((id, (_, profile)))) if *named != profile.provider_name => {
            return Err(Fault::FlavorMismatch {
                flavor: *id,
                provider: named.clone(),
            }
            .into());
        }
        (Some(named), _) => named,
        (None, Some((_, (_, profile)))) => &profile.provider_name,
        (None, None) => &state.config.default_provider,
    };
    let provider = enabled_provider(state, provider)?;
    let mut choice = Choice {
        provider: provider.name.clone(),
        topology: state.config.topology,
        vnic_type: VnicType::Normal,
        valid_vip_networks: Vec::new(),
    };
    if let Some((_, (_, profile))) = &flavor {
        let data = FlavorData::parse(&profile.data, &provider.name)?;
        // The profile may be older than what the provider can do today.
        data.check(provider)?;
        choice.topology = data.load_balancer_topology.unwrap_or(choice.topology);
        if data.sriov_vip {
            choice.vnic_type = VnicType::Direct;
        }
    }
    if let Some(name) = &spec.availability_zone {
        let (_, profile) = zone(state, name).await?;
        let data = ZoneData::parse(&profile.data, &provider.name)?;
        choice.valid_vip_networks = data.valid_vip_networks;
    }
    Ok(choice)
}

impl Choice {
    /// VIPs are only in networks the operator has for them; the availability zone's word is before the deployment's.
    pub(crate) fn check_vip_network(
        &self,
        config: &ApiConfig,
        network: NetworkId,
    ) -> std::result::Result<(), Fault> {
        let valid = match self.valid_vip_networks.as_slice() {
            [] => &config.valid_vip_networks,
            zone => zone,
        };
        let allowed = (valid.is_empty() || valid.contains(&network))
            && !config.denylist_vip_networks.contains(&network);
        if allowed {
            return Ok(());
        }
        Err(Fault::Validation(
            "Supplied VIP network_id is not allowed by the configuration of this deployment."
                .to_owned(),
        ))
    }
}

async fn flavor(state: &ApiState, id: FlavorId) -> Result<(Offer, Profile)> {
    let missing = "Flavor";
    enabled(state, OfferKind::Flavor, id.to_string(), missing).await
}

async fn zone(state: &ApiState, name: &str) -> Result<(Offer, Profile)> {
    let missing = "Availability Zone";
    enabled(state, OfferKind::AvailabilityZone, name.to_owned(), missing).await
}

async fn enabled(
    state: &ApiState,
    kind: OfferKind,
    named: String,
    resource: &'static str,
) -> Result<(Offer, Profile)> {
    let found = state.store.offer_with_profile(kind, &named).await?;
    match found {
        None => Err(Fault::InvalidReference {
            resource,
            id: named,
        }
        .into()),
        Some((offer, _)) if !offer.enabled => Err(Fault::DisabledOption {
            option: kind.root().to_owned(),
            value: named,
        }
        .into()),
        Some(found) => Ok(found),
    }
}
