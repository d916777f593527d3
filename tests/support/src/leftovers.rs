//! What of a local stack this machine still shows. It looks for itself, at the kernel's own lists, and asks nothing of
//! the code that removes stacks: what that code forgets is what must be found.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};

/// Of the stack `name` that keeps its files in `state_dir`: namespaces, mounts, processes and files of amphorae. Files
/// of the stack's owner in `state_dir`, such as logs, are not meant.
pub fn ensure_nothing_left(name: &str, state_dir: &Path) -> Result<()> {
    let mut found = namespaces(name)?;
    found.extend(mounts(state_dir)?);
    found.extend(processes(state_dir)?);
    for folder in ["amphorae", "bpf"] {
        let path = state_dir.join(folder);
        if path.exists() {
            found.push(format!("files {}", path.display()));
        }
    }
    ensure!(found.is_empty(), "left behind: {}", found.join(", "));
    Ok(())
}

fn namespaces(name: &str) -> Result<Vec<String>> {
    let entries = match fs::read_dir("/run/netns") {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).context("list network namespaces"),
    };
    let prefix = format!("{name}-");
    Ok(entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|entry| entry.starts_with(&prefix))
        .map(|entry| format!("network namespace {entry}"))
        .collect())
}

/// Mounts below the stack's files; pinned programs and maps live in one.
fn mounts(state_dir: &Path) -> Result<Vec<String>> {
    let table = fs::read_to_string("/proc/self/mountinfo").context("list mounts")?;
    Ok(table
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .filter(|point| Path::new(point).starts_with(state_dir))
        .map(|point| format!("mount {point}"))
        .collect())
}

/// Processes, but for this one, that were started with a path of the stack's files.
fn processes(state_dir: &Path) -> Result<Vec<String>> {
    let own = std::process::id();
    let needle = state_dir.as_os_str().as_bytes();
    Ok(fs::read_dir("/proc")
        .context("list processes")?
        .filter_map(|entry| {
            let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            // Who ends while we look is not left behind.
            let arguments = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            let named = arguments
                .split(|byte| *byte == 0)
                .any(|argument| argument.starts_with(needle));
            (named && pid != own).then(|| format!("process {pid}"))
        })
        .collect())
}
