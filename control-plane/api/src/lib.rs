//! The Octavia v2 API over HTTP.
//!
//! Owns the wire: routes, negotiation, bodies, pages, error shapes. Promises: each write is one transaction of
//! [`lb_store`] running a pure change of [`lb_model::change`], so a 2xx means that the new intent and its `PENDING_*`
//! are stored, and anything else that nothing changed. It never talks to an amphora and keeps no state of its own.
//! Shapes and texts: `docs/compatibility.md`, `docs/errors.md`.

mod audit;
mod choice;
mod cors;
mod discovery;
mod fault;
mod healthcheck;
mod network_lookup;
mod once;
mod openapi;
mod page;
pub mod policy;
mod query_string;
mod request;
mod route;
mod serve;
mod state;
mod v2;
mod view;
mod vip;

pub use audit::RemoteAddress;
pub use cors::CorsConfig;
pub use healthcheck::HealthcheckConfig;
pub use route::{Route, RouteKind};
pub use serve::router;
pub use state::{ApiConfig, ApiState, ListFeatures};
