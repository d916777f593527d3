//! The official API tests of Octavia pass: tempest with octavia-tempest-plugin, a real Keystone, no-op drivers.

use anyhow::{Result, ensure};
use test_support::{Region, Roles, run_tempest};

const PASSED: usize = 602;
/// What the plugin itself skips: 29 tests for bugs it names, and one that reads a log file of an amphora.
const SKIPPED: usize = 30;

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
    all_pass(
        Roles::KeystoneDefault,
        "[api]\nauth_strategy = \"keystone\"\n",
    )
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_official_tests_pass_with_the_load_balancer_roles() -> Result<()> {
    all_pass(Roles::Advanced, "[api]\nauth_strategy = \"keystone\"\n").await
}
