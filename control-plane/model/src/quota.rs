//! Quotas: how many objects of each kind a project may have.
//!
//! What is in use is never kept: it is counted when something is created. An object that is being deleted counts until
//! it is gone; only a batch that replaces members may count those it deletes against those it creates.

use crate::spec::{Field, QuotaUpdate};
use crate::{Graph, ProvisioningStatus, Resource};

/// No limit.
pub const UNLIMITED: i32 = -1;

/// The kinds of objects that are counted, in the order of [`PerResource::each`].
pub const COUNTED: [Resource; 7] = [
    Resource::LoadBalancer,
    Resource::Listener,
    Resource::Pool,
    Resource::Member,
    Resource::HealthMonitor,
    Resource::L7Policy,
    Resource::L7Rule,
];

/// One value for each kind of object that is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PerResource<T> {
    pub load_balancer: T,
    pub listener: T,
    pub pool: T,
    pub member: T,
    pub health_monitor: T,
    pub l7policy: T,
    pub l7rule: T,
}

impl<T> PerResource<T> {
    pub fn each(&self) -> [&T; 7] {
        [
            &self.load_balancer,
            &self.listener,
            &self.pool,
            &self.member,
            &self.health_monitor,
            &self.l7policy,
            &self.l7rule,
        ]
    }

    pub fn each_mut(&mut self) -> [&mut T; 7] {
        [
            &mut self.load_balancer,
            &mut self.listener,
            &mut self.pool,
            &mut self.member,
            &mut self.health_monitor,
            &mut self.l7policy,
            &mut self.l7rule,
        ]
    }

    pub fn all(value: T) -> Self
    where
        T: Copy,
    {
        Self {
            load_balancer: value,
            listener: value,
            pool: value,
            member: value,
            health_monitor: value,
            l7policy: value,
            l7rule: value,
        }
    }
}

/// The limits of a project: `None` where the deployment's default holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Quota(pub PerResource<Option<i32>>);

impl Quota {
    /// Null gives a limit back to the default.
    pub fn update(&mut self, spec: &QuotaUpdate) {
        for (limit, field) in self.0.each_mut().into_iter().zip(spec.0.each()) {
            match field {
                Field::Absent => {}
                Field::Null => *limit = None,
                Field::Value(value) => *limit = Some(*value),
            }
        }
    }

    /// The limits that hold.
    pub fn effective(&self, defaults: &PerResource<i32>) -> PerResource<i32> {
        let mut limits = *defaults;
        for (limit, own) in limits.each_mut().into_iter().zip(self.0.each()) {
            *limit = own.unwrap_or(*limit);
        }
        limits
    }
}

/// The objects of one load balancer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QuotaUse {
    all: PerResource<u64>,
    /// Those of them that are being deleted.
    leaving: PerResource<u64>,
}

/// What a change of a load balancer adds to the objects of its project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaDemand {
    created: PerResource<u64>,
    /// Objects that begin to be deleted by the same change.
    leaving: PerResource<u64>,
}

impl QuotaDemand {
    pub fn between(before: &QuotaUse, after: &QuotaUse) -> Self {
        let growth = |before: &PerResource<u64>, after: &PerResource<u64>| {
            let mut growth = *after;
            for (slot, before) in growth.each_mut().into_iter().zip(before.each()) {
                *slot = slot.saturating_sub(*before);
            }
            growth
        };
        Self {
            created: growth(&before.all, &after.all),
            leaving: growth(&before.leaving, &after.leaving),
        }
    }

    /// Whether there will be more of anything in the end.
    pub fn grows(&self) -> bool {
        self.wanted().any(|(_, wanted)| wanted > 0)
    }

    /// Kinds whose limit this change must be measured against.
    pub fn limited(&self, limits: &PerResource<i32>) -> PerResource<bool> {
        let mut limited = PerResource::all(false);
        let slots = limited.each_mut().into_iter().zip(limits.each());
        for ((slot, limit), (_, wanted)) in slots.zip(self.wanted()) {
            *slot = *limit != UNLIMITED && wanted > 0;
        }
        limited
    }

    /// `counted` is how many there are with this change done, for each kind that is [`limited`](Self::limited).
    ///
    /// # Errors
    ///
    /// The first kind of which there would be too many.
    pub fn check(
        &self,
        limits: &PerResource<i32>,
        counted: &PerResource<u64>,
    ) -> Result<(), Resource> {
        let limited = self.limited(limits);
        let kinds = COUNTED
            .into_iter()
            .zip(limited.each())
            .zip(limits.each())
            .zip(counted.each())
            .zip(self.leaving.each());
        for ((((resource, limited), limit), counted), leaving) in kinds {
            let limit = u64::try_from(*limit).unwrap_or(0);
            if *limited && counted.saturating_sub(*leaving) > limit {
                return Err(resource);
            }
        }
        Ok(())
    }

    fn wanted(&self) -> impl Iterator<Item = (Resource, u64)> + '_ {
        COUNTED
            .into_iter()
            .zip(self.created.each())
            .zip(self.leaving.each())
            .map(|((resource, created), leaving)| (resource, created.saturating_sub(*leaving)))
    }
}

