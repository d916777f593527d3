//! The hot pure functions, each by itself: `cargo bench -p lb-benches`.

#![allow(clippy::unwrap_used, reason = "the inputs are written here")]

use std::collections::BTreeMap;
use std::hint::black_box;

use amphora_api::{
    HeartbeatListener, HeartbeatListenerStats, HeartbeatMessage, HeartbeatPool, VipState,
    decode_heartbeat, encode_heartbeat,
};
use criterion::{Criterion, criterion_group, criterion_main};
use lb_model::{AmphoraId, Graph, ListenerProtocol, MemberId, PoolProtocol, sample};
use lb_planner::{FreshIds, PortPurpose, PortView, Settings, SubnetFacts, World, document, plan};
use uuid::Uuid;
use xdp_lb_common::packet::BufferPacket;
use xdp_lb_common::parse::parse;
use xdp_lb_common::schedule::{Candidate, maglev, round_robin};

criterion_group!(micro, packets, schedules, heartbeats, plans);
criterion_main!(micro);

/// A TCP segment of IPv4 with 64 bytes of payload, checksums left out: parsing does not look at them.
fn segment() -> Vec<u8> {
    let mut frame = vec![0; 14 + 20 + 20 + 64];
    frame[12..14].copy_from_slice(&0x0800u16.to_be_bytes());
    frame[14] = 0x45;
    frame[16..18].copy_from_slice(&104u16.to_be_bytes());
    frame[22] = 64;
    frame[23] = 6;
    frame[26..30].copy_from_slice(&[192, 0, 2, 1]);
    frame[30..34].copy_from_slice(&[198, 51, 100, 1]);
    frame[34..36].copy_from_slice(&40000u16.to_be_bytes());
    frame[36..38].copy_from_slice(&80u16.to_be_bytes());
    frame[46] = 5 << 4;
    frame[47] = 0x10;
    frame
}

/// The fast path's parser, as compiled for user space.
fn packets(criterion: &mut Criterion) {
    let packet = BufferPacket::new(&segment());
    assert!(
        parse(&packet).is_ok(),
        "the benchmark's packet is well-formed"
    );
    criterion.bench_function("packet/parse", |bencher| {
        bencher.iter(|| parse(black_box(&packet)));
    });
}

/// What a change of a pool of 100 members costs the loader.
fn schedules(criterion: &mut Criterion) {
    let candidates: Vec<Candidate> = (0..100)
        .map(|slot| Candidate {
            slot,
            weight: 1 + slot % 3,
            identity: Uuid::from_u128(u128::from(slot) << 64).as_u128(),
        })
        .collect();
    criterion.bench_function("schedule/round_robin_100", |bencher| {
        bencher.iter(|| round_robin(black_box(&candidates)));
    });
    criterion.bench_function("schedule/maglev_100", |bencher| {
        bencher.iter(|| maglev(black_box(&candidates)));
    });
}

/// A message of 5 listeners and 5 pools with 20 members each.
fn message() -> HeartbeatMessage {
    let id = |number: u128| Uuid::from_u128(0x1000_0000_0000_4000_8000_0000_0000_0000 + number);
    HeartbeatMessage {
        id: id(0),
        seq: 42,
        ver: 3,
        sent_at_ms: Some(1_769_784_558_000),
        generation: Some(7),
        listeners: (1..=5)
            .map(|listener| {
                let stats = HeartbeatListenerStats {
                    tx: 1_234_567,
                    rx: 765_432,
                    conns: 17,
                    totconns: 4_711,
                    ereq: 0,
                };
                let status = "OPEN".to_owned();
                (id(listener), HeartbeatListener { status, stats })
            })
            .collect(),
        pools: (1..=5)
            .map(|pool: u128| {
                let members = (0..20)
                    .map(|member| (id(0x1000 * pool + member), "UP".to_owned()))
                    .collect();
                let status = "UP".to_owned();
                (
                    id(0x100 + pool).to_string(),
                    HeartbeatPool { status, members },
                )
            })
            .collect(),
        totals: BTreeMap::new(),
    }
}

/// 10,000 amphorae every 10 s are 1,000 of these a second.
fn heartbeats(criterion: &mut Criterion) {
    let key = b"a heartbeat key";
    let message = message();
    let datagram = encode_heartbeat(&message, key).unwrap();
    criterion.bench_function("heartbeat/encode", |bencher| {
        bencher.iter(|| encode_heartbeat(black_box(&message), key).unwrap());
    });
    criterion.bench_function("heartbeat/decode", |bencher| {
        bencher.iter(|| decode_heartbeat(black_box(&datagram), key).unwrap());
    });
    let mut forged = datagram;
    forged[0] ^= 1;
    criterion.bench_function("heartbeat/refuse_forged", |bencher| {
        bencher.iter(|| decode_heartbeat(black_box(&forged), key).unwrap_err());
    });
}

/// 10 listeners with a pool of 50 members each.
fn graph() -> Graph {
    let mut graph = sample::graph(1);
    for number in 0..10u8 {
        let mut pool = sample::pool(u128::from(number), PoolProtocol::Tcp);
        for member in 0..50u8 {
            let mut row = sample::member(member, Some(sample::SUBNET));
            row.id = MemberId(sample::uuid(
                0x10_0000 + 0x100 * u128::from(number) + u128::from(member),
            ));
            pool.members.push(row);
        }
        graph.listeners.push(sample::listener(
            u128::from(number),
            ListenerProtocol::Tcp,
            8000 + u16::from(number),
            Some(pool.id),
        ));
        graph.pools.push(pool);
    }
    graph
}

struct Ids(u128);

impl FreshIds for Ids {
    fn amphora(&mut self) -> AmphoraId {
        self.0 += 1;
        AmphoraId(sample::uuid(0xa_0000 + self.0))
    }
}

/// The plan of a load balancer of which nothing is built yet.
fn plans(criterion: &mut Criterion) {
    let graph = graph();
    let vip = &graph.load_balancer.vip;
    let mut world = World::empty(sample::NOW);
    world.ports.push(PortView {
        id: vip.port_id,
        purpose: None,
        network_id: vip.network_id,
        mac_address: "fa:16:3e:ff:ff:ff".to_owned(),
        fixed_ips: vec![(vip.subnet_id, vip.address)],
    });
    world.subnets.insert(
        sample::SUBNET,
        SubnetFacts {
            network_id: sample::NETWORK,
            cidr: "10.0.0.0/16".parse().unwrap(),
            gateway: Some("10.0.0.1".parse().unwrap()),
            host_routes: Vec::new(),
        },
    );
    let settings = Settings::default();
    assert!(
        !plan(&graph, &world, &settings, &mut Ids(0)).is_empty(),
        "there is something to plan"
    );
    criterion.bench_function("planner/create_500_members", |bencher| {
        bencher.iter(|| plan(black_box(&graph), &world, &settings, &mut Ids(0)));
    });
    let amphora = Ids(0).amphora();
    world.ports.push(PortView {
        id: lb_model::PortId(sample::uuid(0xb_0001)),
        purpose: Some((amphora, PortPurpose::Base)),
        network_id: sample::NETWORK,
        mac_address: "fa:16:3e:00:00:01".to_owned(),
        fixed_ips: vec![(sample::SUBNET, "10.0.0.9".parse().unwrap())],
    });
    criterion.bench_function("planner/document_500_members", |bencher| {
        bencher.iter(|| {
            document(
                black_box(&graph),
                amphora,
                &world,
                &settings,
                1,
                &VipState::Passive,
            )
            .unwrap()
        });
    });
}
