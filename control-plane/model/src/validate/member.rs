//! Rules of a member.

use std::net::IpAddr;

use super::unsupported;
use crate::{Fault, LoadBalancer, PoolProtocol, Rules};

/// `listening`: a listener sends to the pool.
pub(crate) fn check_member(
    address: IpAddr,
    request_sriov: bool,
    pool_protocol: PoolProtocol,
    listening: bool,
    load_balancer: &LoadBalancer,
    rules: &Rules,
) -> Result<(), Fault> {
    if rules.reserved_ips.contains(&address.to_canonical()) {
        return Err(Fault::option(address, "member address"));
    }
    if request_sriov {
        return Err(Fault::validation(
            "The flavor of the load balancer does not allow SR-IOV members.",
        ));
    }
    let datagram = matches!(pool_protocol, PoolProtocol::Udp | PoolProtocol::Sctp);
    let same_family = load_balancer
        .vip_addresses()
        .any(|vip| vip.is_ipv4() == address.is_ipv4());
    if datagram && listening && !same_family {
        return Err(unsupported(
            &load_balancer.provider,
            format!("{pool_protocol} member of another address family than every VIP"),
        ));
    }
    Ok(())
}
