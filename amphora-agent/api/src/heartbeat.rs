//! Codec of the heartbeat datagram: JSON, zlib, then HMAC-SHA256 of the compressed bytes as 64 hex digits.
//!
//! The format is Octavia's message version 3, so that either side may be an upstream one. Decoding treats the
//! datagram as hostile: the trailer is checked in constant time before anything is parsed, and decompression
//! stops at [`MAX_MESSAGE_BYTES`].
//!
//! `sent_at_ms` is an addition that upstream receivers ignore; together with `seq` it lets ours refuse replays.

use std::collections::BTreeMap;
use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use uuid::Uuid;

use crate::ListenerStats;

/// Largest datagram a receiver takes: what fits in one UDP datagram.
pub const MAX_DATAGRAM_BYTES: usize = 65_535;

/// Largest decompressed message a receiver takes.
pub const MAX_MESSAGE_BYTES: usize = 4 * 1024 * 1024;

const HEX_TRAILER_BYTES: usize = 64;
const RAW_TRAILER_BYTES: usize = 32;

/// One heartbeat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeartbeatMessage {
    pub id: Uuid,
    pub seq: u64,
    /// Message version; 3 here. A sender that leaves it out means an old one: 0 for health, absolute counters.
    #[serde(default)]
    pub ver: u32,
    /// Milliseconds since the epoch on the amphora's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_at_ms: Option<u64>,
    /// Generation of the document in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    #[serde(default)]
    pub listeners: BTreeMap<Uuid, HeartbeatListener>,
    /// Keyed by `<pool id>:<listener id>` (proxy) or `<pool id>` (fast path, UDP).
    #[serde(default)]
    pub pools: BTreeMap<String, HeartbeatPool>,
    /// Absolute counters by listener. A listener named here is counted from here and its deltas in `listeners`
    /// are ignored, so that a lost datagram loses no count. Our addition; upstream receivers ignore it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub totals: BTreeMap<Uuid, HeartbeatTotals>,
}

/// Absolute counters of one listener. Within one `epoch` they never go down.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeartbeatTotals {
    /// When these counters started from zero (milliseconds since the epoch on the amphora's clock). It stays while
    /// the counters go on (also over a restart of the agent that keeps them) and grows when they start anew: the
    /// receiver then adds the new counters to what it had.
    pub epoch: u64,
    #[serde(flatten)]
    pub counters: ListenerStats,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeartbeatListener {
    /// `OPEN` or `FULL`.
    pub status: String,
    pub stats: HeartbeatListenerStats,
}

/// Deltas since the last message, except `conns`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeartbeatListenerStats {
    /// Bytes to clients.
    pub tx: u64,
    /// Bytes from clients.
    pub rx: u64,
    /// Connections now open (absolute).
    pub conns: u64,
    pub totconns: u64,
    pub ereq: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeartbeatPool {
    /// `UP` or `DOWN`.
    pub status: String,
    /// Member id to `UP`, `DOWN`, `DRAIN`, `MAINT`, `no check`, `UP n/m`, `DOWN n/m`.
    pub members: BTreeMap<Uuid, String>,
}

/// Why a datagram was dropped. Each variant is a counter of the health manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum HeartbeatError {
    #[error("datagram is too short")]
    TooShort,
    #[error("datagram is too long")]
    TooLong,
    #[error("HMAC does not match")]
    BadHmac,
    #[error("payload is not zlib data")]
    BadCompression,
    #[error("decompressed payload is too long")]
    TooLarge,
    #[error("payload is not a heartbeat message")]
    BadMessage,
}

/// The datagram of one message.
pub fn encode_heartbeat(message: &HeartbeatMessage, key: &[u8]) -> Result<Vec<u8>, HeartbeatError> {
    let json = serde_json::to_vec(message).map_err(|_| HeartbeatError::BadMessage)?;
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    let compressed = encoder
        .write_all(&json)
        .and_then(|()| encoder.finish())
        .map_err(|_| HeartbeatError::BadCompression)?;
    let mut datagram = compressed;
    let trailer = hex::encode(mac(key, &datagram).finalize().into_bytes());
    datagram.extend_from_slice(trailer.as_bytes());
    if datagram.len() > MAX_DATAGRAM_BYTES {
        return Err(HeartbeatError::TooLong);
    }
    Ok(datagram)
}

/// The message of one datagram: hex trailer first, then the raw 32-byte trailer of old senders.
pub fn decode_heartbeat(datagram: &[u8], key: &[u8]) -> Result<HeartbeatMessage, HeartbeatError> {
    if datagram.len() > MAX_DATAGRAM_BYTES {
        return Err(HeartbeatError::TooLong);
    }
    if datagram.len() <= HEX_TRAILER_BYTES {
        return Err(HeartbeatError::TooShort);
    }
    let payload = verified_payload(datagram, key).ok_or(HeartbeatError::BadHmac)?;
    let mut json = Vec::new();
    ZlibDecoder::new(payload)
        .take(MAX_MESSAGE_BYTES as u64 + 1)
        .read_to_end(&mut json)
        .map_err(|_| HeartbeatError::BadCompression)?;
    if json.len() > MAX_MESSAGE_BYTES {
        return Err(HeartbeatError::TooLarge);
    }
    serde_json::from_slice(&json).map_err(|_| HeartbeatError::BadMessage)
}

