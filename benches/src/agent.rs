//! Resident memory of the real agent, idle and while it carries load.
//!
//! The agent runs in a lane of its own with a small document: a listener on its fast path and one on its proxy.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use amphora_api as api;
use anyhow::{Context, Result, bail, ensure};
use lb_drivers::agent_conf::{AgentSettings, Relocation, relocate, render};
use lb_drivers::amphora::HttpsAmphoraDriver;
use lb_drivers::compute::{AGENT_CONF, CLIENT_CA_PEM, SERVER_PEM};
use lb_drivers::{AmphoraDriver, CertificateAuthority, Endpoint, Secret};
use lb_model::AmphoraId;
use uuid::Uuid;

use crate::contender;
use crate::load::{Clients, Workload};
use crate::measure::Memory;
use crate::netns::Netns;
use crate::process::{Process, said};
use crate::rig::{Lane, Link, PORT, Rig};
use crate::stop::Stop;

const PATIENCE: Duration = Duration::from_secs(30);
const LOAD: Duration = Duration::from_secs(2);
/// Port of the listener on the proxy.
const HTTP_PORT: u16 = PORT + 1;

pub(crate) fn memory(rig: &mut Rig, stop: &Stop) -> Result<Memory> {
    let program = std::env::current_exe()
        .context("find this program")?
        .with_file_name("amphora-agent");
    ensure!(
        program.exists(),
        "{} is not built: cargo build --release -p amphora-agent",
        program.display()
    );
    let lane = rig
        .add_lane(false)
        .context("set up the lane of the agent")?;
    let vip = rig.vip(lane)?;
    let lane = rig.lanes.get(lane).context("find the lane")?;
    // The agent leaves an interface that carries addresses in its own namespace alone: it is not the tenant's.
    lane.balancer.ip(&lane
        .balancer_devices()
        .map(|device| format!("addr flush dev {device}")))?;
    let scratch = tempfile::Builder::new()
        .prefix("lb-bench-")
        .tempdir()
        .context("make a scratch folder")?;
    let amphora = AmphoraId(Uuid::new_v4());
    let address = SocketAddr::from(([127, 0, 0, 1], api::AGENT_PORT));
    // The agent makes it; it goes when this is dropped, after the agent.
    let tenant = Netns::adopt(format!("{}-t", lane.balancer.name()));
    let authority = Arc::new(
        CertificateAuthority::load_or_create(&scratch.path().join("ca"))
            .context("make certificates")?,
    );
    let conf = write_files(scratch.path(), &authority, amphora, address, tenant.name())?;
    let bpf = scratch.path().join("bpf");
    // `ip netns exec` gives a mount namespace of its own: the bpffs goes away with the agent.
    let mut process = Process::spawn(
        lane.balancer
            .command("sh")
            .args([
                "-c",
                "mount -t bpf bpf \"$1\" && exec \"$2\" --config \"$3\"",
                "sh",
            ])
            .args([&bpf, &program, &conf]),
        scratch.path(),
    )?;
    let document = document(lane, amphora, vip);
    put(
        stop,
        lane,
        &mut process,
        &authority,
        amphora,
        address,
        &document,
    )
    .with_context(|| format!("configure the agent; it said: {}", said(scratch.path())))?;
    let targets = [vip, SocketAddr::new(vip.ip(), HTTP_PORT)];
    for target in targets {
        let mut last = None;
        let answers = stop.wait_for(PATIENCE, || {
            let asked = rig.client.inside(|| contender::ask(target));
            asked.map_err(|error| last = Some(error)).is_ok()
        })?;
        if !answers {
            bail!(
                "the agent does not forward to {target}: {}; it said: {}",
                last.map_or_else(String::new, |error| format!("{error:#}")),
                said(scratch.path())
            );
        }
    }
    let mut memory = Memory::idle("amphora-agent", &process.family());
    for workload in [Workload::Connection, Workload::Request] {
        let _clients = Clients::start(&rig.client, workload, targets.to_vec())?;
        stop.pause(LOAD)?;
        memory.see(&process.family());
    }
    Ok(memory)
}

