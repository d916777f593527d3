//! Heartbeats: what they say (pure) and the task that sends them.
//!
//! One datagram each interval to the next health manager, from the agent's own network namespace; besides, one at
//! once when a document was applied or a member changed its state, at most ten a second. Sending never fails
//! anything: a lost heartbeat is the receiver's to notice.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use amphora_api::{
    AmphoraConfig, HeartbeatListener, HeartbeatListenerStats, HeartbeatMessage, HeartbeatPool,
    HeartbeatTotals, ListenerProtocol, Member, Pool, encode_heartbeat,
};
use amphora_health::{State, Status, TargetKey};
use tokio::net::UdpSocket;
use tokio::time::Instant;
use uuid::Uuid;

use crate::agent::Agent;

/// Least time between two heartbeats.
const MIN_GAP: Duration = Duration::from_millis(100);

/// Octavia's `default_connection_limit`.
pub(crate) const DEFAULT_CONNECTION_LIMIT: u32 = 50_000;

/// Largest UDP payload over IPv4.
const MAX_UDP_PAYLOAD: usize = 65_507;

/// What a heartbeat tells of, besides the document.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    pub seq: u64,
    pub sent_at_ms: u64,
    /// Since the last heartbeat, for each listener of the document.
    pub stats: BTreeMap<Uuid, HeartbeatListenerStats>,
    /// The same counters, absolute.
    pub totals: BTreeMap<Uuid, HeartbeatTotals>,
    /// Listeners whose engine says they are full.
    pub full: BTreeSet<Uuid>,
    pub members: BTreeMap<TargetKey, Status>,
    /// Listeners that are not served: left out, so that the receiver sees them missing.
    pub failed: BTreeSet<Uuid>,
}

/// The message for a document, or the empty one of an amphora that has none yet.
pub fn message(
    amphora_id: Uuid,
    document: Option<&AmphoraConfig>,
    facts: &Facts,
) -> HeartbeatMessage {
    let mut message = HeartbeatMessage {
        id: amphora_id,
        seq: facts.seq,
        ver: 3,
        sent_at_ms: Some(facts.sent_at_ms),
        generation: document.map(|document| document.generation),
        listeners: BTreeMap::new(),
        pools: BTreeMap::new(),
        totals: BTreeMap::new(),
    };
    let Some(document) = document else {
        return message;
    };
    for listener in &document.listeners {
        if facts.failed.contains(&listener.id) {
            continue;
        }
        let stats = facts.stats.get(&listener.id).copied().unwrap_or_default();
        let limit = listener
            .connection_limit
            .unwrap_or(DEFAULT_CONNECTION_LIMIT);
        let udp = listener.protocol == ListenerProtocol::Udp;
        let full = facts.full.contains(&listener.id) || stats.conns >= u64::from(limit);
        message.listeners.insert(
            listener.id,
            HeartbeatListener {
                status: if full && !udp { "FULL" } else { "OPEN" }.to_owned(),
                stats,
            },
        );
        if let Some(totals) = facts.totals.get(&listener.id) {
            message.totals.insert(listener.id, *totals);
        }
        let pool = listener
            .default_pool
            .and_then(|id| document.pools.iter().find(|pool| pool.id == id));
        if let Some(pool) = pool {
            let key = if udp {
                pool.id.to_string()
            } else {
                format!("{}:{}", pool.id, listener.id)
            };
            message.pools.insert(key, pool_status(pool, udp, facts));
        }
    }
    message
}

fn pool_status(pool: &Pool, udp: bool, facts: &Facts) -> HeartbeatPool {
    let status = |member: &Member| {
        facts.members.get(&TargetKey {
            pool: pool.id,
            member: member.id,
        })
    };
    let up = |member: &&Member| {
        member.enabled && status(member).is_none_or(|status| status.state == State::Up)
    };
    // A proxy's pool is down when it has members and none may take traffic; a kernel balanced one only when it is
    // monitored and every monitored member is down.
    let down = if udp {
        let mut monitored = pool
            .members
            .iter()
            .filter(|member| member.enabled && pool.monitor.is_some())
            .peekable();
        monitored.peek().is_some() && !monitored.any(|member| up(&member))
    } else {
        !pool.members.is_empty()
            && !pool
                .members
                .iter()
                .filter(up)
                .any(|member| member.weight > 0)
    };
    HeartbeatPool {
        status: if down { "DOWN" } else { "UP" }.to_owned(),
        members: pool
            .members
            .iter()
            .map(|member| (member.id, member_text(pool, member, status(member))))
            .collect(),
    }
}

