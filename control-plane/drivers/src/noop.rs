//! A cloud that is not there, as Octavia's no-op drivers: for trying the API, for compatibility tests, for measuring
//! the control plane alone.
//!
//! Every network, subnet, port and server that is asked for exists; making and deleting succeed at once. What an
//! object looks like follows from its id, so that all replicas tell the same without sharing anything. Only what a
//! plan must see of its own work is remembered, in this process and for a while: a plan that does not see it makes
//! it again, which changes nothing.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sha2::{Digest, Sha256};
use uuid::Uuid;

pub use crate::amphora::NoopAmphoraDriver;
pub use crate::compute::NoopCompute;
pub use crate::network::NoopNetwork;

/// Objects of one kind that are remembered at once.
const REMEMBERED: usize = 1024;

/// The latest entries of a map; the oldest go first.
#[derive(Debug)]
pub(crate) struct Recent<K, V> {
    entries: HashMap<K, V>,
    order: VecDeque<K>,
}

impl<K, V> Default for Recent<K, V> {
    fn default() -> Self {
        Self {
            entries: HashMap::new(),
            order: VecDeque::new(),
        }
    }
}

impl<K: Copy + Eq + Hash, V> Recent<K, V> {
    pub(crate) fn insert(&mut self, key: K, value: V) {
        if self.entries.insert(key, value).is_some() {
            return;
        }
        self.order.push_back(key);
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.entries.remove(&oldest);
        }
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key)
    }

    pub(crate) fn remove(&mut self, key: &K) {
        if self.entries.remove(key).is_some() {
            self.order.retain(|known| known != key);
        }
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.entries.values()
    }
}

/// Bytes that belong to `kind` and `name` for ever.
fn digest(kind: &str, name: &str) -> [u8; 32] {
    Sha256::new()
        .chain_update(kind)
        .chain_update([0])
        .chain_update(name)
        .finalize()
        .into()
}

/// The id of what is called `name` among the objects of this kind.
pub(crate) fn id_of(kind: &str, name: &str) -> Uuid {
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, ..] = digest(kind, name);
    uuid::Builder::from_custom_bytes([a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p]).into_uuid()
}

/// An address of the range for benchmarks (RFC 2544), which no network routes.
pub(crate) fn address_of(kind: &str, name: &str) -> IpAddr {
    let [a, b, c, ..] = digest(kind, name);
    IpAddr::V4(Ipv4Addr::new(198, 18 + (a & 1), b, c.clamp(1, 254)))
}

/// With the prefix that Neutron gives its ports.
pub(crate) fn mac_of(name: &str) -> String {
    let [a, b, c, ..] = digest("mac", name);
    format!("fa:16:3e:{a:02x}:{b:02x}:{c:02x}")
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_entries_make_room() {
        let mut recent = Recent::default();
        for key in 0..REMEMBERED + 10 {
            recent.insert(key, ());
        }
        assert!(recent.get(&9).is_none());
        assert!(recent.get(&10).is_some());
        assert_eq!(recent.values().count(), REMEMBERED);
    }

    #[test]
    fn an_entry_that_comes_back_is_as_new_as_any() {
        let mut recent = Recent::default();
        recent.insert(0, "first");
        recent.remove(&0);
        for key in 1..REMEMBERED {
            recent.insert(key, "other");
        }
        recent.insert(0, "second");
        recent.insert(REMEMBERED, "other");
        assert_eq!(recent.get(&0), Some(&"second"));
        assert!(recent.get(&1).is_none());
    }

    #[test]
    fn one_name_has_one_id_and_others_have_others() {
        assert_eq!(id_of("port", "a"), id_of("port", "a"));
        assert_ne!(id_of("port", "a"), id_of("port", "b"));
        assert_ne!(id_of("port", "a"), id_of("subnet", "a"));
    }
}
