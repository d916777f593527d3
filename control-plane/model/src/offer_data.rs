//! What a profile means: the options of the amphora provider, written as a JSON object.

use serde_json::{Map, Value};
use uuid::Uuid;

use crate::{Fault, NetworkId, OfferKind, Provider, ProviderFeature, Topology};

/// An option that a profile may set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OfferOption {
    pub name: &'static str,
    pub description: &'static str,
}

/// Options of flavors.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FlavorData {
    pub load_balancer_topology: Option<Topology>,
    pub compute_flavor: Option<String>,
    pub amp_image_tag: Option<String>,
    pub sriov_vip: bool,
    pub allow_member_sriov: bool,
}

/// Options of availability zones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ZoneData {
    pub compute_zone: Option<String>,
    pub volume_zone: Option<String>,
    pub management_network: Option<NetworkId>,
    /// Instead of what the deployment allows, unless there are none.
    pub valid_vip_networks: Vec<NetworkId>,
}

const TOPOLOGY: &str = "loadbalancer_topology";
const COMPUTE_FLAVOR: &str = "compute_flavor";
const IMAGE_TAG: &str = "amp_image_tag";
const SRIOV_VIP: &str = "sriov_vip";
const MEMBER_SRIOV: &str = "allow_member_sriov";
const COMPUTE_ZONE: &str = "compute_zone";
const VOLUME_ZONE: &str = "volume_zone";
const MANAGEMENT_NETWORK: &str = "management_network";
const VIP_NETWORKS: &str = "valid_vip_networks";

const FLAVOR_OPTIONS: &[OfferOption] = &[
    OfferOption {
        name: TOPOLOGY,
        description: "The load balancer topology. One of: SINGLE - One amphora per load balancer. ACTIVE_STANDBY - Two amphora per load balancer.",
    },
    OfferOption {
        name: COMPUTE_FLAVOR,
        description: "The compute driver flavor ID.",
    },
    OfferOption {
        name: IMAGE_TAG,
        description: "The amphora image tag.",
    },
    OfferOption {
        name: SRIOV_VIP,
        description: "When true, the VIP port will be created using an SR-IOV VF port.",
    },
    OfferOption {
        name: MEMBER_SRIOV,
        description: "When true, users can request members to use SR-IOV VF ports.",
    },
];

const ZONE_OPTIONS: &[OfferOption] = &[
    OfferOption {
        name: COMPUTE_ZONE,
        description: "The compute availability zone.",
    },
    OfferOption {
        name: VOLUME_ZONE,
        description: "The volume availability zone.",
    },
    OfferOption {
        name: MANAGEMENT_NETWORK,
        description: "The management network ID for the amphora.",
    },
    OfferOption {
        name: VIP_NETWORKS,
        description: "List of network IDs that are allowed for VIP use. This overrides the list of allowed networks of the deployment.",
    },
];

impl OfferKind {
    /// What a profile of this kind may set.
    pub const fn options(self) -> &'static [OfferOption] {
        match self {
            Self::Flavor => FLAVOR_OPTIONS,
            Self::AvailabilityZone => ZONE_OPTIONS,
        }
    }
}

impl FlavorData {
    /// # Errors
    ///
    /// Text that is no JSON is an invalid option; an option that there is not, or that has a value it cannot have, is
    /// an unsupported one.
    pub fn parse(text: &str, provider: &str) -> Result<Self, Fault> {
        let options = Options::parse(OfferKind::Flavor, text, provider)?;
        Ok(Self {
            load_balancer_topology: options.get(TOPOLOGY, |value| value.as_str()?.parse().ok())?,
            compute_flavor: options.get(COMPUTE_FLAVOR, text_of)?,
            amp_image_tag: options.get(IMAGE_TAG, text_of)?,
            sriov_vip: options.get(SRIOV_VIP, Value::as_bool)?.unwrap_or(false),
            allow_member_sriov: options.get(MEMBER_SRIOV, Value::as_bool)?.unwrap_or(false),
        })
    }

    /// That the provider can serve what the flavor asks for.
    pub fn check(&self, provider: &Provider) -> Result<(), Fault> {
        let Provider { name, support, .. } = provider;
        if let Some(topology) = self.load_balancer_topology
            && !support.topologies.contains(&topology)
        {
            return Err(unsupported(name, &format!("{TOPOLOGY} {topology}")));
        }
        for (option, asked) in [
            (SRIOV_VIP, self.sriov_vip),
            (MEMBER_SRIOV, self.allow_member_sriov),
        ] {
            if asked && !support.features.contains(&ProviderFeature::SrIov) {
                return Err(unsupported(name, option));
            }
        }
        Ok(())
    }
}

impl ZoneData {
    /// As [`FlavorData::parse`]. Whether the networks exist is for others to say.
    pub fn parse(text: &str, provider: &str) -> Result<Self, Fault> {
        let options = Options::parse(OfferKind::AvailabilityZone, text, provider)?;
        Ok(Self {
            compute_zone: options.get(COMPUTE_ZONE, text_of)?,
            volume_zone: options.get(VOLUME_ZONE, text_of)?,
            management_network: options.get(MANAGEMENT_NETWORK, network)?,
            valid_vip_networks: options
                .get(VIP_NETWORKS, |value| {
                    value.as_array()?.iter().map(network).collect()
                })?
                .unwrap_or_default(),
        })
    }

