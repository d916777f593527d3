//! Links, addresses, routes and rules over one netlink socket of one namespace. Each call is idempotent: what is
//! there already, or gone already, is no error.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use futures_util::TryStreamExt;
use ipnet::IpNet;
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressHeaderFlags};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkLayerType, LinkMessage};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteProtocol, RouteScope,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use rtnetlink::{Handle, IpVersion, LinkMessageBuilder, LinkUnspec, RouteMessageBuilder};

use crate::observed::{Link, Place, Route, VIP_TABLE};

/// Marks our routes among the kernel's and others' (`rtm_protocol`; 128 and above are free for daemons).
const OUR_PROTOCOL: RouteProtocol = RouteProtocol::Other(147);

/// Before the main table (32766), after the local one (0).
const RULE_PRIORITY: u32 = 100;

#[derive(Debug, thiserror::Error)]
pub(super) enum NetlinkError {
    #[error("netlink")]
    Netlink(#[source] rtnetlink::Error),
    #[error("no interface is named {0}")]
    NoDevice(String),
    #[error("route {0} mixes address families")]
    MixedFamilies(Route),
}

/// One socket. Its connection runs on the runtime it was opened on.
#[derive(Debug, Clone)]
pub(super) struct Netlink {
    handle: Handle,
    place: Place,
}

impl Netlink {
    /// Opens a socket in the namespace of the calling thread; needs a runtime.
    pub(super) fn open(place: Place) -> io::Result<Self> {
        let (connection, handle, _) = rtnetlink::new_connection()?;
        tokio::spawn(connection);
        Ok(Netlink { handle, place })
    }

    /// Ethernet interfaces, and `lo` in the tenant's namespace.
    pub(super) async fn links(&self) -> Result<Vec<Link>, NetlinkError> {
        let messages: Vec<LinkMessage> = self
            .handle
            .link()
            .get()
            .execute()
            .try_collect()
            .await
            .map_err(NetlinkError::Netlink)?;
        let mut links: Vec<_> = messages
            .into_iter()
            .filter_map(|message| link(message, self.place))
            .collect();
        let mut addresses = self.addresses().await?;
        for link in &mut links {
            link.addresses = addresses.remove(&link.index).unwrap_or_default();
        }
        Ok(links)
    }

    async fn addresses(&self) -> Result<BTreeMap<u32, Vec<IpNet>>, NetlinkError> {
        let messages: Vec<_> = self
            .handle
            .address()
            .get()
            .execute()
            .try_collect()
            .await
            .map_err(NetlinkError::Netlink)?;
        let mut addresses: BTreeMap<u32, Vec<IpNet>> = BTreeMap::new();
        for message in messages {
            let mut address = None;
            for attribute in &message.attributes {
                match attribute {
                    // On a point-to-point link `Address` is the peer's.
                    AddressAttribute::Local(local) => address = Some(*local),
                    AddressAttribute::Address(own) if address.is_none() => address = Some(*own),
                    _ => {}
                }
            }
            if let Some(address) = address
                && !is_link_local(address)
                && let Ok(network) = IpNet::new(address, message.header.prefix_len)
            {
                addresses
                    .entry(message.header.index)
                    .or_default()
                    .push(network);
            }
        }
        Ok(addresses)
    }