/// What the config drive of an amphora holds; answers the configuration's path.
fn write_files(
    root: &Path,
    authority: &CertificateAuthority,
    amphora: AmphoraId,
    address: SocketAddr,
    tenant: &str,
) -> Result<std::path::PathBuf> {
    let settings = AgentSettings {
        bind_host: address.ip(),
        bind_port: address.port(),
        ..AgentSettings::new(
            amphora,
            // Nobody listens there: heartbeats are made and lost.
            vec![SocketAddr::from(([127, 0, 0, 1], 5555))],
            Duration::from_secs(1),
            Secret::new("benchmark"),
        )
    };
    let (state_dir, bpf_dir) = (root.join("state"), root.join("bpf").join("agent"));
    let conf = relocate(
        render(&settings)
            .context("render the configuration")?
            .expose(),
        &Relocation {
            root,
            state_dir: &state_dir,
            bpf_dir: &bpf_dir,
            tenant_netns: tenant,
        },
    );
    let pem = authority
        .issue_server(amphora)
        .context("issue a certificate")?
        .pem;
    for folder in [
        &state_dir,
        &root.join("bpf"),
        &root.join("etc/octavia/certs"),
    ] {
        std::fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    }
    let place = |path: &str| root.join(path.trim_start_matches('/'));
    for (path, text) in [
        (SERVER_PEM, pem.expose()),
        (CLIENT_CA_PEM, authority.client_ca_pem()),
        (AGENT_CONF, conf.as_str()),
    ] {
        std::fs::write(place(path), text).with_context(|| format!("write {path}"))?;
    }
    Ok(place(AGENT_CONF))
}

/// Hands the document over, again and again until the agent is up and took it.
fn put(
    stop: &Stop,
    lane: &Lane,
    process: &mut Process,
    authority: &Arc<CertificateAuthority>,
    amphora: AmphoraId,
    address: SocketAddr,
    document: &api::AmphoraConfig,
) -> Result<()> {
    let endpoint = Endpoint {
        amphora_id: amphora,
        address,
    };
    let mut last = None;
    let taken = stop.wait_for(PATIENCE, || {
        let asked = lane.balancer.inside(|| {
            let driver = HttpsAmphoraDriver::new(authority.clone());
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .context("make a runtime")?;
            Ok(runtime.block_on(driver.put_config(&endpoint, document))?)
        });
        let taken = asked.map_err(|error| last = Some(error)).is_ok();
        taken || process.ended().is_some()
    })?;
    if let Some(status) = process.ended() {
        bail!("it ended ({status})");
    }
    if !taken {
        return Err(last.unwrap_or_else(|| anyhow::anyhow!("it was never asked")));
    }
    Ok(())
}

fn document(lane: &Lane, amphora: AmphoraId, vip: SocketAddr) -> api::AmphoraConfig {
    let mac = |link: &Link| link.mac.map(|byte| format!("{byte:02x}")).join(":");
    let interface = |link: &Link, name: &str| api::Interface {
        mac_address: mac(link),
        name: name.to_owned(),
        addresses: format!("{}/24", link.address).parse().into_iter().collect(),
        gateways: Vec::new(),
        routes: Vec::new(),
        mtu_bytes: 0,
    };
    let pool = |protocol| api::Pool {
        id: Uuid::new_v4(),
        protocol,
        lb_algorithm: api::LbAlgorithm::RoundRobin,
        session_persistence: None,
        monitor: None,
        members: lane
            .member_addresses()
            .into_iter()
            .map(|member| api::Member {
                id: Uuid::new_v4(),
                address: member.ip(),
                protocol_port: member.port(),
                weight: 1,
                backup: false,
                enabled: true,
                monitor_address: None,
                monitor_port: None,
            })
            .collect(),
    };
    let listener = |protocol, port, pool: &api::Pool| api::Listener {
        id: Uuid::new_v4(),
        protocol,
        protocol_port: port,
        connection_limit: None,
        default_pool: Some(pool.id),
        x_forwarded_for: false,
        x_forwarded_port: false,
        x_forwarded_proto: false,
        timeout_client_data_ms: 50_000,
        timeout_member_connect_ms: 5_000,
        timeout_member_data_ms: 50_000,
        allowed_cidrs: Vec::new(),
    };
    let (tcp, http) = (pool(api::PoolProtocol::Tcp), pool(api::PoolProtocol::Http));
    api::AmphoraConfig {
        generation: 1,
        amphora_id: amphora.0,
        load_balancer_id: Uuid::new_v4(),
        project_id: "benchmark".to_owned(),
        heartbeat: api::Heartbeat {
            controllers: vec![SocketAddr::from(([127, 0, 0, 1], 5555))],
            interval_ms: 1000,
        },
        interfaces: vec![
            interface(&lane.front, "eth1"),
            interface(&lane.back, "eth2"),
        ],
        vips: vec![api::Vip {
            address: vip.ip(),
            interface_mac: mac(&lane.front),
            state: api::VipState::Active { handover_mac: None },
        }],
        listeners: vec![
            listener(api::ListenerProtocol::Tcp, PORT, &tcp),
            listener(api::ListenerProtocol::Http, HTTP_PORT, &http),
        ],
        pools: vec![tcp, http],
    }
}
