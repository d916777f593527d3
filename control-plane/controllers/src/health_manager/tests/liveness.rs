use std::time::Duration;

use lb_model::{AmphoraId, AmphoraStatus, LoadBalancerId, ProvisioningStatus};
use lb_store::{Heard, MessageMark, StaleAmphora};

use super::graphs::{at, graph, healthy};
use crate::health_manager::{Liveness, LivenessSettings, Refusal, Verdict};

fn settings() -> LivenessSettings {
    LivenessSettings {
        heartbeat_timeout: Duration::from_secs(60),
        ..LivenessSettings::default()
    }
}

fn stale(id: AmphoraId) -> StaleAmphora {
    StaleAmphora {
        amphora_id: id,
        load_balancer_id: LoadBalancerId::random(),
        status: AmphoraStatus::Allocated,
        provisioning_status: ProvisioningStatus::Active,
        last_update: Some(at(0)),
        busy: false,
    }
}

/// Scans every three seconds up to `millis`, with nothing stale, so that no gap starts a grace.
fn scan_until(liveness: &mut Liveness, from: i64, to: i64) {
    for millis in (from..=to).step_by(3000) {
        liveness.judge(&[], 0, &[], at(millis));
    }
}

fn past_grace() -> Liveness {
    let mut liveness = Liveness::new(settings(), at(0));
    scan_until(&mut liveness, 0, 60_000);
    liveness
}

fn acts(fail_over: &[AmphoraId]) -> Verdict {
    Verdict::Act {
        fail_over: fail_over.to_vec(),
        unmark: Vec::new(),
    }
}

/// (seq, sent at) of messages in order of arrival, and what becomes of each.
#[test]
fn a_message_seen_before_or_overtaken_is_refused() {
    type Arrival = (u64, Option<u64>, Result<u64, Refusal>);
    let no = Err(Refusal::Replayed);
    let tables: [&[Arrival]; 7] = [
        &[
            (0, Some(10), Ok(0)),
            (1, Some(20), Ok(0)),
            (1, Some(20), no),
            (0, Some(10), no),
        ],
        // Lost on the way.
        &[
            (5, Some(10), Ok(0)),
            (9, Some(50), Ok(3)),
            (7, Some(30), no),
        ],
        // The agent restarts: numbers start again, the clock goes on; what came before is refused.
        &[
            (90, Some(10), Ok(0)),
            (0, Some(20), Ok(0)),
            (91, Some(15), no),
            (1, Some(30), Ok(0)),
        ],
        // Two within one millisecond.
        &[
            (1, Some(10), Ok(0)),
            (2, Some(10), Ok(0)),
            (2, Some(10), no),
        ],
        // The clock is set back: followed while numbers go on.
        &[
            (1, Some(1000), Ok(0)),
            (2, Some(10), Ok(0)),
            (3, Some(20), Ok(0)),
            (2, Some(15), no),
        ],
        // Upstream sender: no clock.
        &[
            (4, None, Ok(0)),
            (5, None, Ok(0)),
            (5, None, no),
            (0, None, Ok(0)),
        ],
        // A clock that was told once cannot be left out to replay.
        &[(4, Some(10), Ok(0)), (5, None, no)],
    ];
    for (table, arrivals) in tables.into_iter().enumerate() {
        let graph = graph(0);
        let mut liveness = Liveness::new(settings(), at(0));
        for (row, (seq, sent_at_ms, expected)) in arrivals.iter().enumerate() {
            let mut message = healthy(&graph, *seq);
            message.sent_at_ms = *sent_at_ms;
            let found = liveness.admit(&message, at(row as i64));
            assert_eq!(found, *expected, "table {table}, row {row}");
        }
    }
}

fn mark(seq: u64, sent_at_ms: u64) -> MessageMark {
    MessageMark {
        seq,
        sent_at_ms: Some(sent_at_ms),
    }
}

/// Newest on record, first message heard, and what becomes of it.
#[test]
fn the_first_message_of_a_sender_must_be_newer_than_the_one_on_record() {
    let replayed = Err(Refusal::Replayed);
    let no_clock = MessageMark {
        seq: 7,
        sent_at_ms: None,
    };
    let table = [
        (None, (0, Some(10)), Ok(())),
        (Some(mark(7, 100)), (8, Some(110)), Ok(())),
        // The agent was restarted meanwhile.
        (Some(mark(7, 100)), (0, Some(200)), Ok(())),
        (Some(mark(7, 100)), (7, Some(100)), replayed),
        (Some(mark(7, 100)), (3, Some(60)), replayed),
        (Some(mark(7, 100)), (8, None), replayed),
        (Some(no_clock), (7, None), replayed),
        (Some(no_clock), (0, None), Ok(())),
    ];
    for (row, (on_record, (seq, sent_at_ms), expected)) in table.into_iter().enumerate() {
        let graph = graph(0);
        let id = graph.amphorae[0].id;
        let mut liveness = past_grace();
        let mut message = healthy(&graph, seq);
        message.sent_at_ms = sent_at_ms;
        liveness.admit(&message, at(61_000)).unwrap();
        let found = liveness.prove(&message, at(61_000), on_record);
        assert_eq!(found, expected, "row {row}");
        // A replay keeps nobody alive; what counts is decided when a good message is worked off.
        let verdict = liveness.judge(&[stale(id)], 10, &[], at(62_000));
        assert_eq!(verdict == acts(&[id]), found.is_err(), "row {row}");
    }
}

