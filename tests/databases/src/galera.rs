//! A Galera cluster on loopback: MariaDB servers that are all masters of the same data.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use crate::mariadb;
use crate::process::{Home, Process, free_port, program};

const PROVIDER: &str = "/usr/lib/galera/libgalera_smm.so";
const PACKAGE: &str = "galera-4";

/// A node that died is missed after two seconds, not after five: the others stand still until then.
const OPTIONS: &str = "gcache.size=32M;pc.recovery=false;evs.keepalive_period=PT0.5S;\
     evs.suspect_timeout=PT2S;evs.inactive_timeout=PT6S";

/// The cluster's nodes. Dropping it ends all of them.
#[derive(Debug)]
pub struct Galera {
    nodes: Vec<(SocketAddr, Process)>,
}

impl Galera {
    /// Starts so many nodes and returns when each has joined and all data.
    pub fn start(nodes: usize) -> Result<Self> {
        if !PathBuf::from(PROVIDER).exists() {
            bail!("{PROVIDER} is missing: apt-get install {PACKAGE}");
        }
        let client = program("mariadb", &[], "mariadb-client")?;
        let mut cluster = Self { nodes: Vec::new() };
        let mut address = "gcomm://".to_owned();
        for _ in 0..nodes {
            let group = free_port()?;
            let port = free_port()?;
            let home = mariadb::new_home()?;
            let command = node(&home, port, group, &address)?;
            let client = client.clone();
            let process = Process::start(home, command, move |home| is_synced(&client, home))?;
            let listens = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            cluster.nodes.push((listens, process));
            if cluster.nodes.len() == 1 {
                address = format!("gcomm://127.0.0.1:{group}");
            }
        }
        Ok(cluster)
    }

    /// Where the nodes take clients, killed ones too.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(|(address, _)| *address).collect()
    }

    /// The URL of a server that is at `address`, such as a balancer before the nodes.
    pub fn url(address: SocketAddr, database: &str) -> String {
        format!("mysql://root@{address}/{database}")
    }

    /// Makes a database, on all nodes.
    pub fn create_database(&self, name: &str) -> Result<()> {
        match self.nodes.first() {
            Some((_, node)) => mariadb::execute(node.home(), &format!("CREATE DATABASE {name}")),
            None => bail!("the cluster has no node"),
        }
    }

    /// `kill -9` of one node.
    pub fn kill(&mut self, node: usize) {
        if let Some((_, process)) = self.nodes.get_mut(node) {
            process.kill();
        }
    }
}

fn node(home: &Home, port: u16, group: u16, cluster: &str) -> Result<Command> {
    let transfer = free_port()?;
    let increments = free_port()?;
    let mut command = mariadb::server(home)?;
    command
        .args(["--bind-address=127.0.0.1", &format!("--port={port}")])
        .args(["--binlog-format=ROW", "--innodb-autoinc-lock-mode=2"])
        .args(["--wsrep-on=ON", "--wsrep-cluster-name=test"])
        .args(["--wsrep-sst-method=rsync", "--wsrep-slave-threads=2"])
        .arg(format!("--wsrep-provider={PROVIDER}"))
        .arg(format!("--wsrep-cluster-address={cluster}"))
        .arg(format!("--wsrep-node-address=127.0.0.1:{group}"))
        .arg(format!("--wsrep-node-name=node-{port}"))
        .arg(format!("--wsrep-sst-receive-address=127.0.0.1:{transfer}"))
        .arg(format!(
            "--wsrep-provider-options=gmcast.listen_addr=tcp://127.0.0.1:{group};\
             ist.recv_addr=127.0.0.1:{increments};{OPTIONS}"
        ));
    Ok(command)
}

fn is_synced(client: &Path, home: &Home) -> bool {
    Command::new(client)
        .args(["--no-defaults", "-uroot", "-N", "-e"])
        .arg("SHOW STATUS LIKE 'wsrep_local_state_comment'")
        .arg(format!("--socket={}", home.join("socket").display()))
        .stdin(Stdio::null())
        .output()
        .is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("Synced"))
}
