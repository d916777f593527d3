//! Typed handles of the maps the programs use.

use aya::Ebpf;
use aya::maps::lpm_trie::LpmTrie;
use aya::maps::{Array, HashMap, Map, MapData, MapError, PerCpuArray};
use xdp_lb_common::address::Address;
use xdp_lb_common::flow::{Flow, FlowKey};
use xdp_lb_common::table::{
    AllowedPrefix, Globals, Interface, Member, MemberState, Service, ServiceInfo, ServiceKey,
    ServiceState, Traffic,
};

use crate::error::Error;

pub(crate) struct Maps {
    pub(crate) flows: HashMap<MapData, FlowKey, Flow>,
    pub(crate) services: HashMap<MapData, ServiceKey, Service>,
    pub(crate) service_info: Array<MapData, ServiceInfo>,
    pub(crate) service_state: Array<MapData, ServiceState>,
    pub(crate) service_stats: PerCpuArray<MapData, Traffic>,
    pub(crate) members: Array<MapData, Member>,
    pub(crate) member_state: Array<MapData, MemberState>,
    pub(crate) member_stats: PerCpuArray<MapData, Traffic>,
    pub(crate) ring: Array<MapData, u32>,
    pub(crate) interfaces: HashMap<MapData, u32, Interface>,
    pub(crate) vips: HashMap<MapData, Address, u32>,
    pub(crate) allowed: LpmTrie<MapData, AllowedPrefix, u32>,
    pub(crate) globals: Array<MapData, Globals>,
    pub(crate) verdicts: PerCpuArray<MapData, u64>,
}

impl Maps {
    /// Takes the maps out of a loaded object.
    pub(crate) fn take(ebpf: &mut Ebpf) -> Result<Self, Error> {
        Ok(Self {
            flows: take(ebpf, "FLOWS")?,
            services: take(ebpf, "SERVICES")?,
            service_info: take(ebpf, "SERVICE_INFO")?,
            service_state: take(ebpf, "SERVICE_STATE")?,
            service_stats: take(ebpf, "SERVICE_STATS")?,
            members: take(ebpf, "MEMBERS")?,
            member_state: take(ebpf, "MEMBER_STATE")?,
            member_stats: take(ebpf, "MEMBER_STATS")?,
            ring: take(ebpf, "RING")?,
            interfaces: take(ebpf, "INTERFACES")?,
            vips: take(ebpf, "VIPS")?,
            allowed: take(ebpf, "ALLOWED")?,
            globals: take(ebpf, "GLOBALS")?,
            verdicts: take(ebpf, "VERDICTS")?,
        })
    }
}

fn take<T: TryFrom<Map, Error = MapError>>(
    ebpf: &mut Ebpf,
    name: &'static str,
) -> Result<T, Error> {
    let map = ebpf
        .take_map(name)
        .ok_or(Error::MissingInObject { what: name })?;
    T::try_from(map).map_err(during("open", name))
}

/// Names what was being done to which map.
pub(crate) fn during(action: &'static str, map: &'static str) -> impl FnOnce(MapError) -> Error {
    move |source| Error::Map {
        action,
        map,
        source: Box::new(source),
    }
}

/// Turns "no such key" into `None`.
pub(crate) fn optional<T>(result: Result<T, MapError>) -> Result<Option<T>, MapError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(MapError::KeyNotFound | MapError::ElementNotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removing what is not there is as good.
pub(crate) fn or_absent(result: Result<(), MapError>) -> Result<(), MapError> {
    match result {
        Err(MapError::KeyNotFound | MapError::ElementNotFound) => Ok(()),
        Err(MapError::SyscallError(error))
            if error.io_error.raw_os_error() == Some(libc::ENOENT) =>
        {
            Ok(())
        }
        other => other,
    }
}
