//! Nanoseconds per packet of the programs, by `BPF_PROG_TEST_RUN`; one JSON object a line.
//!
//! Run as root: `cargo run --release -p xdp-lb --example test_run`. It works in a network and a mount
//! namespace of its own, which end with it.
//!
//! The kernel runs one packet many times without putting it back, so an established flow is one
//! whose rewrite changes nothing: the same instructions, the same look-ups. A new flow needs another
//! packet each time and is measured one run at a time.

use std::error::Error;
use std::fs;
use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;

use aya::TestRun;
use aya::maps::{HashMap, Map, MapData};
use aya::programs::{SchedClassifier, TestRunOptions, Xdp};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use serde_json::json;
use uuid::Uuid;
use xdp_lb::{
    Algorithm, AttachMode, Config, FastPath, Interface, Member, Options, Protocol, Service,
};
use xdp_lb_common::address::{Address, Be16};
use xdp_lb_common::checksum::{full, pseudo_header};
use xdp_lb_common::flow::{Flow, FlowKey, link_words};
use xdp_lb_common::limits::ABI_VERSION;
use xdp_lb_common::tcp;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const OUR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const PEER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const PORT: u16 = 80;
/// A packet's TTL bounds how often it can be run.
const REPEAT: u32 = 250;
const ROUNDS: u32 = 400;
const NEW_FLOWS: u16 = 20_000;

fn main() -> Result<()> {
    if !nix::unistd::geteuid().is_root() {
        return Err("run as root: this loads eBPF programs".into());
    }
    let directory = tempfile::tempdir()?;
    unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET)?;
    let none: Option<&str> = None;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
    mount(
        Some("bpf"),
        directory.path(),
        Some("bpf"),
        MsFlags::empty(),
        none,
    )?;
    for line in [
        "link set lo up",
        "link add front type veth peer name far address 02:00:00:00:00:02",
        "link set front address 02:00:00:00:00:01",
        "link set front up",
        "link set far up",
        "addr add 10.1.0.1/16 dev front",
        "addr add fd01::1/64 dev front nodad",
        "neigh replace 10.1.0.10 lladdr 02:00:00:00:00:02 dev front nud permanent",
        "neigh replace 10.1.0.2 lladdr 02:00:00:00:00:02 dev front nud permanent",
        "neigh replace fd01::10 lladdr 02:00:00:00:00:02 dev front nud permanent",
        "neigh replace fd01::2 lladdr 02:00:00:00:00:02 dev front nud permanent",
    ] {
        let status = Command::new("ip").args(line.split(' ')).status()?;
        if !status.success() {
            return Err(format!("ip {line}: {status}").into());
        }
    }
    let index: u32 = fs::read_to_string("/proc/net/dev_mcast")?
        .lines()
        .find_map(|line| {
            let mut fields = line.split_whitespace();
            let index = fields.next()?;
            (fields.next()? == "front").then(|| index.parse().ok())?
        })
        .ok_or("find the index of front")?;

    let pin_dir = directory.path().join("fast");
    let mut fast_path = FastPath::open(Options {
        pin_dir: pin_dir.clone(),
        flow_capacity: 131_072,
    })?;
    fast_path.apply(&config(index)?)?;
    let pin = pin_dir.join(format!("maps-v{ABI_VERSION}/FLOWS"));
    let mut flows: HashMap<_, FlowKey, Flow> =
        HashMap::try_from(Map::LruHashMap(MapData::from_pin(pin)?))?;

    for v6 in [false, true] {
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            let packet = packet(v6, protocol, 50_000, false)?;
            let (key, flow) = unchanged(v6, protocol, index)?;
            flows.insert(key, flow, 0)?;
            let case = name("established", protocol, v6);
            print(&fast_path, &case, |program| {
                established(program, index, &packet)
            })?;
            flows.remove(&key)?;
        }
    }
    for (protocol, first) in [(Protocol::Tcp, 20_000u16), (Protocol::Udp, 20_000)] {
        let case = name("new", protocol, false);
        let mut from = first;
        print(&fast_path, &case, |program| {
            let sum = (0..NEW_FLOWS).try_fold(0u128, |sum, n| -> Result<u128> {
                let packet = packet(false, protocol, from + n, true)?;
                Ok(sum + program.run(index, &packet, 1)?.as_nanos())
            })?;
            from += NEW_FLOWS;
            Ok((sum, u64::from(NEW_FLOWS)))
        })?;
    }
    let mut other = packet(false, Protocol::Tcp, 50_000, false)?;
    other[37] = 81;
    print(&fast_path, "not_a_service_tcp_v4", |program| {
        established(program, index, &other)
    })?;
    let refused: u64 = fast_path
        .stats()?
        .verdicts
        .iter()
        .filter(|(name, _)| name.starts_with("drop_"))
        .map(|(_, count)| count)
        .sum();
    if refused != 0 {
        return Err(format!("{refused} packets were dropped: the figures mean nothing").into());
    }
    fast_path.detach()?;
    Ok(())
}

