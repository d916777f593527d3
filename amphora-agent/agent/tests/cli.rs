//! The command line, as an operator meets it. Starts no agent.

#![allow(
    clippy::unwrap_used,
    reason = "an expectation that fails is a test that fails"
)]

use std::process::{Command, Output};

fn agent(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_amphora-agent"))
        .args(arguments)
        .output()
        .unwrap()
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_bad_file_is_refused_with_all_its_problems() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("agent.conf");
    std::fs::write(
        &file,
        "[amphora_agent]\namphora_id = x\n[nowhere]\ncolour = blue\n",
    )
    .unwrap();
    let output = agent(&["--config", file.to_str().unwrap(), "config", "check"]);
    assert!(!output.status.success());
    let text = errors(&output);
    for wanted in [
        "amphora_id",
        "agent_server_cert",
        "heartbeat_key",
        "[nowhere] colour",
    ] {
        assert!(text.contains(wanted), "{wanted} not in {text}");
    }
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let output = agent(&["--config", "/nonexistent/agent.conf", "config", "check"]);
    assert!(!output.status.success());
    assert!(errors(&output).contains("/nonexistent/agent.conf"));
}

#[test]
fn certificates_are_read_before_the_agent_runs() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("agent.conf");
    let missing = directory.path().join("server.pem");
    std::fs::write(
        &file,
        format!(
            "[amphora_agent]\namphora_id = 11111111-2222-4333-8444-555555555555\n\
             agent_server_cert = {0}\nagent_server_ca = {0}\n[health_manager]\nheartbeat_key = hush\n",
            missing.display()
        ),
    )
    .unwrap();
    let output = agent(&["--config", file.to_str().unwrap()]);
    assert!(!output.status.success());
    let text = errors(&output);
    assert!(text.contains("server.pem"), "{text}");
    assert!(!text.contains("hush"));
}

#[test]
fn the_version_is_told() {
    let output = agent(&["--version"]);
    assert!(output.status.success());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains(env!("CARGO_PKG_VERSION")), "{text}");
}
