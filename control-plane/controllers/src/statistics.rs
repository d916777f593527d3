//! What an agent says of traffic, in the store's words.

use amphora_api::{AmphoraStats, ListenerStats};
use lb_model::{AmphoraId, ListenerId};
use lb_store::{Reading, Statistics, StatsSample};
use uuid::Uuid;

/// Counters of one listener since `epoch`.
pub(crate) fn totals(
    amphora_id: AmphoraId,
    listener: Uuid,
    epoch: u64,
    counters: &ListenerStats,
) -> StatsSample {
    StatsSample {
        listener_id: ListenerId(listener),
        amphora_id,
        reading: Reading::Totals {
            epoch,
            counters: Statistics {
                bytes_in: counters.bytes_in,
                bytes_out: counters.bytes_out,
                active_connections: counters.active_connections,
                total_connections: counters.total_connections,
                request_errors: counters.request_errors,
            },
        },
    }
}

/// The listeners an agent's answer names with their epochs; of others nobody could tell what was counted before.
pub(crate) fn samples(amphora_id: AmphoraId, stats: &AmphoraStats) -> Vec<StatsSample> {
    stats
        .listeners
        .iter()
        .filter_map(|(listener, counters)| {
            let epoch = stats.epochs.get(listener)?;
            Some(totals(amphora_id, *listener, *epoch, counters))
        })
        .collect()
}
