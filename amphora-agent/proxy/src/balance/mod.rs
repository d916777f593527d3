//! Which member gets the next request. One file an algorithm.

pub(crate) mod least_connections;
pub(crate) mod round_robin;
pub(crate) mod source_ip;
