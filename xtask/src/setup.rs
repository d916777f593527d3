//! Installing what is missing: Debian packages when root, else a message that names them.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::run::{answers, cargo, command, is_root, root, run, say, target_dir};

/// A program or file we need, and the Debian package that brings it.
struct Need {
    present: fn() -> bool,
    packages: &'static [&'static str],
}

/// What every build needs.
const BUILD: &[Need] = &[
    Need {
        present: || answers("cmake", &["--version"]),
        packages: &["cmake"],
    },
    Need {
        present: || answers("cc", &["--version"]),
        packages: &["gcc", "libc6-dev"],
    },
];

/// What the eBPF programs need: a compiler with a core library for BPF, and an LLVM of the same version for
/// bpf-linker. A nightly toolchain with rust-src does as well as Debian's compiler.
const EBPF: &[Need] = &[Need {
    present: || debian_bpf_core().is_some() || nightly_has_source(),
    packages: &["rustc-web", "cargo-web", "libstd-rust-web-dev-bpf"],
}];

const EBPF_LINKER: &[Need] = &[Need {
    present: || Path::new("/usr/lib/llvm-22/bin/llvm-config").exists(),
    packages: &[
        "llvm-22-dev",
        "libpolly-22-dev",
        "zlib1g-dev",
        "libzstd-dev",
        "libxml2-dev",
    ],
}];

/// What running the local stack needs.
const RUN: &[Need] = &[
    Need {
        present: || answers("ip", &["-Version"]),
        packages: &["iproute2"],
    },
    Need {
        present: || answers("curl", &["--version"]),
        packages: &["curl"],
    },
    Need {
        present: || answers("python3", &["-c", "import ensurepip, venv"]),
        packages: &["python3", "python3-venv"],
    },
];

/// What the tests need beside that.
const TEST: &[Need] = &[
    Need {
        present: || answers("ethtool", &["--version"]),
        packages: &["ethtool"],
    },
    Need {
        present: || answers("openssl", &["version"]),
        packages: &["openssl"],
    },
    Need {
        present: || Path::new("/usr/sbin/mariadbd").exists() || answers("mariadbd", &["--version"]),
        packages: &["mariadb-server"],
    },
    Need {
        present: || Path::new("/usr/lib/galera/libgalera_smm.so").exists(),
        packages: &["galera-4", "rsync"],
    },
    Need {
        present: || {
            Path::new("/usr/lib/postgresql").exists() || answers("postgres", &["--version"])
        },
        packages: &["postgresql"],
    },
    Need {
        present: || Path::new("/usr/lib/rabbitmq/bin/rabbitmq-server").exists(),
        packages: &["rabbitmq-server"],
    },
    Need {
        present: || answers("setpriv", &["--version"]),
        packages: &["util-linux"],
    },
];

/// Peers of the benchmarks.
const BENCH: &[Need] = &[
    Need {
        present: || answers("haproxy", &["-v"]),
        packages: &["haproxy"],
    },
    Need {
        present: || answers("nft", &["--version"]),
        packages: &["nftables"],
    },
    Need {
        present: || answers("nginx", &["-v"]),
        packages: &["nginx"],
    },
];

/// What the peer of the API benchmark runs on; it comes from PyPI itself.
const BENCH_API: &[Need] = &[
    Need {
        present: || answers("python3", &["-c", "import ensurepip, venv"]),
        packages: &["python3", "python3-venv"],
    },
    Need {
        present: || Path::new("/usr/sbin/mariadbd").exists() || answers("mariadbd", &["--version"]),
        packages: &["mariadb-server"],
    },
    Need {
        present: || {
            Path::new("/usr/lib/rabbitmq/bin/rabbitmq-server").exists()
                && Path::new("/usr/bin/epmd").exists()
        },
        packages: &["rabbitmq-server", "erlang-base"],
    },
    Need {
        present: || answers("setpriv", &["--version"]),
        packages: &["util-linux"],
    },
];

pub(crate) fn everything() -> Result<()> {
    build()?;
    nextest()?;
    test()?;
    bench()?;
    bench_api()
}

/// Makes the product buildable, eBPF programs included.
pub(crate) fn build() -> Result<()> {
    packages(BUILD)?;
    packages(EBPF)?;
    if bpf_linker().is_none() {
        packages(EBPF_LINKER)?;
        say("installing bpf-linker");
        let path = std::env::var("PATH").unwrap_or_default();
        run(cargo()
            .args(["install", "bpf-linker", "--locked", "--no-default-features"])
            .args(["--features", "llvm-22"])
            .env("LLVM_SYS_221_PREFIX", "/usr/lib/llvm-22")
            .env("LLVM_PREFIX", "/usr/lib/llvm-22")
            .env("PATH", format!("/usr/lib/llvm-22/bin:{path}")))?;
    }
    Ok(())
}

pub(crate) fn test() -> Result<()> {
    running()?;
    packages(TEST)
}

/// The runner of the tests.
pub(crate) fn nextest() -> Result<()> {
    if !answers("cargo-nextest", &["--version"]) {
        say("installing cargo-nextest");
        run(cargo().args(["install", "cargo-nextest", "--locked"]))?;
    }
    Ok(())
}

