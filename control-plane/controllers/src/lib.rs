//! The controllers: what runs in the background of the control plane.
//!
//! Each is a loop that takes its work from the database or the network and needs no other one to be there; any
//! number of replicas may run.
//!
//! | module | job |
//! |---|---|
//! | [`worker`] | reconciles load balancers |
//! | [`health_manager`] | receives heartbeats, writes operating statuses, asks for failovers |
//! | [`housekeeping`] | removes rows that were deleted long ago |

pub mod health_manager;
pub mod housekeeping;
mod statistics;
pub mod worker;
