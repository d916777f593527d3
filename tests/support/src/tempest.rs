//! The official API tests of Octavia: tempest with octavia-tempest-plugin, from PyPI, against a server that has a
//! real Keystone and no-op drivers.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::group::Group;
use crate::keystone::{ADMIN, DOMAIN, Keystone, PASSWORD, REGION};
use crate::venv::venv;

/// Where its programs are: `tests/requirements-tempest.txt`.
const VENV: &str = "venv-tempest";
const TESTS: &str = "octavia_tempest_plugin.tests.api";
/// For the whole run.
const PATIENCE: Duration = Duration::from_secs(1500);

/// Which roles the users of the tests have, and so what they expect to be refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Roles {
    /// `admin`, `member`, `reader`.
    KeystoneDefault,
    /// `load-balancer_admin` and its kin.
    Advanced,
}

/// What became of the tests. Those that were cut off are in none of the numbers but `run`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// There are so many.
    pub known: usize,
    pub passed: usize,
    pub skipped: usize,
    /// By name; with what else went wrong, such as the making of what a class of tests needs.
    pub not_passed: Vec<String>,
    /// What the failing ones said.
    pub report: String,
}

/// Runs the tests of the API that match `pattern` (a regular expression; all when empty), two at once.
pub async fn run_tempest(keystone: &Keystone, roles: Roles, pattern: &str) -> Result<Summary> {
    let dir = tempfile::tempdir().context("make temporary directory")?;
    configure(dir.path(), keystone, roles)?;
    let pattern = format!("{TESTS}.*{pattern}");
    run(dir.path(), &pattern).await
}

async fn run(dir: &Path, pattern: &str) -> Result<Summary> {
    text(stestr(dir, &["init"])?).await?;
    let known = text(stestr(dir, &["list", pattern])?)
        .await?
        .lines()
        .count();
    ensure!(known > 0, "no test matches {pattern}");
    let log = dir.join("stestr.log");
    let command = stestr(dir, &["run", "--concurrency", "2", pattern])?;
    let mut group = Group::spawn(&command, &log)?;
    let begun = Instant::now();
    while group.ended()?.is_none() {
        if begun.elapsed() > PATIENCE {
            bail!(
                "tempest takes more than {PATIENCE:?}:\n{}",
                group.log_tail()
            );
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let results = results(dir).await?;
    let count = |wanted: &str| results.values().filter(|status| *status == wanted).count();
    let not_passed: Vec<String> = results
        .iter()
        .filter(|(_, status)| !["success", "skip"].contains(&status.as_str()))
        .map(|(name, status)| format!("{status}: {name}"))
        .collect();
    let report = if not_passed.is_empty() {
        String::new()
    } else {
        std::fs::read_to_string(&log)?
    };
    Ok(Summary {
        known,
        passed: count("success"),
        skipped: count("skip"),
        not_passed,
        report,
    })
}

/// Status of each test of the last run, by name.
async fn results(dir: &Path) -> Result<BTreeMap<String, String>> {
    let mut last = stestr(dir, &["last", "--subunit"])?;
    let mut last = last.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let stream = last.stdout.take().context("no standard output")?;
    let mut command = Command::new(venv(VENV)?.join("bin/subunit2csv"));
    command.stdin(stream);
    let table = tokio::process::Command::from(command).output().await?;
    // Both tell by their status whether tests failed, which the table tells as well.
    last.wait()?;
    ensure!(
        matches!(table.status.code(), Some(0 | 1)),
        "subunit2csv: {table:?}"
    );
    let table = String::from_utf8(table.stdout)?;
    table.lines().skip(1).map(result).collect()
}

/// A line of the table: name, status, begin, end. The name may hold commas.
fn result(line: &str) -> Result<(String, String)> {
    let mut parts = line.trim().rsplitn(4, ',').skip(2);
    let (status, name) = parts
        .next()
        .zip(parts.next())
        .with_context(|| format!("a result is not understood: {line}"))?;
    Ok((name.trim_matches('"').to_owned(), status.to_owned()))
}

fn stestr(dir: &Path, arguments: &[&str]) -> Result<Command> {
    let mut command = Command::new(venv(VENV)?.join("bin/stestr"));
    command
        .current_dir(dir)
        .args(arguments)
        .env("TEMPEST_CONFIG_DIR", dir)
        .stdin(Stdio::null());
    Ok(command)
}

/// What a command says, if it succeeds.
async fn text(command: Command) -> Result<String> {
    let mut command = tokio::process::Command::from(command);
    let output = command
        .output()
        .await
        .with_context(|| format!("start {command:?}"))?;
    if !output.status.success() {
        bail!(
            "{command:?}: {}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(String::from_utf8(output.stdout)?)
}

fn configure(dir: &Path, keystone: &Keystone, roles: Roles) -> Result<()> {
    let python = venv(VENV)?.join("lib");
    let packages = std::fs::read_dir(&python)?
        .filter_map(|entry| Some(entry.ok()?.path().join("site-packages")))
        .find(|folder| folder.join("tempest/test_discover").exists())
        .with_context(|| format!("tempest is not in {}", python.display()))?;
    // A class of tests stays together: it makes its users once.
    std::fs::write(
        dir.join(".stestr.conf"),
        format!(
            "[DEFAULT]\ntest_path={packages}/tempest/test_discover\ntop_dir={packages}\ngroup_regex=([^\\.]*\\.)*\n",
            packages = packages.display()
        ),
    )?;
    let role_set = match roles {
        Roles::KeystoneDefault => "keystone_default_roles",
        Roles::Advanced => "advanced",
    };
    let text = format!(
        r#"[DEFAULT]
log_file = {dir}/tempest.log
[oslo_concurrency]
lock_path = {dir}/locks
[auth]
admin_username = {ADMIN}
admin_password = {PASSWORD}
admin_project_name = {ADMIN}
admin_domain_name = {DOMAIN}
use_dynamic_credentials = True
create_isolated_networks = False
[identity]
uri_v3 = {auth_url}
auth_version = v3
region = {REGION}
[network]
project_networks_reachable = True
[service_available]
cinder = False
glance = False
neutron = False
nova = False
swift = False
load_balancer = True
[validation]
run_validation = False
[enforce_scope]
octavia = True
[load_balancer]
test_with_noop = True
RBAC_test_type = {role_set}
log_user_roles = False
build_interval = 0.05
build_timeout = 60
check_interval = 0.05
check_timeout = 60
lb_build_interval = 0.05
lb_build_timeout = 60
availability_zone = nova1
availability_zone2 = nova2
availability_zone3 = nova3
"#,
        dir = dir.display(),
        auth_url = keystone.auth_url(),
    );
    std::fs::write(dir.join("tempest.conf"), text).context("write tempest.conf")
}
