//! Links, addresses and routes of one network namespace, by rtnetlink.
//!
//! Blocking, and idempotent: what exists is brought into the wanted state. Used from threads that are inside the
//! namespace, see [`in_netns`].

use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};

use futures_util::TryStreamExt;
use ipnet::IpNet;
use netlink_packet_route::address::{AddressAttribute, AddressFlags};
use netlink_packet_route::link::{InfoData, InfoVeth};
use nix::errno::Errno;
use rtnetlink::{
    LinkBridge, LinkBridgePort, LinkMessageBuilder, LinkUnspec, LinkVeth, RouteMessageBuilder,
};
use tokio::runtime::Runtime;

use super::netns::Netns;
use crate::DriverError;

/// A veth pair: one end on a bridge here, the other in another namespace.
pub(crate) struct VethPair<'a> {
    pub(crate) name: &'a str,
    pub(crate) bridge: &'a str,
    pub(crate) mtu_bytes: u32,
    /// An isolated end talks to the bridge itself but to no other isolated end.
    pub(crate) isolated: bool,
    pub(crate) peer: &'a str,
    pub(crate) peer_mac: [u8; 6],
    pub(crate) peer_netns: &'a Netns,
}

/// Netlink of the namespace the thread is in.
pub(crate) struct Links {
    runtime: Runtime,
    handle: rtnetlink::Handle,
}

/// Runs `work` with the links of a namespace. Blocks the caller.
pub(crate) fn in_netns<T: Send>(
    netns: &Netns,
    work: impl FnOnce(&Links) -> Result<T, DriverError> + Send,
) -> Result<T, DriverError> {
    netns.run_in(|| {
        let open = DriverError::io(format!("open netlink in namespace {}", netns.name()));
        let links = Links::open().map_err(open)?;
        work(&links)
    })?
}

