//! Rules of a health monitor.

use super::require_support;
use crate::{Fault, HealthMonitor, HttpVersion, LoadBalancer, MonitorType, PoolProtocol, Rules};

pub(crate) fn check_health_monitor(
    monitor: &HealthMonitor,
    pool_protocol: PoolProtocol,
    load_balancer: &LoadBalancer,
    rules: &Rules,
) -> Result<(), Fault> {
    let datagram_pool = matches!(pool_protocol, PoolProtocol::Udp | PoolProtocol::Sctp);
    let fits = match monitor.kind {
        MonitorType::UdpConnect | MonitorType::Sctp => datagram_pool,
        MonitorType::Tcp | MonitorType::Http => true,
        MonitorType::Https | MonitorType::Ping | MonitorType::TlsHello => !datagram_pool,
    };
    if !fits {
        return Err(Fault::validation(format!(
            "The associated pool protocol is {pool_protocol}, a health monitor of type {} is not allowed.",
            monitor.kind
        )));
    }
    if monitor.kind == MonitorType::UdpConnect && monitor.delay < rules.udp_connect_min_interval {
        return Err(Fault::validation(format!(
            "The request delay value {} should be larger than {} for UDP-CONNECT health monitor type.",
            monitor.delay, rules.udp_connect_min_interval
        )));
    }
    if monitor.domain_name.is_some() && monitor.http_version != Some(HttpVersion::V1_1) {
        return Err(Fault::validation(
            "http_version 1.1 is required to use domain_name.",
        ));
    }
    if monitor.kind == MonitorType::Ping && !rules.allow_ping_health_monitors {
        return Err(Fault::DisabledOption {
            option: "type".to_owned(),
            value: monitor.kind.to_string(),
        });
    }
    require_support(
        load_balancer,
        rules.support(load_balancer)?.monitor_types,
        monitor.kind,
        "health monitor",
    )
}
