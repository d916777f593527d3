//! Nanoseconds per packet of the programs, by `BPF_PROG_TEST_RUN`; one JSON object a line.
//!
//! Run as root: `cargo run --release -p xdp-lb --example test_run`. It works in a network and a mount
//! namespace of its own, which end with it.
//!
//! The kernel runs one packet many times without putting it back: each run sees what the one before
//! made of it. So an "established" packet goes to the member's side and back to the client's, time
//! and again, by two flows. For "new" flows the member's address is a VIP, too, whose member is the
//! first VIP: each run opens another flow with the source port that the one before was given. "new,
//! cold" runs a packet of its own each time, after all that user space does in between.
//!
//! "harness" is a frame that is let go after its first bytes: nearly all of it is the kernel's own
//! cost of a run, which is part of every other figure, too.

use std::error::Error;
use std::fs;
use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;

use aya::TestRun;
use aya::maps::{Array, HashMap, Map, MapData};
use aya::programs::{SchedClassifier, TestRunOptions, Xdp};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use serde_json::json;
use uuid::Uuid;
use xdp_lb::{
    Algorithm, AttachMode, Config, FastPath, Interface, Member, Options, Protocol, Service,
};
use xdp_lb_common::address::{Address, Be16};
use xdp_lb_common::checksum::{Delta, full, pseudo_header};
use xdp_lb_common::flow::{Flow, FlowKey, flag, link_words};
use xdp_lb_common::limits::ABI_VERSION;
use xdp_lb_common::table::Globals;
use xdp_lb_common::tcp;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const OUR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const PEER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const PORT: u16 = 80;
const MEMBER_PORT: u16 = 8000;
const SNAT: [&str; 2] = ["10.1.0.2", "fd01::2"];
/// A packet's TTL bounds how often it can be run.
const REPEAT: u32 = 250;
const ROUNDS: u32 = 400;
const NEW_ROUNDS: u32 = 30;
const NEW_COLD: u16 = 5_000;

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
    ] {
        ip(line)?;
    }
    for v6 in [false, true] {
        let neighbours = addresses(v6)?.map(|address| address.to_string());
        for address in neighbours
            .iter()
            .map(String::as_str)
            .chain([SNAT[usize::from(v6)]])
        {
            ip(&format!(
                "neigh replace {address} lladdr 02:00:00:00:00:02 dev front nud permanent"
            ))?;
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
    let pins = pin_dir.join(format!("maps-v{ABI_VERSION}"));
    let mut flows: HashMap<_, FlowKey, Flow> =
        HashMap::try_from(Map::LruHashMap(MapData::from_pin(pins.join("FLOWS"))?))?;
    let globals: Array<_, Globals> =
        Array::try_from(Map::Array(MapData::from_pin(pins.join("GLOBALS"))?))?;
    let epoch = globals.get(&0, 0)?.epoch;

    let mut other = packet(false, Protocol::Tcp, 50_000, false)?;
    other[12..14].copy_from_slice(&[0x08, 0x06]);
    print(&fast_path, "harness", |program| {
        many(program, index, &other, ROUNDS)
    })?;
    let mut other = packet(false, Protocol::Tcp, 50_000, false)?;
    other[37] = 81;
    print(&fast_path, "not_a_service_tcp_v4", |program| {
        many(program, index, &other, ROUNDS)
    })?;
    for v6 in [false, true] {
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            let packet = packet(v6, protocol, 50_000, false)?;
            let pair = there_and_back(v6, protocol, index, epoch)?;
            for (key, flow) in &pair {
                flows.insert(key, flow, 0)?;
            }
            let case = name("established", protocol, v6);
            print(&fast_path, &case, |program| {
                many(program, index, &packet, ROUNDS)
            })?;
            for (key, _) in &pair {
                flows.remove(key)?;
            }
        }
    }
    for v6 in [false, true] {
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            let case = name("new", protocol, v6);
            let mut from = 20_000;
            print(&fast_path, &case, |program| {
                let mut samples = Vec::new();
                for _ in 0..NEW_ROUNDS {
                    let packet = packet(v6, protocol, from, true)?;
                    from += 1;
                    samples.extend(many(program, index, &packet, 1)?);
                }
                Ok(samples)
            })?;
        }
    }
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        let case = name("new, cold", protocol, false);
        let mut from = 30_000;
        print(&fast_path, &case, |program| {
            let mut samples = Vec::new();
            for _ in 0..NEW_COLD {
                let packet = packet(false, protocol, from, true)?;
                from += 1;
                samples.push(program.run(index, &packet, 1)?);
            }
            Ok(samples)
        })?;
    }
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