/// Pool id of a key in [`HeartbeatMessage::pools`]: without the last `:` and what follows.
pub fn pool_id_of_key(key: &str) -> Option<Uuid> {
    let pool = key.rsplit_once(':').map_or(key, |(pool, _)| pool);
    Uuid::parse_str(pool).ok()
}

fn verified_payload<'a>(datagram: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    let (payload, trailer) = datagram.split_at_checked(datagram.len() - HEX_TRAILER_BYTES)?;
    if let Ok(digest) = hex::decode(trailer)
        && mac(key, payload).verify_slice(&digest).is_ok()
    {
        return Some(payload);
    }
    let (payload, digest) = datagram.split_at_checked(datagram.len() - RAW_TRAILER_BYTES)?;
    mac(key, payload)
        .verify_slice(digest)
        .is_ok()
        .then_some(payload)
}

fn mac(key: &[u8], payload: &[u8]) -> Hmac<Sha256> {
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(key)
        .expect("HMAC takes a key of any length (RFC 2104 section 2)");
    mac.update(payload);
    mac
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &[u8] = b"insecure";

    fn message() -> HeartbeatMessage {
        HeartbeatMessage {
            id: Uuid::from_u128(1),
            seq: 7,
            ver: 3,
            sent_at_ms: Some(1_700_000_000_000),
            generation: Some(4),
            listeners: BTreeMap::from([(
                Uuid::from_u128(2),
                HeartbeatListener {
                    status: "OPEN".into(),
                    stats: HeartbeatListenerStats::default(),
                },
            )]),
            pools: BTreeMap::new(),
            totals: BTreeMap::from([(
                Uuid::from_u128(2),
                HeartbeatTotals {
                    epoch: 1_600_000_000_000,
                    counters: ListenerStats {
                        bytes_in: 10,
                        bytes_out: 20,
                        active_connections: 1,
                        total_connections: 3,
                        request_errors: 0,
                    },
                },
            )]),
        }
    }

    fn sign(payload: &[u8]) -> Vec<u8> {
        let mut datagram = payload.to_vec();
        let trailer = hex::encode(mac(KEY, payload).finalize().into_bytes());
        datagram.extend_from_slice(trailer.as_bytes());
        datagram
    }

    fn compress(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn a_message_survives_the_wire() {
        let datagram = encode_heartbeat(&message(), KEY).unwrap();
        assert_eq!(decode_heartbeat(&datagram, KEY), Ok(message()));
    }

    #[test]
    fn a_raw_trailer_of_an_old_sender_is_accepted() {
        let mut datagram = compress(&serde_json::to_vec(&message()).unwrap());
        let digest = mac(KEY, &datagram).finalize().into_bytes();
        datagram.extend_from_slice(&digest);
        assert_eq!(decode_heartbeat(&datagram, KEY), Ok(message()));
    }

    #[test]
    fn every_flipped_bit_is_refused() {
        let datagram = encode_heartbeat(&message(), KEY).unwrap();
        for bit in 0..datagram.len() * 8 {
            let mut flipped = datagram.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            // A hex digit in the other case is the same digest.
            if flipped.eq_ignore_ascii_case(&datagram) && bit / 8 >= datagram.len() - 64 {
                continue;
            }
            assert_eq!(
                decode_heartbeat(&flipped, KEY),
                Err(HeartbeatError::BadHmac),
                "bit {bit}"
            );
        }
    }

    #[test]
    fn every_truncation_is_refused() {
        let datagram = encode_heartbeat(&message(), KEY).unwrap();
        for length in 0..datagram.len() {
            assert!(decode_heartbeat(&datagram[..length], KEY).is_err());
        }
    }

    #[test]
    fn a_zip_bomb_is_refused_without_being_unpacked() {
        let bomb = sign(&compress(&vec![b' '; MAX_MESSAGE_BYTES * 4]));
        assert_eq!(decode_heartbeat(&bomb, KEY), Err(HeartbeatError::TooLarge));
    }

    #[test]
    fn signed_rubbish_is_refused() {
        assert_eq!(
            decode_heartbeat(&sign(b"no zlib"), KEY),
            Err(HeartbeatError::BadCompression)
        );
        assert_eq!(
            decode_heartbeat(&sign(&compress(b"[1,2]")), KEY),
            Err(HeartbeatError::BadMessage)
        );
    }

    #[test]
    fn pool_keys_of_both_kinds_name_the_pool() {
        let pool = Uuid::from_u128(9);
        assert_eq!(pool_id_of_key(&pool.to_string()), Some(pool));
        assert_eq!(
            pool_id_of_key(&format!("{pool}:{}", Uuid::from_u128(3))),
            Some(pool)
        );
        assert_eq!(pool_id_of_key("x:y"), None);
    }
}
