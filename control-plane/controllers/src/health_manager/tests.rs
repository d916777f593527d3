//! Tables of the roll-up, a simulated clock for liveness, and a real socket and database.

mod graphs;
mod hostile;
mod liveness;
mod roll_up;
mod service;
