//! The document that describes the API, held against the API by schemathesis: it calls every operation with what the
//! document allows and with what it does not.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use test_support::scene::rounds;
use test_support::{Replica, control_plane, venv};

/// Generated calls of each operation, besides those for each attribute.
const CALLS: u64 = 10;

/// No answer is a server error, and each has the content type and the shape that the document promises.
#[tokio::test(flavor = "multi_thread")]
async fn every_answer_has_the_shape_that_the_document_promises() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("octavia.db");
    let url = format!("sqlite://{}?mode=rwc", file.display());
    let upgrade = control_plane(&url, &["db", "upgrade"])?;
    ensure!(upgrade.status.success(), "{upgrade:?}");
    let replica = Replica::start(&url)?;

    let mut command = Command::new(venv("venv-openapi")?.join("bin/schemathesis"));
    command
        .current_dir(directory.path())
        .arg("run")
        .arg(format!("http://{}/openapi.json", replica.api()?.address()))
        .args([
            "--checks",
            "not_a_server_error,response_schema_conformance,content_type_conformance",
        ])
        .args(["--phases", "examples,coverage,fuzzing"])
        .args(["--max-examples", &rounds(CALLS).to_string()])
        // The same calls each time, so that a failure can be seen again.
        .args(["--seed", "1", "--generation-database", "none"])
        // One worker: on threads, Python 3.11 now and then gives up parsing ("AST constructor recursion depth mismatch").
        .args(["--continue-on-failure", "--no-color", "--workers", "1"]);
    let output = tokio::task::spawn_blocking(move || {
        command
            .output()
            .with_context(|| format!("start {command:?}"))
    })
    .await??;
    let report = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{report}\n{}", replica.log()?);
    ensure!(report.contains("loadbalancers"), "{report}");
    Ok(())
}
