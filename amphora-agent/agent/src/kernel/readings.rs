//! The engines' counters in the agent's words.

use std::collections::BTreeMap;

use amphora_api::{AmphoraStats, ListenerStats, MemberStats};
use amphora_health::{Status, TargetKey};

use crate::dataplane::Readings;

pub(super) fn readings(
    fast: Option<&xdp_lb::Stats>,
    proxy: Option<&amphora_proxy::Stats>,
    members: BTreeMap<TargetKey, Status>,
) -> Readings {
    Readings {
        fast: fast.map(fast_stats),
        proxy: proxy.map(proxy_stats),
        full: proxy
            .iter()
            .flat_map(|stats| &stats.listeners)
            .filter(|listener| listener.full)
            .map(|listener| listener.id)
            .collect(),
        members,
    }
}

fn fast_stats(stats: &xdp_lb::Stats) -> AmphoraStats {
    let mut all = AmphoraStats::default();
    for (id, traffic) in &stats.listeners {
        all.listeners.insert(
            *id,
            ListenerStats {
                bytes_in: traffic.bytes_in,
                bytes_out: traffic.bytes_out,
                active_connections: traffic.active_connections,
                total_connections: traffic.total_connections,
                request_errors: traffic.request_errors,
            },
        );
    }
    for member in &stats.members {
        // A member may serve several listeners.
        let sum: &mut MemberStats = all.members.entry(member.member).or_default();
        sum.bytes_in += member.traffic.bytes_in;
        sum.bytes_out += member.traffic.bytes_out;
        sum.active_connections += member.traffic.active_connections;
        sum.total_connections += member.traffic.total_connections;
    }
    for (verdict, count) in &stats.verdicts {
        all.verdicts.insert(format!("fast_path_{verdict}"), *count);
    }
    all
}

fn proxy_stats(stats: &amphora_proxy::Stats) -> AmphoraStats {
    let mut all = AmphoraStats::default();
    for listener in &stats.listeners {
        all.listeners.insert(
            listener.id,
            ListenerStats {
                bytes_in: listener.bytes_in,
                bytes_out: listener.bytes_out,
                active_connections: listener.active_connections,
                total_connections: listener.total_connections,
                request_errors: listener.request_errors,
            },
        );
    }
    for member in &stats.members {
        let sum: &mut MemberStats = all.members.entry(member.id).or_default();
        sum.bytes_in += member.bytes_in;
        sum.bytes_out += member.bytes_out;
        sum.active_connections += member.active_connections;
        sum.total_connections += member.total_connections;
        sum.connect_failures += member.connect_failures;
    }
    for (refusal, count) in &stats.refusals {
        all.verdicts
            .insert(format!("proxy_{}", refusal.as_str()), *count);
    }
    all
}

/// As `info` shows it.
pub(super) fn mode_text(mode: xdp_lb::AttachMode) -> &'static str {
    match mode {
        xdp_lb::AttachMode::Auto => "auto",
        xdp_lb::AttachMode::Tcx => "tcx",
        xdp_lb::AttachMode::XdpNative => "xdp_native",
        xdp_lb::AttachMode::XdpGeneric => "xdp_generic",
        xdp_lb::AttachMode::Clsact => "clsact",
    }
}
