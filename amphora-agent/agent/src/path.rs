//! Which engine serves a listener, and why. Pure.
//!
//! The fast path where protocol and pool allow, the proxy where the stream must be read. What neither can do is
//! refused with the reason: nothing that was asked for is left out silently.

use std::net::IpAddr;

use amphora_api::{Listener, ListenerPath, ListenerProtocol, Pool, PoolProtocol};

/// What else the choice depends on.
#[derive(Debug, Clone, Copy)]
pub struct Surroundings<'a> {
    pub vips: &'a [IpAddr],
    /// Why there is no fast path, if there is none.
    pub fast_path_down: Option<&'a str>,
}

/// The engine with the reason, or why no engine can serve it.
pub fn listener_path(
    listener: &Listener,
    pool: Option<&Pool>,
    around: Surroundings<'_>,
) -> Result<(ListenerPath, String), String> {
    if let Some(pool) = pool {
        match pool.protocol {
            PoolProtocol::Proxy | PoolProtocol::ProxyV2 => {
                return Err("the PROXY protocol towards members is not supported yet".to_owned());
            }
            PoolProtocol::Tcp | PoolProtocol::Udp | PoolProtocol::Http | PoolProtocol::Https => {}
        }
    }
    match listener.protocol {
        ListenerProtocol::Http => Ok((ListenerPath::Proxy, "HTTP is read by the proxy".to_owned())),
        ListenerProtocol::Udp => udp_path(pool, around),
        ListenerProtocol::Tcp | ListenerProtocol::Https => Ok(stream_path(pool, around)),
    }
}

fn udp_path(
    pool: Option<&Pool>,
    around: Surroundings<'_>,
) -> Result<(ListenerPath, String), String> {
    let Some(pool) = pool else {
        return Ok((
            ListenerPath::Fast,
            "no pool: datagrams are refused with port unreachable".to_owned(),
        ));
    };
    if let Some(reason) = around.fast_path_down {
        return Err(format!(
            "UDP needs the fast path, which is not there: {reason}"
        ));
    }
    let mut reason = "datagrams are forwarded in the kernel".to_owned();
    if let Some(vip) = around.vips.iter().find(|vip| !has_family(pool, **vip)) {
        reason.push_str(&format!(
            "; no member has the address family of {vip}, which is not served"
        ));
    }
    Ok((ListenerPath::Fast, reason))
}

fn stream_path(pool: Option<&Pool>, around: Surroundings<'_>) -> (ListenerPath, String) {
    let Some(pool) = pool else {
        return (
            ListenerPath::Fast,
            "no pool: connections are refused with RST".to_owned(),
        );
    };
    let strangers = pool
        .members
        .iter()
        .filter(|member| member.enabled)
        .find_map(|member| {
            around
                .vips
                .iter()
                .find(|vip| vip.is_ipv4() != member.address.is_ipv4())
                .map(|vip| (vip, member.address))
        });
    if let Some((vip, member)) = strangers {
        return (
            ListenerPath::Proxy,
            format!("member {member} is of another address family than {vip}"),
        );
    }
    if let Some(reason) = around.fast_path_down {
        return (
            ListenerPath::Proxy,
            format!("the fast path is not there: {reason}"),
        );
    }
    let reason = match pool.session_persistence {
        Some(_) => "connections are forwarded in the kernel; persistence is a hash of the source",
        None => "connections are forwarded in the kernel",
    };
    (ListenerPath::Fast, reason.to_owned())
}

/// Whether a client of this VIP can be given a member. A pool that has none serves nobody, whatever the family.
fn has_family(pool: &Pool, vip: IpAddr) -> bool {
    let mut enabled = pool
        .members
        .iter()
        .filter(|member| member.enabled)
        .peekable();
    enabled.peek().is_none() || enabled.any(|member| member.address.is_ipv4() == vip.is_ipv4())
}

#[cfg(test)]
mod tests {
    use amphora_api::SessionPersistence;

    use super::*;
    use crate::samples;

