//! Flavors, availability zones and their profiles.
//!
//! That one is in use is known by foreign keys, so that a delete and a create that race cannot both succeed. A load
//! balancer that is `DELETED` uses nothing: its row lets go of an offer that is removed.

use lb_model::{Offer, OfferKind, Profile, ProfileId, ProvisioningStatus, Timestamp};
use sea_orm::sea_query::{Expr, ExprTrait, InsertStatement, Query as Sql};
use sea_orm::{ConnectionTrait, EntityTrait};

use crate::list::{columns, select};
use crate::store::{End, in_transaction};
use crate::tables::offer::{availability_zone, availability_zone_profile, flavor, flavor_profile};
use crate::{Filter, Query, Receipt, Store, StoreError, receipts};

/// What became of a delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    Removed,
    Absent,
    InUse,
}

const fn offer_table(kind: OfferKind) -> &'static str {
    match kind {
        OfferKind::Flavor => "flavor",
        OfferKind::AvailabilityZone => "availability_zone",
    }
}

const fn profile_table(kind: OfferKind) -> &'static str {
    match kind {
        OfferKind::Flavor => "flavor_profile",
        OfferKind::AvailabilityZone => "availability_zone_profile",
    }
}

/// The column callers know an offer by.
const fn key(kind: OfferKind) -> &'static str {
    match kind {
        OfferKind::Flavor => "id",
        OfferKind::AvailabilityZone => "name",
    }
}

/// The column of load balancers that names an offer by its [`key`].
const fn user_column(kind: OfferKind) -> &'static str {
    match kind {
        OfferKind::Flavor => "flavor_id",
        OfferKind::AvailabilityZone => "availability_zone",
    }
}

impl Store {
    pub async fn list_profiles(
        &self,
        kind: OfferKind,
        query: &Query,
    ) -> Result<Vec<Profile>, StoreError> {
        profiles(&self.db, kind, query).await
    }

    /// Availability zones are told apart by their name, also in pages.
    pub async fn list_offers(
        &self,
        kind: OfferKind,
        query: &Query,
    ) -> Result<Vec<Offer>, StoreError> {
        offers(&self.db, kind, query).await
    }

    pub async fn profile(
        &self,
        kind: OfferKind,
        id: ProfileId,
    ) -> Result<Option<Profile>, StoreError> {
        let found = self.list_profiles(kind, &one("id", id.to_string())).await?;
        Ok(found.into_iter().next())
    }

    /// The offer of this id (flavor) or name (availability zone).
    pub async fn offer(&self, kind: OfferKind, named: &str) -> Result<Option<Offer>, StoreError> {
        let found = self
            .list_offers(kind, &one(key(kind), named.to_owned()))
            .await?;
        Ok(found.into_iter().next())
    }

    /// As [`Store::offer`], with its profile.
    pub async fn offer_with_profile(
        &self,
        kind: OfferKind,
        named: &str,
    ) -> Result<Option<(Offer, Profile)>, StoreError> {
        let Some(offer) = self.offer(kind, named).await? else {
            return Ok(None);
        };
        let profile = self.profile(kind, offer.profile_id).await?;
        // It cannot go while the offer is there; gone now, both went meanwhile.
        Ok(profile.map(|profile| (offer, profile)))
    }

    /// [`StoreError::KeyUsed`]: the key of the receipt is used.
    pub async fn insert_profile(
        &self,
        kind: OfferKind,
        profile: &Profile,
        receipt: Option<&Receipt>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let Profile {
            id,
            name,
            provider_name,
            data,
        } = profile;
        let mut insert = Sql::insert();
        insert
            .into_table(profile_table(kind))
            .columns(["id", "name", "provider_name", "data", "created_at"])
            .values_panic([
                id.to_string().into(),
                name.as_str().into(),
                provider_name.as_str().into(),
                data.as_str().into(),
                now.as_micros().into(),
            ]);
        self.insert_row(profile_table(kind), &id.to_string(), insert, receipt, now)
            .await
    }

