//! The agent's own configuration file: Octavia's `amphora-agent.conf`, with three keys of ours.
//!
//! Read once, at start. Every problem is reported together and an unknown key is one, except the keys that
//! Octavia writes for engines this agent does not have: those are known and unused. The heartbeat key is redacted
//! wherever the configuration is shown; private keys are named by path only.

mod ini;

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use amphora_api::AGENT_PORT;
use uuid::Uuid;

use crate::secret::Secret;
use ini::Ini;

/// Everything the agent is told at start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// `[amphora_agent] amphora_id`. Required.
    pub amphora_id: Uuid,
    /// `[amphora_agent] agent_server_cert`: certificate chain and private key, PEM. Required.
    pub server_cert: PathBuf,
    /// `[amphora_agent] agent_server_ca`: certificates of the CAs that sign the control plane's client
    /// certificates, PEM. Required.
    pub client_ca: PathBuf,
    /// `[amphora_agent] agent_tls_protocol`, default `TLSv1.2`.
    pub min_tls: TlsVersion,
    /// `[haproxy_amphora] bind_host` and `bind_port`, default `[::]:9443`. Port 0 takes a free one.
    pub bind: SocketAddr,
    /// `[health_manager] controller_ip_port_list`: where heartbeats go until a document says otherwise.
    pub controllers: Vec<SocketAddr>,
    /// `[health_manager] heartbeat_interval`, seconds with decimals, default 10; until a document says otherwise.
    pub heartbeat_interval: Duration,
    /// `[health_manager] heartbeat_key`. Required.
    pub heartbeat_key: Secret,
    /// `[amphora_agent] state_dir` (ours): ledger and counters, default `/var/lib/octavia`.
    pub state_dir: PathBuf,
    /// `[amphora_agent] bpf_dir` (ours): a directory on a bpffs for pinned programs and maps, default
    /// `/sys/fs/bpf/octavia`.
    pub bpf_dir: PathBuf,
    /// `[amphora_agent] tenant_netns` (ours): network namespace of tenant traffic, default `amphora-haproxy`.
    pub tenant_netns: String,
    /// `[amphora_agent] flow_capacity` (ours): flows the fast path can hold, 1024-4194304, default 65536.
    pub flow_capacity: u32,
    /// `[amphora_agent] proxy_threads` (ours): 0 (the default) takes one for each core.
    pub proxy_threads: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsVersion {
    V1_2,
    V1_3,
}

/// Why a configuration is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("read configuration file {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("configuration is not usable:{}", list(.0))]
    Problems(Vec<String>),
}

/// What Octavia writes into the file for parts this agent does not have.
const KNOWN_AND_UNUSED: [(&str, &str); 17] = [
    ("DEFAULT", "debug"),
    ("DEFAULT", "use_syslog"),
    ("DEFAULT", "syslog_log_facility"),
    ("haproxy_amphora", "base_cert_dir"),
    ("haproxy_amphora", "base_path"),
    ("haproxy_amphora", "haproxy_cmd"),
    ("haproxy_amphora", "user_log_facility"),
    ("haproxy_amphora", "administrative_log_facility"),
    ("haproxy_amphora", "respawn_count"),
    ("haproxy_amphora", "respawn_interval"),
    ("haproxy_amphora", "use_upstart"),
    ("amphora_agent", "agent_server_network_dir"),
    ("amphora_agent", "agent_server_network_file"),
    ("amphora_agent", "agent_request_read_timeout"),
    ("amphora_agent", "amphora_udp_driver"),
    ("amphora_agent", "forward_all_logs"),
    ("controller_worker", "loadbalancer_topology"),
];

