//! Device features that XDP on veth needs changed, see [`Offload`](super::Offload).

use std::io;
use std::os::fd::AsRawFd;

use crate::DriverError;

const SIOCETHTOOL: libc::c_ulong = 0x8946;
const ETHTOOL_STXCSUM: u32 = 0x17;
const ETHTOOL_SGRO: u32 = 0x2c;

/// `struct ethtool_value` of `linux/ethtool.h`.
#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

/// Has the device send whole checksums; segmentation offload goes with it.
pub(crate) fn disable_transmit_checksums(link: &str) -> Result<(), DriverError> {
    set(link, ETHTOOL_STXCSUM, 0)
}

/// Has the device poll, which lets it take frames that an XDP program at the other end sends.
pub(crate) fn enable_receive_offload(link: &str) -> Result<(), DriverError> {
    set(link, ETHTOOL_SGRO, 1)
}

/// For a link of the network namespace the thread is in.
#[expect(unsafe_code, reason = "there is no safe wrapper of SIOCETHTOOL")]
fn set(link: &str, command: u32, data: u32) -> Result<(), DriverError> {
    let operation = || format!("change offloads of {link}");
    let name = link.as_bytes();
    if name.len() >= libc::IFNAMSIZ {
        return Err(DriverError::io(operation())(
            io::ErrorKind::InvalidInput.into(),
        ));
    }
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").map_err(DriverError::io(operation()))?;
    let mut value = EthtoolValue { command, data };
    // SAFETY: `ifreq` is a plain C structure for which all zeroes is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name) {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: the request names a link with a closing NUL and points to a value that lives until the call returns;
    // the commands used read and write that value only.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) };
    if result < 0 {
        return Err(DriverError::io(operation())(io::Error::last_os_error()));
    }
    Ok(())
}