impl QuotaUse {
    pub fn of(graph: &Graph) -> Self {
        let mut counts = Self::default();
        counts.add(
            |counts| &mut counts.load_balancer,
            graph.load_balancer.provisioning_status,
        );
        for listener in &graph.listeners {
            counts.add(|counts| &mut counts.listener, listener.provisioning_status);
            for policy in &listener.l7policies {
                counts.add(|counts| &mut counts.l7policy, policy.provisioning_status);
                for rule in &policy.rules {
                    counts.add(|counts| &mut counts.l7rule, rule.provisioning_status);
                }
            }
        }
        for pool in &graph.pools {
            counts.add(|counts| &mut counts.pool, pool.provisioning_status);
            for member in &pool.members {
                counts.add(|counts| &mut counts.member, member.provisioning_status);
            }
            if let Some(monitor) = &pool.health_monitor {
                counts.add(
                    |counts| &mut counts.health_monitor,
                    monitor.provisioning_status,
                );
            }
        }
        counts
    }

    fn add(&mut self, slot: fn(&mut PerResource<u64>) -> &mut u64, status: ProvisioningStatus) {
        *slot(&mut self.all) += 1;
        if status == ProvisioningStatus::PendingDelete {
            *slot(&mut self.leaving) += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PoolProtocol, sample};

    fn with_members(numbers: std::ops::Range<u8>) -> Graph {
        let mut graph = sample::graph(1);
        let mut pool = sample::pool(1, PoolProtocol::Http);
        pool.members = numbers.map(|number| sample::member(number, None)).collect();
        graph.pools.push(pool);
        sample::set_status(&mut graph, ProvisioningStatus::Active);
        graph
    }

    fn between(before: &Graph, after: &Graph) -> QuotaDemand {
        QuotaDemand::between(&QuotaUse::of(before), &QuotaUse::of(after))
    }

    fn limits(member: i32) -> PerResource<i32> {
        PerResource {
            member,
            ..PerResource::all(UNLIMITED)
        }
    }

    fn counted(member: u64) -> PerResource<u64> {
        PerResource {
            member,
            ..PerResource::all(0)
        }
    }

    #[test]
    fn a_new_load_balancer_asks_for_everything_in_it() {
        let demand = QuotaDemand::between(&QuotaUse::default(), &QuotaUse::of(&with_members(0..3)));
        assert!(demand.grows());
        assert_eq!(
            demand.limited(&PerResource::all(10)),
            PerResource {
                load_balancer: true,
                pool: true,
                member: true,
                ..PerResource::all(false)
            }
        );
        assert_eq!(
            demand.limited(&PerResource::all(UNLIMITED)),
            PerResource::all(false)
        );
    }

    #[test]
    fn what_is_there_after_the_change_may_reach_the_limit_and_not_pass_it() {
        let demand = between(&with_members(0..2), &with_members(0..3));
        for (limit, counted_now, expected) in [
            (5, 5, Ok(())),
            (5, 6, Err(Resource::Member)),
            (0, 1, Err(Resource::Member)),
            (UNLIMITED, 1_000_000, Ok(())),
        ] {
            assert_eq!(
                demand.check(&limits(limit), &counted(counted_now)),
                expected,
                "{limit} {counted_now}"
            );
        }
    }

    #[test]
    fn members_that_a_batch_deletes_make_room_for_those_it_creates() {
        let before = with_members(0..4);
        let mut after = with_members(0..8);
        for member in after.pools[0].members.iter_mut().take(4) {
            member.provisioning_status = ProvisioningStatus::PendingDelete;
        }
        assert!(!between(&before, &after).grows());
        after.pools[0].members[0].provisioning_status = ProvisioningStatus::Active;
        let demand = between(&before, &after);
        assert!(demand.grows());
        assert_eq!(demand.check(&limits(5), &counted(8)), Ok(()));
        assert_eq!(demand.check(&limits(4), &counted(8)), Err(Resource::Member));
    }

    #[test]
    fn a_delete_asks_for_nothing() {
        let before = with_members(0..2);
        let mut after = before.clone();
        after.load_balancer.provisioning_status = ProvisioningStatus::PendingDelete;
        assert!(!between(&before, &after).grows());
        after.pools.clear();
        assert!(!between(&before, &after).grows());
    }

    #[test]
    fn null_gives_a_limit_back_to_the_default() {
        let mut quota = Quota::default();
        let spec = |text: &str| QuotaUpdate::decode(&serde_json::from_str(text).unwrap()).unwrap();
        quota.update(&spec(
            r#"{"quota": {"member": 5, "load_balancer": 0, "pool": -1}}"#,
        ));
        let defaults = PerResource::all(7);
        let expected = PerResource {
            member: 5,
            load_balancer: 0,
            pool: UNLIMITED,
            ..defaults
        };
        assert_eq!(quota.effective(&defaults), expected);
        quota.update(&spec(r#"{"quota": {"member": null}}"#));
        assert_eq!(
            quota.effective(&defaults),
            PerResource {
                member: 7,
                ..expected
            }
        );
        quota.update(&spec(r#"{"quota": {}}"#));
        assert_eq!(
            quota.effective(&defaults),
            PerResource {
                member: 7,
                ..expected
            }
        );
    }
}
