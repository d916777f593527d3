//! Stacks of a real Heat: with real tokens, also those of trusts, and no-op drivers behind our API.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use test_support::keystone::User;
use test_support::{Api, Heat, Region};

const KEYSTONE: &str = "[api]\nauth_strategy = \"keystone\"\n";
const SUBNET: &str = "5a4c2b1e-93ad-4c63-9f0e-6a5c4d3b2a10";
/// What the operator's stack calls its flavor.
const FLAVOR: &str = "small";

fn template(name: &str) -> Result<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("clients")
        .join(name);
    std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))
}

fn ended(heat: &Heat<'_>, stack: &Value, status: &str) -> Result<()> {
    if stack["stack_status"] != status {
        bail!("not {status}: {stack}\n{}", heat.log_tail());
    }
    Ok(())
}

fn output(stack: &Value, name: &str) -> Result<Value> {
    let outputs = stack["outputs"].as_array().context("no outputs")?;
    let output = outputs.iter().find(|output| output["output_key"] == name);
    let output = output.with_context(|| format!("no output {name} in {stack}"))?;
    Ok(output["output_value"].clone())
}

fn id(stack: &Value, name: &str) -> Result<String> {
    let value = output(stack, name)?;
    Ok(value.as_str().context("an output is no id")?.to_owned())
}

async fn list(api: &Api, path: &str, root: &str) -> Result<Vec<Value>> {
    let body = api.get(path).await?.expect(200)?;
    let items = body[root].as_array();
    Ok(items.with_context(|| format!("{path}: {body}"))?.clone())
}

async fn show(api: &Api, path: &str, root: &str) -> Result<Value> {
    Ok(api.get(path).await?.expect(200)?[root].clone())
}