impl Config {
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
            path: path.to_owned(),
            source,
        })?;
        Config::parse(&text)
    }

    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let mut problems = Vec::new();
        let ini = Ini::parse(text, &mut problems);
        let mut reader = Reader { ini, problems };

        let amphora_id = reader.required("amphora_agent", "amphora_id", "an amphora id");
        let server_cert = reader.required("amphora_agent", "agent_server_cert", "a path");
        let client_ca = reader.required("amphora_agent", "agent_server_ca", "a path");
        let min_tls = reader.optional(
            "amphora_agent",
            "agent_tls_protocol",
            "TLSv1.2 or TLSv1.3",
            TlsVersion::V1_2,
        );
        let state_dir = reader.optional(
            "amphora_agent",
            "state_dir",
            "a path",
            PathBuf::from("/var/lib/octavia"),
        );
        let bpf_dir = reader.optional(
            "amphora_agent",
            "bpf_dir",
            "a path",
            PathBuf::from("/sys/fs/bpf/octavia"),
        );
        let NetnsName(tenant_netns) = reader.optional(
            "amphora_agent",
            "tenant_netns",
            "the name of a network namespace",
            NetnsName("amphora-haproxy".to_owned()),
        );
        let FlowCapacity(flow_capacity) = reader.optional(
            "amphora_agent",
            "flow_capacity",
            "1024-4194304",
            FlowCapacity(65_536),
        );
        let proxy_threads = reader.optional("amphora_agent", "proxy_threads", "a number", 0);
        let host = reader.optional(
            "haproxy_amphora",
            "bind_host",
            "an address",
            IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        );
        let port = reader.optional("haproxy_amphora", "bind_port", "a port", AGENT_PORT);
        let Controllers(controllers) = reader.optional(
            "health_manager",
            "controller_ip_port_list",
            "a comma separated list of address:port",
            Controllers(Vec::new()),
        );
        let Seconds(heartbeat_interval) = reader.optional(
            "health_manager",
            "heartbeat_interval",
            "seconds, 0.05-600",
            Seconds(Duration::from_secs(10)),
        );
        let key: Option<HeartbeatKey> =
            reader.required("health_manager", "heartbeat_key", "a text");

        let problems = reader.finish();
        match (amphora_id, server_cert, client_ca, key) {
            (Some(amphora_id), Some(server_cert), Some(client_ca), Some(key))
                if problems.is_empty() =>
            {
                Ok(Config {
                    amphora_id,
                    server_cert,
                    client_ca,
                    min_tls,
                    bind: SocketAddr::new(host, port),
                    controllers,
                    heartbeat_interval,
                    heartbeat_key: Secret::new(key.0),
                    state_dir,
                    bpf_dir,
                    tenant_netns,
                    flow_capacity,
                    proxy_threads,
                })
            }
            _ => Err(ConfigError::Problems(problems)),
        }
    }
}

/// The configuration in force as a file, secrets left out.
impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tls = match self.min_tls {
            TlsVersion::V1_2 => "TLSv1.2",
            TlsVersion::V1_3 => "TLSv1.3",
        };
        writeln!(f, "[amphora_agent]")?;
        writeln!(f, "amphora_id = {}", self.amphora_id)?;
        writeln!(f, "agent_server_cert = {}", self.server_cert.display())?;
        writeln!(f, "agent_server_ca = {}", self.client_ca.display())?;
        writeln!(f, "agent_tls_protocol = {tls}")?;
        writeln!(f, "state_dir = {}", self.state_dir.display())?;
        writeln!(f, "bpf_dir = {}", self.bpf_dir.display())?;
        writeln!(f, "tenant_netns = {}", self.tenant_netns)?;
        writeln!(f, "flow_capacity = {}", self.flow_capacity)?;
        writeln!(f, "proxy_threads = {}", self.proxy_threads)?;
        writeln!(f, "\n[haproxy_amphora]")?;
        writeln!(f, "bind_host = {}", self.bind.ip())?;
        writeln!(f, "bind_port = {}", self.bind.port())?;
        writeln!(f, "\n[health_manager]")?;
        let controllers: Vec<_> = self.controllers.iter().map(ToString::to_string).collect();
        writeln!(f, "controller_ip_port_list = {}", controllers.join(", "))?;
        writeln!(
            f,
            "heartbeat_interval = {}",
            self.heartbeat_interval.as_secs_f64()
        )?;
        writeln!(f, "heartbeat_key = ***")
    }
}

struct Reader {
    ini: Ini,
    problems: Vec<String>,
}

impl Reader {
    fn required<T: FromStr>(&mut self, section: &str, key: &str, wanted: &str) -> Option<T> {
        match self.ini.take(section, key) {
            Some(text) if !text.is_empty() => self.value(section, key, wanted, &text),
            _ => {
                self.problems
                    .push(format!("[{section}] {key} is missing: it must be {wanted}"));
                None
            }
        }
    }

    fn optional<T: FromStr>(&mut self, section: &str, key: &str, wanted: &str, default: T) -> T {
        match self.ini.take(section, key) {
            Some(text) => self.value(section, key, wanted, &text).unwrap_or(default),
            None => default,
        }
    }

    fn value<T: FromStr>(
        &mut self,
        section: &str,
        key: &str,
        wanted: &str,
        text: &str,
    ) -> Option<T> {
        let value = text.parse().ok();
        if value.is_none() {
            self.problems.push(format!(
                "[{section}] {key} is {text:?}: it must be {wanted}"
            ));
        }
        value
    }

    fn finish(mut self) -> Vec<String> {
        for (section, key) in KNOWN_AND_UNUSED {
            self.ini.take(section, key);
        }
        for (place, (line, _)) in &self.ini.values {
            self.problems.push(format!(
                "line {line}: {} is not a known key",
                ini::name(place)
            ));
        }
        self.problems
    }
}

fn list(problems: &[String]) -> String {
    problems.iter().map(|p| format!("\n  {p}")).collect()
}

impl FromStr for TlsVersion {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "TLSv1.2" => Ok(TlsVersion::V1_2),
            "TLSv1.3" => Ok(TlsVersion::V1_3),
            _ => Err(()),
        }
    }
}

struct NetnsName(String);