impl Links {
    fn open() -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()?;
        let handle = {
            let _inside = runtime.enter();
            let (connection, handle, _) = rtnetlink::new_connection()?;
            runtime.spawn(connection);
            handle
        };
        Ok(Self { runtime, handle })
    }

    /// Index of a link; `None` when there is none of that name.
    pub(crate) fn index(&self, name: &str) -> Result<Option<u32>, DriverError> {
        let request = self.handle.link().get().match_name(name.to_owned());
        let found = self
            .runtime
            .block_on(async { request.execute().try_next().await });
        match found {
            Ok(link) => Ok(link.map(|link| link.header.index)),
            Err(error) if errno_of(&error) == Some(Errno::ENODEV) => Ok(None),
            Err(error) => Err(DriverError::netlink(format!("look up link {name}"))(error)),
        }
    }

    fn require_index(&self, name: &str) -> Result<u32, DriverError> {
        self.index(name)?.ok_or_else(|| {
            DriverError::io(format!("look up link {name}"))(std::io::ErrorKind::NotFound.into())
        })
    }

    /// A bridge that forwards at once and floods multicast: no spanning tree delay, no snooping.
    pub(crate) fn ensure_bridge(&self, name: &str, mtu_bytes: u32) -> Result<u32, DriverError> {
        let message = LinkBridge::new(name)
            .forward_delay(0)
            .mcast_snooping(false)
            .mtu(mtu_bytes)
            .build();
        let added = self
            .runtime
            .block_on(self.handle.link().add(message).execute());
        accept(added, &[Errno::EEXIST])
            .map_err(DriverError::netlink(format!("create bridge {name}")))?;
        let index = self.require_index(name)?;
        let message = LinkUnspec::new_with_index(index).mtu(mtu_bytes).up();
        self.change(message, || format!("set up bridge {name}"))?;
        Ok(index)
    }

    /// The pair, with this end up; the other one is for whoever is in its namespace. The kernel makes both ends in
    /// one step, so half a pair cannot be found.
    pub(crate) fn ensure_veth(&self, pair: &VethPair<'_>) -> Result<(), DriverError> {
        let VethPair {
            name,
            bridge,
            mtu_bytes,
            isolated,
            peer,
            peer_mac,
            peer_netns,
        } = pair;
        let bridge_index = self.require_index(bridge)?;
        if self.index(name)?.is_none() {
            let netns = peer_netns.open()?;
            let peer_message = LinkMessageBuilder::<LinkUnspec>::new()
                .name(*peer)
                .address(peer_mac.to_vec())
                .mtu(*mtu_bytes)
                .setns_by_fd(netns.as_fd().as_raw_fd())
                .build();
            let message = LinkVeth::new(name, peer)
                .set_info_data(InfoData::Veth(InfoVeth::Peer(peer_message)))
                .mtu(*mtu_bytes)
                .controller(bridge_index)
                .up()
                .build();
            let added = self
                .runtime
                .block_on(self.handle.link().add(message).execute());
            added.map_err(DriverError::netlink(format!(
                "create veth pair {name} with {peer} in namespace {}",
                peer_netns.name()
            )))?;
        }
        let index = self.require_index(name)?;
        let message = LinkUnspec::new_with_index(index)
            .mtu(*mtu_bytes)
            .controller(bridge_index)
            .up();
        self.change(message, || format!("put {name} on bridge {bridge}"))?;
        if *isolated {
            let message = LinkBridgePort::new(index).isolated(true).build();
            self.runtime
                .block_on(self.handle.link().set_port(message).execute())
                .map_err(DriverError::netlink(format!("isolate bridge port {name}")))?;
        }
        Ok(())
    }

    pub(crate) fn set_up(&self, name: &str) -> Result<(), DriverError> {
        let index = self.require_index(name)?;
        self.change(LinkUnspec::new_with_index(index).up(), || {
            format!("set up link {name}")
        })
    }

    /// Removes a link, and with it the other end of a pair; absent is fine.
    pub(crate) fn delete(&self, name: &str) -> Result<(), DriverError> {
        let Some(index) = self.index(name)? else {
            return Ok(());
        };
        let deleted = self
            .runtime
            .block_on(self.handle.link().del(index).execute());
        accept(deleted, &[Errno::ENODEV])
            .map_err(DriverError::netlink(format!("delete link {name}")))
    }

    /// Puts an address on a link, usable at once (no duplicate address detection).
    pub(crate) fn ensure_address(&self, name: &str, address: IpNet) -> Result<(), DriverError> {
        let index = self.require_index(name)?;
        let mut request = self
            .handle
            .address()
            .add(index, address.addr(), address.prefix_len());
        if address.addr().is_ipv6() {
            request
                .message_mut()
                .attributes
                .push(AddressAttribute::Flags(
                    AddressFlags::Nodad | AddressFlags::Permanent,
                ));
        }
        let added = self.runtime.block_on(request.execute());
        accept(added, &[Errno::EEXIST])
            .map_err(DriverError::netlink(format!("add {address} to {name}")))
    }

    /// A route to `destination` by a gateway that is on the link.
    pub(crate) fn ensure_route(
        &self,
        name: &str,
        destination: IpNet,
        gateway: IpAddr,
    ) -> Result<(), DriverError> {
        let index = self.require_index(name)?;
        let operation = || format!("add route to {destination} by {gateway}");
        let message = match (destination, gateway) {
            (IpNet::V4(destination), IpAddr::V4(gateway)) => {
                RouteMessageBuilder::<std::net::Ipv4Addr>::new()
                    .destination_prefix(destination.network(), destination.prefix_len())
                    .gateway(gateway)
                    .output_interface(index)
                    .build()
            }
            (IpNet::V6(destination), IpAddr::V6(gateway)) => {
                RouteMessageBuilder::<std::net::Ipv6Addr>::new()
                    .destination_prefix(destination.network(), destination.prefix_len())
                    .gateway(gateway)
                    .output_interface(index)
                    .build()
            }
            _ => {
                return Err(DriverError::Invalid {
                    what: operation(),
                    reason: "destination and gateway are of different families".to_owned(),
                });
            }
        };
        let added = self
            .runtime
            .block_on(self.handle.route().add(message).execute());
        accept(added, &[Errno::EEXIST]).map_err(DriverError::netlink(operation()))
    }

    fn change(
        &self,
        message: LinkMessageBuilder<LinkUnspec>,
        operation: impl FnOnce() -> String,
    ) -> Result<(), DriverError> {
        self.runtime
            .block_on(self.handle.link().change(message.build()).execute())
            .map_err(|error| DriverError::netlink(operation())(error))
    }
}

/// Writes a setting of the network namespace the thread is in, `net.` left out, `/` between the parts.
pub(crate) fn write_sysctl(key: &str, value: &str) -> Result<(), DriverError> {
    std::fs::write(format!("/proc/sys/net/{key}"), value)
        .map_err(DriverError::io(format!("set net/{key} to {value}")))
}

/// The same, for settings that a kernel without the feature does not have.
pub(crate) fn write_sysctl_if_present(key: &str, value: &str) -> Result<(), DriverError> {
    match std::fs::write(format!("/proc/sys/net/{key}"), value) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(DriverError::io(format!("set net/{key} to {value}"))(error))
        }
        _ => Ok(()),
    }
}

fn accept(result: Result<(), rtnetlink::Error>, fine: &[Errno]) -> Result<(), rtnetlink::Error> {
    match result {
        Err(error) if errno_of(&error).is_some_and(|errno| fine.contains(&errno)) => Ok(()),
        other => other,
    }
}

fn errno_of(error: &rtnetlink::Error) -> Option<Errno> {
    match error {
        rtnetlink::Error::NetlinkError(message) => {
            Some(Errno::from_raw(message.raw_code().saturating_abs()))
        }
        _ => None,
    }
}
