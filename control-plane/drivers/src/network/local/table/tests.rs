use super::*;
use crate::local::default_management;

fn declaration() -> Declaration {
    Declaration::parse(
        r#"
        [[network]]
        name = "n"
        [[network.subnet]]
        name = "tiny"
        cidr = "10.0.0.0/29"
        gateway = "10.0.0.3"
        [[network.subnet]]
        name = "six"
        cidr = "fd00:1::/64"
        gateway = "fd00:1::1"
        [[network]]
        name = "other"
        [[network.subnet]]
        name = "pools"
        cidr = "10.1.0.0/24"
        allocation_pools = [{ start = "10.1.0.20", end = "10.1.0.21" }, { start = "10.1.0.5", end = "10.1.0.5" }]
        "#,
        default_management(),
    )
    .unwrap()
}

fn spec(declaration: &Declaration, name: &str, wanted: &[(&str, Option<&str>)]) -> PortSpec {
    let subnet = |name: &str| {
        declaration
            .subnets
            .iter()
            .find(|subnet| subnet.name == name)
            .unwrap()
    };
    PortSpec {
        name: name.to_owned(),
        network_id: subnet(wanted[0].0).network_id,
        fixed_ips: wanted
            .iter()
            .map(|(name, address)| FixedIpSpec {
                subnet_id: subnet(name).id,
                ip_address: address.map(|address| address.parse().unwrap()),
            })
            .collect(),
        device_id: "device".to_owned(),
        device_owner: "Octavia".to_owned(),
        project_id: None,
        allowed_address_pairs: Vec::new(),
        admin_state_up: true,
    }
}

fn addresses(port: &Port) -> Vec<String> {
    port.fixed_ips
        .iter()
        .map(|fixed| fixed.ip_address.to_string())
        .collect()
}

#[test]
fn allocation_skips_the_gateway_and_ends_with_an_error_that_changes_nothing() {
    let declaration = declaration();
    let mut table = PortTable::default();
    let mut given = Vec::new();
    for index in 0..5 {
        let port = table
            .ensure(
                &declaration,
                &spec(&declaration, &format!("p{index}"), &[("tiny", None)]),
            )
            .unwrap();
        given.extend(addresses(&port));
    }
    assert_eq!(
        given,
        ["10.0.0.1", "10.0.0.2", "10.0.0.4", "10.0.0.5", "10.0.0.6"]
    );
    let before = table.clone();
    let error = table
        .ensure(
            &declaration,
            &spec(&declaration, "more", &[("six", None), ("tiny", None)]),
        )
        .unwrap_err();
    assert!(
        matches!(error, DriverError::NoFreeAddress { .. }),
        "{error}"
    );
    assert_eq!(table, before);
}

#[test]
fn an_address_given_back_is_given_again_last() {
    let declaration = declaration();
    let mut table = PortTable::default();
    let first = table
        .ensure(&declaration, &spec(&declaration, "a", &[("tiny", None)]))
        .unwrap();
    table.remove(first.id);
    let mut given = Vec::new();
    for index in 0..5 {
        let name = format!("p{index}");
        let port = table
            .ensure(&declaration, &spec(&declaration, &name, &[("tiny", None)]))
            .unwrap();
        given.extend(addresses(&port));
    }
    assert_eq!(
        given,
        ["10.0.0.2", "10.0.0.4", "10.0.0.5", "10.0.0.6", "10.0.0.1"]
    );
}

#[test]
fn allocation_pools_are_used_in_their_order() {
    let declaration = declaration();
    let mut table = PortTable::default();
    let mut given = Vec::new();
    for index in 0..3 {
        let name = format!("p{index}");
        let port = table
            .ensure(&declaration, &spec(&declaration, &name, &[("pools", None)]))
            .unwrap();
        given.extend(addresses(&port));
    }
    assert_eq!(given, ["10.1.0.20", "10.1.0.21", "10.1.0.5"]);
    let outside = spec(&declaration, "outside", &[("pools", Some("10.1.0.200"))]);
    assert!(
        table.ensure(&declaration, &outside).is_ok(),
        "an address asked for need not be in a pool"
    );
}

