//! Flavors and availability zones, and their profiles: the same columns under other names.
#![allow(unreachable_pub, reason = "the entity derive makes public items")]

/// The entity of one table of profiles.
macro_rules! profile_entity {
    ($module:ident, $table:tt) => {
        pub(crate) mod $module {
            use lb_model::Profile;
            use sea_orm::entity::prelude::*;

            use crate::StoreError;
            use crate::tables::convert::id;

            #[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
            #[sea_orm(table_name = $table)]
            pub struct Model {
                #[sea_orm(primary_key, auto_increment = false)]
                pub id: String,
                pub name: String,
                pub provider_name: String,
                pub data: String,
                pub created_at: i64,
            }

            #[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
            pub enum Relation {}

            impl ActiveModelBehavior for ActiveModel {}

            impl TryFrom<Model> for Profile {
                type Error = StoreError;

                fn try_from(row: Model) -> Result<Self, StoreError> {
                    Ok(Self {
                        id: id(concat!($table, ".id"), &row.id)?,
                        name: row.name,
                        provider_name: row.provider_name,
                        data: row.data,
                    })
                }
            }
        }
    };
}

/// The entity of one table of offers.
macro_rules! offer_entity {
    ($module:ident, $table:tt) => {
        pub(crate) mod $module {
            use lb_model::Offer;
            use sea_orm::entity::prelude::*;

            use crate::StoreError;
            use crate::tables::convert::id;

            #[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
            #[sea_orm(table_name = $table)]
            pub struct Model {
                #[sea_orm(primary_key, auto_increment = false)]
                pub id: String,
                pub name: String,
                pub description: String,
                pub enabled: bool,
                pub profile_id: String,
                pub created_at: i64,
            }

            #[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
            pub enum Relation {}

            impl ActiveModelBehavior for ActiveModel {}

            impl TryFrom<Model> for Offer {
                type Error = StoreError;

                fn try_from(row: Model) -> Result<Self, StoreError> {
                    Ok(Self {
                        id: id(concat!($table, ".id"), &row.id)?,
                        name: row.name,
                        description: row.description,
                        enabled: row.enabled,
                        profile_id: id(concat!($table, ".profile_id"), &row.profile_id)?,
                    })
                }
            }
        }
    };
}

profile_entity!(flavor_profile, "flavor_profile");
profile_entity!(availability_zone_profile, "availability_zone_profile");
offer_entity!(flavor, "flavor");
offer_entity!(availability_zone, "availability_zone");
