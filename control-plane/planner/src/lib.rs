//! The planner: from what is wanted and what is there to what to do. Pure: no IO, no clock, no randomness.
//!
//! Owns every choice: which amphora serves, which is built or goes, the ports and addresses each has, the content
//! and generation of each document, and the order of it all. [`plan`] looks at a [`Graph`](lb_model::Graph) and a
//! [`World`] and answers a [`Plan`]; applying it decides nothing. A plan goes as far as what is known allows; after
//! it was applied the world is observed again and the next plan goes on. On a converged world the plan is empty.
//!
//! It must never: read the time, make an id other than through [`FreshIds`], or depend on what an earlier plan said.
//!
//! Start reading at [`plan`], then `serve` (create, update, failover) and `delete`.

mod cleanup;
mod converge;
mod delete;
mod document;
mod networks;
mod plan;
mod serve;
mod settings;
mod step;
mod world;

pub use cleanup::abandon;
pub use document::{Document, DocumentError, document};
pub use networks::{WantedNetwork, wanted_networks};
pub use plan::{Phase, Plan};
pub use serve::plan;
pub use settings::Settings;
pub use step::{PortPurpose, PortWish, Step};
pub use world::{AgentFacts, AgentView, PortView, ServerFacts, ServerView, SubnetFacts, World};

use lb_model::AmphoraId;

/// Where new ids come from; the only choice that is not a function of the arguments.
pub trait FreshIds {
    fn amphora(&mut self) -> AmphoraId;
}