    /// Our routes of every table.
    pub(super) async fn routes(&self, links: &[Link]) -> Result<BTreeSet<Route>, NetlinkError> {
        let mut routes = BTreeSet::new();
        let v4 = RouteMessageBuilder::<Ipv4Addr>::new().build();
        let v6 = RouteMessageBuilder::<Ipv6Addr>::new().build();
        for (query, any) in [
            (v4, IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
            (v6, IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
        ] {
            let messages: Vec<_> = self
                .handle
                .route()
                .get(query)
                .execute()
                .try_collect()
                .await
                .map_err(NetlinkError::Netlink)?;
            routes.extend(
                messages
                    .iter()
                    .filter(|message| message.header.protocol == OUR_PROTOCOL)
                    .filter_map(|message| route(message, any, links)),
            );
        }
        Ok(routes)
    }

    pub(super) async fn rules(&self) -> Result<BTreeSet<IpAddr>, NetlinkError> {
        let mut rules = BTreeSet::new();
        for version in [IpVersion::V4, IpVersion::V6] {
            rules.extend(
                self.rule_messages(version)
                    .await?
                    .iter()
                    .filter_map(vip_rule),
            );
        }
        Ok(rules)
    }

    async fn rule_messages(&self, version: IpVersion) -> Result<Vec<RuleMessage>, NetlinkError> {
        self.handle
            .rule()
            .get(version)
            .execute()
            .try_collect()
            .await
            .map_err(NetlinkError::Netlink)
    }

    pub(super) async fn move_link(
        &self,
        index: u32,
        name: &str,
        namespace: std::os::fd::RawFd,
    ) -> Result<(), NetlinkError> {
        self.change(
            LinkUnspec::new_with_index(index)
                .name(name)
                .setns_by_fd(namespace),
        )
        .await
    }

    pub(super) async fn rename(&self, index: u32, name: &str) -> Result<(), NetlinkError> {
        self.change(LinkUnspec::new_with_index(index).down())
            .await?;
        self.change(LinkUnspec::new_with_index(index).name(name))
            .await
    }

    pub(super) async fn set_mtu(&self, device: &str, mtu_bytes: u32) -> Result<(), NetlinkError> {
        let index = self.index(device).await?;
        self.change(LinkUnspec::new_with_index(index).mtu(mtu_bytes))
            .await
    }

    pub(super) async fn set_up(&self, device: &str) -> Result<(), NetlinkError> {
        let index = self.index(device).await?;
        self.change(LinkUnspec::new_with_index(index).up()).await
    }

    pub(super) async fn set_down(&self, index: u32) -> Result<(), NetlinkError> {
        self.change(LinkUnspec::new_with_index(index).down()).await
    }

    async fn change(&self, message: LinkMessageBuilder<LinkUnspec>) -> Result<(), NetlinkError> {
        self.handle
            .link()
            .change(message.build())
            .execute()
            .await
            .map_err(NetlinkError::Netlink)
    }

    pub(super) async fn add_address(
        &self,
        device: &str,
        address: IpNet,
    ) -> Result<(), NetlinkError> {
        let index = self.index(device).await?;
        let mut request = self
            .handle
            .address()
            .add(index, address.addr(), address.prefix_len());
        if address.addr().is_ipv6() {
            // Usable at once: the control plane has seen to it that nobody else has it.
            let message = request.message_mut();
            message.header.flags |= AddressHeaderFlags::Nodad;
            message
                .attributes
                .push(AddressAttribute::Flags(AddressFlags::Nodad));
        }
        accept(request.execute().await, &[libc::EEXIST])
    }

    pub(super) async fn delete_address(
        &self,
        device: &str,
        address: IpNet,
    ) -> Result<(), NetlinkError> {
        let index = match self.index(device).await {
            Err(NetlinkError::NoDevice(_)) => return Ok(()),
            other => other?,
        };
        let mut request = self
            .handle
            .address()
            .add(index, address.addr(), address.prefix_len());
        let message = request.message_mut().clone();
        accept(
            self.handle.address().del(message).execute().await,
            &[libc::EADDRNOTAVAIL, libc::ENODEV],
        )
    }

    pub(super) async fn add_route(&self, route: &Route) -> Result<(), NetlinkError> {
        let message = self.route_message(route).await?;
        self.handle
            .route()
            .add(message)
            .replace()
            .execute()
            .await
            .map_err(NetlinkError::Netlink)
    }

    pub(super) async fn delete_route(&self, route: &Route) -> Result<(), NetlinkError> {
        let message = match self.route_message(route).await {
            Err(NetlinkError::NoDevice(_)) => return Ok(()),
            other => other?,
        };
        accept(
            self.handle.route().del(message).execute().await,
            &[libc::ESRCH, libc::ENODEV],
        )
    }

    async fn route_message(&self, route: &Route) -> Result<RouteMessage, NetlinkError> {
        let mixed = |_| NetlinkError::MixedFamilies(route.clone());
        let index = self.index(&route.device).await?;
        let mut message = RouteMessageBuilder::<IpAddr>::new()
            .destination_prefix(route.destination.addr(), route.destination.prefix_len())
            .map_err(mixed)?
            .output_interface(index)
            .table_id(route.table)
            .protocol(OUR_PROTOCOL);
        message = match route.gateway {
            Some(gateway) => message.gateway(gateway).map_err(mixed)?.onlink(),
            // IPv6 knows no scopes of routes.
            None if route.destination.addr().is_ipv4() => message.scope(RouteScope::Link),
            None => message,
        };
        Ok(message.build())
    }

    pub(super) async fn add_rule(&self, source: IpAddr) -> Result<(), NetlinkError> {
        let request = self
            .handle
            .rule()
            .add()
            .table_id(VIP_TABLE)
            .action(RuleAction::ToTable)
            .priority(RULE_PRIORITY);
        let added = match source {
            IpAddr::V4(source) => request.v4().source_prefix(source, 32).execute().await,
            IpAddr::V6(source) => request.v6().source_prefix(source, 128).execute().await,
        };
        accept(added, &[libc::EEXIST])
    }

    pub(super) async fn delete_rule(&self, source: IpAddr) -> Result<(), NetlinkError> {
        let version = match source {
            IpAddr::V4(_) => IpVersion::V4,
            IpAddr::V6(_) => IpVersion::V6,
        };
        for message in self.rule_messages(version).await? {
            if vip_rule(&message) == Some(source) {
                accept(
                    self.handle.rule().del(message).execute().await,
                    &[libc::ENOENT],
                )?;
            }
        }
        Ok(())
    }

    pub(super) async fn index(&self, device: &str) -> Result<u32, NetlinkError> {
        let found: Result<Vec<_>, _> = self
            .handle
            .link()
            .get()
            .match_name(device)
            .execute()
            .try_collect()
            .await;
        let gone = || NetlinkError::NoDevice(device.to_owned());
        match found {
            Ok(messages) => messages
                .first()
                .map(|message| message.header.index)
                .ok_or_else(gone),
            Err(error) if errno(&error) == Some(libc::ENODEV) => Err(gone()),
            Err(error) => Err(NetlinkError::Netlink(error)),
        }
    }
}

fn accept(result: Result<(), rtnetlink::Error>, fine: &[i32]) -> Result<(), NetlinkError> {
    match result {
        Err(error) if errno(&error).is_some_and(|errno| fine.contains(&errno)) => Ok(()),
        result => result.map_err(NetlinkError::Netlink),
    }
}

fn errno(error: &rtnetlink::Error) -> Option<i32> {
    match error {
        rtnetlink::Error::NetlinkError(message) => {
            message.code.map(|code| code.get().saturating_neg())
        }
        _ => None,
    }
}

fn link(message: LinkMessage, place: Place) -> Option<Link> {
    let loopback = match message.header.link_layer_type {
        LinkLayerType::Ether => false,
        LinkLayerType::Loopback if place == Place::Tenant => true,
        _ => return None,
    };
    let (mut name, mut mac, mut mtu_bytes) = (None, None, 0);
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(text) => name = Some(text),
            LinkAttribute::Address(octets) => mac = <[u8; 6]>::try_from(octets).ok(),
            LinkAttribute::Mtu(bytes) => mtu_bytes = bytes,
            _ => {}
        }
    }
    // Fallback tunnels that the kernel puts into every namespace call themselves Ethernet, without an address.
    if !loopback && mac? == [0; 6] {
        return None;
    }
    Some(Link {
        place,
        index: message.header.index,
        name: if loopback { "lo".to_owned() } else { name? },
        mac: mac?,
        mtu_bytes,
        up: message.header.flags.contains(LinkFlags::Up),
        addresses: Vec::new(),
    })
}

fn route(message: &RouteMessage, any: IpAddr, links: &[Link]) -> Option<Route> {
    let mut table = u32::from(message.header.table);
    let (mut destination, mut gateway, mut device) = (any, None, None);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Table(number) => table = *number,
            RouteAttribute::Destination(address) => destination = ip(address)?,
            RouteAttribute::Gateway(address) => gateway = Some(ip(address)?),
            RouteAttribute::Oif(index) => {
                device = links.iter().find(|link| link.index == *index);
            }
            _ => {}
        }
    }
    Some(Route {
        table,
        destination: IpNet::new(destination, message.header.destination_prefix_length).ok()?,
        gateway,
        device: device?.name.clone(),
    })
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some(IpAddr::V4(*address)),
        RouteAddress::Inet6(address) => Some(IpAddr::V6(*address)),
        _ => None,
    }
}

/// Source of a rule `from SOURCE lookup 1`.
fn vip_rule(message: &RuleMessage) -> Option<IpAddr> {
    let mut table = u32::from(message.header.table);
    let mut source = None;
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Table(number) => table = *number,
            RuleAttribute::Source(address) => source = Some(*address),
            _ => {}
        }
    }
    let whole = match source? {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    };
    (table == VIP_TABLE && message.header.src_len == whole)
        .then_some(source)
        .flatten()
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(_) => false,
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}
