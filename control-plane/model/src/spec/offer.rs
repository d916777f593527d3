//! Bodies of flavors, availability zones and their profiles.

use serde_json::Value;

use super::decode::{Field, Object, Reason, boolean, text, uuid};
use crate::{Fault, OfferKind, ProfileId};

/// Most characters that a profile may hold.
const MAX_DATA: usize = 4096;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileCreate {
    pub name: String,
    pub provider_name: String,
    pub data: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProfileUpdate {
    pub name: Option<String>,
    pub provider_name: Option<String>,
    pub data: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfferCreate {
    pub name: String,
    pub description: String,
    pub enabled: bool,
    pub profile_id: ProfileId,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OfferUpdate {
    /// Never of an availability zone: that is known by its name.
    pub name: Option<String>,
    pub description: Field<String>,
    pub enabled: Option<bool>,
}

impl ProfileCreate {
    pub fn decode(kind: OfferKind, body: &Value) -> Result<Self, Fault> {
        let object = profile(kind, body)?;
        Ok(Self {
            name: object.required("name", name)?,
            provider_name: object.required("provider_name", text(255))?,
            data: object.required(kind.data_name(), text(MAX_DATA))?,
        })
    }
}

impl ProfileUpdate {
    pub fn decode(kind: OfferKind, body: &Value) -> Result<Self, Fault> {
        let object = profile(kind, body)?;
        Ok(Self {
            name: object.not_null("name", name)?,
            provider_name: object.not_null("provider_name", text(255))?,
            data: object.not_null(kind.data_name(), text(MAX_DATA))?,
        })
    }
}

fn profile(kind: OfferKind, body: &Value) -> Result<Object<'_>, Fault> {
    let object = Object::root(body, kind.profile_root())?;
    object.only(&[&["name", "provider_name", kind.data_name()]])?;
    Ok(object)
}

impl OfferCreate {
    pub fn decode(kind: OfferKind, body: &Value) -> Result<Self, Fault> {
        let object = Object::root(body, kind.root())?;
        object.only(&[&["name", "description", "enabled", kind.profile_id_name()]])?;
        Ok(Self {
            name: object.required("name", name)?,
            description: object
                .optional("description", text(255))?
                .unwrap_or_default(),
            enabled: object.optional("enabled", boolean)?.unwrap_or(true),
            profile_id: object.required(kind.profile_id_name(), uuid)?,
        })
    }
}

impl OfferUpdate {
    pub fn decode(kind: OfferKind, body: &Value) -> Result<Self, Fault> {
        let object = Object::root(body, kind.root())?;
        object.only(&[match kind {
            OfferKind::Flavor => &["name", "description", "enabled"],
            OfferKind::AvailabilityZone => &["description", "enabled"],
        }])?;
        Ok(Self {
            name: object.not_null("name", name)?,
            description: object.field("description", text(255))?,
            enabled: object.not_null("enabled", boolean)?,
        })
    }
}

/// Offers and profiles are looked up by name: it must not be empty.
fn name(value: &Value) -> Result<String, Reason> {
    let name = text(255)(value)?;
    if name.is_empty() {
        return Err("Value should have a minimum character requirement of 1".to_owned());
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_must_be_there_is_and_nothing_else() {
        let profile_id = "8f2b7a4e-1c3d-4e5f-8a9b-0c1d2e3f4a5b";
        for (flavor, taken) in [
            (json!({"name": "f", "flavor_profile_id": profile_id}), true),
            (
                json!({"name": "f", "flavor_profile_id": profile_id, "enabled": "no"}),
                true,
            ),
            (json!({"name": "f"}), false),
            (json!({"name": "", "flavor_profile_id": profile_id}), false),
            (json!({"flavor_profile_id": profile_id}), false),
            (json!({"name": "f", "flavor_profile_id": "x"}), false),
            (
                json!({"name": "f", "availability_zone_profile_id": profile_id}),
                false,
            ),
        ] {
            let decoded = OfferCreate::decode(OfferKind::Flavor, &json!({ "flavor": flavor }));
            assert_eq!(decoded.is_ok(), taken, "{flavor}");
        }
        for (profile, taken) in [
            (
                json!({"name": "p", "provider_name": "amphora", "flavor_data": "{}"}),
                true,
            ),
            (
                json!({"name": "p", "provider_name": "amphora", "flavor_data": {}}),
                false,
            ),
            (json!({"name": "p", "provider_name": "amphora"}), false),
            (
                json!({"name": "p", "provider_name": "amphora", "flavor_data": "x".repeat(4097)}),
                false,
            ),
        ] {
            let body = json!({ "flavorprofile": profile });
            let decoded = ProfileCreate::decode(OfferKind::Flavor, &body);
            assert_eq!(decoded.is_ok(), taken, "{profile}");
        }
    }

    #[test]
    fn the_name_of_a_zone_is_not_for_changing() {
        let body = |root: &str, fields: Value| json!({ root: fields });
        let flavor = body("flavor", json!({"name": "g"}));
        assert!(OfferUpdate::decode(OfferKind::Flavor, &flavor).is_ok());
        for (fields, taken) in [
            (json!({"name": "g"}), false),
            (json!({"availability_zone_profile_id": null}), false),
            (json!({"enabled": null}), false),
            (json!({"description": null, "enabled": false}), true),
            (json!({}), true),
        ] {
            let zone = body("availability_zone", fields.clone());
            let decoded = OfferUpdate::decode(OfferKind::AvailabilityZone, &zone);
            assert_eq!(decoded.is_ok(), taken, "{fields}");
        }
    }
}
