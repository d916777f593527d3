//! The agent's configuration file: Octavia's sections and keys, and a few of our own.
//!
//! [`render`] writes it as an amphora sees it, with the paths of an amphora's file system. The local compute driver,
//! whose amphorae share one file system, puts it below a directory by [`relocate`].

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use lb_model::AmphoraId;

use crate::compute::{CLIENT_CA_PEM, SERVER_PEM};
use crate::{DriverError, Secret};

/// Where everything of the agent's configuration lies in an amphora.
const CONFIG_DRIVE: &str = "/etc/octavia/";

/// What an agent needs to know before it is told anything.
#[derive(Debug, Clone)]
pub struct AgentSettings {
    pub amphora_id: AmphoraId,
    /// Management address the agent's REST interface listens on.
    pub bind_host: IpAddr,
    pub bind_port: u16,
    /// Health managers, until the first document names others.
    pub controllers: Vec<SocketAddr>,
    pub heartbeat_interval: Duration,
    pub heartbeat_key: Secret,
    /// Where the agent keeps its ledger and counters.
    pub state_dir: String,
    /// A directory on a BPF file system, for the agent alone.
    pub bpf_dir: String,
    /// Network namespace of the tenant's interfaces.
    pub tenant_netns: String,
}

impl AgentSettings {
    /// The settings of an amphora that is a machine of its own.
    pub fn new(
        amphora_id: AmphoraId,
        controllers: Vec<SocketAddr>,
        heartbeat_interval: Duration,
        heartbeat_key: Secret,
    ) -> Self {
        Self {
            amphora_id,
            bind_host: IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            bind_port: amphora_api::AGENT_PORT,
            controllers,
            heartbeat_interval,
            heartbeat_key,
            state_dir: "/var/lib/octavia".to_owned(),
            bpf_dir: "/sys/fs/bpf/octavia".to_owned(),
            tenant_netns: "amphora-haproxy".to_owned(),
        }
    }
}

/// The file's text. Refuses a heartbeat key that the format cannot carry (control characters, or spaces at an end).
pub fn render(settings: &AgentSettings) -> Result<Secret, DriverError> {
    let AgentSettings {
        amphora_id,
        bind_host,
        bind_port,
        controllers,
        heartbeat_interval,
        heartbeat_key,
        state_dir,
        bpf_dir,
        tenant_netns,
    } = settings;
    let key = heartbeat_key.expose();
    if key.is_empty() || key.trim() != key || key.chars().any(char::is_control) {
        return Err(DriverError::Invalid {
            what: "heartbeat_key".to_owned(),
            reason: "must be printable, not empty, and without spaces at its ends".to_owned(),
        });
    }
    let controllers = controllers
        .iter()
        .map(SocketAddr::to_string)
        .collect::<Vec<_>>()
        .join(", ");
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "[amphora_agent]\n\
         amphora_id = {amphora_id}\n\
         agent_server_cert = {SERVER_PEM}\n\
         agent_server_ca = {CLIENT_CA_PEM}\n\
         agent_tls_protocol = TLSv1.2\n\
         state_dir = {state_dir}\n\
         bpf_dir = {bpf_dir}\n\
         tenant_netns = {tenant_netns}\n\
         \n\
         [haproxy_amphora]\n\
         bind_host = {bind_host}\n\
         bind_port = {bind_port}\n\
         \n\
         [health_manager]\n\
         controller_ip_port_list = {controllers}\n\
         heartbeat_interval = {}\n\
         heartbeat_key = {key}\n",
        decimal_seconds(*heartbeat_interval),
    );
    Ok(Secret::new(text))
}

/// Where an amphora's files are when it has no file system of its own.
#[derive(Debug, Clone, Copy)]
pub struct Relocation<'a> {
    /// Stands for `/`: `/etc/octavia/x` is at `<root>/etc/octavia/x`.
    pub root: &'a Path,
    pub state_dir: &'a Path,
    pub bpf_dir: &'a Path,
    pub tenant_netns: &'a str,
}