#[test]
fn each_unusable_address_has_its_own_error() {
    let declaration = declaration();
    let mut table = PortTable::default();
    let taken = spec(&declaration, "a", &[("tiny", Some("10.0.0.4"))]);
    table.ensure(&declaration, &taken).unwrap();
    let again = spec(&declaration, "b", &[("tiny", Some("10.0.0.4"))]);
    assert!(matches!(
        table.ensure(&declaration, &again),
        Err(DriverError::AddressInUse { .. })
    ));
    for bad in ["10.0.0.0", "10.0.0.7", "10.0.0.3", "10.0.0.8", "fd00:1::5"] {
        let wanted = spec(&declaration, "c", &[("tiny", Some(bad))]);
        let result = table.ensure(&declaration, &wanted);
        assert!(
            matches!(result, Err(DriverError::AddressOutsideSubnet { .. })),
            "{bad}: {result:?}"
        );
    }
    let mut foreign = spec(&declaration, "d", &[("tiny", None)]);
    foreign.network_id = declaration.find_network("other").unwrap().id;
    assert!(matches!(
        table.ensure(&declaration, &foreign),
        Err(DriverError::UnknownSubnet(_))
    ));
    foreign.network_id = lb_model::NetworkId::random();
    assert!(matches!(
        table.ensure(&declaration, &foreign),
        Err(DriverError::UnknownNetwork(_))
    ));
}

#[test]
fn the_same_port_again_is_the_same_port() {
    let declaration = declaration();
    let mut table = PortTable::default();
    let mut wanted = spec(&declaration, "a", &[("tiny", None), ("six", None)]);
    let first = table.ensure(&declaration, &wanted).unwrap();
    assert_eq!(addresses(&first), ["10.0.0.1", "fd00:1::2"]);
    wanted.allowed_address_pairs = vec!["10.0.0.6".parse().unwrap()];
    let second = table.ensure(&declaration, &wanted).unwrap();
    assert_eq!(
        (first.id, &first.mac_address, &first.fixed_ips),
        (second.id, &second.mac_address, &second.fixed_ips)
    );
    assert_eq!(second.allowed_address_pairs, wanted.allowed_address_pairs);
    assert_eq!(table.ports.len(), 1);

    let other = spec(&declaration, "a", &[("tiny", Some("10.0.0.5"))]);
    assert!(matches!(
        table.ensure(&declaration, &other),
        Err(DriverError::PortConflict { .. })
    ));
}

#[test]
fn updates_add_and_remove_addresses_and_leave_the_rest() {
    let declaration = declaration();
    let mut table = PortTable::default();
    let port = table
        .ensure(&declaration, &spec(&declaration, "a", &[("tiny", None)]))
        .unwrap();
    let six = spec(&declaration, "x", &[("six", Some("fd00:1::77"))]).fixed_ips;
    let update = PortUpdate {
        add_fixed_ips: six,
        remove_fixed_ips: vec!["10.0.0.1".parse().unwrap(), "10.9.9.9".parse().unwrap()],
        ..PortUpdate::default()
    };
    let updated = table.update(&declaration, port.id, &update).unwrap();
    assert_eq!(addresses(&updated), ["fd00:1::77"]);
    assert_eq!(updated.mac_address, port.mac_address);
    let again = table.update(&declaration, port.id, &update).unwrap();
    assert_eq!(again, updated);
    assert!(matches!(
        table.update(&declaration, PortId::random(), &update),
        Err(DriverError::UnknownPort(_))
    ));
}

#[test]
fn a_subnet_of_any_size_is_searched_in_bounded_time() {
    let declaration = declaration();
    let mut table = PortTable::default();
    let mut seen = HashSet::new();
    for index in 0..300 {
        let name = format!("p{index}");
        let port = table
            .ensure(&declaration, &spec(&declaration, &name, &[("six", None)]))
            .unwrap();
        assert!(seen.insert(port.fixed_ips[0].ip_address));
        assert!(seen.insert(port.fixed_ips[0].ip_address) || seen.len() == index + 1);
    }
    let macs: HashSet<_> = table.ports.iter().map(|port| &port.mac_address).collect();
    assert_eq!(macs.len(), 300);
    assert!(macs.iter().all(|mac| mac.starts_with("fa:16:3e:")));
}
