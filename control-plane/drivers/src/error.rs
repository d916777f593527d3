//! Why a compute or network call did not do what was asked.

use std::io;
use std::net::IpAddr;

use lb_model::{AmphoraId, NetworkId, PortId, SubnetId};

/// Errors of the [`Compute`](crate::Compute) and [`Network`](crate::Network) drivers.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// Another port holds the address.
    #[error("address {address} is in use")]
    AddressInUse { address: IpAddr },

    /// The address lies outside the subnet, or is its gateway, network or broadcast address.
    #[error("address {address} cannot be used in subnet {subnet}")]
    AddressOutsideSubnet { address: IpAddr, subnet: SubnetId },

    #[error("no free address in subnet {subnet}")]
    NoFreeAddress { subnet: SubnetId },

    #[error("no network {0}")]
    UnknownNetwork(NetworkId),

    #[error("no subnet {0}")]
    UnknownSubnet(SubnetId),

    #[error("no port {0}")]
    UnknownPort(PortId),

    #[error("no server of amphora {0}")]
    UnknownServer(AmphoraId),

    /// A port of the same name and device exists and differs from what was asked for.
    #[error("port {name} exists with other attributes: {reason}")]
    PortConflict { name: String, reason: String },

    /// The request itself, a configuration file or a stored record is wrong; a retry does not help.
    #[error("{what}: {reason}")]
    Invalid { what: String, reason: String },

    /// The service did not answer, or answered that it cannot now.
    #[error("{operation}: service unavailable: {reason}")]
    Unavailable { operation: String, reason: String },

    /// A system call went wrong.
    #[error("{operation}")]
    Io {
        operation: String,
        #[source]
        source: io::Error,
    },

    /// The kernel refused a netlink request.
    #[error("{operation}")]
    Netlink {
        operation: String,
        #[source]
        source: rtnetlink::Error,
    },
}

impl DriverError {
    /// Whether the same call may work later without anyone changing anything else.
    pub fn is_transient(&self) -> bool {
        match self {
            DriverError::AddressInUse { .. }
            | DriverError::AddressOutsideSubnet { .. }
            | DriverError::NoFreeAddress { .. }
            | DriverError::UnknownNetwork(_)
            | DriverError::UnknownSubnet(_)
            | DriverError::UnknownPort(_)
            | DriverError::UnknownServer(_)
            | DriverError::PortConflict { .. }
            | DriverError::Invalid { .. } => false,
            DriverError::Unavailable { .. }
            | DriverError::Io { .. }
            | DriverError::Netlink { .. } => true,
        }
    }

    pub(crate) fn io(operation: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let operation = operation.into();
        move |source| Self::Io { operation, source }
    }

    pub(crate) fn errno(operation: impl Into<String>) -> impl FnOnce(nix::errno::Errno) -> Self {
        let operation = operation.into();
        move |errno| Self::Io {
            operation,
            source: errno.into(),
        }
    }

    pub(crate) fn netlink(operation: impl Into<String>) -> impl FnOnce(rtnetlink::Error) -> Self {
        let operation = operation.into();
        move |source| Self::Netlink { operation, source }
    }
}

/// An error and its causes on one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}
