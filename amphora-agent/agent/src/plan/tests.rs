//! Plans as readable text: what is expected is written as an operator would read it.

use amphora_api::{Route as HostRoute, Vip};

use super::*;
use crate::samples;

const VIP_MAC: [u8; 6] = [0xfa, 0x16, 0x3e, 0, 0, 1];

fn link(place: Place, index: u32, name: &str, mac: [u8; 6], addresses: &[&str]) -> Link {
    Link {
        place,
        index,
        name: name.to_owned(),
        mac,
        mtu_bytes: 1450,
        up: place == Place::Tenant,
        addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
    }
}

fn lo(addresses: &[&str]) -> Link {
    let mut all = vec!["127.0.0.1/8", "::1/128"];
    all.extend(addresses);
    link(Place::Tenant, 1, "lo", [0; 6], &all)
}

/// A tenant namespace with the right settings and these links.
fn namespace(links: Vec<Link>) -> Observed {
    Observed {
        links,
        sysctls: sysctl::wanted(true)
            .into_iter()
            .map(|wanted| (wanted.key, wanted.value))
            .collect(),
        ..Observed::default()
    }
}

/// What an apply of `samples::document` leaves.
fn settled() -> Observed {
    let mut observed = namespace(vec![
        lo(&[]),
        link(
            Place::Tenant,
            2,
            "eth1",
            VIP_MAC,
            &["10.0.0.5/24", "10.0.0.100/32"],
        ),
    ]);
    observed.routes = wanted_routes(&samples::document(1), &BTreeSet::from(["eth1".to_owned()]));
    observed.rules.insert("10.0.0.100".parse().unwrap());
    observed
}

fn lines(plan: &Plan) -> Vec<String> {
    plan.actions.iter().map(ToString::to_string).collect()
}

#[track_caller]
fn assert_plan(document: &AmphoraConfig, observed: &Observed, wanted: &[&str]) {
    let plan = plan(document, observed);
    assert_eq!(plan.problems, Vec::<String>::new());
    assert_eq!(lines(&plan), wanted);
}

#[test]
fn a_settled_kernel_leaves_the_data_plane_only() {
    let plan = plan(&samples::document(1), &settled());
    assert_eq!(lines(&plan), ["apply listeners, pools and members"]);
    assert!(plan.is_settled());
}

#[test]
fn a_fresh_port_is_moved_named_addressed_routed_and_announced() {
    let observed = namespace(vec![
        lo(&[]),
        link(Place::Agent, 9, "veth9", VIP_MAC, &[]),
        link(Place::Agent, 3, "mgmt", [2; 6], &["198.18.0.7/24"]),
    ]);
    assert_plan(
        &samples::document(1),
        &observed,
        &[
            "move interface veth9 (fa:16:3e:00:00:01) to the tenant namespace as eth1",
            "bring eth1 up",
            "add address 10.0.0.5/24 to eth1",
            "add address 10.0.0.100/32 to eth1",
            "add route 0.0.0.0/0 via 10.0.0.1 dev eth1 table 1",
            "add route 10.0.0.0/24 dev eth1 table 1",
            "add route 0.0.0.0/0 via 10.0.0.1 dev eth1 table 254",
            "add rule from 10.0.0.100 lookup 1",
            "apply listeners, pools and members",
            "announce 10.0.0.5 on eth1",
            "announce 10.0.0.100 on eth1",
        ],
    );
}

#[test]
fn a_vip_that_becomes_passive_is_on_lo_before_it_leaves_the_interface() {
    let mut document = samples::document(1);
    document.vips[0].state = VipState::Passive;
    assert_plan(
        &document,
        &settled(),
        &[
            "add address 10.0.0.100/32 to lo",
            "apply listeners, pools and members",
            "delete address 10.0.0.100/32 from eth1",
        ],
    );
}

#[test]
fn a_vip_that_becomes_active_is_announced_before_it_leaves_lo() {
    let mut observed = settled();
    observed.links = vec![
        lo(&["10.0.0.100/32"]),
        link(Place::Tenant, 2, "eth1", VIP_MAC, &["10.0.0.5/24"]),
    ];
    assert_plan(
        &samples::document(1),
        &observed,
        &[
            "add address 10.0.0.100/32 to eth1",
            "apply listeners, pools and members",
            "announce 10.0.0.100 on eth1",
            "delete address 10.0.0.100/32 from lo",
        ],
    );
}

#[test]
fn both_families_get_routes_and_rules_of_their_own() {
    let mut document = samples::document(1);
    document.interfaces[0]
        .addresses
        .push("fd00::5/64".parse().unwrap());
    document.interfaces[0]
        .gateways
        .push("fd00::1".parse().unwrap());
    document.vips.push(Vip {
        address: "fd00::100".parse().unwrap(),
        interface_mac: "fa:16:3e:00:00:01".into(),
        state: VipState::Active { handover_mac: None },
    });
    assert_plan(
        &document,
        &settled(),
        &[
            "add address fd00::5/64 to eth1",
            "add address fd00::100/128 to eth1",
            "add route ::/0 via fd00::1 dev eth1 table 1",
            "add route fd00::/64 dev eth1 table 1",
            "add route ::/0 via fd00::1 dev eth1 table 254",
            "add rule from fd00::100 lookup 1",
            "apply listeners, pools and members",
            "announce fd00::5 on eth1",
            "announce fd00::100 on eth1",
        ],
    );
}