/// The same file for an agent whose `/etc/octavia` lies below a directory: values that start with `/etc/octavia/`
/// get the root in front, and `state_dir`, `bpf_dir` and `tenant_netns` are replaced. All else stays as it is.
pub fn relocate(text: &str, to: &Relocation<'_>) -> String {
    let mut moved = String::with_capacity(text.len() + 256);
    for line in text.lines() {
        match line.split_once('=') {
            Some((key, value)) => {
                let (key, value) = (key.trim(), value.trim());
                let _ = match key {
                    "state_dir" => writeln!(moved, "{key} = {}", to.state_dir.display()),
                    "bpf_dir" => writeln!(moved, "{key} = {}", to.bpf_dir.display()),
                    "tenant_netns" => writeln!(moved, "{key} = {}", to.tenant_netns),
                    _ if value.starts_with(CONFIG_DRIVE) => {
                        writeln!(moved, "{key} = {}{value}", to.root.display())
                    }
                    _ => writeln!(moved, "{line}"),
                };
            }
            None => {
                let _ = writeln!(moved, "{line}");
            }
        }
    }
    moved
}

/// `10`, `0.25`: seconds without needless zeroes.
fn decimal_seconds(duration: Duration) -> String {
    let text = format!("{}.{:03}", duration.as_secs(), duration.subsec_millis());
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> AgentSettings {
        AgentSettings::new(
            "6c1bd1a1-31a7-4c0d-9d6e-9f6a1e5a0001".parse().unwrap(),
            vec![
                "198.18.0.1:5555".parse().unwrap(),
                "[fd00::1]:5556".parse().unwrap(),
            ],
            Duration::from_millis(250),
            Secret::new("a=b;#key"),
        )
    }

    #[test]
    fn the_file_has_octavias_sections_and_keys() {
        assert_eq!(
            render(&settings()).unwrap().expose(),
            "[amphora_agent]
amphora_id = 6c1bd1a1-31a7-4c0d-9d6e-9f6a1e5a0001
agent_server_cert = /etc/octavia/certs/server.pem
agent_server_ca = /etc/octavia/certs/client_ca.pem
agent_tls_protocol = TLSv1.2
state_dir = /var/lib/octavia
bpf_dir = /sys/fs/bpf/octavia
tenant_netns = amphora-haproxy

[haproxy_amphora]
bind_host = ::
bind_port = 9443

[health_manager]
controller_ip_port_list = 198.18.0.1:5555, [fd00::1]:5556
heartbeat_interval = 0.25
heartbeat_key = a=b;#key
"
        );
    }

    #[test]
    fn relocation_changes_paths_and_nothing_else() {
        let text = render(&settings()).unwrap();
        let moved = relocate(
            text.expose(),
            &Relocation {
                root: Path::new("/srv/a/root"),
                state_dir: Path::new("/srv/a/state"),
                bpf_dir: Path::new("/srv/bpf/a"),
                tenant_netns: "x-amp-1-t",
            },
        );
        let changed: Vec<&str> = moved
            .lines()
            .filter(|line| !text.expose().lines().any(|old| old == *line))
            .collect();
        assert_eq!(
            changed,
            [
                "agent_server_cert = /srv/a/root/etc/octavia/certs/server.pem",
                "agent_server_ca = /srv/a/root/etc/octavia/certs/client_ca.pem",
                "state_dir = /srv/a/state",
                "bpf_dir = /srv/bpf/a",
                "tenant_netns = x-amp-1-t",
            ]
        );
        assert_eq!(moved.lines().count(), text.expose().lines().count());
    }

    #[test]
    fn a_key_that_would_add_a_line_is_refused() {
        for key in ["", " a", "a\nbind_port = 1", "a\r"] {
            let mut bad = settings();
            bad.heartbeat_key = Secret::new(key);
            assert!(render(&bad).is_err(), "{key:?}");
        }
    }

    #[test]
    fn seconds_are_written_without_needless_zeroes() {
        assert_eq!(decimal_seconds(Duration::from_secs(10)), "10");
        assert_eq!(decimal_seconds(Duration::from_millis(50)), "0.05");
        assert_eq!(decimal_seconds(Duration::from_millis(1500)), "1.5");
    }
}
