//! A pool as the workers use it: its usable members and the choice among them.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use uuid::Uuid;

use crate::balance::least_connections::LeastConnections;
use crate::balance::round_robin::RoundRobin;
use crate::balance::source_ip::SourceIp;
use crate::config::{self, Algorithm};
use crate::stats::Counters;

/// A member that may get traffic.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) id: Uuid,
    pub(crate) address: SocketAddr,
    pub(crate) weight: u16,
    pub(crate) counters: Arc<Counters>,
}

#[derive(Debug)]
pub(crate) struct Pool {
    config: config::Pool,
    /// Up, with a weight, and not a backup; when there are none of those, the backups.
    usable: Vec<Arc<Member>>,
    balance: Balance,
}

#[derive(Debug)]
enum Balance {
    RoundRobin(RoundRobin),
    LeastConnections(LeastConnections),
    SourceIp(SourceIp),
}

impl Pool {
    /// `before` is what this pool was until now under the same listener; balancing goes on from
    /// there.
    pub(crate) fn compile(
        config: &config::Pool,
        before: Option<&Arc<Pool>>,
        mut counters: impl FnMut(Uuid) -> Arc<Counters>,
    ) -> Arc<Pool> {
        if let Some(before) = before
            && before.config == *config
        {
            return Arc::clone(before);
        }
        let usable_of = |backup: bool| {
            config
                .members
                .iter()
                .filter(move |member| member.up && member.weight > 0 && member.backup == backup)
        };
        let backups = usable_of(false).next().is_none();
        let usable: Vec<_> = usable_of(backups)
            .map(|member| {
                Arc::new(Member {
                    id: member.id,
                    address: member.address,
                    weight: member.weight,
                    counters: counters(member.id),
                })
            })
            .collect();
        let balance = match config.algorithm {
            Algorithm::RoundRobin => {
                let weights: Vec<_> = usable.iter().map(|m| (m.id, m.weight)).collect();
                let credits = before.map(|pool| pool.credits()).unwrap_or_default();
                Balance::RoundRobin(RoundRobin::new(&weights, &credits))
            }
            Algorithm::LeastConnections => Balance::LeastConnections(LeastConnections::default()),
            Algorithm::SourceIp => {
                Balance::SourceIp(SourceIp::new(usable.iter().map(|member| member.weight)))
            }
        };
        Arc::new(Pool {
            config: config.clone(),
            usable,
            balance,
        })
    }

    fn credits(&self) -> HashMap<Uuid, i64> {
        match &self.balance {
            Balance::RoundRobin(ring) => self
                .usable
                .iter()
                .map(|member| member.id)
                .zip(ring.credits())
                .collect(),
            Balance::LeastConnections(_) | Balance::SourceIp(_) => HashMap::new(),
        }
    }

    pub(crate) fn id(&self) -> Uuid {
        self.config.id
    }

    /// The member for a client's next request; `None` when none is usable.
    pub(crate) fn pick(&self, client: IpAddr) -> Option<Arc<Member>> {
        let index = match &self.balance {
            Balance::RoundRobin(ring) => ring.next(),
            Balance::LeastConnections(least) => {
                least.next(self.usable.len(), |index| self.load(index))
            }
            Balance::SourceIp(hash) => hash.pick(client),
        }?;
        self.usable.get(index).cloned()
    }

    /// The member that stands in for `failed`; that one itself when there is no other.
    pub(crate) fn pick_other(&self, client: IpAddr, failed: Uuid) -> Option<Arc<Member>> {
        let Some(at) = self.usable.iter().position(|member| member.id == failed) else {
            return self.pick(client);
        };
        let other = match &self.balance {
            Balance::RoundRobin(ring) => ring.stand_in(at),
            Balance::LeastConnections(least) => least
                .next(self.usable.len().saturating_sub(1), |index| {
                    self.load(skip(at, index))
                })
                .map(|index| skip(at, index)),
            // The next in order.
            Balance::SourceIp(hash) => hash.pick(client).map(|index| {
                if index == at {
                    (at + 1) % self.usable.len()
                } else {
                    index
                }
            }),
        };
        self.usable.get(other.unwrap_or(at)).cloned()
    }

