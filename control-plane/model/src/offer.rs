//! What an operator offers and a load balancer may name: flavors and availability zones.
//!
//! The two are alike: each offer has a profile, and the profile says what it means to a provider, as JSON text that
//! the provider understands ([`FlavorData`](crate::FlavorData), [`ZoneData`](crate::ZoneData)).

use crate::spec::{Field, OfferUpdate, ProfileUpdate};
use crate::{Fault, OfferId, ProfileId, Resource};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OfferKind {
    Flavor,
    AvailabilityZone,
}

impl OfferKind {
    pub const fn resource(self) -> Resource {
        match self {
            Self::Flavor => Resource::Flavor,
            Self::AvailabilityZone => Resource::AvailabilityZone,
        }
    }

    pub const fn profile_resource(self) -> Resource {
        match self {
            Self::Flavor => Resource::FlavorProfile,
            Self::AvailabilityZone => Resource::AvailabilityZoneProfile,
        }
    }

    /// Root key of an offer's body, and the noun in messages.
    pub const fn root(self) -> &'static str {
        match self {
            Self::Flavor => "flavor",
            Self::AvailabilityZone => "availability_zone",
        }
    }

    /// Root key of a profile's body.
    pub const fn profile_root(self) -> &'static str {
        match self {
            Self::Flavor => "flavorprofile",
            Self::AvailabilityZone => "availability_zone_profile",
        }
    }

    /// The attribute of an offer that names its profile.
    pub const fn profile_id_name(self) -> &'static str {
        match self {
            Self::Flavor => "flavor_profile_id",
            Self::AvailabilityZone => "availability_zone_profile_id",
        }
    }

    /// The attribute of a profile that holds what it means.
    pub const fn data_name(self) -> &'static str {
        match self {
            Self::Flavor => "flavor_data",
            Self::AvailabilityZone => "availability_zone_data",
        }
    }
}

/// What offers mean to a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    pub id: ProfileId,
    pub name: String,
    pub provider_name: String,
    /// JSON text, as it was given.
    pub data: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// Not shown of an availability zone: that is known by its name.
    pub id: OfferId,
    /// Unique among the offers of its kind.
    pub name: String,
    pub description: String,
    /// New load balancers may name it.
    pub enabled: bool,
    pub profile_id: ProfileId,
}

impl Profile {
    /// The name may always be changed, the rest only while no offer uses the profile.
    pub fn update(
        &mut self,
        kind: OfferKind,
        spec: &ProfileUpdate,
        in_use: bool,
    ) -> Result<(), Fault> {
        let changes =
            |new: &Option<String>, old: &str| new.as_deref().is_some_and(|new| new != old);
        if in_use
            && (changes(&spec.provider_name, &self.provider_name)
                || changes(&spec.data, &self.data))
        {
            return Err(Fault::InUse {
                resource: kind.profile_resource(),
                id: self.id.to_string(),
            });
        }
        for (slot, new) in [
            (&mut self.name, &spec.name),
            (&mut self.provider_name, &spec.provider_name),
            (&mut self.data, &spec.data),
        ] {
            if let Some(new) = new {
                slot.clone_from(new);
            }
        }
        Ok(())
    }
}

impl Offer {
    pub fn update(&mut self, spec: &OfferUpdate) {
        if let Some(name) = &spec.name {
            self.name.clone_from(name);
        }
        match &spec.description {
            Field::Absent => {}
            Field::Null => self.description.clear(),
            Field::Value(text) => self.description.clone_from(text),
        }
        self.enabled = spec.enabled.unwrap_or(self.enabled);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_name_of_a_profile_in_use_may_change() {
        let profile = Profile {
            id: ProfileId(crate::sample::uuid(1)),
            name: "small".to_owned(),
            provider_name: "amphora".to_owned(),
            data: "{}".to_owned(),
        };
        let given = |text: &str| Some(text.to_owned());
        for (name, provider_name, data, allowed) in [
            (given("large"), None, None, true),
            (None, given("amphora"), given("{}"), true),
            (None, given("octavia"), None, false),
            (None, None, given("{ }"), false),
        ] {
            let spec = ProfileUpdate {
                name,
                provider_name,
                data,
            };
            let in_use = profile.clone().update(OfferKind::Flavor, &spec, true);
            assert_eq!(in_use.is_ok(), allowed, "{spec:?}");
            let mut changed = profile.clone();
            changed.update(OfferKind::Flavor, &spec, false).unwrap();
            assert_eq!(
                changed.name,
                spec.name.unwrap_or_else(|| "small".to_owned())
            );
        }
    }
}
