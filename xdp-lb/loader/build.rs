//! Builds the eBPF programs and embeds the object.
//!
//! Looks for what is at hand (see docs/data-plane.md): a prebuilt object named by
//! `XDP_LB_EBPF_OBJECT`; a rustc that ships `core` for BPF (Debian's `rustc-web` with
//! `libstd-rust-web-dev-bpf`), or one named by `XDP_LB_EBPF_RUSTC`; rustup's nightly with `rust-src`.
//! With none of them the crate still builds, and `FastPath::open` says what to install.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};

const TARGET: &str = "bpfel-unknown-none";

fn main() {
    let manifest = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let out = PathBuf::from(variable("OUT_DIR"));
    for path in [
        "../ebpf/src",
        "../ebpf/Cargo.toml",
        "../ebpf/Cargo.lock",
        "../common/src",
        "build.rs",
    ] {
        println!("cargo::rerun-if-changed={path}");
    }
    for name in [
        "XDP_LB_EBPF_OBJECT",
        "XDP_LB_EBPF_RUSTC",
        "BPF_LINKER",
        "PATH",
    ] {
        println!("cargo::rerun-if-env-changed={name}");
    }
    let object = out.join("xdp-lb.o");
    let missing = match build(&manifest.join("../ebpf"), &out) {
        Ok(built) => {
            if let Err(error) = std::fs::copy(&built, &object) {
                fail(&format!(
                    "copy {} to {}: {error}",
                    built.display(),
                    object.display()
                ));
            }
            String::new()
        }
        Err(missing) => {
            println!("cargo::warning=eBPF programs not built: {missing}");
            if let Err(error) = std::fs::write(&object, []) {
                fail(&format!("write {}: {error}", object.display()));
            }
            missing
        }
    };
    println!("cargo::rustc-env=XDP_LB_OBJECT={}", object.display());
    println!("cargo::rustc-env=XDP_LB_MISSING={missing}");
}

/// The built object, or what is missing. A toolchain that is there but fails ends the build.
fn build(ebpf: &Path, out: &Path) -> Result<PathBuf, String> {
    if let Some(object) = env::var_os("XDP_LB_EBPF_OBJECT") {
        return Ok(PathBuf::from(object));
    }
    let linker = linker();
    let compiler = compiler();
    let (linker, compiler) = match (linker, compiler) {
        (Some(linker), Some(compiler)) => (linker, compiler),
        (linker, compiler) => {
            let mut missing = Vec::new();
            if compiler.is_none() {
                missing.push(
                    "a Rust compiler for BPF (Debian: apt-get install rustc-web cargo-web \
                     libstd-rust-web-dev-bpf; or: rustup toolchain install nightly --component rust-src)",
                );
            }
            if linker.is_none() {
                missing.push(
                    "bpf-linker (Debian: apt-get install llvm-22-dev libpolly-22-dev zlib1g-dev libzstd-dev \
                     libxml2-dev, then LLVM_SYS_221_PREFIX=/usr/lib/llvm-22 LLVM_PREFIX=/usr/lib/llvm-22 cargo \
                     install bpf-linker --no-default-features --features llvm-22; with rustup: cargo install bpf-linker)",
                );
            }
            return Err(format!("install {}", missing.join(" and ")));
        }
    };
    let target_dir = out.join("ebpf");
    let mut command = match &compiler {
        Compiler::Prebuilt(rustc) => {
            let mut command = Command::new(variable("CARGO"));
            command.env("RUSTC", rustc).env("RUSTC_BOOTSTRAP", "1");
            command.arg("build");
            command
        }
        Compiler::Nightly => {
            let mut command = Command::new("rustup");
            command.args(["run", "nightly", "cargo", "build", "-Z", "build-std=core"]);
            command.env_remove("RUSTC");
            command
        }
    };
    // The settings of the outer build are for another target.
    for name in [
        "RUSTC_WRAPPER",
        "RUSTC_WORKSPACE_WRAPPER",
        "RUSTFLAGS",
        "CARGO_BUILD_TARGET",
        "CARGO_TARGET_DIR",
        "CARGO_BUILD_TARGET_DIR",
        "CARGO_BUILD_RUSTFLAGS",
        "CARGO_BUILD_RUSTC_WRAPPER",
        "CARGO_MAKEFLAGS",
        "CLIPPY_ARGS",
    ] {
        command.env_remove(name);
    }
    let flags = [
        format!("-Clinker={}", linker.display()),
        "-Clink-arg=--btf".to_owned(),
        // Fetching atomics need the third instruction set version (Linux 5.12).
        "-Ctarget-cpu=v3".to_owned(),
    ];
    let status = command
        .current_dir(ebpf)
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
        .args([
            "--release",
            "--locked",
            "--quiet",
            "--target",
            TARGET,
            "--target-dir",
        ])
        .arg(&target_dir)
        .status();
    match status {
        Ok(status) if status.success() => Ok(target_dir.join(TARGET).join("release/xdp-lb")),
        Ok(status) => fail(&format!(
            "build the eBPF programs with {compiler:?}: {status}"
        )),
        Err(error) => fail(&format!("run cargo for the eBPF programs: {error}")),
    }
}

#[derive(Debug)]
enum Compiler {
    /// A rustc with `core` for BPF in its sysroot.
    Prebuilt(PathBuf),
    /// rustup's nightly with rust-src.
    Nightly,
}

fn compiler() -> Option<Compiler> {
    if let Some(rustc) = env::var_os("XDP_LB_EBPF_RUSTC") {
        return Some(Compiler::Prebuilt(PathBuf::from(rustc)));
    }
    let system = PathBuf::from("/usr/bin/rustc");
    if let Some(sysroot) = output(Command::new(&system).args(["--print", "sysroot"]))
        && Path::new(&sysroot)
            .join("lib/rustlib")
            .join(TARGET)
            .join("lib")
            .is_dir()
    {
        return Some(Compiler::Prebuilt(system));
    }
    let sysroot =
        output(Command::new("rustup").args(["run", "nightly", "rustc", "--print", "sysroot"]))?;
    Path::new(&sysroot)
        .join("lib/rustlib/src/rust/library/core/Cargo.toml")
        .is_file()
        .then_some(Compiler::Nightly)
}

fn linker() -> Option<PathBuf> {
    if let Some(linker) = env::var_os("BPF_LINKER") {
        return Some(PathBuf::from(linker));
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let cargo_bin = env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo")))
        .map(|home| home.join("bin"));
    env::split_paths(&path)
        .chain(cargo_bin)
        .map(|directory| directory.join("bpf-linker"))
        .find(|candidate| candidate.is_file())
}

fn output(command: &mut Command) -> Option<String> {
    let output = command.env_remove("RUSTC").output().ok()?;
    if !output.status.success() {
        return None;
    }
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|error| fail(&format!("read {name}: {error}")))
}

fn fail(message: &str) -> ! {
    println!("cargo::error={message}");
    exit(1)
}
