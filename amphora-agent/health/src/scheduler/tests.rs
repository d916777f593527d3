use proptest::prelude::*;
use uuid::Uuid;

use super::*;

const DELAY: Duration = Duration::from_secs(6);

fn target(n: u128, rise: u32, fall: u32) -> Target {
    Target {
        key: TargetKey {
            pool: Uuid::from_u128(1),
            member: Uuid::from_u128(n),
        },
        address: ([127, 0, 0, 1], 80).into(),
        check: Check::Tcp,
        delay: DELAY,
        timeout: Duration::from_secs(2),
        rise,
        fall,
    }
}

/// One target with a clock that jumps to each check.
struct Sim {
    scheduler: Scheduler,
    now: Instant,
    key: TargetKey,
}

impl Sim {
    fn new(target: Target) -> Sim {
        let mut sim = Sim {
            scheduler: Scheduler::new(),
            now: Instant::now(),
            key: target.key,
        };
        sim.set(target);
        sim
    }

    fn set(&mut self, target: Target) {
        self.scheduler.set_targets(vec![target], self.now);
    }

    fn begin(&mut self) -> ProbeId {
        self.now = self.scheduler.next_deadline().unwrap().max(self.now);
        let probes = self.scheduler.poll(self.now);
        assert_eq!(probes.len(), 1);
        probes[0].id
    }

    fn result(&mut self, good: bool) -> Option<State> {
        let id = self.begin();
        self.end(id, good)
    }

    fn end(&mut self, id: ProbeId, good: bool) -> Option<State> {
        self.scheduler
            .on_result(id, outcome(good), self.now)
            .map(|transition| transition.state)
    }

    fn status(&self) -> Status {
        self.scheduler.state(&self.key).unwrap()
    }
}

fn outcome(good: bool) -> Outcome {
    if good {
        Outcome::Success
    } else {
        Outcome::Failure("no".into())
    }
}

#[test]
fn a_remembered_member_is_down_until_its_first_result_which_decides() {
    for (good, expected) in [(true, State::Up), (false, State::Down)] {
        let target = target(1, 2, 3);
        let mut sim = Sim {
            scheduler: Scheduler::remembering([target.key]),
            now: Instant::now(),
            key: target.key,
        };
        let before: Vec<_> = sim.scheduler.states().collect();
        assert_eq!(before[0].1.state, State::Down, "before any target is set");
        sim.set(target.clone());
        assert_eq!(sim.status().to_string(), "DOWN");
        assert_eq!(sim.result(good), good.then_some(State::Up));
        assert_eq!(sim.status().state, expected);
        // From here on as ever.
        if !good {
            assert_eq!(sim.result(true), None);
            assert_eq!(sim.result(true), Some(State::Up));
        }
        // Removed and added again it is a new one.
        sim.scheduler.set_targets(vec![], sim.now);
        sim.set(target);
        assert_eq!(sim.status().state, State::Up);
    }
}

#[test]
fn what_is_remembered_of_members_that_are_no_targets_is_forgotten() {
    let mut scheduler = Scheduler::remembering([target(7, 1, 1).key]);
    scheduler.set_targets(vec![target(1, 1, 1)], Instant::now());
    let states: Vec<_> = scheduler.states().collect();
    assert_eq!(states.len(), 1);
    assert_eq!(states[0].1.state, State::Up);
}

