//! What was learned of tokens, for a while, and who is being asked about now.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use tokio::sync::OnceCell;

use super::super::Caller;

/// Tokens remembered as valid.
const MAX_VALID: usize = 20_000;
/// Tokens remembered as invalid; apart, so that a flood of wrong ones does not push out those in use.
const MAX_INVALID: usize = 5_000;

/// Stands for a token, which is not kept.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct TokenHash([u8; 32]);

impl TokenHash {
    pub(super) fn of(token: &str) -> Self {
        Self(Sha256::digest(token.as_bytes()).into())
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second, ..] = self.0;
        write!(f, "TokenHash({first:02x}{second:02x}…)")
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    Valid(Arc<Caller>),
    Invalid,
}

/// A verdict and how long it may be believed.
#[derive(Debug, Clone)]
pub(super) struct Learned {
    pub(super) verdict: Verdict,
    pub(super) fresh_for: Duration,
}

/// The verdict, or why there is none.
pub(super) type Outcome = Result<Verdict, Arc<str>>;

pub(super) struct Cache(Mutex<State>);

struct State {
    valid: Table,
    invalid: Table,
    flights: HashMap<TokenHash, Arc<Flight>>,
}

/// A question under way; whoever brings the same token waits for its outcome.
type Flight = OnceCell<Outcome>;

impl Default for Cache {
    fn default() -> Self {
        Self::with_capacity(MAX_VALID, MAX_INVALID)
    }
}

impl Cache {
    pub(super) fn with_capacity(valid: usize, invalid: usize) -> Self {
        Self(Mutex::new(State {
            valid: Table::new(valid),
            invalid: Table::new(invalid),
            flights: HashMap::new(),
        }))
    }

    /// What is known at `now`, else what `ask` learns. Of those that come with one token at once, one asks; when it is
    /// dropped before it is done, the next one does. Why there is no verdict is told to all of them and not kept.
    pub(super) async fn resolve<F>(
        &self,
        token: TokenHash,
        now: Instant,
        ask: impl FnOnce() -> F,
    ) -> Outcome
    where
        F: Future<Output = Result<Learned, Arc<str>>>,
    {
        let seat = match self.join(token, now) {
            Ok(verdict) => return Ok(verdict),
            Err(seat) => seat,
        };
        seat.flight
            .get_or_init(|| async {
                let outcome = ask().await;
                self.land(token, &outcome);
                outcome.map(|learned| learned.verdict)
            })
            .await
            .clone()
    }

    fn join(&self, token: TokenHash, now: Instant) -> Result<Verdict, Seat<'_>> {
        let mut state = self.lock();
        let known = state
            .valid
            .lookup(&token, now)
            .or_else(|| state.invalid.lookup(&token, now));
        if let Some(verdict) = known {
            return Ok(verdict);
        }
        let flight = Arc::clone(state.flights.entry(token).or_default());
        Err(Seat {
            cache: self,
            token,
            flight,
        })
    }

    /// Those who come from now on do not join the flight.
    fn land(&self, token: TokenHash, outcome: &Result<Learned, Arc<str>>) {
        let mut state = self.lock();
        state.flights.remove(&token);
        if let Ok(Learned { verdict, fresh_for }) = outcome {
            let now = Instant::now();
            let table = match verdict {
                Verdict::Valid(_) => &mut state.valid,
                Verdict::Invalid => &mut state.invalid,
            };
            table.insert(token, verdict.clone(), now, now + *fresh_for);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in a flight; the last one to leave clears it away.
struct Seat<'a> {
    cache: &'a Cache,
    token: TokenHash,
    flight: Arc<Flight>,
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        let mut state = self.cache.lock();
        let mine = std::mem::take(&mut self.flight);
        let abandoned = state
            .flights
            .get(&self.token)
            // The map's and mine.
            .is_some_and(|flight| Arc::ptr_eq(flight, &mine) && Arc::strong_count(flight) == 2);
        if abandoned {
            state.flights.remove(&self.token);
        }
        // Under the lock, or two that leave together each take the other for one who stays.
        drop(mine);
    }
}

/// Verdicts until they are stale; the oldest go when there are too many.
struct Table {
    entries: HashMap<TokenHash, Entry>,
    /// As they came, with the number of the insertion: a later one of the same token has another.
    order: VecDeque<(TokenHash, u64)>,
    inserted: u64,
    capacity: usize,
}

struct Entry {
    verdict: Verdict,
    until: Instant,
    number: u64,
}

impl Table {
    fn new(capacity: usize) -> Self {
        Self {
            entries: HashMap::new(),
            order: VecDeque::new(),
            inserted: 0,
            capacity,
        }
    }

    fn lookup(&self, token: &TokenHash, now: Instant) -> Option<Verdict> {
        self.entries
            .get(token)
            .filter(|entry| now < entry.until)
            .map(|entry| entry.verdict.clone())
    }