fn ip(line: &str) -> Result<()> {
    let status = Command::new("ip").args(line.split(' ')).status()?;
    if !status.success() {
        return Err(format!("ip {line}: {status}").into());
    }
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

/// The mean time of a packet, for each of so many rounds.
fn many(program: &Program<'_>, index: u32, packet: &[u8], rounds: u32) -> Result<Vec<Duration>> {
    (0..rounds)
        .map(|_| program.run(index, packet, REPEAT))
        .collect()
}

fn print(
    fast_path: &FastPath,
    case: &str,
    mut measure: impl FnMut(&Program<'_>) -> Result<Vec<Duration>>,
) -> Result<()> {
    for (name, program) in [
        ("tcx", Program::Tcx(fast_path.classifier()?)),
        ("xdp", Program::Xdp(fast_path.xdp()?)),
    ] {
        let mut samples = measure(&program)?;
        samples.sort_unstable();
        let nanos = |sample: Option<&Duration>| sample.map(Duration::as_nanos);
        println!(
            "{}",
            json!({
                "program": name,
                "case": case,
                "ns_per_packet": nanos(samples.first()),
                "median": nanos(samples.get(samples.len() / 2)),
                "samples": samples.len(),
            })
        );
    }
    Ok(())
}

fn addresses(v6: bool) -> Result<[IpAddr; 3]> {
    let texts = if v6 {
        ["fd01::3", "fd01::64", "fd01::10"]
    } else {
        ["10.1.0.3", "10.1.0.100", "10.1.0.10"]
    };
    let [client, vip, member] = texts;
    Ok([client.parse()?, vip.parse()?, member.parse()?])
}

fn config(index: u32) -> Result<Config> {
    let [_, vip_v4, member_v4] = addresses(false)?;
    let [_, vip_v6, member_v6] = addresses(true)?;
    let (vips, members) = ([vip_v4, vip_v6], [member_v4, member_v6]);
    // Each other's members, so that a packet that was sent on opens the next flow.
    let services = [Protocol::Tcp, Protocol::Udp]
        .into_iter()
        .flat_map(|protocol| {
            [
                (protocol, vips, PORT, members, MEMBER_PORT),
                (protocol, members, MEMBER_PORT, vips, PORT),
            ]
        })
        .zip(1u128..)
        .map(
            |((protocol, vips, port, members, member_port), id)| Service {
                id: Uuid::from_u128(id),
                vips: vips.into(),
                port,
                protocol,
                algorithm: Algorithm::RoundRobin,
                idle_timeout: Duration::from_secs(50),
                connection_limit: None,
                allowed: Vec::new(),
                members: members
                    .into_iter()
                    .zip(1u128..)
                    .map(|(address, id)| Member {
                        id: Uuid::from_u128(id),
                        address,
                        port: member_port,
                        weight: 1,
                        backup: false,
                        up: true,
                    })
                    .collect(),
            },
        );
    Ok(Config {
        interfaces: vec![Interface {
            ifindex: index,
            name: "front".to_owned(),
            mac: OUR_MAC,
            mtu: 1500,
            mode: AttachMode::Tcx,
            // Somebody else's, so that the way back to the "client" of the next flow is looked up.
            snat_v4: Some(SNAT[0].parse()?),
            snat_v6: Some(SNAT[1].parse()?),
            handover_mac: None,
        }],
        services: services.collect(),
    })
}

/// Two flows: the packets that one sends are those of the other.
fn there_and_back(
    v6: bool,
    protocol: Protocol,
    index: u32,
    epoch: u32,
) -> Result<[(FlowKey, Flow); 2]> {
    let [client, vip, member] = addresses(v6)?.map(Address::from);
    let snat: IpAddr = SNAT[usize::from(v6)].parse()?;
    let (number, state) = match protocol {
        Protocol::Tcp => (6, tcp::ESTABLISHED),
        Protocol::Udp => (17, tcp::DATAGRAM),
    };
    let key = |source, source_port, destination, destination_port| FlowKey {
        source,
        destination,
        source_port: Be16::new(source_port),
        destination_port: Be16::new(destination_port),
        protocol: number,
    };
    let there = key(client, 50_000, vip, PORT);
    let back = key(snat.into(), 1024, member, MEMBER_PORT);
    let flow = |from: &FlowKey, to: &FlowKey, flags| Flow {
        source: to.source,
        destination: to.destination,
        source_port: to.source_port,
        destination_port: to.destination_port,
        address_delta: Delta::NONE
            .address(from.source, to.source)
            .address(from.destination, to.destination)
            .fold(),
        port_delta: Delta::NONE
            .port(from.source_port, to.source_port)
            .port(from.destination_port, to.destination_port)
            .fold(),
        link: link_words(OUR_MAC, PEER_MAC),
        ifindex: index,
        mtu: 1500,
        epoch,
        state,
        flags,
        member_generation: 1,
        ..Flow::default()
    };
    Ok([
        (there, flow(&there, &back, 0)),
        (back, flow(&back, &there, flag::REVERSE)),
    ])
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
