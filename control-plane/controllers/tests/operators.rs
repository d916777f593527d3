//! What operators do: remove an amphora that failed, hand out new settings, offer flavors and availability zones.

mod support;

use lb_drivers::Placement;
use lb_model::{
    AmphoraId, AmphoraStatus, FlavorId, Offer, OfferId, OfferKind, Profile, ProfileId,
    ProvisioningStatus, change, sample,
};
use support::{Bench, full};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_amphora_that_is_deleted_goes_with_all_of_it_and_the_load_balancer_serves_on() {
    let bench = Bench::new().await;
    let id = bench.active().await;
    let serving = bench.amphora(id).await;
    let failed = AmphoraId::random();
    let now = bench.now();
    bench
        .change(id, |graph| {
            let mut row = graph.amphorae[0].clone();
            row.id = failed;
            row.status = AmphoraStatus::Error;
            graph.amphorae.push(row);
        })
        .await;
    bench.worker().run_due().await;
    assert_eq!(bench.graph(id).await.unwrap().amphorae.len(), 2);
    bench
        .change(id, |graph| {
            change::delete_amphora(graph, failed, now).unwrap();
        })
        .await;
    bench.reach(id, ProvisioningStatus::Active).await;
    assert_eq!(bench.amphora(id).await, serving);
    bench.check_serving(id).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_settings_reach_an_agent_when_its_load_balancer_is_looked_at() {
    // P27
    let mut bench = Bench::new().await;
    let id = bench.active().await;
    let amphora = bench.amphora(id).await;
    let controller = "198.18.0.9:5555".parse().unwrap();
    bench.settings.planner.heartbeat_controllers = vec![controller];
    assert_ne!(
        bench.cloud.config(amphora).unwrap().heartbeat.controllers,
        [controller]
    );
    bench.change(id, |_| ()).await;
    bench.worker().run_due().await;
    assert_eq!(
        bench.cloud.config(amphora).unwrap().heartbeat.controllers,
        [controller]
    );
    let graph = bench.graph(id).await.unwrap();
    assert_eq!(
        graph.load_balancer.provisioning_status,
        ProvisioningStatus::Active
    );
}

async fn offer(
    bench: &Bench,
    kind: OfferKind,
    name: &str,
    data: &str,
) -> Result<OfferId, lb_store::StoreError> {
    let profile = Profile {
        id: ProfileId::random(),
        name: name.to_owned(),
        provider_name: "amphora".to_owned(),
        data: data.to_owned(),
    };
    let offer = Offer {
        id: OfferId::random(),
        name: name.to_owned(),
        description: String::new(),
        enabled: true,
        profile_id: profile.id,
    };
    let now = bench.now();
    bench
        .store
        .insert_profile(kind, &profile, None, now)
        .await?;
    bench.store.insert_offer(kind, &offer, None, now).await?;
    Ok(offer.id)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_made_of_what_flavor_and_zone_say_also_when_it_is_replaced() {
    let bench = Bench::new().await;
    let flavor = r#"{"compute_flavor": "m1", "amp_image_tag": "tag"}"#;
    let flavor = offer(&bench, OfferKind::Flavor, "small", flavor)
        .await
        .unwrap();
    let zone = format!(
        r#"{{"compute_zone": "nova", "volume_zone": "disk", "management_network": "{}"}}"#,
        sample::NETWORK
    );
    offer(&bench, OfferKind::AvailabilityZone, "west", &zone)
        .await
        .unwrap();
    let id = bench
        .create(1, |graph| {
            full(graph);
            graph.load_balancer.flavor_id = Some(FlavorId(flavor.0));
            graph.load_balancer.availability_zone = Some("west".to_owned());
        })
        .await;
    bench.reach(id, ProvisioningStatus::Active).await;
    let expected = Placement {
        compute_flavor: Some("m1".to_owned()),
        image_tag: Some("tag".to_owned()),
        compute_zone: Some("nova".to_owned()),
        volume_zone: Some("disk".to_owned()),
        management_network: Some(sample::NETWORK),
    };
    let first = bench.amphora(id).await;
    assert_eq!(bench.cloud.placement(first), Some(expected.clone()));
    let now = bench.now();
    bench
        .change(id, |graph| change::request_failover(graph, now).unwrap())
        .await;
    bench.reach(id, ProvisioningStatus::Active).await;
    let second = bench.amphora(id).await;
    assert_ne!(second, first);
    assert_eq!(bench.cloud.placement(second), Some(expected));
    let graph = bench.graph(id).await.unwrap();
    assert_eq!(graph.amphorae[0].compute_flavor.as_deref(), Some("m1"));
}