    /// Every network that is named.
    pub fn networks(&self) -> impl Iterator<Item = NetworkId> + '_ {
        self.management_network
            .into_iter()
            .chain(self.valid_vip_networks.iter().copied())
    }
}

/// The object of a profile, whose keys are all known.
struct Options<'a> {
    provider: &'a str,
    map: Map<String, Value>,
}

impl<'a> Options<'a> {
    fn parse(kind: OfferKind, text: &str, provider: &'a str) -> Result<Self, Fault> {
        let value: Value =
            serde_json::from_str(text).map_err(|_| Fault::option(text, kind.data_name()))?;
        let Value::Object(map) = value else {
            return Err(unsupported(provider, "an object is expected"));
        };
        let known = |name: &String| kind.options().iter().any(|option| option.name == name);
        match map.keys().find(|name| !known(name)) {
            None => Ok(Self { provider, map }),
            Some(name) => {
                let name: String = name.chars().take(255).collect();
                Err(unsupported(
                    provider,
                    &format!("there is no option {name:?}"),
                ))
            }
        }
    }

    fn get<T>(&self, name: &str, read: impl Fn(&Value) -> Option<T>) -> Result<Option<T>, Fault> {
        match self.map.get(name) {
            None => Ok(None),
            Some(value) => match read(value) {
                Some(read) => Ok(Some(read)),
                None => {
                    let shown: String = value.to_string().chars().take(255).collect();
                    let detail = format!("{shown} is no value of {name}");
                    Err(unsupported(self.provider, &detail))
                }
            },
        }
    }
}

fn unsupported(provider: &str, detail: &str) -> Fault {
    Fault::UnsupportedOption {
        provider: provider.to_owned(),
        detail: detail.to_owned(),
    }
}

fn text_of(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn network(value: &Value) -> Option<NetworkId> {
    value
        .as_str()
        .and_then(crate::spec::parse_uuid)
        .map(|id: Uuid| NetworkId(id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FaultKind, ProviderSupport};

    #[test]
    fn a_flavor_sets_only_options_the_provider_has() {
        let amphora = Provider::new("amphora", "", ProviderSupport::AMPHORA);
        for (text, expected) in [
            ("{}", Ok(())),
            (r#"{"loadbalancer_topology": "SINGLE"}"#, Ok(())),
            (r#"{"compute_flavor": "m1", "amp_image_tag": "a"}"#, Ok(())),
            (r#"{"sriov_vip": false}"#, Ok(())),
            (
                r#"{"loadbalancer_topology": "ACTIVE_STANDBY"}"#,
                Err(FaultKind::Unsupported),
            ),
            (
                r#"{"loadbalancer_topology": "TRIPLE"}"#,
                Err(FaultKind::Unsupported),
            ),
            (r#"{"sriov_vip": true}"#, Err(FaultKind::Unsupported)),
            (
                r#"{"allow_member_sriov": true}"#,
                Err(FaultKind::Unsupported),
            ),
            (r#"{"compute_flavor": 3}"#, Err(FaultKind::Unsupported)),
            (r#"{"compute_flavor": null}"#, Err(FaultKind::Unsupported)),
            (r#"{"colour": "red"}"#, Err(FaultKind::Unsupported)),
            ("[]", Err(FaultKind::Unsupported)),
            ("{", Err(FaultKind::Invalid)),
            ("", Err(FaultKind::Invalid)),
        ] {
            let taken = FlavorData::parse(text, "amphora").and_then(|data| data.check(&amphora));
            assert_eq!(taken.map_err(|fault| fault.kind()), expected, "{text}");
        }
        let everything = Provider::new("all", "", ProviderSupport::EVERYTHING);
        let text = r#"{"loadbalancer_topology": "ACTIVE_STANDBY", "sriov_vip": true}"#;
        let data = FlavorData::parse(text, "amphora").unwrap();
        assert_eq!(data.check(&everything), Ok(()));
        assert_eq!(data.load_balancer_topology, Some(Topology::ActiveStandby));
        assert!(data.sriov_vip);
    }

    #[test]
    fn a_zone_names_networks_by_id() {
        let id = "8f2b7a4e-1c3d-4e5f-8a9b-0c1d2e3f4a5b";
        let text = format!(
            r#"{{"compute_zone": "nova", "management_network": "{id}", "valid_vip_networks": ["{id}"]}}"#
        );
        let data = ZoneData::parse(&text, "amphora").unwrap();
        assert_eq!(data.networks().count(), 2);
        for text in [
            r#"{"valid_vip_networks": "x"}"#,
            r#"{"valid_vip_networks": ["x"]}"#,
            r#"{"management_network": 1}"#,
            r#"{"loadbalancer_topology": "SINGLE"}"#,
        ] {
            let fault = ZoneData::parse(text, "amphora").unwrap_err();
            assert_eq!(fault.kind(), FaultKind::Unsupported, "{text}");
        }
    }
}
