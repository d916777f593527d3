//! `kill -9` of the control plane at any moment: nothing stays pending, nothing is left behind.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;
use test_support::scene::{Scene, rounds, text, wait_until};

/// How many load balancers are created, each with one kill somewhere in its create or delete.
const ROUNDS: u64 = 50;

#[tokio::test(flavor = "multi_thread")]
async fn killing_the_control_plane_at_any_moment_leaves_nothing_pending() -> Result<()> {
    let mut scene = Scene::start().await?;
    let request = scene.full_request("crash").await?;
    for round in 0..rounds(ROUNDS) {
        // Moments spread over the length of an operation; coprime steps meet every part of it.
        let moment = Duration::from_millis(round * 37 % 400);
        let created = scene.api().post("lbaas/loadbalancers", &request).await?;
        let id = text(&created.expect(201)?["loadbalancer"], "id")?;
        let in_delete = round % 2 == 1;
        if in_delete {
            scene
                .api()
                .wait_active(&id)
                .await
                .with_context(|| scene.stack.log_tail())?;
            delete(&scene, &id).await?;
        }
        tokio::time::sleep(moment).await;
        scene.stack.kill_control_plane()?;
        scene.stack.start_control_plane()?;
        wait_settled(&scene, &id).await.with_context(|| {
            format!(
                "round {round}, killed after {moment:?}\n{}",
                scene.stack.log_tail()
            )
        })?;
        if !in_delete {
            scene
                .api()
                .wait_active(&id)
                .await
                .with_context(|| scene.stack.log_tail())?;
            delete(&scene, &id).await?;
        }
        scene.api().wait_gone(&id).await.with_context(|| {
            format!(
                "round {round}, killed after {moment:?}\n{}",
                scene.stack.log_tail()
            )
        })?;
    }
    let mut left = Vec::new();
    wait_until("nothing of a load balancer is left", async || {
        left = scene.stack.leftovers().await?;
        Ok(left.is_empty().then_some(()))
    })
    .await
    .with_context(|| format!("left: {left:?}"))?;
    scene.stack.destroy().await
}

async fn delete(scene: &Scene, id: &str) -> Result<()> {
    let path = format!("lbaas/loadbalancers/{id}?cascade=true");
    scene.api().delete(&path).await?.expect(204).map(drop)
}

/// Waits until the load balancer is in no `PENDING_*` status, or gone.
async fn wait_settled(scene: &Scene, id: &str) -> Result<()> {
    let path = format!("lbaas/loadbalancers/{id}");
    let mut last = Value::Null;
    wait_until("it is in no PENDING status", async || {
        let answer = scene.api().get(&path).await?;
        last = answer.body["loadbalancer"]["provisioning_status"].clone();
        let settled = answer.status == 404 || matches!(last.as_str(), Some("ACTIVE" | "ERROR"));
        Ok(settled.then_some(()))
    })
    .await
    .with_context(|| format!("last seen {last}"))
}
