//! Client prefixes: sets that are written whole under a number of their own before a listener names
//! them, and removed when no program can be reading them any more.

use std::collections::{BTreeSet, HashMap, HashSet};

use aya::maps::lpm_trie::Key;
use ipnet::IpNet;
use xdp_lb_common::address::Address;
use xdp_lb_common::limits::MAX_ALLOWED_PREFIXES;
use xdp_lb_common::table::AllowedPrefix;

use crate::error::Error;
use crate::maps::{Maps, during, or_absent};

/// Address and length in bits, an IPv4 one in its mapped form.
type Prefix = (Address, u32);

#[derive(Debug, Default, PartialEq, Eq)]
struct Set {
    number: u32,
    prefixes: BTreeSet<Prefix>,
}

/// The sets in the map.
#[derive(Default)]
pub(crate) struct Allowed {
    /// By service slot and "is IPv4".
    in_use: HashMap<(u32, bool), Set>,
    /// Replaced ones; removed from the next change on.
    resting: Vec<Set>,
}

impl Allowed {
    /// Reads the map back; `named` says which number each service has. Sets nobody names rest.
    pub(crate) fn adopt(maps: &Maps, named: &HashMap<(u32, bool), u32>) -> Result<Self, Error> {
        let mut sets: HashMap<u32, BTreeSet<Prefix>> = HashMap::new();
        for key in maps.allowed.keys() {
            let key = key.map_err(during("read", "ALLOWED"))?;
            let prefix = key.data();
            let length = key.prefix_len().saturating_sub(AllowedPrefix::SET_BITS);
            sets.entry(prefix.set)
                .or_default()
                .insert((prefix.address, length));
        }
        let in_use = named
            .iter()
            .filter(|(_, number)| **number != 0)
            .map(|(key, number)| {
                let prefixes = sets.remove(number).unwrap_or_default();
                let number = *number;
                (*key, Set { number, prefixes })
            })
            .collect();
        let resting = sets
            .into_iter()
            .map(|(number, prefixes)| Set { number, prefixes })
            .collect();
        Ok(Self { in_use, resting })
    }

    /// The number of a service's set, written if it is not there; 0 when everybody is allowed.
    pub(crate) fn ensure(
        &mut self,
        maps: &mut Maps,
        key: (u32, bool),
        networks: &[IpNet],
    ) -> Result<(u32, u64), Error> {
        if networks.is_empty() {
            return Ok((0, u64::from(self.rest(key))));
        }
        let prefixes = prefixes(networks, key.1);
        if let Some(set) = self.in_use.get(&key)
            && set.prefixes == prefixes
        {
            return Ok((set.number, 0));
        }
        let sets = || self.in_use.values().chain(&self.resting);
        let taken: usize = sets().map(|set| set.prefixes.len()).sum();
        if taken + prefixes.len() > MAX_ALLOWED_PREFIXES as usize {
            return Err(Error::TooMany {
                what: "client prefixes",
                limit: MAX_ALLOWED_PREFIXES,
            });
        }
        let numbers: HashSet<u32> = sets().map(|set| set.number).collect();
        let number = (1..=u32::MAX)
            .find(|number| !numbers.contains(number))
            .unwrap_or(u32::MAX);
        for (address, length) in &prefixes {
            maps.allowed
                .insert(&map_key(number, *address, *length), 1, 0)
                .map_err(during("write", "ALLOWED"))?;
        }
        let changes = prefixes.len() as u64;
        self.rest(key);
        self.in_use.insert(key, Set { number, prefixes });
        // An empty set is a change, too.
        Ok((number, changes.max(1)))
    }

    /// Gives a service's set up; false when it has none.
    pub(crate) fn rest(&mut self, key: (u32, bool)) -> bool {
        let old = self.in_use.remove(&key);
        let had = old.is_some();
        self.resting.extend(old);
        had
    }

    /// Gives up the sets of services that are not among these.
    pub(crate) fn retain(&mut self, services: &HashSet<u32>) {
        let gone: Vec<(u32, bool)> = self
            .in_use
            .keys()
            .filter(|(slot, _)| !services.contains(slot))
            .copied()
            .collect();
        for key in gone {
            self.rest(key);
        }
    }

    /// Removes the sets that were given up before.
    pub(crate) fn clear_resting(&mut self, maps: &mut Maps) -> Result<(), Error> {
        for set in &self.resting {
            for (address, length) in &set.prefixes {
                or_absent(maps.allowed.remove(&map_key(set.number, *address, *length)))
                    .map_err(during("remove from", "ALLOWED"))?;
            }
        }
        self.resting.clear();
        Ok(())
    }
}

fn map_key(set: u32, address: Address, length: u32) -> Key<AllowedPrefix> {
    Key::new(
        AllowedPrefix::SET_BITS + length,
        AllowedPrefix { set, address },
    )
}

/// The networks of one family, each with its host bits cleared.
fn prefixes(networks: &[IpNet], is_v4: bool) -> BTreeSet<Prefix> {
    networks
        .iter()
        .filter(|network| network.addr().is_ipv4() == is_v4)
        .map(|network| {
            let length = u32::from(network.prefix_len());
            // Mapped addresses have 96 bits in common.
            (
                Address::from(network.network()),
                if is_v4 { 96 + length } else { length },
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_of_the_other_family_do_not_count() {
        let networks: Vec<IpNet> = ["10.1.2.3/8", "10.0.0.0/8", "2001:db8::1/32"]
            .map(|text| text.parse().expect("literal"))
            .into();
        let address =
            |text: &str| Address::from(text.parse::<std::net::IpAddr>().expect("literal"));
        assert_eq!(
            prefixes(&networks, true),
            BTreeSet::from([(address("10.0.0.0"), 104)])
        );
        assert_eq!(
            prefixes(&networks, false),
            BTreeSet::from([(address("2001:db8::"), 32)])
        );
    }
}
