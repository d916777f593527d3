//! The official API tests of Octavia pass: tempest with octavia-tempest-plugin, a real Keystone, no-op drivers.

use anyhow::{Result, ensure};
use test_support::{Region, Roles, run_tempest};

const PASSED: usize = 602;
/// What the plugin itself skips: 29 tests for bugs it names, and one that reads a log file of an amphora.
const SKIPPED: usize = 30;

const KEYSTONE: &str = "[api]\nauth_strategy = \"keystone\"\n";

async fn all_pass(roles: Roles, config: &str) -> Result<()> {
    let region = Region::start(config).await?;
    let summary = run_tempest(&region.keystone, roles, "").await?;
    ensure!(
        summary.not_passed.is_empty(),
        "{}\n\n{}",
        summary.not_passed.join("\n"),
        summary.report
    );
    let ran = (summary.passed, summary.skipped);
    ensure!(ran == (PASSED, SKIPPED), "{summary:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_official_tests_pass_with_the_default_roles_of_keystone() -> Result<()> {
    all_pass(Roles::KeystoneDefault, KEYSTONE).await
}

/// With the file for clouds where only the `load-balancer_*` roles count.
#[tokio::test(flavor = "multi_thread")]
async fn the_official_tests_pass_with_the_load_balancer_roles() -> Result<()> {
    let policy = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../etc/policy/advanced-rbac.yaml"
    );
    let config = format!("{KEYSTONE}[oslo_policy]\npolicy_file = {policy:?}\n");
    all_pass(Roles::Advanced, &config).await
}