fn name(what: &str, protocol: Protocol, v6: bool) -> String {
    let protocol = match protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
    };
    format!("{what}_{protocol}_{}", if v6 { "v6" } else { "v4" })
}

enum Program<'a> {
    Tcx(&'a SchedClassifier),
    Xdp(&'a Xdp),
}

impl Program<'_> {
    fn run(&self, index: u32, packet: &[u8], repeat: u32) -> Result<Duration> {
        let mut options = TestRunOptions::new();
        options.data_in = Some(packet);
        options.repeat = repeat;
        match self {
            Self::Tcx(program) => {
                let mut context = [0u8; 192];
                context[36..40].copy_from_slice(&index.to_ne_bytes());
                context[40..44].copy_from_slice(&index.to_ne_bytes());
                options.ctx_in = Some(&context);
                Ok(program.test_run(options)?.duration)
            }
            Self::Xdp(program) => {
                let mut context = [0u8; 24];
                let length = u32::try_from(packet.len())?;
                context[4..8].copy_from_slice(&length.to_ne_bytes());
                context[12..16].copy_from_slice(&index.to_ne_bytes());
                options.ctx_in = Some(&context);
                Ok(program.test_run(options)?.duration)
            }
        }
    }
}

/// Nanoseconds in all, and packets.
fn established(program: &Program<'_>, index: u32, packet: &[u8]) -> Result<(u128, u64)> {
    let mut sum = 0;
    for _ in 0..ROUNDS {
        sum += program.run(index, packet, REPEAT)?.as_nanos() * u128::from(REPEAT);
    }
    Ok((sum, u64::from(ROUNDS * REPEAT)))
}

