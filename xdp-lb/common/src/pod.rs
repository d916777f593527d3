//! Keys and values may be copied to and from the kernel as bytes.

#![allow(unsafe_code, reason = "aya's Pod is an unsafe trait")]

use aya::Pod;

use crate::address::Address;
use crate::flow::{Flow, FlowKey};
use crate::table::{
    AllowedPrefix, Globals, Interface, Member, MemberState, Service, ServiceInfo, ServiceKey,
    ServiceState, Traffic,
};

macro_rules! pod {
    ($($type:ty),* $(,)?) => {
        // SAFETY: each is `repr(C)` or `repr(transparent)` over integers, without implicit padding
        // (sizes are asserted beside the types), so every bit pattern is valid and every byte set.
        $(unsafe impl Pod for $type {})*
    };
}

pod!(
    Address,
    FlowKey,
    Flow,
    ServiceKey,
    Service,
    ServiceInfo,
    ServiceState,
    Member,
    MemberState,
    Interface,
    Traffic,
    Globals,
    AllowedPrefix,
);
