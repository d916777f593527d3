//! Rules that concern more than one field, one place each. Each takes the object as it would be stored and says why
//! it must not be; creates, updates and fully populated creates all go through the same ones.

mod health_monitor;
mod listener;
mod member;
mod pool;
mod tls;

pub(crate) use health_monitor::check_health_monitor;
pub(crate) use listener::{check_hsts_flags, check_listener, check_listener_port};
pub(crate) use member::check_member;
pub(crate) use pool::{check_default_pool, check_pool};

use crate::Fault;

/// The provider cannot serve it.
pub(crate) fn unsupported(provider: &str, detail: impl Into<String>) -> Fault {
    Fault::UnsupportedOption {
        provider: provider.to_owned(),
        detail: detail.into(),
    }
}
