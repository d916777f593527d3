//! xdp-lb/common