fn member_text(pool: &Pool, member: &Member, status: Option<&Status>) -> String {
    if !member.enabled {
        return "MAINT".to_owned();
    }
    if pool.monitor.is_none() {
        return "no check".to_owned();
    }
    match status {
        // Its first check has not ended: up until shown otherwise.
        None if member.weight == 0 => "DRAIN".to_owned(),
        None => "UP".to_owned(),
        Some(status) if status.state == State::Up && member.weight == 0 => "DRAIN".to_owned(),
        Some(status) => status.to_string(),
    }
}

/// Sends heartbeats until it is dropped.
pub async fn run(agent: Arc<Agent>) {
    let mut sender = Sender::default();
    let mut last: Option<Instant> = None;
    loop {
        let interval = agent.heartbeat_interval();
        if let Some(last) = last {
            tokio::select! {
                () = tokio::time::sleep_until(last + interval) => {}
                () = agent.news() => tokio::time::sleep_until(last + MIN_GAP).await,
            }
        }
        last = Some(Instant::now());
        let facts_seq = sender.seq;
        let (message, controllers) = agent.heartbeat(facts_seq, now_ms()).await;
        sender.seq = sender.seq.wrapping_add(1);
        sender
            .send(&message, &controllers, agent.heartbeat_key())
            .await;
    }
}

pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[derive(Default)]
struct Sender {
    seq: u64,
    turn: usize,
    v4: Option<UdpSocket>,
    v6: Option<UdpSocket>,
    warned_of_length: bool,
}

impl Sender {
    async fn send(&mut self, message: &HeartbeatMessage, controllers: &[SocketAddr], key: &[u8]) {
        if controllers.is_empty() {
            return;
        }
        let datagram = match encode_heartbeat(message, key) {
            Ok(datagram) if datagram.len() <= MAX_UDP_PAYLOAD => datagram,
            Ok(_) | Err(_) => {
                if !std::mem::replace(&mut self.warned_of_length, true) {
                    tracing::warn!(
                        listeners = message.listeners.len(),
                        "heartbeat is longer than a datagram and is not sent"
                    );
                }
                return;
            }
        };
        self.turn = self.turn.wrapping_add(1) % controllers.len();
        let Some(&controller) = controllers.get(self.turn) else {
            return;
        };
        if let Err(error) = self.send_to(&datagram, controller).await {
            tracing::debug!(%controller, %error, "heartbeat not sent");
        }
    }