#[test]
fn after_a_replay_the_living_sender_is_heard() {
    let graph = graph(0);
    let mut liveness = past_grace();
    let on_record = Some(mark(7, 1_007));
    let (old, new) = (healthy(&graph, 3), healthy(&graph, 8));
    liveness.admit(&old, at(61_000)).unwrap();
    assert_eq!(
        liveness.prove(&old, at(61_000), on_record),
        Err(Refusal::Replayed)
    );
    liveness.admit(&new, at(61_001)).unwrap();
    assert_eq!(liveness.prove(&new, at(61_001), on_record), Ok(()));
    assert_eq!(
        liveness.admit(&healthy(&graph, 4), at(61_002)),
        Err(Refusal::Replayed)
    );
}

#[test]
fn more_senders_than_are_remembered_are_all_heard() {
    let template = graph(0);
    let mut liveness = Liveness::new(
        LivenessSettings {
            remembered: 3,
            ..settings()
        },
        at(0),
    );
    let ids: Vec<AmphoraId> = (0..10).map(|_| AmphoraId::random()).collect();
    let beat = |liveness: &mut Liveness, id: AmphoraId, seq: u64, millis: i64| {
        let mut message = healthy(&template, seq);
        message.id = id.0;
        liveness.admit(&message, at(millis))
    };
    for seq in 0..3 {
        for id in &ids {
            let millis = i64::try_from(seq).unwrap() * 10_000;
            assert_eq!(beat(&mut liveness, *id, seq, millis), Ok(0));
            liveness.worked_off(*id, at(millis), true);
            let batch = liveness.unwritten();
            assert_eq!(batch.len(), 1);
            liveness.written(&batch);
        }
    }
    // While nothing can be written there is a bound, and nobody is judged.
    liveness.database_failed();
    for (number, id) in ids.iter().enumerate() {
        let heard = beat(&mut liveness, *id, 9, 60_000);
        assert_eq!(heard.is_ok(), number < 3);
    }
    let silent: Vec<StaleAmphora> = ids.iter().map(|id| stale(*id)).collect();
    assert!(matches!(
        liveness.judge(&silent, 10, &[], at(61_000)),
        Verdict::Grace { .. }
    ));
    assert!(liveness.database_answered(at(62_000)));
    assert!(matches!(
        liveness.judge(&silent, 10, &[], at(63_000)),
        Verdict::Grace { .. }
    ));
}

#[test]
fn senders_that_fell_silent_are_forgotten_once_they_are_written() {
    let template = graph(0);
    let mut liveness = past_grace();
    let mut batch = Vec::new();
    for number in 0..1000 {
        let mut message = healthy(&template, 1);
        message.id = AmphoraId::random().0;
        let now = at(61_000 + number * 1000);
        liveness.admit(&message, now).unwrap();
        liveness.worked_off(AmphoraId(message.id), now, true);
        batch = liveness.unwritten();
        liveness.written(&batch);
        liveness.prune(now);
        // Those of the last minute.
        assert!(liveness.remembered() <= 61, "{}", liveness.remembered());
    }
    assert_eq!(batch.len(), 1);
    liveness.prune(at(2_000_000));
    assert_eq!(liveness.remembered(), 0);
}

#[test]
fn a_message_that_waited_for_an_interval_is_late() {
    let liveness = Liveness::new(settings(), at(0));
    assert_eq!(liveness.take_up(at(0), at(9_999)), Ok(()));
    assert_eq!(liveness.take_up(at(0), at(10_000)), Err(Refusal::Late));
}

#[test]
fn silence_is_judged_only_after_the_grace_of_the_start() {
    let id = AmphoraId::random();
    let mut liveness = Liveness::new(settings(), at(0));
    for millis in (0..60_000).step_by(3000) {
        assert_eq!(
            liveness.judge(&[stale(id)], 10, &[], at(millis)),
            Verdict::Grace { until: at(60_000) }
        );
    }
    assert_eq!(
        liveness.judge(&[stale(id)], 10, &[], at(60_000)),
        acts(&[id])
    );
}

