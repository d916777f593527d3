//! The fabric namespace with a bridge for each network, and the router namespace that joins them.
//!
//! ```text
//!  control plane's sockets
//!        |                      fabric namespace
//!  +-----+--------------------------------------------------------+
//!  |  br-mgmt 198.18.0.1      b<network>           b<network>      |
//!  +----+---------+-----------+--+--+---------------+-------------+
//!       | m…      | m…        p… p… r…              r…
//!  +----+---+ +---+----+ +----+--+ +--+-----------------------+
//!  | amphora| | amphora| | host  | | router: gateway addresses |
//!  +--------+ +--------+ +-------+ +---------------------------+
//! ```
//!
//! Tenant bridges carry no address of the fabric, and the router has no link to the management bridge: no packet of
//! a tenant reaches the control plane. Amphorae do not see each other on the management bridge (isolated ports).

use ipnet::{IpNet, Ipv4Net};

use super::Stack;
use super::config::{MANAGEMENT_BRIDGE, bridge_name, controller_address, router_link_name};
use super::links::{VethPair, in_netns, write_sysctl, write_sysctl_if_present};
use super::netns::Netns;
use crate::DriverError;
use crate::network::TenantNetwork;

/// Ethernet payload of the management network.
pub(crate) const MANAGEMENT_MTU: u32 = 1500;

/// Builds what is missing of the fabric and the router.
pub(crate) fn ensure(stack: &Stack) -> Result<(), DriverError> {
    let address = controller_address(stack.management)?;
    let address = IpNet::V4(Ipv4Net::new_assert(address, stack.management.prefix_len()));
    stack.fabric.ensure()?;
    in_netns(&stack.fabric, |links| {
        // The fabric only switches. Nothing of it is to speak IPv6 by itself on a tenant's network.
        write_sysctl_if_present("ipv6/conf/default/disable_ipv6", "1")?;
        write_sysctl("ipv4/ip_forward", "0")?;
        for key in ["iptables", "ip6tables", "arptables"] {
            write_sysctl_if_present(&format!("bridge/bridge-nf-call-{key}"), "0")?;
        }
        links.set_up("lo")?;
        links.ensure_bridge(MANAGEMENT_BRIDGE, MANAGEMENT_MTU)?;
        links.ensure_address(MANAGEMENT_BRIDGE, address)?;
        for network in &stack.declaration.networks {
            links.ensure_bridge(&bridge_name(network.id), network.mtu_bytes)?;
        }
        Ok(())
    })?;
    if stack.declaration.routing {
        ensure_router(stack)
    } else {
        stack.layout.router()?.delete()
    }
}

fn ensure_router(stack: &Stack) -> Result<(), DriverError> {
    let router = stack.layout.router()?;
    router.ensure()?;
    in_netns(&router, |links| {
        for family in ["ipv4", "ipv6"] {
            write_sysctl_if_present(&format!("{family}/conf/all/forwarding"), "1")?;
            write_sysctl_if_present(&format!("{family}/conf/default/forwarding"), "1")?;
        }
        for scope in ["all", "default"] {
            write_sysctl(&format!("ipv4/conf/{scope}/rp_filter"), "0")?;
            write_sysctl(&format!("ipv4/conf/{scope}/send_redirects"), "0")?;
            write_sysctl_if_present(&format!("ipv6/conf/{scope}/accept_dad"), "0")?;
        }
        links.set_up("lo")
    })?;
    for network in &stack.declaration.networks {
        let gateways: Vec<IpNet> = stack
            .declaration
            .subnets_of(network.id)
            .filter_map(|subnet| IpNet::new(subnet.gateway_ip?, subnet.cidr.prefix_len()).ok())
            .collect();
        if gateways.is_empty() {
            continue;
        }
        let link = router_link_name(network.id);
        in_netns(&stack.fabric, |links| {
            links.ensure_veth(&VethPair {
                name: &link,
                bridge: &bridge_name(network.id),
                mtu_bytes: network.mtu_bytes,
                isolated: false,
                peer: &link,
                peer_mac: router_mac(network),
                peer_netns: &router,
            })
        })?;
        in_netns(&router, |links| {
            links.set_up(&link)?;
            for gateway in &gateways {
                links.ensure_address(&link, *gateway)?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// The same for a network each time, and of another prefix than any port's.
fn router_mac(network: &TenantNetwork) -> [u8; 6] {
    let [first, second, third, ..] = network.id.0.into_bytes();
    [0xfe, 0x16, 0x3e, first, second, third]
}

/// Settings of a namespace whose links get addresses from us alone: no duplicate address detection, which would keep
/// an address from being used for a second, and no address by router advertisements.
pub(crate) fn prepare_guest(netns: &Netns) -> Result<(), DriverError> {
    in_netns(netns, |links| {
        for scope in ["all", "default"] {
            write_sysctl_if_present(&format!("ipv6/conf/{scope}/accept_dad"), "0")?;
            write_sysctl_if_present(&format!("ipv6/conf/{scope}/accept_ra"), "0")?;
        }
        links.set_up("lo")
    })
}