/// Those of `wanted` are in `object` with these values.
fn holds(object: &Value, wanted: &Value) -> Result<()> {
    let wanted = wanted.as_object().context("an object is wanted")?;
    for (key, value) in wanted {
        ensure!(object[key] == *value, "{key} is not {value} in {object}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn stacks_are_created_changed_and_deleted_with_the_rights_of_their_owners() -> Result<()> {
    let region = Region::start(KEYSTONE).await?;
    let heat = Heat::start(&region).await?;
    let keystone = &region.keystone;
    let admin = keystone.admin().await?;
    let alice = keystone.add_user("alice", "shop", &["member"]).await?;
    let rita = keystone.add_user("rita", "library", &["reader"]).await?;

    let (offers, created) = heat
        .create(
            &admin,
            "offers",
            &template("heat-operator.yaml")?,
            &json!({}),
        )
        .await?;
    ended(&heat, &created, "CREATE_COMPLETE")?;
    offered(&region.api(&admin).await?, &created).await?;

    tokio::try_join!(
        life_of_a_tenants_stack(&region, &heat, &alice),
        refusal(&region, &heat, &rita),
    )?;
    // Of the network look-ups, which are not of one project: VIPs and amphorae had some.
    let ports = list(&region.api(&admin).await?, "ports", "ports").await?;
    ensure!(ports.is_empty(), "{ports:?} are left");

    let deleted = heat.delete(&offers).await?;
    ended(&heat, &deleted, "DELETE_COMPLETE")?;
    let api = region.api(&admin).await?;
    for (path, root) in [
        ("lbaas/flavors", "flavors"),
        ("lbaas/flavorprofiles", "flavorprofiles"),
        ("lbaas/availabilityzones", "availability_zones"),
        (
            "lbaas/availabilityzoneprofiles",
            "availability_zone_profiles",
        ),
    ] {
        let left = list(&api, path, root).await?;
        ensure!(left.is_empty(), "{path}: {left:?} is left");
    }
    Ok(())
}

async fn offered(api: &Api, stack: &Value) -> Result<()> {
    let flavor = id(stack, "flavor")?;
    let flavor = show(api, &format!("lbaas/flavors/{flavor}"), "flavor").await?;
    holds(&flavor, &json!({"name": FLAVOR, "enabled": true}))?;
    let zone = "lbaas/availabilityzones/zone-1";
    let zone = show(api, zone, "availability_zone").await?;
    holds(&zone, &json!({"enabled": true}))
}

async fn life_of_a_tenants_stack(region: &Region, heat: &Heat<'_>, user: &User) -> Result<()> {
    let parameters = json!({"subnet": SUBNET, "flavor": FLAVOR});
    let text = template("heat-tenant.yaml")?;
    let (stack, created) = heat.create(user, "web", &text, &parameters).await?;
    ended(heat, &created, "CREATE_COMPLETE")?;
    let api = region.api(user).await?;
    let lb = id(&created, "load_balancer")?;
    let listener = id(&created, "listener")?;
    let pool = id(&created, "pool")?;
    let load_balancer = show(&api, &format!("lbaas/loadbalancers/{lb}"), "loadbalancer").await?;
    let flavors = list(&api, &format!("lbaas/flavors?name={FLAVOR}"), "flavors").await?;
    holds(
        &load_balancer,
        &json!({
            "name": "web",
            "project_id": user.project_id,
            "provisioning_status": "ACTIVE",
            "vip_subnet_id": SUBNET,
            "vip_address": output(&created, "vip_address")?,
            "vip_port_id": output(&created, "vip_port")?,
            "flavor_id": flavors[0]["id"],
            "listeners": [{"id": listener}],
        }),
    )?;
    let listener_path = format!("lbaas/listeners/{listener}");
    let shown = show(&api, &listener_path, "listener").await?;
    holds(
        &shown,
        &json!({"protocol": "HTTP", "connection_limit": -1, "allowed_cidrs": ["192.0.2.0/24"], "default_pool_id": pool}),
    )?;
    let members_path = format!("lbaas/pools/{pool}/members");
    let members = list(&api, &members_path, "members").await?;
    ensure!(members.len() == 1, "{members:?}");
    let red =
        json!({"id": members[0]["id"], "address": "192.0.2.10", "weight": 1, "tags": ["red"]});
    holds(&members[0], &red)?;
    ensure!(output(&created, "members")? == json!([{"id": members[0]["id"]}]));
    let shown = show(&api, &format!("lbaas/pools/{pool}"), "pool").await?;
    ensure!(
        shown["session_persistence"]["type"] == "SOURCE_IP",
        "{shown}"
    );
    let monitor = shown["healthmonitor_id"].as_str().context("no monitor")?;
    let monitor_path = format!("lbaas/healthmonitors/{monitor}");
    holds(
        &show(&api, &monitor_path, "healthmonitor").await?,
        &json!({"type": "HTTP", "url_path": "/alive", "expected_codes": "200-204"}),
    )?;
    let policies = list(
        &api,
        &format!("lbaas/l7policies?listener_id={listener}"),
        "l7policies",
    )
    .await?;
    ensure!(policies.len() == 1, "{policies:?}");
    let policy = policies[0]["id"].as_str().context("no policy")?;
    ensure!(policies[0]["action"] == "REDIRECT_TO_POOL", "{policies:?}");
    let rules = list(&api, &format!("lbaas/l7policies/{policy}/rules"), "rules").await?;
    ensure!(rules.len() == 1, "{rules:?}");
    holds(
        &rules[0],
        &json!({"id": id(&created, "rule")?, "type": "PATH", "compare_type": "STARTS_WITH", "value": "/old"}),
    )?;

    // Another weight, another limit, one more member; all else stays what it was.
    let changes = json!({"weight": 7, "connection_limit": 77, "second_member": true});
    let updated = heat.update(&stack, &changes).await?;
    ended(heat, &updated, "UPDATE_COMPLETE")?;
    for name in ["load_balancer", "vip_address", "listener", "pool", "rule"] {
        let (before, after) = (output(&created, name)?, output(&updated, name)?);
        ensure!(before == after, "{name} was {before}, is {after}");
    }
    let shown = show(&api, &listener_path, "listener").await?;
    holds(&shown, &json!({"connection_limit": 77}))?;
    let mut now = list(&api, &members_path, "members").await?;
    now.sort_by_key(|member| member["address"].to_string());
    ensure!(now.len() == 2, "{now:?}");
    holds(&now[0], &json!({"id": members[0]["id"], "weight": 7}))?;
    holds(
        &now[1],
        &json!({"address": "192.0.2.11", "weight": 1, "monitor_port": 8080, "provisioning_status": "ACTIVE"}),
    )?;

    let deleted = heat.delete(&stack).await?;
    ended(heat, &deleted, "DELETE_COMPLETE")?;
    nothing_is_left(&api).await
}

async fn nothing_is_left(api: &Api) -> Result<()> {
    for (path, root) in [
        ("lbaas/loadbalancers", "loadbalancers"),
        ("lbaas/listeners", "listeners"),
        ("lbaas/pools", "pools"),
        ("lbaas/healthmonitors", "healthmonitors"),
        ("lbaas/l7policies", "l7policies"),
    ] {
        let left = list(api, path, root).await?;
        ensure!(left.is_empty(), "{path}: {left:?} is left");
    }
    Ok(())
}

/// The words of our API reach the owner of the stack.
async fn refusal(region: &Region, heat: &Heat<'_>, reader: &User) -> Result<()> {
    let parameters = json!({"subnet": SUBNET, "flavor": FLAVOR});
    let text = template("heat-tenant.yaml")?;
    let (stack, failed) = heat.create(reader, "refused", &text, &parameters).await?;
    ended(heat, &failed, "CREATE_FAILED")?;
    let reason = failed["stack_status_reason"].as_str().unwrap_or_default();
    for words in [
        "resources.load_balancer: Policy does not allow this request to be performed.",
        "(HTTP 403)",
    ] {
        ensure!(reason.contains(words), "{words} is not in {reason}");
    }
    let api = region.api(reader).await?;
    nothing_is_left(&api).await?;
    let deleted = heat.delete(&stack).await?;
    ended(heat, &deleted, "DELETE_COMPLETE")
}