    /// [`StoreError::Duplicate`]: the name is taken. [`StoreError::KeyUsed`]: the key of the receipt is.
    /// [`StoreError::BrokenReference`]: there is no such profile.
    pub async fn insert_offer(
        &self,
        kind: OfferKind,
        offer: &Offer,
        receipt: Option<&Receipt>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let Offer {
            id,
            name,
            description,
            enabled,
            profile_id,
        } = offer;
        let mut insert = Sql::insert();
        insert
            .into_table(offer_table(kind))
            .columns([
                "id",
                "name",
                "description",
                "enabled",
                "profile_id",
                "created_at",
            ])
            .values_panic([
                id.to_string().into(),
                name.as_str().into(),
                description.as_str().into(),
                (*enabled).into(),
                profile_id.to_string().into(),
                now.as_micros().into(),
            ]);
        self.insert_row(offer_table(kind), &id.to_string(), insert, receipt, now)
            .await
    }

    /// The row, and the receipt of the request that asked for it.
    async fn insert_row(
        &self,
        table: &'static str,
        id: &str,
        insert: InsertStatement,
        receipt: Option<&Receipt>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        in_transaction!(self, txn, unsure => {
            if unsure && exists(&txn, table, "id", id).await? {
                return Ok(End::Rollback(()));
            }
            txn.execute(&insert).await?;
            receipts::write(&txn, receipt, now).await?;
            Ok(End::Commit(()))
        })
    }

    /// `f` is told whether an offer uses the profile; `Err(E)` changes nothing. `None`: there is no such profile.
    pub async fn change_profile<E, F>(
        &self,
        kind: OfferKind,
        id: ProfileId,
        mut f: F,
    ) -> Result<Option<Result<Profile, E>>, StoreError>
    where
        F: FnMut(&mut Profile, bool) -> Result<(), E> + Send,
        E: Send,
    {
        let table = profile_table(kind);
        in_transaction!(self, txn => {
            if !lock(&txn, table, "id", &id.to_string()).await? {
                return Ok(End::Rollback(None));
            }
            let found = profiles(&txn, kind, &one("id", id.to_string())).await?;
            let Some(mut profile) = found.into_iter().next() else {
                return Ok(End::Rollback(None));
            };
            let in_use = exists(&txn, offer_table(kind), "profile_id", &id.to_string()).await?;
            if let Err(refusal) = f(&mut profile, in_use) {
                return Ok(End::Rollback(Some(Err(refusal))));
            }
            let mut update = Sql::update();
            update
                .table(table)
                .value("name", profile.name.as_str())
                .value("provider_name", profile.provider_name.as_str())
                .value("data", profile.data.as_str())
                .and_where(Expr::col("id").eq(id.to_string()));
            txn.execute(&update).await?;
            Ok(End::Commit(Some(Ok(profile))))
        })
    }

    /// `None`: there is no such offer. [`StoreError::Duplicate`]: its new name is taken.
    pub async fn change_offer<F>(
        &self,
        kind: OfferKind,
        named: &str,
        mut f: F,
    ) -> Result<Option<Offer>, StoreError>
    where
        F: FnMut(&mut Offer) + Send,
    {
        let table = offer_table(kind);
        in_transaction!(self, txn => {
            if !lock(&txn, table, key(kind), named).await? {
                return Ok(End::Rollback(None));
            }
            let found = offers(&txn, kind, &one(key(kind), named.to_owned())).await?;
            let Some(mut offer) = found.into_iter().next() else {
                return Ok(End::Rollback(None));
            };
            f(&mut offer);
            let mut update = Sql::update();
            update
                .table(table)
                .value("name", offer.name.as_str())
                .value("description", offer.description.as_str())
                .value("enabled", offer.enabled)
                .and_where(Expr::col(key(kind)).eq(named));
            txn.execute(&update).await?;
            Ok(End::Commit(Some(offer)))
        })
    }

    pub async fn delete_profile(
        &self,
        kind: OfferKind,
        id: ProfileId,
    ) -> Result<Removal, StoreError> {
        self.delete_row(profile_table(kind), "id", &id.to_string(), None)
            .await
    }