/// Every state with rise 2 and fall 3, every event, what comes of it and how it is written.
#[test]
fn transition_table_is_exhaustive_and_correct() {
    use State::{Down, Up};
    // How to get there, the event, the transition, the status after it.
    let table: [(&[bool], bool, Option<State>, &str); 12] = [
        // Assumed up.
        (&[], true, None, "UP"),
        (&[], false, Some(Down), "DOWN"),
        // Up.
        (&[true], true, None, "UP"),
        (&[true], false, None, "UP 2/3"),
        (&[true, false], true, None, "UP"),
        (&[true, false], false, None, "UP 1/3"),
        (&[true, false, false], true, None, "UP"),
        (&[true, false, false], false, Some(Down), "DOWN"),
        // Down.
        (&[false], false, None, "DOWN"),
        (&[false], true, None, "DOWN 1/2"),
        (&[false, true], false, None, "DOWN"),
        (&[false, true], true, Some(Up), "UP"),
    ];
    for (before, event, transition, after) in table {
        let mut sim = Sim::new(target(1, 2, 3));
        assert_eq!(sim.status().to_string(), "UP");
        assert!(!sim.status().checked);
        for good in before {
            sim.result(*good);
        }
        assert_eq!(sim.result(event), transition, "{before:?} then {event}");
        assert_eq!(sim.status().to_string(), after, "{before:?} then {event}");
        assert!(sim.status().checked);
    }
}

#[test]
fn after_coming_up_again_it_takes_all_failures_to_go_down() {
    let mut sim = Sim::new(target(1, 1, 2));
    assert_eq!(sim.result(false), Some(State::Down));
    assert_eq!(sim.result(true), Some(State::Up));
    assert_eq!(sim.result(false), None);
    assert_eq!(sim.result(false), Some(State::Down));
}

#[test]
fn zero_counts_as_one() {
    let mut sim = Sim::new(target(1, 0, 0));
    assert_eq!(sim.result(true), None);
    assert_eq!(sim.result(false), Some(State::Down));
    assert_eq!(sim.result(true), Some(State::Up));
}

#[test]
fn checks_start_one_delay_apart_however_long_they_take() {
    let mut sim = Sim::new(target(1, 1, 1));
    let start = sim.now;
    let id = sim.begin();
    assert_eq!(sim.now, start, "a single member is checked at once");
    assert_eq!(sim.scheduler.next_deadline(), None);
    sim.now += Duration::from_secs(2);
    sim.end(id, true);
    assert_eq!(sim.scheduler.next_deadline(), Some(start + DELAY));
    assert!(sim.scheduler.poll(sim.now).is_empty());
    let id = sim.begin();
    // Longer than a delay: the next one at once, not two.
    sim.now += DELAY * 3;
    sim.end(id, true);
    assert_eq!(sim.scheduler.next_deadline(), Some(sim.now));
}

#[test]
fn first_checks_are_spread_over_one_interval() {
    let mut scheduler = Scheduler::new();
    let now = Instant::now();
    scheduler.set_targets((0..3).map(|n| target(n, 1, 1)).collect(), now);
    let mut starts = Vec::new();
    for second in 0..6 {
        let probes = scheduler.poll(now + Duration::from_secs(second));
        starts.push(probes.len());
    }
    assert_eq!(starts, [1, 0, 1, 0, 1, 0]);
}

#[test]
fn changed_parameters_keep_the_state_and_the_count() {
    let mut sim = Sim::new(target(1, 2, 3));
    sim.result(true);
    sim.result(false);
    sim.result(false);
    sim.set(target(1, 2, 5));
    assert_eq!(sim.status().to_string(), "UP 3/5");
    sim.set(target(1, 2, 2));
    assert_eq!(sim.result(false), Some(State::Down));
    let mut moved = target(1, 2, 2);
    moved.address = ([127, 0, 0, 2], 80).into();
    sim.set(moved);
    assert_eq!(sim.status().to_string(), "DOWN");
}

#[test]
fn a_shorter_delay_counts_at_once() {
    let mut sim = Sim::new(target(1, 1, 1));
    sim.result(true);
    let mut faster = target(1, 1, 1);
    faster.delay = Duration::from_secs(1);
    sim.set(faster);
    assert_eq!(
        sim.scheduler.next_deadline(),
        Some(sim.now + Duration::from_secs(1))
    );
}

