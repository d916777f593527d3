//! Real tokens, real roles: what a tenant's roles allow is done by the stock client, and what they do not allow is
//! answered with 403 and changes nothing.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use test_support::keystone::{ADMIN, PASSWORD, REGION, User};
use test_support::{Answer, Api, Region, venv};

const KEYSTONE: &str = "[api]\nauth_strategy = \"keystone\"\n";
const SUBNET: &str = "5a4c2b1e-93ad-4c63-9f0e-6a5c4d3b2a10";

/// Name, project and role of users; the last role means nothing here.
const USERS: [(&str, &str, &str); 5] = [
    ("root", ADMIN, "admin"),
    ("alice", "shop", "member"),
    ("rita", "shop", "reader"),
    ("bob", "other", "member"),
    ("nobody", "shop", "unrelated"),
];

struct Openstack<'a> {
    region: &'a Region,
    user: &'a User,
}

impl Openstack<'_> {
    async fn run(&self, line: &str) -> Result<String> {
        let mut command = Command::new(venv("venv")?.join("bin/openstack"));
        command.args(line.split_whitespace());
        self.region.log_in(&mut command, self.user);
        let output = tokio::process::Command::from(command).output().await?;
        if !output.status.success() {
            bail!("{line}: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    async fn json(&self, line: &str) -> Result<Value> {
        let output = self.run(&format!("{line} -f json")).await?;
        serde_json::from_str(&output).with_context(|| format!("{line}: {output}"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_runs_a_load_balancer_with_the_openstack_command_line() -> Result<()> {
    let region = Region::start(KEYSTONE).await?;
    let alice = region
        .keystone
        .add_user("alice", "shop", &["member"])
        .await?;
    let cli = Openstack {
        region: &region,
        user: &alice,
    };
    let lb = cli
        .json(&format!(
            "loadbalancer create --name web --vip-subnet-id {SUBNET} --wait"
        ))
        .await?;
    ensure!(lb["provisioning_status"] == "ACTIVE", "{lb}");
    ensure!(lb["project_id"] == alice.project_id.as_str(), "{lb}");
    for line in [
        "listener create --name http --protocol HTTP --protocol-port 80 --wait web",
        "pool create --name servers --listener http --protocol HTTP --lb-algorithm ROUND_ROBIN --wait",
        "member create --name red --address 192.0.2.10 --protocol-port 80 --wait servers",
        "healthmonitor create --name check --type HTTP --delay 5 --timeout 3 --max-retries 2 --wait servers",
        "l7policy create --name away --action REDIRECT_TO_URL --redirect-url http://example.org/ --wait http",
        "l7rule create --type PATH --compare-type STARTS_WITH --value /old --wait away",
        "set --description changed --wait web",
        "member set --weight 3 --wait servers red",
    ] {
        cli.run(&format!("loadbalancer {line}")).await?;
    }
    let shown = cli.json("loadbalancer show web").await?;
    ensure!(shown["description"] == "changed", "{shown}");
    let member = cli.json("loadbalancer member show servers red").await?;
    ensure!(member["weight"] == 3, "{member}");
    let quota = format!("loadbalancer quota show {}", alice.project_id);
    cli.json(&quota).await?;

    let bob = region
        .keystone
        .add_user("bob", "other", &["member"])
        .await?;
    let others = Openstack {
        region: &region,
        user: &bob,
    };
    let list = others.json("loadbalancer list").await?;
    ensure!(list == json!([]), "{list}");
    let refused = others
        .run(&format!(
            "loadbalancer delete {}",
            lb["id"].as_str().context("id")?
        ))
        .await;
    ensure!(refused.is_err(), "another project deleted it");
    let refused = cli.run("loadbalancer failover web").await;
    let refused = refused.err().context("a tenant may fail over")?.to_string();
    ensure!(refused.contains("403"), "{refused}");
    cli.run("loadbalancer delete --cascade --wait web").await?;
    ensure!(cli.json("loadbalancer list").await? == json!([]));
    Ok(())
}

/// The same with openstacksdk, and each write and read of it by those who may not.
#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_runs_a_load_balancer_with_the_sdk_and_nobody_else_touches_it() -> Result<()> {
    let region = Region::start(KEYSTONE).await?;
    region.keystone.add_role("unrelated").await?;
    for (name, project, role) in USERS {
        region.keystone.add_user(name, project, &[role]).await?;
    }
    let mut command = Command::new(venv("venv")?.join("bin/python3"));
    command
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/roles.py"))
        .args([&region.keystone.auth_url(), REGION, SUBNET, PASSWORD]);
    let output = tokio::process::Command::from(command).output().await?;
    ensure!(
        output.status.success() && output.stdout == b"roles: all good\n",
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// A call, and what it is answered to the administrator, a member, a reader, a member of another project, and a user
/// of the project with a role that means nothing here. The calls of the allowed come last, so that each finds the
/// load balancer as it was.
struct Row {
    method: Method,
    path: &'static str,
    body: Option<Value>,
    expected: [u16; 5],
}

#[derive(Debug, Clone, Copy)]
enum Method {
    Get,
    Post,
    Put,
    Delete,
}

fn rows() -> Vec<Row> {
    let row = |method, path, body, expected| Row {
        method,
        path,
        body,
        expected,
    };
    let tenant_read = [200, 200, 200, 403, 403];
    let shared_read = [200, 200, 200, 200, 403];
    let admin = |status| [status, 403, 403, 403, 403];
    vec![
        row(Method::Get, "lbaas/loadbalancers", None, shared_read),
        row(Method::Get, "lbaas/loadbalancers/{lb}", None, tenant_read),
        row(
            Method::Get,
            "lbaas/loadbalancers/{lb}/stats",
            None,
            tenant_read,
        ),
        row(
            Method::Get,
            "lbaas/loadbalancers/{lb}/status",
            None,
            tenant_read,
        ),
        row(
            Method::Put,
            "lbaas/loadbalancers/{lb}",
            Some(json!({"loadbalancer": {"name": "renamed"}})),
            [200, 200, 403, 403, 403],
        ),
        row(
            Method::Post,
            "lbaas/listeners",
            Some(
                json!({"listener": {"loadbalancer_id": "{lb}", "protocol": "TCP", "protocol_port": 80}}),
            ),
            [201, 409, 403, 403, 403],
        ),
        row(
            Method::Post,
            "lbaas/loadbalancers",
            Some(json!({"loadbalancer": {"vip_subnet_id": SUBNET}})),
            [201, 201, 403, 201, 403],
        ),
        row(
            Method::Put,
            "lbaas/loadbalancers/{lb}/failover",
            None,
            admin(202),
        ),
        row(Method::Get, "octavia/amphorae", None, admin(200)),
        row(Method::Get, "lbaas/quotas/{project}", None, tenant_read),
        row(
            Method::Put,
            "lbaas/quotas/{project}",
            Some(json!({"quota": {"loadbalancer": 5}})),
            admin(202),
        ),
        row(Method::Get, "lbaas/providers", None, shared_read),
        row(Method::Get, "lbaas/flavors", None, shared_read),
        row(Method::Get, "lbaas/flavorprofiles", None, admin(200)),
        row(
            Method::Post,
            "lbaas/flavorprofiles",
            Some(
                json!({"flavorprofile": {"name": "p", "provider_name": "amphora", "flavor_data": "{}"}}),
            ),
            admin(201),
        ),
        row(
            Method::Delete,
            "lbaas/loadbalancers/{lb}?cascade=true",
            None,
            [204, 404, 403, 403, 403],
        ),
    ]
}

impl Row {
    async fn call(&self, api: &Api, load_balancer: &str, project: &str) -> Result<Answer> {
        let fill = |text: &str| {
            text.replace("{lb}", load_balancer)
                .replace("{project}", project)
        };
        let path = fill(self.path);
        let body = match &self.body {
            Some(body) => Some(serde_json::from_str(&fill(&body.to_string()))?),
            None => None,
        };
        match (self.method, &body) {
            (Method::Get, _) => api.get(&path).await,
            (Method::Post, Some(body)) => api.post(&path, body).await,
            (Method::Post, None) => bail!("{path}: POST without a body"),
            (Method::Put, body) => api.put(&path, body.as_ref()).await,
            (Method::Delete, _) => api.delete(&path).await,
        }
    }
}

/// Octavia's fault, with the words of its policy.
fn is_refusal(body: &Value) -> bool {
    let text = body["faultstring"].as_str().unwrap_or_default();
    body["faultcode"] == "Client"
        && text.starts_with("Policy does not allow this request to be performed.")
        && body.get("debuginfo") == Some(&Value::Null)
}

/// A refused call does not even make it pending.
async fn still_as_it_was(owner: &Api, id: &str, refused: &str) -> Result<()> {
    let shown = owner.get(&format!("lbaas/loadbalancers/{id}")).await?;
    let status = &shown.body["loadbalancer"]["provisioning_status"];
    ensure!(status == "ACTIVE", "{refused}: refused, yet {}", shown.body);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_role_may_do_what_its_name_says_and_nothing_else() -> Result<()> {
    let region = Region::start(KEYSTONE).await?;
    let keystone = &region.keystone;
    keystone.add_role("unrelated").await?;
    let mut callers = Vec::new();
    for (name, project, role) in USERS {
        let user = keystone.add_user(name, project, &[role]).await?;
        callers.push((user.clone(), region.api(&user).await?));
    }
    let [_, (alice, owner), ..] = callers.as_slice() else {
        bail!("there are callers");
    };
    let body = json!({"loadbalancer": {"vip_subnet_id": SUBNET}});
    let lb = owner
        .post("lbaas/loadbalancers", &body)
        .await?
        .expect(201)?;
    let id = lb["loadbalancer"]["id"].as_str().context("id")?;
    owner.wait_active(id).await?;

    let mut wrong = Vec::new();
    for row in rows() {
        // The refused ones first: had one of them done anything, the next would see it.
        for index in [4, 3, 2, 0, 1] {
            let (user, api) = &callers[index];
            let expected = row.expected[index];
            let answer = row.call(api, id, &alice.project_id).await?;
            let status = answer.status;
            if status == 403 && !is_refusal(&answer.body) {
                wrong.push(format!("{} by {}: {}", row.path, user.name, answer.body));
            }
            if status != expected {
                wrong.push(format!(
                    "{:?} {} by {}: {status}, not {expected}",
                    row.method, row.path, user.name
                ));
            }
            match row.method {
                Method::Delete if status == 204 || status == 404 => owner.wait_gone(id).await?,
                _ if status == 403 => still_as_it_was(owner, id, row.path).await?,
                _ => drop(owner.wait_active(id).await?),
            }
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_without_a_valid_token_is_told_where_tokens_are() -> Result<()> {
    let region = Region::start(KEYSTONE).await?;
    let api = region.control_plane.api()?;
    for api in [api.clone(), api.with_token("made up")] {
        let answer = api.get("lbaas/loadbalancers").await?;
        ensure!(answer.status == 401, "{answer:?}");
        ensure!(answer.body["error"]["code"] == 401, "{answer:?}");
    }
    Ok(())
}
