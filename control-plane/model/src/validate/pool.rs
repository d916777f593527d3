//! Rules of a pool, and which pool a listener may have.

use super::tls::check_tls_options;
use super::{require_support, unsupported};
use crate::{
    Fault, Graph, Listener, ListenerProtocol, LoadBalancer, Pool, PoolId, PoolProtocol,
    ProviderFeature, Resource, Rules, SessionPersistence, SessionPersistenceType,
};

pub(crate) fn check_pool(
    pool: &Pool,
    load_balancer: &LoadBalancer,
    rules: &Rules,
) -> Result<(), Fault> {
    if let Some(persistence) = &pool.session_persistence {
        check_session_persistence(persistence, pool.protocol)?;
    }
    if pool.crl_container_ref.is_some() && pool.ca_tls_container_ref.is_none() {
        return Err(Fault::validation(
            "A CA certificate reference is required to specify a revocation list.",
        ));
    }
    check_tls_options(
        pool.tls_ciphers.as_deref(),
        pool.tls_versions.as_deref(),
        pool.alpn_protocols.as_deref(),
        rules,
    )?;
    check_support(pool, load_balancer, rules)
}

fn check_session_persistence(
    persistence: &SessionPersistence,
    protocol: PoolProtocol,
) -> Result<(), Fault> {
    let datagram = matches!(protocol, PoolProtocol::Udp | PoolProtocol::Sctp);
    match persistence.kind {
        SessionPersistenceType::AppCookie => {
            let Some(name) = persistence.cookie_name.as_deref() else {
                return Err(Fault::validation(
                    "Field cookie_name must be provided for APP_COOKIE session persistence",
                ));
            };
            if name.is_empty() || !name.bytes().all(is_cookie_name_byte) {
                return Err(Fault::validation("Cookie name is not valid"));
            }
        }
        SessionPersistenceType::HttpCookie | SessionPersistenceType::SourceIp => {
            if persistence.cookie_name.is_some() {
                return Err(Fault::validation(format!(
                    "Field cookie_name can not be specified with {} session persistence",
                    persistence.kind
                )));
            }
        }
    }
    if datagram && persistence.kind != SessionPersistenceType::SourceIp {
        return Err(Fault::validation(format!(
            "session_persistence of type {} is not supported for {protocol} protocol pools",
            persistence.kind
        )));
    }
    let timed =
        persistence.persistence_timeout.is_some() || persistence.persistence_granularity.is_some();
    if timed && !datagram {
        return Err(Fault::validation(
            "persistence_timeout and persistence_granularity are only for UDP and SCTP protocol pools",
        ));
    }
    Ok(())
}

/// A token of RFC 2616.
const fn is_cookie_name_byte(byte: u8) -> bool {
    byte.is_ascii_graphic()
        && !matches!(
            byte,
            b'"' | b'('
                | b')'
                | b','
                | b'/'
                | b':'
                | b';'
                | b'<'
                | b'='
                | b'>'
                | b'?'
                | b'@'
                | b'['
                | b'\\'
                | b']'
                | b'{'
                | b'}'
        )
}

fn check_support(pool: &Pool, load_balancer: &LoadBalancer, rules: &Rules) -> Result<(), Fault> {
    let support = rules.support(load_balancer)?;
    let lb = load_balancer;
    require_support(lb, support.pool_protocols, pool.protocol, "protocol pool")?;
    require_support(lb, support.algorithms, pool.lb_algorithm, "lb_algorithm")?;
    if let Some(persistence) = &pool.session_persistence {
        let served = support.session_persistence;
        require_support(lb, served, persistence.kind, "session_persistence")?;
    }
    let tls = pool.tls_enabled
        || pool.tls_container_ref.is_some()
        || pool.ca_tls_container_ref.is_some()
        || pool.crl_container_ref.is_some();
    if tls && !support.features.contains(&ProviderFeature::PoolTls) {
        return Err(unsupported(&lb.provider, "TLS to the members of a pool"));
    }
    Ok(())
}

/// The default pool of a listener is on the same load balancer and speaks a protocol the listener can pass on.
pub(crate) fn check_default_pool(
    graph: &Graph,
    listener: &Listener,
    pool: PoolId,
) -> Result<(), Fault> {
    if listener.protocol == ListenerProtocol::Prometheus {
        return Err(Fault::ListenerNoChildren(listener.protocol));
    }
    let pool = graph
        .pool(pool)
        .ok_or_else(|| Fault::not_found(Resource::Pool, pool))?;
    if pool_protocol_fits(listener.protocol, pool.protocol) {
        Ok(())
    } else {
        Err(Fault::ProtocolMismatch {
            listener: listener.protocol,
            pool: pool.protocol,
        })
    }
}

/// The matrix of the API reference.
const fn pool_protocol_fits(listener: ListenerProtocol, pool: PoolProtocol) -> bool {
    use PoolProtocol::{Http, Https, Proxy, ProxyV2, Sctp, Tcp, Udp};
    match listener {
        ListenerProtocol::Tcp => matches!(pool, Http | Https | Proxy | ProxyV2 | Tcp),
        ListenerProtocol::Http | ListenerProtocol::TerminatedHttps => {
            matches!(pool, Http | Proxy | ProxyV2)
        }
        ListenerProtocol::Https => matches!(pool, Https | Proxy | ProxyV2 | Tcp),
        ListenerProtocol::Udp => matches!(pool, Udp),
        ListenerProtocol::Sctp => matches!(pool, Sctp),
        ListenerProtocol::Prometheus => false,
    }
}
