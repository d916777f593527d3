//! Kernel settings of the tenant's network namespace.
//!
//! `/proc/sys/net` shows the namespace of the thread that opens it: read and write from the tenant's threads only.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    pub key: String,
    pub value: String,
    /// Whether the amphora cannot do its work without it. The others are passed over where the kernel lacks them.
    pub required: bool,
}

/// Every setting, in the order to write them: turning forwarding on or off resets others.
pub fn wanted(forwarding: bool) -> Vec<Wanted> {
    let forwarding = if forwarding { "1" } else { "0" };
    let reserved = format!(
        "{}-{}",
        xdp_lb::SNAT_PORTS.start(),
        xdp_lb::SNAT_PORTS.end()
    );
    let required = [
        // bpf_fib_lookup answers on forwarding interfaces only.
        ("net.ipv4.ip_forward", forwarding),
        // A passive VIP stands on `lo`: it must not be answered for on eth1 ...
        ("net.ipv4.conf.all.arp_ignore", "1"),
        // ... nor be told about in ARP requests.
        ("net.ipv4.conf.all.arp_announce", "2"),
        ("net.ipv4.conf.all.rp_filter", "0"),
        ("net.ipv4.conf.default.rp_filter", "0"),
        ("net.ipv4.conf.all.send_redirects", "0"),
        ("net.ipv4.conf.default.send_redirects", "0"),
        ("net.ipv4.conf.all.accept_redirects", "0"),
        // Deleting the first address of a subnet must not take the others with it.
        ("net.ipv4.conf.all.promote_secondaries", "1"),
        ("net.ipv4.ip_nonlocal_bind", "1"),
        // The fast path's source ports must not be taken by sockets.
        ("net.ipv4.ip_local_reserved_ports", reserved.as_str()),
    ];
    let optional = [
        ("net.ipv6.conf.all.disable_ipv6", "0"),
        ("net.ipv6.conf.default.disable_ipv6", "0"),
        ("net.ipv6.conf.all.forwarding", forwarding),
        ("net.ipv6.ip_nonlocal_bind", "1"),
        // An address must work the moment it is there: no duplicate address detection.
        ("net.ipv6.conf.all.accept_dad", "0"),
        ("net.ipv6.conf.default.accept_dad", "0"),
        ("net.ipv6.conf.default.dad_transmits", "0"),
        ("net.ipv6.conf.all.accept_ra", "0"),
        ("net.ipv6.conf.default.accept_ra", "0"),
        ("net.ipv6.conf.default.autoconf", "0"),
        ("net.core.somaxconn", "4096"),
        ("net.ipv4.tcp_max_syn_backlog", "8192"),
        ("net.ipv4.tcp_syncookies", "1"),
        ("net.ipv4.tcp_fin_timeout", "5"),
        ("net.ipv4.tcp_tw_reuse", "1"),
        ("net.ipv4.tcp_mtu_probing", "1"),
        ("net.ipv4.tcp_slow_start_after_idle", "0"),
    ];
    let all = |values: &[(&str, &str)], required| {
        values
            .iter()
            .map(|(key, value)| Wanted {
                key: (*key).to_owned(),
                value: (*value).to_owned(),
                required,
            })
            .collect::<Vec<_>>()
    };
    let mut wanted = all(&required, true);
    wanted.extend(all(&optional, false));
    wanted
}

/// Present values of the wanted keys; what is not there is left out.
pub(crate) fn read_all() -> BTreeMap<String, String> {
    wanted(false)
        .into_iter()
        .filter_map(|wanted| {
            let value = std::fs::read_to_string(path(&wanted.key)).ok()?;
            let value = value.split_whitespace().collect::<Vec<_>>().join(" ");
            Some((wanted.key, value))
        })
        .collect()
}

pub(crate) fn write(key: &str, value: &str) -> io::Result<()> {
    std::fs::write(path(key), value)
}

fn path(key: &str) -> PathBuf {
    PathBuf::from("/proc/sys").join(key.replace('.', "/"))
}
