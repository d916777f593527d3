//! The local stack: demo, up, down, and the benchmarks that run on it.

use anyhow::{Result, bail};

use crate::run::{cargo, command, is_root, run, say, target_dir};
use crate::setup;

/// Binaries of the product and of the lab, optimised.
fn build() -> Result<()> {
    if !is_root() {
        bail!("the local stack makes network namespaces and loads eBPF programs: run this as root");
    }
    setup::running()?;
    compile()
}

fn compile() -> Result<()> {
    setup::build()?;
    say("building the product (a few minutes the first time)");
    // One selection of packages for demo and benchmarks, so one set of features: nothing is built twice.
    run(cargo().args(["build", "--release", "--workspace", "--bins", "--examples"]))
}

fn lab(arguments: &[&str]) -> Result<()> {
    let state = target_dir().join("stack");
    run(command(target_dir().join("release/lb-demo"))
        .arg("--state-dir")
        .arg(state)
        .args(arguments))
}

pub(crate) fn demo() -> Result<()> {
    build()?;
    lab(&["run"])
}

pub(crate) fn up() -> Result<()> {
    build()?;
    let venv = setup::openstack_clients()?;
    lab(&[
        "up",
        "--openstack",
        &venv.join("bin/openstack").display().to_string(),
    ])
}

pub(crate) fn down() -> Result<()> {
    // What started the stack can end it, also while the tree does not compile.
    if !target_dir().join("release/lb-demo").exists() {
        build()?;
    }
    lab(&["down"])
}

pub(crate) fn bench() -> Result<()> {
    build()?;
    setup::bench()?;
    run(&mut command(target_dir().join("release/lb-benches")))
}

pub(crate) fn bench_api() -> Result<()> {
    compile()?;
    setup::bench_api()?;
    run(command(target_dir().join("release/lb-benches")).arg("api"))
}