    async fn send_to(&mut self, datagram: &[u8], controller: SocketAddr) -> std::io::Result<()> {
        let (socket, any) = match controller {
            SocketAddr::V4(_) => (&mut self.v4, SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))),
            SocketAddr::V6(_) => (&mut self.v6, SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0))),
        };
        let socket = match socket {
            Some(socket) => socket,
            None => socket.insert(UdpSocket::bind(any).await?),
        };
        socket.send_to(datagram, controller).await.map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    fn status(state: State, against: u32, needed: u32) -> Status {
        Status {
            state,
            against,
            needed,
            checked: true,
        }
    }

    fn facts_of(pool: Uuid, states: &[(u8, Status)]) -> Facts {
        Facts {
            members: states
                .iter()
                .map(|(n, status)| {
                    let member = samples::member_id(*n);
                    (TargetKey { pool, member }, *status)
                })
                .collect(),
            ..Facts::default()
        }
    }

    #[test]
    fn before_the_first_document_the_maps_are_empty() {
        let message = message(samples::AMPHORA, None, &Facts::default());
        assert_eq!((message.ver, message.generation), (3, None));
        assert!(message.listeners.is_empty() && message.pools.is_empty());
    }

    #[test]
    fn pools_of_udp_listeners_have_plain_keys() {
        let message = message(
            samples::AMPHORA,
            Some(&samples::document(4)),
            &Facts::default(),
        );
        let keys: Vec<_> = message.pools.keys().cloned().collect();
        assert_eq!(
            keys,
            [
                format!("{}:{}", samples::TCP_POOL, samples::TCP_LISTENER),
                samples::UDP_POOL.to_string(),
                format!("{}:{}", samples::HTTP_POOL, samples::HTTP_LISTENER),
            ]
        );
        assert_eq!(message.generation, Some(4));
        assert_eq!(message.listeners.len(), 3);
    }

    #[test]
    fn every_member_state_has_octavias_text() {
        let mut pool = samples::pool(samples::TCP_POOL, amphora_api::PoolProtocol::Tcp, &[1]);
        let up = status(State::Up, 0, 3);
        let cases = [
            // monitored, enabled, weight, status, text
            (true, false, 1, Some(up), "MAINT"),
            (false, false, 1, None, "MAINT"),
            (false, true, 1, None, "no check"),
            (false, true, 0, None, "no check"),
            (true, true, 1, None, "UP"),
            (true, true, 1, Some(up), "UP"),
            (true, true, 0, Some(up), "DRAIN"),
            (true, true, 0, Some(status(State::Up, 1, 3)), "DRAIN"),
            (true, true, 1, Some(status(State::Up, 1, 3)), "UP 2/3"),
            (true, true, 1, Some(status(State::Down, 0, 2)), "DOWN"),
            (true, true, 0, Some(status(State::Down, 0, 2)), "DOWN"),
            (true, true, 1, Some(status(State::Down, 1, 2)), "DOWN 1/2"),
        ];
        for (monitored, enabled, weight, status, wanted) in cases {
            pool.monitor = monitored.then(samples::monitor);
            let mut member = samples::member(1);
            member.enabled = enabled;
            member.weight = weight;
            let text = member_text(&pool, &member, status.as_ref());
            assert_eq!(text, wanted, "{monitored} {enabled} {weight} {status:?}");
        }
    }

    #[test]
    fn a_pool_is_down_when_it_has_members_and_none_is_usable() {
        let mut pool = samples::pool(samples::TCP_POOL, amphora_api::PoolProtocol::Tcp, &[1, 2]);
        pool.monitor = Some(samples::monitor());
        let (up, down) = (status(State::Up, 0, 3), status(State::Down, 0, 2));
        let text = |pool: &Pool, udp, facts: &Facts| pool_status(pool, udp, facts).status;
        let facts = facts_of(pool.id, &[(1, down), (2, up)]);
        assert_eq!(text(&pool, false, &facts), "UP");
        let facts = facts_of(pool.id, &[(1, down), (2, down)]);
        assert_eq!(text(&pool, false, &facts), "DOWN");
        assert_eq!(text(&pool, true, &facts), "DOWN");

        pool.monitor = None;
        for member in &mut pool.members {
            member.enabled = false;
        }
        assert_eq!(text(&pool, false, &Facts::default()), "DOWN");
        assert_eq!(text(&pool, true, &Facts::default()), "UP");
        pool.members.clear();
        assert_eq!(text(&pool, false, &Facts::default()), "UP");
    }

    #[test]
    fn a_listener_at_its_limit_is_full_and_a_udp_one_never() {
        let mut document = samples::document(1);
        for listener in &mut document.listeners {
            listener.connection_limit = Some(10);
        }
        let facts = Facts {
            stats: document
                .listeners
                .iter()
                .map(|listener| {
                    let stats = HeartbeatListenerStats {
                        conns: 10,
                        ..Default::default()
                    };
                    (listener.id, stats)
                })
                .collect(),
            ..Facts::default()
        };
        let message = message(samples::AMPHORA, Some(&document), &facts);
        assert_eq!(message.listeners[&samples::TCP_LISTENER].status, "FULL");
        assert_eq!(message.listeners[&samples::UDP_LISTENER].status, "OPEN");
    }

    #[test]
    fn a_listener_that_is_not_served_is_left_out_with_its_pool() {
        let facts = Facts {
            failed: BTreeSet::from([samples::TCP_LISTENER]),
            ..Facts::default()
        };
        let message = message(samples::AMPHORA, Some(&samples::document(1)), &facts);
        assert!(!message.listeners.contains_key(&samples::TCP_LISTENER));
        assert_eq!(message.pools.len(), 2);
    }
}
