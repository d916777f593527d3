//! The outside world behind traits: compute, network, identity, the amphora's agent; and the certificates.
//!
//! Owns nothing of the database and decides nothing: every call does one idempotent act on an object that carries
//! our id in its name, or looks, so that a retry adopts what a crash left. Ids, addresses and order are chosen by
//! the planner.
//!
//! | module | trait | implementations |
//! |---|---|---|
//! | [`compute`] | [`Compute`] | `local`: a network namespace with an agent process; `noop` |
//! | [`network`] | [`Network`] | `local`: bridges and veth pairs in a namespace of their own; `noop` |
//! | [`amphora`] | [`AmphoraDriver`] | `https`: the agent's REST interface over mutual TLS; `noop` |
//! | [`identity`] | [`Identity`] | `keystone`: tokens of OpenStack; `none`: every caller is an administrator |
//! | [`certificates`] | | own certificate authorities |
//! | [`local`] | | the machine-wide stack that the two `local` drivers share |
//! | [`noop`] | | a cloud that is not there |

pub mod agent_conf;
pub mod amphora;
pub mod certificates;
pub mod compute;
mod error;
#[cfg(feature = "fake")]
pub mod fake;
mod http;
pub mod identity;
pub mod local;
pub mod network;
pub mod noop;
mod observed;
mod secret;

pub use amphora::{AmphoraDriver, AmphoraError, Endpoint};
pub use certificates::{CertificateAuthority, CertificateError, ServerCertificate};
pub use compute::{Compute, Placement, Server, ServerSpec, ServerStatus};
pub use error::DriverError;
pub use http::ServiceError;
pub use identity::{Caller, Identity, IdentityError};
pub use local::{LocalStack, StackConfig};
pub use network::Network;
pub use observed::Observed;
pub use secret::Secret;
