//! What can go wrong between a configuration and the kernel.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use aya::EbpfError;
use aya::maps::MapError;
use aya::pin::PinError;
use aya::programs::ProgramError;
use aya::programs::links::LinkError;
use aya::programs::tc::TcError;
use thiserror::Error as ThisError;
use uuid::Uuid;

use crate::config::{AttachMode, Protocol};

/// Failure of an operation on the fast path.
#[derive(Debug, ThisError)]
pub enum Error {
    /// The build had no eBPF toolchain.
    #[error("this build has no eBPF programs; {missing}, then build again")]
    NotBuilt { missing: &'static str },
    #[error("{pin_dir} is not on a bpffs; mount one there (mount -t bpf bpf …)")]
    NotBpffs { pin_dir: PathBuf },
    #[error("flow capacity {capacity} is not between 1024 and 4194304")]
    FlowCapacity { capacity: u32 },
    #[error("create pin directory {path}")]
    CreateDirectory { path: PathBuf, source: io::Error },
    #[error("list pins in {path}")]
    ListPins { path: PathBuf, source: io::Error },
    #[error("remove pin {path}")]
    RemovePin { path: PathBuf, source: io::Error },
    #[error("set {path}")]
    SetSysctl { path: PathBuf, source: io::Error },
    #[error("load eBPF object")]
    LoadObject {
        #[source]
        source: Box<EbpfError>,
    },
    /// The source carries the verifier's log.
    #[error("load eBPF program {program}")]
    LoadProgram {
        program: &'static str,
        #[source]
        source: Box<ProgramError>,
    },
    #[error("find {what} in the eBPF object")]
    MissingInObject { what: &'static str },
    #[error("attach {program} to {interface} as {mode:?}")]
    Attach {
        program: &'static str,
        interface: String,
        mode: AttachMode,
        #[source]
        source: Box<ProgramError>,
    },
    #[error("add clsact qdisc to {interface}")]
    AddClsact {
        interface: String,
        #[source]
        source: Box<TcError>,
    },
    #[error("adopt link {path}")]
    Link {
        path: PathBuf,
        #[source]
        source: Box<LinkError>,
    },
    #[error("pin link {path}")]
    Pin {
        path: PathBuf,
        #[source]
        source: Box<PinError>,
    },
    #[error("{action} map {map}")]
    Map {
        action: &'static str,
        map: &'static str,
        #[source]
        source: Box<MapError>,
    },
    #[error("read flow table")]
    ReadFlows { source: io::Error },
    #[error("read the programs' clock")]
    ReadClock {
        #[source]
        source: Box<ProgramError>,
    },
    #[error("more {what} than the {limit} there is room for")]
    TooMany { what: &'static str, limit: u32 },
    #[error("listener {listener} has no usable idle timeout")]
    IdleTimeout { listener: Uuid },
    #[error("listeners {first} and {second} both want {vip} port {port} {protocol:?}")]
    DuplicateVip {
        first: Uuid,
        second: Uuid,
        vip: IpAddr,
        port: u16,
        protocol: Protocol,
    },
    #[error("listener {listener} is configured twice")]
    DuplicateListener { listener: Uuid },
    #[error("listener {listener} has member {member} twice")]
    DuplicateMember { listener: Uuid, member: Uuid },
    #[error("interface {ifindex} is configured twice")]
    DuplicateInterface { ifindex: u32 },
}

impl Error {
    /// Whether the same call may succeed later without another configuration.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Attach { .. }
            | Self::AddClsact { .. }
            | Self::Link { .. }
            | Self::Pin { .. }
            | Self::Map { .. }
            | Self::ReadFlows { .. }
            | Self::ReadClock { .. }
            | Self::ListPins { .. }
            | Self::RemovePin { .. } => true,
            Self::NotBuilt { .. }
            | Self::NotBpffs { .. }
            | Self::FlowCapacity { .. }
            | Self::CreateDirectory { .. }
            | Self::SetSysctl { .. }
            | Self::LoadObject { .. }
            | Self::LoadProgram { .. }
            | Self::MissingInObject { .. }
            | Self::TooMany { .. }
            | Self::IdleTimeout { .. }
            | Self::DuplicateVip { .. }
            | Self::DuplicateListener { .. }
            | Self::DuplicateMember { .. }
            | Self::DuplicateInterface { .. } => false,
        }
    }
}
