//! Octavia with no-op drivers, as its own documents say to run it: API under a WSGI server, worker, health manager and
//! housekeeping, on MariaDB and RabbitMQ.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use lb_drivers::CertificateAuthority;
use test_databases::{Kind as Database, RabbitMq, Server};

use super::contender::{Contender, Kind};
use super::service::{Service, bound_to_us};
use crate::stop::Stop;

/// Where its programs are: `requirements-octavia.txt`.
const VENV: &str = "venv-octavia";
/// Processes of the API, one for each core of the smallest machine.
const API_WORKERS: usize = 2;

pub(crate) fn start(stop: &Stop) -> Result<Contender> {
    let venv = venv()?;
    let scratch = tempfile::tempdir()?;
    let home = scratch.path();
    let database = Server::start(Database::MariaDb)?;
    database.create_database("octavia")?;
    let broker = RabbitMq::start()?;
    configure(home, &database, &broker)?;

    // Without arguments it reads `.octavia/octavia.conf` in the home directory. The API must have none, as it takes
    // those of the WSGI server for its own.
    let program = |name: &str| {
        let mut command = bound_to_us(&venv.join("bin").join(name));
        command.env("HOME", home).current_dir(home);
        command
    };
    let upgrade = program("octavia-db-manage")
        .args(["upgrade", "head"])
        .output()
        .context("start octavia-db-manage")?;
    if !upgrade.status.success() {
        let said = String::from_utf8_lossy(&upgrade.stderr);
        bail!("octavia-db-manage: {}\n{said}", upgrade.status);
    }
    let address = free_address()?;
    let mut services = Vec::new();
    let mut start = |name: &'static str, command: &mut Command| -> Result<()> {
        services.push(Service::start(name, command, home)?);
        Ok(())
    };
    for name in [
        "octavia-worker",
        "octavia-health-manager",
        "octavia-housekeeping",
    ] {
        start(name, &mut program(name))?;
    }
    let wsgi = format!(
        "wsgi_app = \"octavia.wsgi.api:application\"\nbind = \"{address}\"\nworkers = {API_WORKERS}\n"
    );
    std::fs::write(home.join("gunicorn.conf.py"), wsgi)?;
    start("octavia-api", &mut program("gunicorn"))?;

    for service in &mut services {
        let name = service.name;
        service.wait_for(stop, |said| match name {
            "octavia-api" => TcpStream::connect(address).is_ok(),
            "octavia-worker" => said.contains("Starting V2 consumer"),
            "octavia-health-manager" => said.contains("attempting to listen"),
            _ => said.contains("Starting house keeping"),
        })?;
    }
    Ok(Contender {
        kind: Kind::Octavia,
        address,
        services,
        database: Some(database),
        broker: Some(broker),
        _scratch: scratch,
    })
}

/// Makes load balancers until there are `count`, all like the one with this id, each a second younger than the one
/// before: made through the API they would take the better part of two hours.
pub(crate) fn multiply(database: &Server, template: &str, count: usize) -> Result<()> {
    database.execute(&format!(
        r"USE octavia;
INSERT INTO load_balancer (id, project_id, name, description, provisioning_status, operating_status, enabled,
    topology, provider, created_at, updated_at)
  SELECT UUID(), project_id, CONCAT('lb-', seq), description, provisioning_status, operating_status, enabled,
    topology, provider, created_at - INTERVAL seq SECOND, updated_at - INTERVAL seq SECOND
  FROM load_balancer, seq_1_to_{more} WHERE id = '{template}';
INSERT INTO vip (load_balancer_id, ip_address, port_id, subnet_id, network_id, octavia_owned, vnic_type)
  SELECT load_balancer.id, ip_address, UUID(), subnet_id, network_id, octavia_owned, vnic_type
  FROM load_balancer, vip WHERE load_balancer.id <> '{template}' AND load_balancer_id = '{template}';
INSERT INTO amphora (id, compute_id, status, load_balancer_id, lb_network_ip, vrrp_ip, ha_ip, vrrp_port_id,
    ha_port_id, role, cert_expiration, cert_busy, vrrp_id, created_at, updated_at)
  SELECT UUID(), UUID(), status, load_balancer.id, lb_network_ip, vrrp_ip, ha_ip, UUID(),
    UUID(), role, cert_expiration, cert_busy, vrrp_id, amphora.created_at, amphora.updated_at
  FROM load_balancer, amphora WHERE load_balancer.id <> '{template}' AND load_balancer_id = '{template}';",
        more = count - 1,
    ))
}

fn configure(home: &Path, database: &Server, broker: &RabbitMq) -> Result<()> {
    let certificates = home.join("certificates");
    CertificateAuthority::load_or_create(&certificates).context("make a certificate authority")?;
    let (_, socket) = database
        .url()
        .split_once("socket=")
        .context("the database has no socket")?;
    let text = format!(
        r"[DEFAULT]
transport_url = {broker}
[database]
connection = mysql+pymysql://root@localhost/octavia?unix_socket={socket}
[api_settings]
auth_strategy = noauth
[oslo_messaging]
topic = octavia
[controller_worker]
amphora_driver = amphora_noop_driver
compute_driver = compute_noop_driver
network_driver = network_noop_driver
image_driver = image_noop_driver
volume_driver = volume_noop_driver
amp_boot_network_list = 8d4b1a5e-4f7c-4d39-9a8c-54c1ab4ee0a3
amp_flavor_id = 1
client_ca = {certificates}/client_ca.pem
[health_manager]
bind_ip = 127.0.0.1
bind_port = {heartbeats}
heartbeat_key = benchmark
[certificates]
cert_manager = noop_cert_manager
cert_generator = local_cert_generator
ca_certificate = {certificates}/server_ca.pem
ca_private_key = {certificates}/server_ca.key
server_certs_key_passphrase = insecure-key-do-not-use-this-key
",
        broker = broker.url(),
        certificates = certificates.display(),
        heartbeats = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?
            .local_addr()?
            .port(),
    );
    let folder = home.join(".octavia");
    std::fs::create_dir(&folder)?;
    std::fs::write(folder.join("octavia.conf"), text).context("write octavia.conf")
}

/// One of loopback that was free a moment ago.
fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("find a free port")?;
    Ok(listener.local_addr()?)
}

fn venv() -> Result<PathBuf> {
    std::env::current_exe()?
        .ancestors()
        .map(|folder| folder.join(VENV))
        .find(|folder| folder.join("bin/gunicorn").exists())
        .with_context(|| format!("target/{VENV} is not there: `cargo xtask bench-api` installs it"))
}