    const VIP: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 100));
    const UP: Surroundings<'static> = Surroundings {
        vips: &[VIP],
        fast_path_down: None,
    };
    const DOWN: Surroundings<'static> = Surroundings {
        vips: &[VIP],
        fast_path_down: Some("no bpffs"),
    };

    fn path(
        listener: ListenerProtocol,
        pool: Option<PoolProtocol>,
        around: Surroundings<'_>,
    ) -> Result<ListenerPath, String> {
        let listener = samples::listener(samples::TCP_LISTENER, listener, 80, None);
        let pool = pool.map(|protocol| samples::pool(samples::TCP_POOL, protocol, &[1]));
        listener_path(&listener, pool.as_ref(), around).map(|(path, reason)| {
            assert!(!reason.is_empty());
            path
        })
    }

    #[test]
    fn every_pair_of_listener_and_pool_has_its_path() {
        use ListenerPath::{Fast, Proxy};
        use ListenerProtocol as L;
        use PoolProtocol as P;
        let pools = [
            None,
            Some(P::Tcp),
            Some(P::Udp),
            Some(P::Http),
            Some(P::Https),
            Some(P::Proxy),
            Some(P::ProxyV2),
        ];
        // By listener: with the fast path, then without.
        let table = [
            (L::Tcp, Some(Fast), Some(Proxy)),
            (L::Https, Some(Fast), Some(Proxy)),
            (L::Udp, Some(Fast), None),
            (L::Http, Some(Proxy), Some(Proxy)),
        ];
        for (listener, up, down) in table {
            for pool in pools {
                let refused = matches!(pool, Some(P::Proxy | P::ProxyV2));
                for (around, wanted) in [(UP, up), (DOWN, down)] {
                    let wanted = match (pool, listener) {
                        _ if refused => None,
                        // Nothing to forward: the kernel refuses, with or without a fast path.
                        (None, L::Tcp | L::Https | L::Udp) => Some(Fast),
                        _ => wanted,
                    };
                    assert_eq!(
                        path(listener, pool, around).ok(),
                        wanted,
                        "{listener:?} {pool:?} {around:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn allowed_cidrs_do_not_change_the_path() {
        for (protocol, wanted) in [
            (ListenerProtocol::Tcp, Ok(ListenerPath::Fast)),
            (ListenerProtocol::Https, Ok(ListenerPath::Fast)),
            (ListenerProtocol::Http, Ok(ListenerPath::Proxy)),
            (ListenerProtocol::Udp, Ok(ListenerPath::Fast)),
        ] {
            let mut listener = samples::listener(samples::TCP_LISTENER, protocol, 80, None);
            listener.allowed_cidrs = vec!["10.0.0.0/8".parse().unwrap()];
            let pool = samples::pool(samples::TCP_POOL, PoolProtocol::Tcp, &[1]);
            let path = listener_path(&listener, Some(&pool), UP).map(|(path, _)| path);
            assert_eq!(path, wanted, "{protocol:?}");
        }
    }

    #[test]
    fn a_member_of_the_other_family_takes_a_stream_to_the_proxy() {
        let around = Surroundings {
            vips: &[VIP, IpAddr::V6(std::net::Ipv6Addr::LOCALHOST)],
            fast_path_down: None,
        };
        assert_eq!(
            path(ListenerProtocol::Tcp, Some(PoolProtocol::Tcp), around),
            Ok(ListenerPath::Proxy)
        );
        let listener = samples::listener(samples::UDP_LISTENER, ListenerProtocol::Udp, 53, None);
        let pool = samples::pool(samples::UDP_POOL, PoolProtocol::Udp, &[1]);
        let (path, reason) = listener_path(&listener, Some(&pool), around).unwrap();
        assert_eq!(path, ListenerPath::Fast);
        assert!(reason.contains("::1"), "{reason}");
    }

    #[test]
    fn source_persistence_is_named_in_the_reason() {
        let listener = samples::listener(samples::TCP_LISTENER, ListenerProtocol::Tcp, 80, None);
        let mut pool = samples::pool(samples::TCP_POOL, PoolProtocol::Tcp, &[1]);
        pool.session_persistence = Some(SessionPersistence::SourceIp);
        let (_, reason) = listener_path(&listener, Some(&pool), UP).unwrap();
        assert!(reason.contains("persistence"), "{reason}");
    }
}
