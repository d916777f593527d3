//! Rules of a listener.

use super::require_support;
use super::tls::check_tls_options;
use crate::{ClientAuthentication, Fault, Graph, Listener, ListenerProtocol, LoadBalancer, Rules};

/// Headers of an HTTP listener; the last three are taken and have no effect.
const HEADERS: &[&str] = &[
    "X-Forwarded-For",
    "X-Forwarded-Port",
    "X-Forwarded-Proto",
    "X-Forwarded-IP",
    "X-Client-IP",
    "X-Real-IP",
];
/// Headers that need TLS to end here.
const TLS_HEADERS: &[&str] = &[
    "X-SSL-Client-Verify",
    "X-SSL-Client-Has-Cert",
    "X-SSL-Client-DN",
    "X-SSL-Client-CN",
    "X-SSL-Issuer",
    "X-SSL-Client-SHA1",
    "X-SSL-Client-Not-Before",
    "X-SSL-Client-Not-After",
];

/// Everything but the port, the default pool and the HSTS flags, which depend on what the request changes.
pub(crate) fn check_listener(
    listener: &Listener,
    load_balancer: &LoadBalancer,
    rules: &Rules,
) -> Result<(), Fault> {
    check_insert_headers(listener)?;
    check_certificates(listener)?;
    check_allowed(listener, rules)?;
    check_tls_options(
        listener.tls_ciphers.as_deref(),
        listener.tls_versions.as_deref(),
        listener.alpn_protocols.as_deref(),
        rules,
    )?;
    if listener.hsts_max_age.is_some() && listener.protocol != ListenerProtocol::TerminatedHttps {
        return Err(Fault::validation(
            "HSTS is only supported on TERMINATED_HTTPS listeners.",
        ));
    }
    check_allowed_cidrs(listener, load_balancer)?;
    require_support(
        load_balancer,
        rules.support(load_balancer)?.listener_protocols,
        listener.protocol,
        "protocol listener",
    )
}

fn check_insert_headers(listener: &Listener) -> Result<(), Fault> {
    if listener.insert_headers.is_empty() {
        return Ok(());
    }
    let tls = match listener.protocol {
        ListenerProtocol::Http => false,
        ListenerProtocol::TerminatedHttps => true,
        ListenerProtocol::Https
        | ListenerProtocol::Tcp
        | ListenerProtocol::Udp
        | ListenerProtocol::Sctp
        | ListenerProtocol::Prometheus => {
            return Err(Fault::option(
                format!(
                    "{} for a {} listener",
                    names(listener.insert_headers.keys()),
                    listener.protocol
                ),
                "insert_headers",
            ));
        }
    };
    for name in listener.insert_headers.keys() {
        let known = HEADERS.contains(&name.as_str());
        let known_tls = TLS_HEADERS.contains(&name.as_str());
        if known_tls && !tls {
            return Err(Fault::option(
                format!("{name} for a {} listener", listener.protocol),
                "insert_headers",
            ));
        }
        if !known && !known_tls {
            return Err(Fault::option(name, "insert_headers"));
        }
    }
    Ok(())
}

fn names<'a>(keys: impl Iterator<Item = &'a String>) -> String {
    keys.map(String::as_str).collect::<Vec<_>>().join(", ")
}

fn check_certificates(listener: &Listener) -> Result<(), Fault> {
    let server =
        listener.default_tls_container_ref.is_some() || !listener.sni_container_refs.is_empty();
    let client_ca = listener.client_ca_tls_container_ref.is_some();
    match listener.protocol {
        ListenerProtocol::TerminatedHttps => {
            if !server {
                return Err(Fault::validation(
                    "An SNI or default certificate container reference must be provided with TERMINATED_HTTPS listeners.",
                ));
            }
        }
        ListenerProtocol::Prometheus => {
            if client_ca && !server {
                return Err(Fault::validation(
                    "A client authentication CA reference is specified but not a default certificate or SNI certificate.",
                ));
            }
        }
        ListenerProtocol::Http
        | ListenerProtocol::Https
        | ListenerProtocol::Tcp
        | ListenerProtocol::Udp
        | ListenerProtocol::Sctp => {
            if server || client_ca {
                return Err(Fault::validation(format!(
                    "Certificate container references are not allowed on {} protocol listeners.",
                    listener.protocol
                )));
            }
        }
    }
    if listener.client_authentication != ClientAuthentication::None && !client_ca {
        return Err(Fault::validation(format!(
            "Client authentication setting {} requires a client CA container reference.",
            listener.client_authentication
        )));
    }
    if listener.client_crl_container_ref.is_some() && !client_ca {
        return Err(Fault::validation(
            "A client authentication CA reference is required to specify a client authentication revocation list.",
        ));
    }
    Ok(())
}

fn check_allowed(listener: &Listener, rules: &Rules) -> Result<(), Fault> {
    let allowed = match listener.protocol {
        ListenerProtocol::TerminatedHttps => rules.allow_tls_terminated_listeners,
        ListenerProtocol::Prometheus => rules.allow_prometheus_listeners,
        ListenerProtocol::Http
        | ListenerProtocol::Https
        | ListenerProtocol::Tcp
        | ListenerProtocol::Udp
        | ListenerProtocol::Sctp => true,
    };
    if allowed {
        Ok(())
    } else {
        Err(Fault::DisabledOption {
            option: "protocol".to_owned(),
            value: listener.protocol.to_string(),
        })
    }
}

fn check_allowed_cidrs(listener: &Listener, load_balancer: &LoadBalancer) -> Result<(), Fault> {
    let Some(cidrs) = listener
        .allowed_cidrs
        .as_ref()
        .filter(|cidrs| !cidrs.is_empty())
    else {
        return Ok(());
    };
    if !load_balancer.vip.sg_ids.is_empty() {
        return Err(Fault::validation(
            "allowed_cidrs cannot be used on a load balancer that has vip_sg_ids.",
        ));
    }
    for cidr in cidrs {
        let fits = load_balancer
            .vip_addresses()
            .any(|vip| vip.is_ipv4() == cidr.addr().is_ipv4());
        if !fits {
            return Err(Fault::validation(format!(
                "Allowed CIDR {cidr} is of an address family that no VIP of the load balancer has.",
            )));
        }
    }
    Ok(())
}

/// A flag needs `hsts_max_age`; asked only when the request turns one on.
pub(crate) fn check_hsts_flags(listener: &Listener) -> Result<(), Fault> {
    if listener.hsts_max_age.is_none()
        && (listener.hsts_include_subdomains || listener.hsts_preload)
    {
        return Err(Fault::validation(
            "HSTS configuration options hsts_include_subdomains and hsts_preload only make sense if hsts_max_age is set as well.",
        ));
    }
    Ok(())
}

/// Listeners of one transport share the ports of a load balancer.
pub(crate) fn check_listener_port(graph: &Graph, listener: &Listener) -> Result<(), Fault> {
    let taken = graph.listeners.iter().find(|other| {
        other.id != listener.id
            && other.protocol_port == listener.protocol_port
            && other.protocol.transport() == listener.protocol.transport()
    });
    match taken {
        Some(other) => Err(Fault::DuplicateListener {
            protocol: other.protocol,
            port: other.protocol_port,
        }),
        None => Ok(()),
    }
}
