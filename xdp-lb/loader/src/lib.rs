//! xdp-lb/loader