/// What the fuzzers need: a compiler with sanitizers, and cargo-fuzz.
pub(crate) fn fuzz() -> Result<()> {
    if !answers("rustup", &["run", "nightly", "rustc", "--version"]) {
        bail!("fuzzing needs a nightly compiler: rustup toolchain install nightly");
    }
    if !answers("cargo-fuzz", &["--version"]) {
        say("installing cargo-fuzz");
        run(cargo().args(["install", "cargo-fuzz", "--locked"]))?;
    }
    Ok(())
}

/// Makes the local stack runnable.
pub(crate) fn running() -> Result<()> {
    packages(RUN)
}

pub(crate) fn bench() -> Result<()> {
    packages(BENCH)
}

/// Octavia, and what it needs.
pub(crate) fn bench_api() -> Result<()> {
    packages(BENCH_API)?;
    venv("venv-octavia", "benches/requirements-octavia.txt")?;
    Ok(())
}

/// Programs from PyPI, each family in a virtual environment of its own under `target/`: name, and what is installed.
const VENVS: &[(&str, &str)] = &[
    (CLIENTS, "tests/requirements.txt"),
    ("venv-keystone", "tests/requirements-keystone.txt"),
    ("venv-tempest", "tests/requirements-tempest.txt"),
    ("venv-openapi", "tests/requirements-openapi.txt"),
    ("venv-heat", "tests/requirements-heat.txt"),
];

/// The stock clients of Octavia.
const CLIENTS: &str = "venv";

/// The stock clients, and what else of PyPI the tests need.
pub(crate) fn openstack() -> Result<()> {
    for (name, requirements) in VENVS {
        venv(name, requirements)?;
    }
    Ok(())
}

pub(crate) fn openstack_clients() -> Result<PathBuf> {
    let clients = VENVS.iter().find(|(name, _)| *name == CLIENTS);
    let (name, requirements) = clients.context("no list of the clients")?;
    venv(name, requirements)
}

fn venv(name: &str, requirements: &str) -> Result<PathBuf> {
    let venv = target_dir().join(name);
    let requirements = root().join(requirements);
    let stamp = venv.join("requirements.txt");
    let wanted = std::fs::read(&requirements)?;
    if std::fs::read(&stamp).is_ok_and(|have| have == wanted) {
        return Ok(venv);
    }
    say(&format!(
        "installing {} into target/{name}",
        requirements.display()
    ));
    run(command("python3")
        .args(["-m", "venv", "--clear"])
        .arg(&venv))?;
    run(command(venv.join("bin/pip"))
        .args(["install", "--quiet", "--disable-pip-version-check", "-r"])
        .arg(&requirements))?;
    std::fs::copy(&requirements, &stamp)?;
    Ok(venv)
}

fn packages(needs: &[Need]) -> Result<()> {
    let missing: Vec<&str> = needs
        .iter()
        .filter(|need| !(need.present)())
        .flat_map(|need| need.packages.iter().copied())
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join(" ");
    if !is_root() || !answers("apt-get", &["--version"]) {
        bail!("missing: as root, run: apt-get install {list}");
    }
    say(&format!("installing {list}"));
    let _quiet = NoServices::new()?;
    run(command("apt-get").args(["update", "-q"]))?;
    run(command("apt-get")
        .args(["install", "-y", "-q", "--no-install-recommends"])
        .args(&missing)
        .env("DEBIAN_FRONTEND", "noninteractive"))?;
    match needs.iter().find(|need| !(need.present)()) {
        Some(need) => bail!(
            "{} was installed, but what it brings is not there",
            need.packages.join(" ")
        ),
        None => Ok(()),
    }
}

/// Keeps Debian's packages from starting the services they bring: tests start servers of their own.
struct NoServices {
    ours: bool,
}

impl NoServices {
    const POLICY: &str = "/usr/sbin/policy-rc.d";

    fn new() -> Result<Self> {
        let ours = !Path::new(Self::POLICY).exists();
        if ours {
            std::fs::write(Self::POLICY, "#!/bin/sh\nexit 101\n")?;
            let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(Self::POLICY, executable)?;
        }
        Ok(Self { ours })
    }
}

impl Drop for NoServices {
    fn drop(&mut self) {
        if self.ours
            && let Err(error) = std::fs::remove_file(Self::POLICY)
        {
            eprintln!("remove {}: {error}", Self::POLICY);
        }
    }
}

/// Debian's compiler together with a core library built for BPF.
fn debian_bpf_core() -> Option<PathBuf> {
    let core = Path::new("/usr/lib/rustlib/bpfel-unknown-none/lib");
    (Path::new("/usr/bin/rustc").exists() && core.exists()).then(|| core.to_owned())
}

fn nightly_has_source() -> bool {
    command("rustup")
        .args(["run", "nightly", "rustc", "--print", "sysroot"])
        .output()
        .ok()
        .filter(|output| output.status.success())
        .and_then(|output| String::from_utf8(output.stdout).ok())
        .is_some_and(|sysroot| {
            Path::new(sysroot.trim())
                .join("lib/rustlib/src/rust/library/core")
                .exists()
        })
}

fn bpf_linker() -> Option<PathBuf> {
    let home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cargo")))?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain([home.join("bin")])
        .map(|folder| folder.join("bpf-linker"))
        .find(|file| file.exists())
}