    pub async fn delete_offer(&self, kind: OfferKind, named: &str) -> Result<Removal, StoreError> {
        self.delete_row(offer_table(kind), key(kind), named, Some(user_column(kind)))
            .await
    }

    /// `released`: the column of deleted load balancers that lets go of the row first.
    async fn delete_row(
        &self,
        table: &'static str,
        key: &'static str,
        value: &str,
        released: Option<&'static str>,
    ) -> Result<Removal, StoreError> {
        let removed = in_transaction!(self, txn, unsure => {
            if let Some(column) = released {
                let mut release = Sql::update();
                release
                    .table("load_balancer")
                    .value(column, Option::<String>::None)
                    .and_where(Expr::col(column).eq(value))
                    .and_where(
                        Expr::col("provisioning_status").eq(ProvisioningStatus::Deleted.as_str()),
                    );
                txn.execute(&release).await?;
            }
            let mut delete = Sql::delete();
            delete.from_table(table).and_where(Expr::col(key).eq(value));
            // Nothing there is what an earlier run may have come to.
            let found = txn.execute(&delete).await?.rows_affected() > 0 || unsure;
            Ok(End::Commit(found))
        });
        match removed {
            Ok(true) => Ok(Removal::Removed),
            Ok(false) => Ok(Removal::Absent),
            Err(StoreError::BrokenReference) => Ok(Removal::InUse),
            Err(error) => Err(error),
        }
    }
}

async fn profiles<C: ConnectionTrait>(
    db: &C,
    kind: OfferKind,
    query: &Query,
) -> Result<Vec<Profile>, StoreError> {
    use columns::{AVAILABILITY_ZONE_PROFILE, FLAVOR_PROFILE};
    match kind {
        OfferKind::Flavor => read(db, flavor_profile::Entity, &FLAVOR_PROFILE, query).await,
        OfferKind::AvailabilityZone => {
            let entity = availability_zone_profile::Entity;
            read(db, entity, &AVAILABILITY_ZONE_PROFILE, query).await
        }
    }
}

async fn offers<C: ConnectionTrait>(
    db: &C,
    kind: OfferKind,
    query: &Query,
) -> Result<Vec<Offer>, StoreError> {
    use columns::{AVAILABILITY_ZONE, FLAVOR};
    match kind {
        OfferKind::Flavor => read(db, flavor::Entity, &FLAVOR, query).await,
        OfferKind::AvailabilityZone => {
            read(db, availability_zone::Entity, &AVAILABILITY_ZONE, query).await
        }
    }
}

async fn read<C, E, T>(
    db: &C,
    _: E,
    resource: &columns::Resource,
    query: &Query,
) -> Result<Vec<T>, StoreError>
where
    C: ConnectionTrait,
    E: EntityTrait,
    T: TryFrom<E::Model, Error = StoreError>,
{
    let rows = select::page(db, E::find(), resource, query).await?;
    rows.into_iter().map(T::try_from).collect()
}

/// The query for one row.
fn one(column: &str, value: String) -> Query {
    Query {
        filters: vec![Filter {
            column: column.to_owned(),
            value,
        }],
        limit: Some(1),
        ..Query::default()
    }
}

/// Takes the lock of a row by writing what is there. False when there is none.
async fn lock<C: ConnectionTrait>(
    txn: &C,
    table: &'static str,
    key: &'static str,
    value: &str,
) -> Result<bool, StoreError> {
    let mut update = Sql::update();
    update
        .table(table)
        .value("name", Expr::col("name"))
        .and_where(Expr::col(key).eq(value));
    Ok(txn.execute(&update).await?.rows_affected() > 0)
}

async fn exists<C: ConnectionTrait>(
    txn: &C,
    table: &'static str,
    column: &'static str,
    value: &str,
) -> Result<bool, StoreError> {
    let mut select = Sql::select();
    select
        .expr(Expr::val(1))
        .from(table)
        .and_where(Expr::col(column).eq(value))
        .limit(1);
    Ok(txn.query_one(&select).await?.is_some())
}