    /// (in flight, weight) of a usable member.
    fn load(&self, index: usize) -> (u64, u16) {
        self.usable
            .get(index)
            .map_or((u64::MAX, 1), |m| (m.counters.active(), m.weight))
    }

    /// The member of that id, while it is usable.
    pub(crate) fn usable(&self, id: Uuid) -> Option<Arc<Member>> {
        self.usable.iter().find(|member| member.id == id).cloned()
    }
}

/// The index among all of the `index`th without `at`.
fn skip(at: usize, index: usize) -> usize {
    if index < at { index } else { index + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn member(id: u128, weight: u16, backup: bool, up: bool) -> config::Member {
        config::Member {
            id: Uuid::from_u128(id),
            address: SocketAddr::from(([127, 0, 0, 1], 80)),
            weight,
            backup,
            up,
        }
    }

    fn compile(
        algorithm: Algorithm,
        members: Vec<config::Member>,
        before: Option<&Arc<Pool>>,
    ) -> Arc<Pool> {
        let config = config::Pool {
            id: Uuid::from_u128(99),
            algorithm,
            members,
        };
        Pool::compile(&config, before, |_| Arc::new(Counters::new(1)))
    }

    fn served(pool: &Pool, turns: usize) -> Vec<u128> {
        let mut ids: Vec<_> = (0..turns)
            .filter_map(|_| pool.pick(CLIENT))
            .map(|member| member.id.as_u128())
            .collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    #[test]
    fn backups_serve_all_together_and_only_when_no_other_can() {
        let with = |up: bool, weight: u16| {
            let members = vec![
                member(1, weight, false, up),
                member(2, 1, true, true),
                member(3, 1, true, true),
                member(4, 1, true, false),
                member(5, 0, true, true),
            ];
            served(&compile(Algorithm::RoundRobin, members, None), 20)
        };
        assert_eq!(with(true, 1), [1]);
        assert_eq!(with(false, 1), [2, 3]);
        assert_eq!(with(true, 0), [2, 3]);
    }

    #[test]
    fn without_a_usable_member_there_is_no_pick() {
        for algorithm in [
            Algorithm::RoundRobin,
            Algorithm::LeastConnections,
            Algorithm::SourceIp,
        ] {
            let members = vec![member(1, 0, false, true), member(2, 1, false, false)];
            assert!(compile(algorithm, members, None).pick(CLIENT).is_none());
        }
    }

    #[test]
    fn a_retry_goes_elsewhere_when_there_is_an_elsewhere() {
        for algorithm in [
            Algorithm::RoundRobin,
            Algorithm::LeastConnections,
            Algorithm::SourceIp,
        ] {
            let two = vec![member(1, 200, false, true), member(2, 1, false, true)];
            let pool = compile(algorithm, two, None);
            for _ in 0..10 {
                let other = pool.pick_other(CLIENT, Uuid::from_u128(1)).unwrap();
                assert_eq!(other.id.as_u128(), 2);
            }
            let pool = compile(algorithm, vec![member(1, 1, false, true)], None);
            let same = pool.pick_other(CLIENT, Uuid::from_u128(1)).unwrap();
            assert_eq!(same.id.as_u128(), 1);
        }
    }

    #[test]
    fn shares_stay_exact_while_other_members_come_and_go() {
        let base = || vec![member(1, 1, false, true), member(2, 1, false, true)];
        let mut pool = compile(Algorithm::RoundRobin, base(), None);
        let mut counts = HashMap::new();
        for round in 0..200 {
            let mut members = base();
            // A backup changes the configuration, not the usable members.
            members.push(member(3, 1 + (round % 2), true, true));
            pool = compile(Algorithm::RoundRobin, members, Some(&pool));
            let id = pool.pick(CLIENT).unwrap().id.as_u128();
            *counts.entry(id).or_insert(0) += 1;
        }
        assert_eq!(counts, HashMap::from([(1, 100), (2, 100)]));
    }
}
