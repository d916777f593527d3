//! A stack that stays: `make up` and `make down`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use lb_drivers::local::{LocalStack, Netns};
use test_support::scene::{CLIENT, HTTP, SERVERS, TCP, UDP, server_address};
use test_support::{Member, Service, Stack, StackOptions, ensure_nothing_left};

const NAME: &str = "up";
const API: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9876);

pub(crate) async fn up(state_dir: &Path, openstack: &Path) -> Result<()> {
    let state_dir = state_dir.join("up");
    if state_dir.exists() {
        bail!("a local stack is there already, or a crash left one: run `make down` first");
    }
    let stack = Stack::start(StackOptions {
        name: Some(NAME.to_owned()),
        state_dir: Some(state_dir.clone()),
        api: Some(API),
        ..StackOptions::default()
    })
    .await?;
    let client = stack.host("client", "public", &[CLIENT]).await?;
    for (index, (name, _)) in SERVERS.into_iter().enumerate() {
        let address = server_address(index);
        let host = stack.host(name, "servers", &[address]).await?;
        spawn_server(&host, name, address, &state_dir)?;
    }
    let api = stack.api().address();
    println!("The Octavia API listens on http://{api}. The stock client works with it:\n");
    println!("  export OS_AUTH_TYPE=none OS_ENDPOINT=http://{api}");
    println!("  alias openstack={}\n", openstack.display());
    println!("  openstack loadbalancer create --name web --vip-subnet-id public-v4 --wait");
    println!(
        "  openstack loadbalancer listener create --name http --protocol HTTP --protocol-port {} --wait web",
        HTTP
    );
    println!(
        "  openstack loadbalancer pool create --name servers --listener http --protocol HTTP --lb-algorithm ROUND_ROBIN --wait"
    );
    for (index, (name, weight)) in SERVERS.into_iter().enumerate() {
        let address = server_address(index);
        println!(
            "  openstack loadbalancer member create --name {name} --address {address} --protocol-port {} --weight {weight} --subnet-id servers-v4 --wait servers",
            HTTP
        );
    }
    println!(
        "  openstack loadbalancer healthmonitor create --type HTTP --delay 1 --timeout 1 --max-retries 1 --wait servers"
    );
    println!("  openstack loadbalancer status show web\n");
    println!(
        "A client of the tenant is the network namespace {}:\n",
        client.name()
    );
    println!("  ip netns exec {} curl http://VIP/\n", client.name());
    println!(
        "Logs are in {}. `make down` removes everything.",
        state_dir.display()
    );
    stack.detach();
    Ok(())
}

pub(crate) async fn down(state_dir: &Path) -> Result<()> {
    for name in [NAME, "demo"] {
        let state_dir = state_dir.join(name);
        LocalStack::destroy(name, &state_dir)
            .await
            .with_context(|| format!("remove stack {name}"))?;
        ensure_nothing_left(name, &state_dir)?;
        match std::fs::remove_dir_all(&state_dir) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("remove {}", state_dir.display()));
            }
            _ => {}
        }
    }
    println!("nothing of the local stack is left");
    Ok(())
}

/// A server as a process inside the host's namespace, where removing the stack finds it.
fn spawn_server(host: &Netns, name: &str, address: IpAddr, state_dir: &Path) -> Result<()> {
    let log = std::fs::File::create(state_dir.join(format!("server-{name}.log")))
        .context("create the server's log")?;
    Command::new("ip")
        .args(["netns", "exec", host.name()])
        .arg(std::env::current_exe()?)
        .arg("--state-dir")
        .arg(state_dir)
        .args(["serve", host.name(), name, &address.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .with_context(|| format!("start server {name}"))?;
    Ok(())
}

/// Serves HTTP, TCP and UDP until killed.
pub(crate) async fn serve(netns: &str, name: &str, address: IpAddr) -> Result<()> {
    let netns = Netns::named(netns)?;
    let mut members = Vec::new();
    for (service, port) in [
        (Service::Http, HTTP),
        (Service::Tcp, TCP),
        (Service::Udp, UDP),
    ] {
        let address = SocketAddr::new(address, port);
        members.push(Member::start(&netns, name, address, service).await?);
    }
    std::future::pending().await
}