#[test]
fn what_is_in_memory_counts_though_the_database_does_not_have_it() {
    let graph = graph(0);
    let id = graph.amphorae[0].id;
    let mut liveness = past_grace();
    liveness.admit(&healthy(&graph, 1), at(61_000)).unwrap();
    // Not worked off yet: the queue is long, the amphora is not to blame.
    assert_eq!(liveness.judge(&[stale(id)], 10, &[], at(63_000)), acts(&[]));
    liveness.worked_off(id, at(61_000), true);
    assert_eq!(liveness.judge(&[stale(id)], 10, &[], at(66_000)), acts(&[]));
    let heard = Heard {
        amphora_id: id,
        at: at(61_000),
        newest: mark(1, 1_001),
    };
    assert_eq!(liveness.unwritten(), vec![heard]);
    liveness.written(&[heard]);
    assert_eq!(liveness.unwritten(), vec![]);
    scan_until(&mut liveness, 69_000, 120_000);
    assert_eq!(
        liveness.judge(&[stale(id)], 10, &[], at(121_000)),
        acts(&[])
    );
    assert_eq!(
        liveness.judge(&[stale(id)], 10, &[], at(121_001)),
        acts(&[id])
    );
}

#[test]
fn a_message_that_does_not_count_is_no_sign_of_life() {
    let graph = graph(0);
    let id = graph.amphorae[0].id;
    let mut liveness = past_grace();
    liveness.admit(&healthy(&graph, 1), at(61_000)).unwrap();
    liveness.worked_off(id, at(61_000), false);
    assert_eq!(liveness.unwritten(), vec![]);
    assert_eq!(
        liveness.judge(&[stale(id)], 10, &[], at(63_000)),
        acts(&[id])
    );
}

#[test]
fn an_outage_of_the_database_starts_a_new_grace_when_it_is_over() {
    let id = AmphoraId::random();
    let mut liveness = past_grace();
    liveness.database_failed();
    assert!(matches!(
        liveness.judge(&[stale(id)], 10, &[], at(61_000)),
        Verdict::Grace { .. }
    ));
    assert!(liveness.database_answered(at(62_000)));
    assert!(!liveness.database_answered(at(63_000)));
    for millis in (63_000..122_000).step_by(3000) {
        assert_eq!(
            liveness.judge(&[stale(id)], 10, &[], at(millis)),
            Verdict::Grace { until: at(122_000) }
        );
    }
    assert_eq!(
        liveness.judge(&[stale(id)], 10, &[], at(122_500)),
        acts(&[id])
    );
}

#[test]
fn a_process_that_stood_still_or_whose_clock_jumped_blames_nobody() {
    for jump in [31_000, 3_600_000, -5_000] {
        let id = AmphoraId::random();
        let mut liveness = past_grace();
        let then = 60_000 + jump;
        assert_eq!(
            liveness.judge(&[stale(id)], 10, &[], at(then)),
            Verdict::Grace {
                until: at(then + 60_000)
            },
            "{jump}"
        );
    }
}

/// threshold, silent, watched; held back?
#[test]
fn many_silent_at_once_are_held_back() {
    let table = [
        (None, 1, 1, false),
        (None, 4, 4, false),
        (None, 5, 5, true),
        (None, 5, 10, false),
        (None, 6, 10, true),
        (None, 5000, 10_000, false),
        (None, 5001, 10_000, true),
        (Some(1), 1, 10_000, true),
        (Some(3), 2, 10, false),
        (Some(3), 3, 10_000, true),
        (Some(100), 60, 60, false),
        (Some(0), 0, 10, false),
    ];
    for (failover_threshold, silent, watched, held) in table {
        let mut liveness = Liveness::new(
            LivenessSettings {
                failover_threshold,
                ..settings()
            },
            at(0),
        );
        scan_until(&mut liveness, 0, 60_000);
        let silent: Vec<StaleAmphora> = (0..silent).map(|_| stale(AmphoraId::random())).collect();
        let verdict = liveness.judge(&silent, watched, &[], at(61_000));
        let found = matches!(verdict, Verdict::HoldBack { .. });
        assert_eq!(
            found,
            held,
            "{failover_threshold:?} {} {watched}",
            silent.len()
        );
        if let Verdict::HoldBack { stale, mark } = verdict {
            assert_eq!((stale, mark.len()), (silent.len(), silent.len()));
        }
    }
}