impl FromStr for NetnsName {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let plain = text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
        (plain && !text.is_empty() && text.len() <= 200 && !text.starts_with('.'))
            .then(|| NetnsName(text.to_owned()))
            .ok_or(())
    }
}

struct FlowCapacity(u32);

impl FromStr for FlowCapacity {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        text.parse()
            .ok()
            .filter(|capacity| (1024..=4_194_304).contains(capacity))
            .map(FlowCapacity)
            .ok_or(())
    }
}

struct Seconds(Duration);

impl FromStr for Seconds {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let seconds: f64 = text.parse().map_err(|_| ())?;
        if !(0.05..=600.0).contains(&seconds) {
            return Err(());
        }
        Duration::try_from_secs_f64(seconds)
            .map(Seconds)
            .map_err(|_| ())
    }
}

struct HeartbeatKey(String);

impl FromStr for HeartbeatKey {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Ok(HeartbeatKey(text.to_owned()))
    }
}

struct Controllers(Vec<SocketAddr>);

impl FromStr for Controllers {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        text.split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
            .map(|part| {
                // `addr:port`, also for IPv6 without brackets: the last colon splits.
                part.parse().ok().or_else(|| {
                    let (address, port) = part.rsplit_once(':')?;
                    Some(SocketAddr::new(address.parse().ok()?, port.parse().ok()?))
                })
            })
            .collect::<Option<Vec<_>>>()
            .map(Controllers)
            .ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "\
[DEFAULT]
debug = False

[haproxy_amphora]
base_path = /var/lib/octavia
bind_host = 198.18.0.7
bind_port = 9443

[health_manager]
controller_ip_port_list = 198.18.0.1:5555, [fd00::1]:5555, fd00::2:5555
heartbeat_interval = 0.5
heartbeat_key = hush

[amphora_agent]
amphora_id = 11111111-2222-4333-8444-555555555555
agent_server_cert = /etc/octavia/certs/server.pem
agent_server_ca = /etc/octavia/certs/client_ca.pem
agent_tls_protocol = TLSv1.3
tenant_netns = lb-amp-11111111-t
";

    #[test]
    fn a_file_with_octavias_own_keys_is_read() {
        let config = Config::parse(GOOD).unwrap();
        assert_eq!(config.bind, "198.18.0.7:9443".parse().unwrap());
        assert_eq!(config.controllers.len(), 3);
        assert_eq!(config.controllers[2], "[fd00::2]:5555".parse().unwrap());
        assert_eq!(config.heartbeat_interval, Duration::from_millis(500));
        assert_eq!(config.min_tls, TlsVersion::V1_3);
        assert_eq!(config.heartbeat_key.expose(), b"hush");
        assert_eq!(config.tenant_netns, "lb-amp-11111111-t");
        assert_eq!(config.flow_capacity, 65_536);
    }

    #[test]
    fn the_heartbeat_key_is_never_shown() {
        let config = Config::parse(GOOD).unwrap();
        assert!(!format!("{config:?} {config}").contains("hush"));
    }

    #[test]
    fn a_printed_configuration_can_be_read_again() {
        let config = Config::parse(GOOD).unwrap();
        let again = Config::parse(&config.to_string()).unwrap();
        assert_eq!(again.heartbeat_key.expose(), b"***");
        assert_eq!(
            Config {
                heartbeat_key: config.heartbeat_key.clone(),
                ..again
            },
            config
        );
    }

    #[test]
    fn all_problems_are_reported_together() {
        let text = "\
[amphora_agent]
amphora_id = seven
agent_server_cert = /s.pem
agent_tls_protocol = SSLv3
tenant_netns = ../escape
colour = blue
[health_manager]
heartbeat_interval = -1
heartbeat_interval = 2
controller_ip_port_list = nowhere
nonsense
[open
";
        let ConfigError::Problems(problems) = Config::parse(text).unwrap_err() else {
            panic!("not a list of problems");
        };
        for wanted in [
            "amphora_id",
            "agent_server_ca is missing",
            "agent_tls_protocol",
            "tenant_netns",
            "[amphora_agent] colour is not a known key",
            "heartbeat_interval is on line 8 already",
            "[health_manager] heartbeat_interval is \"-1\"",
            "controller_ip_port_list",
            "heartbeat_key is missing",
            "line 11: neither",
            "line 12: section without",
        ] {
            assert!(
                problems.iter().any(|problem| problem.contains(wanted)),
                "{wanted:?} not in {problems:#?}"
            );
        }
        assert_eq!(problems.len(), 11);
    }

    #[test]
    fn a_key_in_the_wrong_section_is_unknown() {
        let text = GOOD.replace("tenant_netns", "heartbeat_key");
        let error = Config::parse(&text).unwrap_err().to_string();
        assert!(error.contains("[amphora_agent] heartbeat_key is not a known key"));
        assert!(
            !error.contains("lb-amp"),
            "a misplaced secret must not be shown"
        );
    }
}