#[test]
fn a_member_network_has_no_default_route_and_no_policy_table() {
    let mut document = samples::document(1);
    document.interfaces.push(Interface {
        mac_address: "fa:16:3e:00:00:02".into(),
        name: "eth2".into(),
        addresses: vec!["10.9.0.7/24".parse().unwrap()],
        gateways: vec![],
        routes: vec![HostRoute {
            destination: "172.16.0.0/12".parse().unwrap(),
            nexthop: "10.9.0.254".parse().unwrap(),
        }],
        mtu_bytes: 9000,
    });
    let mut observed = settled();
    let mac = [0xfa, 0x16, 0x3e, 0, 0, 2];
    observed
        .links
        .push(link(Place::Agent, 12, "veth12", mac, &[]));
    assert_plan(
        &document,
        &observed,
        &[
            "move interface veth12 (fa:16:3e:00:00:02) to the tenant namespace as eth2",
            "set mtu of eth2 to 9000",
            "bring eth2 up",
            "add address 10.9.0.7/24 to eth2",
            "add route 172.16.0.0/12 via 10.9.0.254 dev eth2 table 254",
            "apply listeners, pools and members",
            "announce 10.9.0.7 on eth2",
        ],
    );
}

#[test]
fn what_the_document_no_longer_has_goes_last() {
    let mut observed = settled();
    let mac = [0xfa, 0x16, 0x3e, 0xaa, 0xbb, 0xcc];
    observed
        .links
        .push(link(Place::Tenant, 5, "eth2", mac, &["10.9.0.7/24"]));
    observed.links[1]
        .addresses
        .push("10.0.0.77/32".parse().unwrap());
    observed.rules.insert("10.0.0.77".parse().unwrap());
    let stale = Route {
        table: MAIN_TABLE,
        destination: "172.16.0.0/12".parse().unwrap(),
        gateway: Some("10.9.0.254".parse().unwrap()),
        device: "eth2".into(),
    };
    observed.routes.insert(stale);
    assert_plan(
        &samples::document(1),
        &observed,
        &[
            "apply listeners, pools and members",
            "delete rule from 10.0.0.77 lookup 1",
            "delete route 172.16.0.0/12 via 10.9.0.254 dev eth2 table 254",
            "delete address 10.0.0.77/32 from eth1",
            "give interface eth2 back to the agent's namespace as port-aabbcc",
        ],
    );
}

#[test]
fn swapped_names_are_sorted_out_through_a_spare_one() {
    let mut document = samples::document(1);
    let mac = [0xfa, 0x16, 0x3e, 0, 0, 2];
    document.interfaces.push(Interface {
        mac_address: mac_text(mac),
        name: "eth2".into(),
        addresses: vec![],
        gateways: vec![],
        routes: vec![],
        mtu_bytes: 0,
    });
    let mut observed = settled();
    observed.links[1].name = "eth2".into();
    observed
        .links
        .push(link(Place::Tenant, 3, "eth1", mac, &[]));
    assert_plan(
        &document,
        &observed,
        &[
            "rename interface eth1 to port-000002",
            "rename interface eth2 to eth1",
            "bring eth1 up",
            "rename interface port-000002 to eth2",
            "bring eth2 up",
            "apply listeners, pools and members",
        ],
    );
}

#[test]
fn a_changed_ipv6_prefix_replaces_the_address() {
    let mut document = samples::document(1);
    document.interfaces[0]
        .addresses
        .push("fd00::5/56".parse().unwrap());
    let mut observed = settled();
    observed.links[1]
        .addresses
        .push("fd00::5/64".parse().unwrap());
    assert_plan(
        &document,
        &observed,
        &[
            "delete address fd00::5/64 from eth1",
            "add address fd00::5/56 to eth1",
            "add route fd00::/56 dev eth1 table 1",
            "apply listeners, pools and members",
            "announce fd00::5 on eth1",
        ],
    );
}

#[test]
fn the_management_interface_is_never_taken() {
    let observed = namespace(vec![
        lo(&[]),
        link(Place::Agent, 2, "mgmt", VIP_MAC, &["198.18.0.7/24"]),
    ]);
    let plan = plan(&samples::document(1), &observed);
    assert!(plan.problems[0].contains("not the tenant's"));
    assert!(
        !lines(&plan)
            .iter()
            .any(|line| line.contains("mgmt") || line.contains("eth1"))
    );
}

#[test]
fn an_interface_that_is_not_there_yet_is_a_problem_and_no_action() {
    let plan = plan(&samples::document(1), &namespace(vec![lo(&[])]));
    assert_eq!(
        plan.problems,
        ["no interface has the MAC address fa:16:3e:00:00:01"]
    );
    assert_eq!(
        lines(&plan),
        [
            "add rule from 10.0.0.100 lookup 1",
            "apply listeners, pools and members"
        ]
    );
}

#[test]
fn settings_come_first_and_forwarding_only_for_the_fast_path() {
    let mut document = samples::document(1);
    let mut observed = settled();
    observed
        .sysctls
        .insert("net.ipv4.conf.all.arp_ignore".into(), "0".into());
    observed.sysctls.remove("net.ipv6.conf.all.forwarding");
    let planned = lines(&plan(&document, &observed));
    assert_eq!(planned[0], "set net.ipv4.conf.all.arp_ignore to 1 (was 0)");
    assert_eq!(
        planned.len(),
        2,
        "an optional key the kernel lacks is passed over: {planned:?}"
    );

    document
        .listeners
        .retain(|l| l.protocol == ListenerProtocol::Http);
    let planned = lines(&plan(&document, &settled()));
    assert_eq!(planned[0], "set net.ipv4.ip_forward to 0 (was 1)");
}
