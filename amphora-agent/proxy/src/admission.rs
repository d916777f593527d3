//! Which clients may connect to an address (`allowed_cidrs`).
//!
//! Set apart from the snapshot and before it, so that an address is never listened on without its restriction. A
//! client that may not connect is reset right after the accept: nothing it sent is read.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use arc_swap::ArcSwap;
use ipnet::IpNet;

/// Networks by listening address; an address that is not named takes everybody.
#[derive(Debug, Default)]
pub(crate) struct Admission(ArcSwap<HashMap<SocketAddr, Vec<IpNet>>>);

impl Admission {
    pub(crate) fn restrict(&self, networks: HashMap<SocketAddr, Vec<IpNet>>) {
        self.0.store(networks.into());
    }

    pub(crate) fn allows(&self, address: SocketAddr, client: IpAddr) -> bool {
        self.0.load().get(&address).is_none_or(|networks| {
            networks
                .iter()
                .any(|network| network.contains(&client.to_canonical()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restricted_address_takes_its_networks_only() {
        let admission = Admission::default();
        let (address, other) = (
            "10.0.0.1:80".parse().unwrap(),
            "10.0.0.1:81".parse().unwrap(),
        );
        let client: IpAddr = "192.0.2.7".parse().unwrap();
        assert!(admission.allows(address, client));
        admission.restrict(HashMap::from([(
            address,
            vec!["192.0.2.0/29".parse().unwrap()],
        )]));
        for (address, client, wanted) in [
            (address, "192.0.2.7", true),
            (address, "192.0.2.8", false),
            (address, "::ffff:192.0.2.7", true),
            (address, "2001:db8::1", false),
            (other, "192.0.2.8", true),
        ] {
            assert_eq!(
                admission.allows(address, client.parse().unwrap()),
                wanted,
                "{address} {client}"
            );
        }
        admission.restrict(HashMap::from([(address, vec![])]));
        assert!(!admission.allows(address, client));
    }
}
