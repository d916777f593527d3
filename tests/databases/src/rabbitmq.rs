//! One RabbitMQ broker, with the name server it needs.

use std::ffi::OsString;
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::process::{Home, Process, free_port, program};

const USER: &str = "rabbitmq";
const PACKAGE: &str = "rabbitmq-server";

/// A broker on loopback that everybody may use; it ends when dropped.
#[derive(Debug)]
pub struct RabbitMq {
    port: u16,
    broker: Process,
    /// Erlang's name server: the broker would start one that outlives it.
    _names: Process,
}

impl RabbitMq {
    /// Starts one and returns when it answers. To be called from a thread that outlives it.
    pub fn start() -> Result<Self> {
        let (names_port, nodes_port, port) = (free_port()?, free_port()?, free_port()?);
        let home = Home::new(USER, PACKAGE)?;
        let mut command = home.command(&program("epmd", &[], "erlang-base")?);
        command
            .args(["-address", "127.0.0.1", "-port"])
            .arg(names_port.to_string());
        let names = Process::start(home, command, move |_| answers(names_port))?;

        let home = Home::new(USER, PACKAGE)?;
        // The one in the search path is a wrapper that writes to the system's folders.
        let folder = PathBuf::from("/usr/lib/rabbitmq/bin");
        let script = folder.join("rabbitmq-server");
        let script = if script.exists() {
            script
        } else {
            program("rabbitmq-server", &[], PACKAGE)?
        };
        let mut command = home.command(&script);
        configure(&mut command, &home, [port, nodes_port, names_port]);
        let broker = Process::start(home, command, move |_| answers(port))?;
        Ok(Self {
            port,
            broker,
            _names: names,
        })
    }

    /// As `transport_url` of oslo.messaging.
    pub fn url(&self) -> String {
        format!("rabbit://guest:guest@127.0.0.1:{}//", self.port)
    }

    /// The broker's process.
    pub fn pid(&self) -> u32 {
        self.broker.pid()
    }
}

fn answers(port: u16) -> bool {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// Everything it keeps is in its home, everything it listens to on loopback.
fn configure(command: &mut Command, home: &Home, [port, nodes_port, names_port]: [u16; 3]) {
    let text = OsString::from;
    let path = |name: &str| home.join(name).into_os_string();
    command.envs([
        ("HOME", home.path().into()),
        ("RABBITMQ_NODENAME", text("bench@localhost")),
        ("RABBITMQ_NODE_IP_ADDRESS", text("127.0.0.1")),
        ("RABBITMQ_NODE_PORT", text(&port.to_string())),
        ("RABBITMQ_DIST_PORT", text(&nodes_port.to_string())),
        ("RABBITMQ_MNESIA_BASE", path("mnesia")),
        ("RABBITMQ_LOG_BASE", path("logs")),
        ("RABBITMQ_PID_FILE", path("pid")),
        ("RABBITMQ_ENABLED_PLUGINS_FILE", path("plugins")),
        ("RABBITMQ_CONFIG_FILE", path("config")),
        ("RABBITMQ_CONF_ENV_FILE", text("/dev/null")),
        (
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS",
            text("-kernel inet_dist_use_interface {127,0,0,1}"),
        ),
        ("ERL_EPMD_ADDRESS", text("127.0.0.1")),
        ("ERL_EPMD_PORT", text(&names_port.to_string())),
        // Without it the script stays, and waits for the broker.
        ("RUNNING_UNDER_SYSTEMD", text("1")),
    ]);
}