fn print(
    fast_path: &FastPath,
    case: &str,
    mut measure: impl FnMut(&Program<'_>) -> Result<(u128, u64)>,
) -> Result<()> {
    for (name, program) in [
        ("tcx", Program::Tcx(fast_path.classifier()?)),
        ("xdp", Program::Xdp(fast_path.xdp()?)),
    ] {
        let (nanos, packets) = measure(&program)?;
        let per_packet = u64::try_from(nanos / u128::from(packets))?;
        println!(
            "{}",
            json!({"program": name, "case": case, "ns_per_packet": per_packet, "packets": packets})
        );
    }
    Ok(())
}

fn addresses(v6: bool) -> Result<[IpAddr; 3]> {
    let texts = if v6 {
        ["fd01::2", "fd01::64", "fd01::10"]
    } else {
        ["10.1.0.2", "10.1.0.100", "10.1.0.10"]
    };
    let [client, vip, member] = texts;
    Ok([client.parse()?, vip.parse()?, member.parse()?])
}

fn config(index: u32) -> Result<Config> {
    let [_, vip_v4, member_v4] = addresses(false)?;
    let [_, vip_v6, member_v6] = addresses(true)?;
    let services = [(1, Protocol::Tcp), (2, Protocol::Udp)].map(|(id, protocol)| Service {
        id: Uuid::from_u128(id),
        vips: vec![vip_v4, vip_v6],
        port: PORT,
        protocol,
        algorithm: Algorithm::RoundRobin,
        idle_timeout: Duration::from_secs(50),
        connection_limit: None,
        members: (0..8u128)
            .flat_map(|n| [(n, member_v4), (n + 8, member_v6)])
            .zip(8000u16..)
            .map(|((id, address), port)| Member {
                id: Uuid::from_u128(id + 1),
                address,
                port,
                weight: 1,
                backup: false,
                up: true,
            })
            .collect(),
    });
    Ok(Config {
        interfaces: vec![Interface {
            ifindex: index,
            name: "front".to_owned(),
            mac: OUR_MAC,
            mtu: 1500,
            mode: AttachMode::Tcx,
            snat_v4: Some("10.1.0.1".parse()?),
            snat_v6: Some("fd01::1".parse()?),
            handover_mac: None,
        }],
        services: services.into(),
    })
}

/// A flow whose packets leave as they came.
fn unchanged(v6: bool, protocol: Protocol, index: u32) -> Result<(FlowKey, Flow)> {
    let [client, vip, _] = addresses(v6)?.map(Address::from);
    let (number, state) = match protocol {
        Protocol::Tcp => (6, tcp::ESTABLISHED),
        Protocol::Udp => (17, tcp::DATAGRAM),
    };
    let key = FlowKey {
        source: client,
        destination: vip,
        source_port: Be16::new(50_000),
        destination_port: Be16::new(PORT),
        protocol: number,
    };
    let flow = Flow {
        source: key.source,
        destination: key.destination,
        source_port: key.source_port,
        destination_port: key.destination_port,
        link: link_words(OUR_MAC, PEER_MAC),
        ifindex: index,
        mtu: 1500,
        state,
        member_generation: 1,
        ..Flow::default()
    };
    Ok((key, flow))
}

/// A packet with one byte of payload; a SYN has none.
fn packet(v6: bool, protocol: Protocol, port: u16, opening: bool) -> Result<Vec<u8>> {
    let [client, vip, _] = addresses(v6)?;
    let (number, mut l4) = match protocol {
        Protocol::Tcp => {
            let mut header = vec![0u8; 20];
            header[12] = 5 << 4;
            header[13] = if opening { 0x02 } else { 0x10 };
            (6u8, header)
        }
        Protocol::Udp => (17u8, vec![0, 0, 0, 0, 0, 9, 0, 0]),
    };
    l4[0..2].copy_from_slice(&port.to_be_bytes());
    l4[2..4].copy_from_slice(&PORT.to_be_bytes());
    if number == 17 || !opening {
        l4.push(0x55);
    }
    let length = u16::try_from(l4.len())?;
    let sum = pseudo_header(client.into(), vip.into(), number, length);
    let checksum = full(sum, &l4).to_ne_bytes();
    let field = if number == 6 { 16 } else { 6 };
    l4[field..field + 2].copy_from_slice(&checksum);

    let mut packet = Vec::new();
    packet.extend_from_slice(&OUR_MAC);
    packet.extend_from_slice(&PEER_MAC);
    match (client, vip) {
        (IpAddr::V4(client), IpAddr::V4(vip)) => {
            packet.extend_from_slice(&[0x08, 0x00]);
            let mut ip = vec![0u8; 20];
            ip[0] = 0x45;
            ip[2..4].copy_from_slice(&(20 + length).to_be_bytes());
            ip[8] = 255;
            ip[9] = number;
            ip[12..16].copy_from_slice(&client.octets());
            ip[16..20].copy_from_slice(&vip.octets());
            let checksum = full(0, &ip).to_ne_bytes();
            ip[10..12].copy_from_slice(&checksum);
            packet.extend_from_slice(&ip);
        }
        (IpAddr::V6(client), IpAddr::V6(vip)) => {
            packet.extend_from_slice(&[0x86, 0xdd]);
            let mut ip = vec![0u8; 40];
            ip[0] = 0x60;
            ip[4..6].copy_from_slice(&length.to_be_bytes());
            ip[6] = number;
            ip[7] = 255;
            ip[8..24].copy_from_slice(&client.octets());
            ip[24..40].copy_from_slice(&vip.octets());
            packet.extend_from_slice(&ip);
        }
        _ => return Err("one family per packet".into()),
    }
    packet.extend_from_slice(&l4);
    Ok(packet)
}
