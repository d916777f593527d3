//! The few kernel interfaces that aya does not offer.

#![allow(unsafe_code, reason = "system calls")]

use std::fs;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use xdp_lb_common::flow::{Flow, FlowKey};

use crate::error::Error;

const BPF_MAP_LOOKUP_BATCH: libc::c_long = 24;
const BPF_FS_MAGIC: i64 = 0xcafe_4a11;

/// `struct { … } batch` of the kernel's `union bpf_attr`.
#[repr(C)]
#[derive(Default)]
struct BatchAttributes {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    count: u32,
    map_fd: u32,
    element_flags: u64,
    flags: u64,
}

/// Where the next batch begins; opaque to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BatchToken(u32);

/// One batch of the flow table.
pub(crate) struct Batch {
    pub(crate) keys: Vec<FlowKey>,
    pub(crate) values: Vec<Flow>,
    /// `None` at the end of the table.
    pub(crate) next: Option<BatchToken>,
}

/// Reads up to `limit` entries, starting where the last batch ended.
pub(crate) fn read_flows(
    map: BorrowedFd<'_>,
    from: Option<BatchToken>,
    limit: u32,
) -> io::Result<Batch> {
    let capacity = usize::try_from(limit).map_err(io::Error::other)?;
    let mut keys: Vec<FlowKey> = Vec::with_capacity(capacity);
    let mut values: Vec<Flow> = Vec::with_capacity(capacity);
    let begin = from.map(|token| token.0);
    let mut end = 0u32;
    let mut attributes = BatchAttributes {
        in_batch: begin
            .as_ref()
            .map_or(0, |token| std::ptr::from_ref(token).addr() as u64),
        out_batch: (&raw mut end).addr() as u64,
        keys: keys.as_mut_ptr().addr() as u64,
        values: values.as_mut_ptr().addr() as u64,
        count: limit,
        map_fd: u32::try_from(map.as_raw_fd()).map_err(io::Error::other)?,
        element_flags: 0,
        flags: 0,
    };
    // SAFETY: the attributes point to buffers with room for `count` keys and values of the sizes
    // this map was made with (checked by aya when it was opened), which outlive the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_MAP_LOOKUP_BATCH,
            &raw mut attributes,
            mem::size_of::<BatchAttributes>(),
        )
    };
    let next = if result == 0 {
        Some(BatchToken(end))
    } else {
        let error = io::Error::last_os_error();
        // The end of the table, with what was left of it.
        if error.raw_os_error() != Some(libc::ENOENT) {
            return Err(error);
        }
        None
    };
    let count = usize::try_from(attributes.count)
        .map_err(io::Error::other)?
        .min(capacity);
    // SAFETY: the kernel has written `count` elements to each buffer, and any bytes are valid.
    unsafe {
        keys.set_len(count);
        values.set_len(count);
    }
    Ok(Batch { keys, values, next })
}

/// Nanoseconds between two kernel ticks.
pub(crate) fn tick_ns() -> u64 {
    let mut tick = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `tick` is a valid timespec to write to. The clock exists on every Linux, and its
    // resolution is the tick.
    unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &raw mut tick) };
    u64::try_from(tick.tv_nsec).unwrap_or(0)
}

/// A number nobody can foresee, good enough to start port allocation with.
pub(crate) fn random_u32() -> u32 {
    let mut value = 0u32;
    // SAFETY: writes at most four bytes to `value`.
    unsafe { libc::getrandom((&raw mut value).cast(), mem::size_of::<u32>(), 0) };
    value
}

/// Whether the directory lies on a bpffs.
pub(crate) fn is_bpffs(path: &Path) -> bool {
    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()) else {
        return false;
    };
    // SAFETY: statfs is plain data, for which zero is valid.
    let mut stat: libc::statfs = unsafe { mem::zeroed() };
    // SAFETY: a valid C string and a valid buffer.
    let result = unsafe { libc::statfs(path.as_ptr(), &raw mut stat) };
    #[allow(
        clippy::unnecessary_cast,
        reason = "the type differs between C libraries"
    )]
    let kind = stat.f_type as i64;
    result == 0 && kind == BPF_FS_MAGIC
}

/// Lets route look-ups that start at loopback succeed, which is how the programs ask the FIB.
///
/// Forwarding of packets that arrive on other interfaces stays as it is.
pub(crate) fn allow_route_lookups() -> Result<(), Error> {
    for family in ["ipv4", "ipv6"] {
        let path = PathBuf::from(format!("/proc/sys/net/{family}/conf/lo/forwarding"));
        match fs::read_to_string(&path) {
            Ok(value) if value.trim() == "1" => continue,
            Ok(_) => {}
            // No IPv6 in this kernel.
            Err(error) if family == "ipv6" && error.kind() == io::ErrorKind::NotFound => continue,
            Err(source) => return Err(Error::SetSysctl { path, source }),
        }
        fs::write(&path, "1").map_err(|source| Error::SetSysctl { path, source })?;
    }
    Ok(())
}

/// The name that an interface of this network namespace has now.
pub(crate) fn interface_name(ifindex: u32) -> Option<String> {
    let mut name = [0u8; libc::IF_NAMESIZE];
    // SAFETY: the buffer has the size the call asks for, and outlives it.
    let found = unsafe { libc::if_indextoname(ifindex, name.as_mut_ptr().cast()) };
    if found.is_null() {
        return None;
    }
    let name: Vec<u8> = name.into_iter().take_while(|byte| *byte != 0).collect();
    String::from_utf8(name).ok()
}

const SIOCETHTOOL: libc::Ioctl = 0x8946;
const ETHTOOL_GDRVINFO: u32 = 3;

/// `struct ethtool_drvinfo`.
#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [u8; 32],
    rest: [u8; 160],
}

#[repr(C)]
struct InterfaceRequest {
    name: [u8; libc::IFNAMSIZ],
    data: *mut DriverInfo,
    rest: [u8; 16],
}

/// The name of the interface's driver, if it says.
pub(crate) fn driver(interface: &str) -> Option<String> {
    // SAFETY: a plain socket call; the descriptor is owned right below.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return None;
    }
    // SAFETY: just opened, owned by nobody else.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    let mut information = DriverInfo {
        command: ETHTOOL_GDRVINFO,
        driver: [0; 32],
        rest: [0; 160],
    };
    let mut request = InterfaceRequest {
        name: [0; libc::IFNAMSIZ],
        data: &raw mut information,
        rest: [0; 16],
    };
    let bytes = interface.as_bytes();
    if bytes.len() >= libc::IFNAMSIZ {
        return None;
    }
    for (to, from) in request.name.iter_mut().zip(bytes) {
        *to = *from;
    }
    // SAFETY: the request and the buffer it points to have the layout the ioctl wants and outlive it.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
    if result != 0 {
        return None;
    }
    let name: Vec<u8> = information
        .driver
        .iter()
        .copied()
        .take_while(|byte| *byte != 0)
        .collect();
    String::from_utf8(name).ok()
}
