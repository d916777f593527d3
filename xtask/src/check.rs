//! Formatting, lints and tests.

use anyhow::{Result, bail};
use test_databases::{Kind, Server};

use crate::run::{answers, cargo, command, is_root, root, run, say, target_dir};
use crate::setup;

pub(crate) fn test() -> Result<()> {
    setup::build()?;
    setup::nextest()?;
    if is_root() {
        setup::test()?;
        setup::openstack()?;
    }
    style()?;
    say("tests that need nothing (pure, fakes, loopback)");
    nextest("default", &[])?;
    if !is_root() {
        bail!("the tests in network namespaces load eBPF programs: run `make test` as root");
    }
    say("tests in network namespaces, with eBPF programs");
    nextest("lab", &[])?;
    say("end-to-end tests with real clients");
    run(cargo().args(["build", "--workspace", "--bins", "--tests"]))?;
    nextest("e2e", &[])
}

/// The same tests with more rounds each, and once more on each database server; every test that has a long form reads
/// `LB_SOAK`.
pub(crate) fn soak() -> Result<()> {
    setup::build()?;
    setup::nextest()?;
    setup::test()?;
    setup::openstack()?;
    run(cargo().args(["build", "--workspace", "--bins", "--tests"]))?;
    for profile in ["default", "lab", "e2e"] {
        nextest(profile, &[("LB_SOAK", "1")])?;
    }
    for database in Database::ALL {
        on_database(*database, &[])?;
    }
    fuzz()
}

/// How long each fuzz target runs, seconds.
const FUZZ_SECONDS: &str = "300";

/// Runs each target of `tests/fuzz`; a crash is an error, and its input stays in `target/fuzz`.
/// `make test` drives the same functions with seeded inputs, without a sanitizer.
fn fuzz() -> Result<()> {
    setup::fuzz()?;
    for target in ["packet", "http_head"] {
        say(&format!("fuzzing {target} for {FUZZ_SECONDS} seconds"));
        let corpus = target_dir().join("fuzz/corpus").join(target);
        let crashes = target_dir().join("fuzz/crashes").join(target);
        std::fs::create_dir_all(&corpus)?;
        std::fs::create_dir_all(&crashes)?;
        run(command("rustup")
            .args(["run", "nightly", "cargo", "fuzz", "run"])
            .args(["--fuzz-dir", "tests/fuzz", "--target-dir"])
            .arg(target_dir().join("fuzz/build"))
            .arg(target)
            .arg(&corpus)
            .arg("--")
            .arg(format!("-max_total_time={FUZZ_SECONDS}"))
            .arg(format!("-artifact_prefix={}/", crashes.display()))
            .env_remove("RUSTC")
            .env_remove("RUSTUP_TOOLCHAIN")
            .env_remove("CARGO"))?;
    }
    Ok(())
}

/// A server that the tests of the store, the API and the controllers run on instead of SQLite files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Database {
    #[value(name = "mariadb")]
    MariaDb,
    #[value(name = "postgresql")]
    PostgreSql,
}

impl Database {
    const ALL: &'static [Self] = &[Self::MariaDb, Self::PostgreSql];
}

/// Starts a private server, and runs nextest with the arguments given; without any, everything that has a database.
pub(crate) fn on_database(database: Database, arguments: &[String]) -> Result<()> {
    let (name, kind) = match database {
        Database::MariaDb => ("MariaDB", Kind::MariaDb),
        Database::PostgreSql => ("PostgreSQL", Kind::PostgreSql),
    };
    say(&format!("tests of store, API and controllers on {name}"));
    let server = Server::start(kind)?;
    let mut command = cargo();
    command
        .args(["nextest", "run"])
        .env(test_databases::VARIABLE, server.url());
    if arguments.is_empty() {
        command.args(["--workspace", "-E"]);
        command.arg("package(lb-store) + package(lb-api) + package(lb-controllers)");
    } else {
        command.args(arguments);
    }
    run(&mut command)
}

pub(crate) fn lint() -> Result<()> {
    setup::build()?;
    style()?;
    say("documentation");
    run(cargo()
        .args(["doc", "--workspace", "--no-deps", "--quiet"])
        .env("RUSTDOCFLAGS", "-D warnings"))?;
    if !answers("cargo-deny", &["--version"]) {
        say("installing cargo-deny");
        run(cargo().args(["install", "cargo-deny", "--locked"]))?;
    }
    say("dependencies");
    run(cargo().args(["deny", "check", "bans", "licenses", "sources"]))
}

fn style() -> Result<()> {
    say("formatting");
    run(cargo().args(["fmt", "--all", "--check"]))?;
    run(cargo()
        .args(["fmt", "--check", "--manifest-path"])
        .arg(root().join("xdp-lb/ebpf/Cargo.toml")))?;
    say("lints");
    run(cargo()
        .args(["clippy", "--workspace", "--all-targets", "--quiet", "--"])
        .args(["-D", "warnings"]))
}

fn nextest(profile: &str, environment: &[(&str, &str)]) -> Result<()> {
    run(cargo()
        .args(["nextest", "run", "--workspace", "--profile", profile])
        .envs(environment.iter().copied()))
}
