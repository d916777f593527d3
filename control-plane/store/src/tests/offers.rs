use lb_model::{FlavorId, Offer, OfferId, OfferKind, Profile, ProfileId, ProvisioningStatus};

use super::fixtures::{at, database, plain_graph};
use crate::{Query, Removal, Store, StoreError};

use OfferKind::{AvailabilityZone, Flavor};

pub(super) async fn profile(store: &Store, kind: OfferKind) -> ProfileId {
    let profile = Profile {
        id: ProfileId::random(),
        name: "profile".to_owned(),
        provider_name: "amphora".to_owned(),
        data: "{}".to_owned(),
    };
    store
        .insert_profile(kind, &profile, None, at(0))
        .await
        .unwrap();
    assert_eq!(
        store.profile(kind, profile.id).await.unwrap(),
        Some(profile.clone())
    );
    profile.id
}

fn offer(name: &str, profile_id: ProfileId) -> Offer {
    Offer {
        id: OfferId::random(),
        name: name.to_owned(),
        description: "what it is".to_owned(),
        enabled: true,
        profile_id,
    }
}

/// Makes availability zones that load balancers may name.
pub(super) async fn zones(store: &Store, names: &[&str]) {
    let profile_id = profile(store, AvailabilityZone).await;
    for name in names {
        let zone = offer(name, profile_id);
        store
            .insert_offer(AvailabilityZone, &zone, None, at(0))
            .await
            .unwrap();
    }
}

/// What callers know an offer by.
fn key(kind: OfferKind, offer: &Offer) -> String {
    match kind {
        Flavor => offer.id.to_string(),
        AvailabilityZone => offer.name.clone(),
    }
}

#[tokio::test]
async fn offers_and_profiles_are_kept_as_they_were_given() {
    let database = database().await;
    let store = &database.store;
    for kind in [Flavor, AvailabilityZone] {
        let profile_id = profile(store, kind).await;
        let small = offer("small", profile_id);
        store.insert_offer(kind, &small, None, at(1)).await.unwrap();
        let named = key(kind, &small);
        assert_eq!(
            store.offer(kind, &named).await.unwrap(),
            Some(small.clone())
        );
        let again = offer("small", profile_id);
        assert!(matches!(
            store.insert_offer(kind, &again, None, at(2)).await,
            Err(StoreError::Duplicate)
        ));
        let orphan = offer("orphan", ProfileId::random());
        assert!(matches!(
            store.insert_offer(kind, &orphan, None, at(2)).await,
            Err(StoreError::BrokenReference)
        ));
        let changed = store
            .change_offer(kind, &named, |offer| offer.enabled = false)
            .await
            .unwrap();
        let expected = Offer {
            enabled: false,
            ..small
        };
        assert_eq!(changed, Some(expected.clone()));
        let listed = store.list_offers(kind, &Query::default()).await.unwrap();
        assert_eq!(listed, [expected]);
        assert_eq!(
            store.change_offer(kind, "none", |_| ()).await.unwrap(),
            None
        );
    }
}

#[tokio::test]
async fn a_profile_is_told_whether_it_is_in_use_and_goes_only_when_it_is_not() {
    let database = database().await;
    let store = &database.store;
    for kind in [Flavor, AvailabilityZone] {
        let id = profile(store, kind).await;
        let use_of = || async {
            store
                .change_profile(kind, id, |profile, in_use| {
                    profile.name.push('x');
                    Err::<(), bool>(in_use)
                })
                .await
                .unwrap()
        };
        assert_eq!(use_of().await, Some(Err(false)));
        let small = offer("small", id);
        store.insert_offer(kind, &small, None, at(1)).await.unwrap();
        assert_eq!(use_of().await, Some(Err(true)));
        assert_eq!(
            store.delete_profile(kind, id).await.unwrap(),
            Removal::InUse
        );
        let named = key(kind, &small);
        assert_eq!(
            store.delete_offer(kind, &named).await.unwrap(),
            Removal::Removed
        );
        assert_eq!(
            store.delete_offer(kind, &named).await.unwrap(),
            Removal::Absent
        );
        assert_eq!(
            store.delete_profile(kind, id).await.unwrap(),
            Removal::Removed
        );
        assert_eq!(use_of().await, None);
    }
}

#[tokio::test]
async fn an_offer_is_in_use_until_its_last_load_balancer_is_deleted() {
    let database = database().await;
    let store = &database.store;
    for kind in [Flavor, AvailabilityZone] {
        let id = profile(store, kind).await;
        let small = offer("small", id);
        store.insert_offer(kind, &small, None, at(1)).await.unwrap();
        let mut graph = plain_graph(ProvisioningStatus::Active);
        match kind {
            Flavor => graph.load_balancer.flavor_id = Some(FlavorId(small.id.0)),
            AvailabilityZone => graph.load_balancer.availability_zone = Some(small.name.clone()),
        }
        store.insert_graph(&graph).await.unwrap();
        let named = key(kind, &small);
        assert_eq!(
            store.delete_offer(kind, &named).await.unwrap(),
            Removal::InUse
        );
        store
            .change_graph(graph.load_balancer.id, at(2), |graph| {
                graph.load_balancer.provisioning_status = ProvisioningStatus::Deleted;
                Ok::<(), std::convert::Infallible>(())
            })
            .await
            .unwrap();
        assert_eq!(
            store.delete_offer(kind, &named).await.unwrap(),
            Removal::Removed
        );
        // A create that read the offer before it was removed finds out in the database.
        assert!(matches!(
            store
                .insert_graph(&{
                    let mut late = plain_graph(ProvisioningStatus::Active);
                    late.load_balancer.flavor_id = graph.load_balancer.flavor_id;
                    late.load_balancer.availability_zone =
                        graph.load_balancer.availability_zone.clone();
                    late
                })
                .await,
            Err(StoreError::BrokenReference)
        ));
    }
}