#[test]
fn an_answer_from_a_former_address_is_ignored() {
    let mut sim = Sim::new(target(1, 1, 1));
    let old = sim.begin();
    let mut moved = target(1, 1, 1);
    moved.address = ([127, 0, 0, 2], 80).into();
    sim.set(moved);
    assert_eq!(sim.end(old, false), None);
    assert_eq!(sim.status().to_string(), "UP");
    // The new address is asked at once.
    assert_eq!(sim.scheduler.next_deadline(), Some(sim.now));
    assert_eq!(sim.result(false), Some(State::Down));
}

#[test]
fn results_for_removed_or_unknown_checks_are_ignored() {
    let mut sim = Sim::new(target(1, 1, 1));
    let id = sim.begin();
    sim.scheduler.set_targets(Vec::new(), sim.now);
    assert_eq!(sim.end(id, false), None);
    assert_eq!(sim.scheduler.state(&sim.key), None);
    assert_eq!(sim.scheduler.next_deadline(), None);
    // The same member again is a new one.
    sim.set(target(1, 1, 1));
    assert_eq!(sim.end(id, false), None);
    assert_eq!(sim.end(ProbeId(999), false), None);
    let id = sim.begin();
    assert_eq!(sim.end(id, false), Some(State::Down));
    assert_eq!(sim.end(id, true), None, "one result a check");
}

#[test]
fn setting_the_same_targets_changes_nothing() {
    let mut sim = Sim::new(target(1, 2, 3));
    sim.result(true);
    sim.result(false);
    let deadline = sim.scheduler.next_deadline();
    let id = sim.begin();
    sim.set(target(1, 2, 3));
    sim.end(id, false);
    assert_eq!(sim.status().to_string(), "UP 1/3");
    assert!(sim.scheduler.next_deadline() > deadline);
}

proptest! {
    /// Against a plain count of the results since the last that agreed with the state.
    #[test]
    fn any_results_lead_where_counting_leads(
        results in prop::collection::vec(any::<bool>(), 0..60), rise in 1u32..5, fall in 1u32..5) {
        let mut sim = Sim::new(target(1, rise, fall));
        let (mut up, mut row) = (true, 0);
        for (n, good) in results.iter().enumerate() {
            row = if *good == up { 0 } else { row + 1 };
            let needed = if n == 0 { 1 } else if up { fall } else { rise };
            let turns = row >= needed;
            if turns {
                up = !up;
                row = 0;
            }
            let state = if up { State::Up } else { State::Down };
            prop_assert_eq!(sim.result(*good), turns.then_some(state));
            prop_assert_eq!(sim.status().state, state);
            prop_assert_eq!(sim.status().against, row);
        }
    }

    /// Whatever happens, a known member is checked again within one delay of the last end.
    #[test]
    fn no_member_is_ever_forgotten(steps in prop::collection::vec((0u8..5, 0u128..4), 1..80)) {
        let mut scheduler = Scheduler::new();
        let mut now = Instant::now();
        let mut open = Vec::new();
        let mut known: Vec<Target> = Vec::new();
        for (step, n) in steps {
            match step {
                0 => {
                    known.retain(|target| target.key.member != Uuid::from_u128(n));
                    known.push(target(n, 1, 1));
                    scheduler.set_targets(known.clone(), now);
                }
                1 => {
                    known.retain(|target| target.key.member != Uuid::from_u128(n));
                    scheduler.set_targets(known.clone(), now);
                }
                2 => open.extend(scheduler.poll(now).into_iter().map(|probe| probe.id)),
                3 => if let Some(id) = open.pop() {
                    scheduler.on_result(id, outcome(n % 2 == 0), now);
                },
                _ => now += Duration::from_secs(1),
            }
        }
        for id in open {
            scheduler.on_result(id, Outcome::Success, now);
        }
        let mut asked: Vec<_> = scheduler.poll(now + DELAY).into_iter().map(|p| p.target.key).collect();
        asked.sort();
        let mut keys: Vec<_> = known.iter().map(|target| target.key).collect();
        keys.sort();
        prop_assert_eq!(asked, keys);
    }
}