#[test]
fn the_breaker_resets_when_heartbeats_return() {
    let mut liveness = past_grace();
    let mut silent: Vec<StaleAmphora> = (0..8).map(|_| stale(AmphoraId::random())).collect();
    assert!(matches!(
        liveness.judge(&silent, 10, &[], at(61_000)),
        Verdict::HoldBack { stale: 8, .. }
    ));
    for stale in &mut silent {
        stale.status = AmphoraStatus::FailoverStopped;
    }
    let marked: Vec<AmphoraId> = silent.iter().map(|stale| stale.amphora_id).collect();
    assert_eq!(
        liveness.judge(&silent, 10, &marked, at(64_000)),
        Verdict::HoldBack {
            stale: 8,
            mark: Vec::new()
        }
    );
    // All but one are heard again; that one is replaced.
    assert_eq!(
        liveness.judge(&silent[..1], 10, &marked, at(67_000)),
        Verdict::Act {
            fail_over: vec![marked[0]],
            unmark: marked[1..].to_vec()
        }
    );
}

#[test]
fn only_those_that_can_be_replaced_are_the_longest_silent_first() {
    let mut liveness = past_grace();
    let silent: Vec<StaleAmphora> = (0..30)
        .map(|number| StaleAmphora {
            last_update: (number != 7).then(|| at(-number)),
            busy: number == 29,
            provisioning_status: match number {
                28 => ProvisioningStatus::PendingUpdate,
                27 => ProvisioningStatus::Error,
                _ => ProvisioningStatus::Active,
            },
            ..stale(AmphoraId::random())
        })
        .collect();
    let expected: Vec<AmphoraId> = [7, 27, 26, 25, 24, 23, 22, 21, 20, 19]
        .map(|number: usize| silent[number].amphora_id)
        .to_vec();
    assert_eq!(
        liveness.judge(&silent, 1000, &[], at(61_000)),
        acts(&expected)
    );
}

#[test]
fn replacing_what_was_never_heard_waits_twice_as_long_each_time() {
    let mut liveness = past_grace();
    let load_balancer_id = LoadBalancerId::random();
    let mut replaced_at = Vec::new();
    for millis in (63_000..2_000_000).step_by(3000) {
        // Every replacement stays unheard, and is stale a timeout after it was made.
        let made = replaced_at.last().copied().unwrap_or(0);
        let mut silent = vec![StaleAmphora {
            load_balancer_id,
            last_update: None,
            ..stale(AmphoraId::random())
        }];
        silent.retain(|_| millis >= made + 60_000);
        let verdict = liveness.judge(&silent, 10, &[], at(millis));
        if verdict != acts(&[]) {
            replaced_at.push(millis);
        }
    }
    let waits: Vec<i64> = replaced_at
        .windows(2)
        .map(|pair| pair[1] - pair[0])
        .collect();
    assert_eq!(replaced_at[0], 63_000);
    assert_eq!(waits, [120_000, 240_000, 480_000, 960_000]);
}

/// Ten thousand amphorae send every ten seconds for ten minutes with jitter and one datagram in fifty lost; the database is
/// written in batches that lag by five seconds. One dies. It is found, and nobody else.
#[test]
fn among_ten_thousand_only_the_dead_one_is_stale() {
    let template = graph(0);
    let ids: Vec<AmphoraId> = (0..10_000).map(|_| AmphoraId::random()).collect();
    let mut liveness = Liveness::new(settings(), at(0));
    let mut written = vec![0_i64; ids.len()];
    let mut pending: std::collections::VecDeque<(i64, usize)> = std::collections::VecDeque::new();
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut failed = Vec::new();
    for second in 0..600_i64 {
        for (number, id) in ids.iter().enumerate() {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let due = (second + number as i64) % 10 == 0;
            let dead = number == 4321 && second > 200;
            if !due || dead || random.is_multiple_of(50) {
                continue;
            }
            let mut message = healthy(&template, second as u64);
            message.id = id.0;
            let now = at(second * 1000);
            assert!(liveness.admit(&message, now).is_ok());
            pending.push_back((second, number));
        }
        while pending.front().is_some_and(|(sent, _)| *sent <= second - 5) {
            let Some((sent, number)) = pending.pop_front() else {
                break;
            };
            liveness.worked_off(ids[number], at(sent * 1000), true);
            written[number] = sent;
        }
        if second % 3 == 0 {
            let silent: Vec<StaleAmphora> = ids
                .iter()
                .zip(&written)
                .filter(|(_, heard)| **heard < second - 60)
                .map(|(id, heard)| StaleAmphora {
                    last_update: Some(at(heard * 1000)),
                    ..stale(*id)
                })
                .collect();
            if let Verdict::Act { fail_over, .. } =
                liveness.judge(&silent, ids.len(), &[], at(second * 1000))
            {
                failed.extend(fail_over);
            }
        }
    }
    assert!(!failed.is_empty());
    assert!(failed.iter().all(|id| *id == ids[4321]), "{}", failed.len());
}