    fn insert(&mut self, token: TokenHash, verdict: Verdict, now: Instant, until: Instant) {
        self.inserted = self.inserted.wrapping_add(1);
        let number = self.inserted;
        let entry = Entry {
            verdict,
            until,
            number,
        };
        self.entries.insert(token, entry);
        self.order.push_back((token, number));
        while let Some((oldest, number)) = self.order.front().copied() {
            let current = self
                .entries
                .get(&oldest)
                .filter(|entry| entry.number == number);
            let stale = current.is_none_or(|entry| entry.until <= now);
            if !stale && self.order.len() <= self.capacity {
                return;
            }
            if current.is_some() {
                self.entries.remove(&oldest);
            }
            self.order.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn valid(user: &str) -> Verdict {
        Verdict::Valid(Arc::new(Caller {
            user_id: Some(user.to_owned()),
            ..Caller::default()
        }))
    }

    fn learned(verdict: Verdict, seconds: u64) -> Result<Learned, Arc<str>> {
        Ok(Learned {
            verdict,
            fresh_for: Duration::from_secs(seconds),
        })
    }

    async fn never() -> Result<Learned, Arc<str>> {
        panic!("asked again for what is known")
    }

    #[tokio::test]
    async fn a_verdict_is_believed_until_it_is_stale() {
        let cache = Cache::default();
        let (good, bad) = (TokenHash::of("good"), TokenHash::of("bad"));
        let now = Instant::now();
        let first = cache
            .resolve(good, now, || async { learned(valid("a"), 60) })
            .await;
        assert_eq!(first, Ok(valid("a")));
        assert_eq!(cache.resolve(good, now, never).await, Ok(valid("a")));
        let refused = cache
            .resolve(bad, now, || async { learned(Verdict::Invalid, 60) })
            .await;
        assert_eq!(refused, Ok(Verdict::Invalid));
        assert_eq!(cache.resolve(bad, now, never).await, Ok(Verdict::Invalid));
        let later = now + Duration::from_secs(61);
        let revoked = cache
            .resolve(good, later, || async { learned(Verdict::Invalid, 60) })
            .await;
        assert_eq!(revoked, Ok(Verdict::Invalid));
    }

    #[tokio::test]
    async fn no_verdict_is_not_kept() {
        let cache = Cache::default();
        let token = TokenHash::of("t");
        let now = Instant::now();
        let away = cache
            .resolve(token, now, || async { Err("away".into()) })
            .await;
        assert_eq!(away, Err("away".into()));
        let back = cache
            .resolve(token, now, || async { learned(valid("a"), 60) })
            .await;
        assert_eq!(back, Ok(valid("a")));
        assert!(cache.lock().flights.is_empty());
    }

    #[tokio::test]
    async fn one_asks_for_all_who_come_with_the_same_token() {
        let cache = Cache::default();
        let token = TokenHash::of("t");
        let (answer, waiting) = tokio::sync::oneshot::channel::<()>();
        let now = Instant::now();
        let asks = async {
            cache
                .resolve(token, now, || async {
                    waiting.await.unwrap();
                    learned(valid("a"), 60)
                })
                .await
        };
        let joins = || cache.resolve(token, now, never);
        let release = async {
            // Polled last, when the others are all on board.
            answer.send(()).unwrap();
        };
        let (first, second, third, ()) = tokio::join!(asks, joins(), joins(), release);
        for outcome in [first, second, third] {
            assert_eq!(outcome, Ok(valid("a")));
        }
        assert!(cache.lock().flights.is_empty());
    }

    #[tokio::test]
    async fn when_the_asker_hangs_up_the_next_one_asks_and_nothing_stays_behind() {
        let cache = Cache::default();
        let token = TokenHash::of("t");
        let now = Instant::now();
        let mut asks = Box::pin(cache.resolve(token, now, std::future::pending));
        assert!(asks.as_mut().now_or_never().is_none());
        let mut next = Box::pin(cache.resolve(token, now, || async { learned(valid("a"), 60) }));
        assert!(next.as_mut().now_or_never().is_none());
        drop(asks);
        assert_eq!(next.await, Ok(valid("a")));
        assert!(cache.lock().flights.is_empty());

        let other = TokenHash::of("other");
        let mut alone = Box::pin(cache.resolve(other, now, std::future::pending));
        assert!(alone.as_mut().now_or_never().is_none());
        assert_eq!(cache.lock().flights.len(), 1);
        drop(alone);
        assert!(cache.lock().flights.is_empty());
    }

    #[test]
    fn a_table_keeps_the_newest_and_drops_the_stale() {
        let mut table = Table::new(3);
        let start = Instant::now();
        let token = |number: u32| TokenHash::of(&number.to_string());
        let minute = Duration::from_secs(60);
        for number in 0..10 {
            table.insert(token(number), Verdict::Invalid, start, start + minute);
        }
        assert_eq!((table.entries.len(), table.order.len()), (3, 3));
        assert_eq!(table.lookup(&token(6), start), None);
        assert_eq!(table.lookup(&token(7), start), Some(Verdict::Invalid));
        // The same token again and again takes one place.
        for _ in 0..10 {
            table.insert(token(9), valid("a"), start, start + minute);
        }
        assert!(table.order.len() <= 3);
        assert_eq!(table.lookup(&token(9), start), Some(valid("a")));
        let later = start + minute + minute;
        table.insert(token(11), Verdict::Invalid, later, later + minute);
        assert_eq!((table.entries.len(), table.order.len()), (1, 1));
    }

    #[test]
    fn a_flood_of_invalid_tokens_leaves_the_valid_ones() {
        let cache = Cache::with_capacity(2, 2);
        let now = Instant::now();
        cache.land(TokenHash::of("good"), &learned(valid("a"), 60));
        for number in 0..100 {
            let token = TokenHash::of(&number.to_string());
            cache.land(token, &learned(Verdict::Invalid, 60));
        }
        let state = cache.lock();
        assert_eq!(
            state.valid.lookup(&TokenHash::of("good"), now),
            Some(valid("a"))
        );
        assert_eq!(state.invalid.entries.len(), 2);
    }

    #[test]
    fn debug_output_shows_neither_token_nor_whole_hash() {
        let shown = format!("{:?}", TokenHash::of("secret"));
        assert!(shown.len() < 24 && !shown.contains("secret"), "{shown}");
    }
}
