//! Whole-configuration checks, made before anything is written.

use std::collections::{HashMap, HashSet};

use crate::config::Config;
use crate::error::Error;

/// Refuses what the maps could not tell apart.
pub(crate) fn validate(config: &Config) -> Result<(), Error> {
    let mut interfaces = HashSet::new();
    for interface in &config.interfaces {
        if !interfaces.insert(interface.ifindex) {
            return Err(Error::DuplicateInterface {
                ifindex: interface.ifindex,
            });
        }
    }
    let mut listeners = HashSet::new();
    let mut owners = HashMap::new();
    for service in &config.services {
        if !listeners.insert(service.id) {
            return Err(Error::DuplicateListener {
                listener: service.id,
            });
        }
        if service.idle_timeout.is_zero() || u64::try_from(service.idle_timeout.as_nanos()).is_err()
        {
            return Err(Error::IdleTimeout {
                listener: service.id,
            });
        }
        let mut members = HashSet::new();
        for member in &service.members {
            if !members.insert(member.id) {
                return Err(Error::DuplicateMember {
                    listener: service.id,
                    member: member.id,
                });
            }
        }
        for vip in &service.vips {
            let key = (*vip, service.port, service.protocol);
            if let Some(first) = owners.insert(key, service.id)
                && first != service.id
            {
                return Err(Error::DuplicateVip {
                    first,
                    second: service.id,
                    vip: *vip,
                    port: service.port,
                    protocol: service.protocol,
                });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Algorithm, Member, Protocol, Service};
    use std::time::Duration;
    use uuid::Uuid;

    fn service(id: u128, protocol: Protocol) -> Service {
        Service {
            id: Uuid::from_u128(id),
            vips: vec!["10.0.0.1".parse().expect("literal")],
            port: 80,
            protocol,
            algorithm: Algorithm::RoundRobin,
            idle_timeout: Duration::from_secs(50),
            connection_limit: None,
            allowed: Vec::new(),
            members: Vec::new(),
        }
    }

    fn config(services: Vec<Service>) -> Config {
        Config {
            interfaces: Vec::new(),
            services,
        }
    }

    #[test]
    fn one_vip_and_port_has_one_listener_per_protocol() {
        let both = config(vec![service(1, Protocol::Tcp), service(2, Protocol::Udp)]);
        assert!(validate(&both).is_ok());
        let clash = config(vec![service(1, Protocol::Tcp), service(2, Protocol::Tcp)]);
        assert!(matches!(validate(&clash), Err(Error::DuplicateVip { .. })));
    }

    #[test]
    fn ids_are_unique_where_they_must_be() {
        let twice = config(vec![service(1, Protocol::Tcp), service(1, Protocol::Udp)]);
        assert!(matches!(
            validate(&twice),
            Err(Error::DuplicateListener { .. })
        ));
        let member = Member {
            id: Uuid::from_u128(7),
            address: "10.0.0.2".parse().expect("literal"),
            port: 80,
            weight: 1,
            backup: false,
            up: true,
        };
        let mut one = service(1, Protocol::Tcp);
        one.members = vec![member.clone(), member];
        assert!(matches!(
            validate(&config(vec![one])),
            Err(Error::DuplicateMember { .. })
        ));
    }

    #[test]
    fn an_idle_timeout_of_zero_is_refused() {
        let mut one = service(1, Protocol::Tcp);
        one.idle_timeout = Duration::ZERO;
        assert!(matches!(
            validate(&config(vec![one])),
            Err(Error::IdleTimeout { .. })
        ));
    }
}
