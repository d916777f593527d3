//! Rules that concern more than one field, one place each. Each takes the object as it would be stored and says why
//! it must not be; creates, updates and fully populated creates all go through the same ones.

mod health_monitor;
mod l7policy;
mod l7rule;
mod listener;
mod member;
mod pool;
mod tls;

pub(crate) use health_monitor::check_health_monitor;
pub(crate) use l7policy::check_l7policy;
pub(crate) use l7rule::{MAX_RULES, check_l7rule};
pub(crate) use listener::{check_hsts_flags, check_listener, check_listener_port};
pub(crate) use member::check_member;
pub(crate) use pool::{check_default_pool, check_pool};

use std::fmt::Display;

use crate::{Fault, LoadBalancer};

/// The provider cannot serve it.
pub(crate) fn unsupported(provider: &str, detail: impl Into<String>) -> Fault {
    Fault::UnsupportedOption {
        provider: provider.to_owned(),
        detail: detail.into(),
    }
}

/// Refuses a `wanted` that is not among what the provider of the load balancer has `served`.
fn require_support<T: PartialEq + Display>(
    load_balancer: &LoadBalancer,
    served: &[T],
    wanted: T,
    what: &str,
) -> Result<(), Fault> {
    if served.contains(&wanted) {
        Ok(())
    } else {
        Err(unsupported(
            &load_balancer.provider,
            format!("{wanted} {what}"),
        ))
    }
}
