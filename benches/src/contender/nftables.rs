//! nftables: DNAT to the members in turn, and masquerade so that answers come back.

use anyhow::Result;

use super::Place;
use crate::netns;
use crate::rig::PORT;

pub(super) fn start(place: &Place<'_>) -> Result<String> {
    let members: Vec<String> = place
        .lane
        .back
        .hosts
        .iter()
        .enumerate()
        .map(|(index, host)| format!("{index} : {host}"))
        .collect();
    let turn = format!(
        "dnat to numgen inc mod {} map {{ {} }}",
        members.len(),
        members.join(", ")
    );
    let (vip, back) = (place.vip.ip(), &place.lane.back.device);
    let rules = format!(
        "table ip lb {{
            chain prerouting {{
                type nat hook prerouting priority dstnat
                ip daddr {vip} tcp dport {PORT} {turn}
                ip daddr {vip} udp dport {PORT} {turn}
            }}
            chain postrouting {{
                type nat hook postrouting priority srcnat
                oifname {back} masquerade
            }}
        }}\n"
    );
    let path = place.write("rules.nft", &rules)?;
    netns::run(place.lane.balancer.command("nft").arg("-f").arg(path))?;
    // Ended connections leave the table soon: what is measured is not a full table.
    place.lane.balancer.sysctl(&[
        ("net/netfilter/nf_conntrack_tcp_timeout_time_wait", "5"),
        ("net/netfilter/nf_conntrack_tcp_timeout_close", "5"),
    ])?;
    let version = netns::run(std::process::Command::new("nft").arg("--version"))?;
    Ok(version.trim().to_owned())
}
