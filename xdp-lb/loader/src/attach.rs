//! Hooks the programs into interfaces, and keeps the hooks over a restart.
//!
//! tcx and XDP links are pinned; a new process replaces the program behind the link, so no packet
//! ever finds no program. A filter on clsact cannot be pinned: the new one is added before the old
//! one goes, and an empty directory beside the pins tells the next process that it is there.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use aya::Ebpf;
use aya::programs::links::{FdLink, PinnedLink};
use aya::programs::tc::{
    NlOptions, SchedClassifierLink, TcAttachOptions, TcHandle, qdisc_add_clsact,
};
use aya::programs::xdp::XdpLink;
use aya::programs::{LinkOrder, SchedClassifier, TcAttachType, Xdp, XdpMode};
use tracing::{info, warn};

use crate::config::{AttachMode, Interface, Protocol, Service};
use crate::error::Error;
use crate::report::InterfaceReport;
use crate::sys;

pub(crate) const CLASSIFIER: &str = "xdp_lb_tc";
pub(crate) const XDP: &str = "xdp_lb_xdp";

/// Two filter priorities, so that a new process can add its filter beside the old one's.
const CLSACT_PRIORITIES: [u16; 2] = [49_150, 49_151];

/// Kind of the entry that stands for a filter on clsact.
const FILTER: &str = "clsact";

/// What is attached to one interface by this process.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Attached {
    wanted: AttachMode,
    mode: AttachMode,
    reason: String,
}

/// The hooks of one network namespace.
pub(crate) struct Attachments {
    directory: PathBuf,
    by_ifindex: HashMap<u32, Attached>,
}

impl Attachments {
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self {
            directory,
            by_ifindex: HashMap::new(),
        }
    }

    /// Attaches to an interface as wanted, or leaves it as it is.
    pub(crate) fn ensure(
        &mut self,
        ebpf: &mut Ebpf,
        interface: &Interface,
        services: &[Service],
    ) -> Result<(InterfaceReport, u64), Error> {
        let (wanted, why) = choose(interface.mode, || sys::driver(&interface.name), services);
        if let Some(attached) = self.by_ifindex.get(&interface.ifindex)
            && attached.wanted == wanted
        {
            return Ok((report(interface, attached), 0));
        }
        self.by_ifindex.remove(&interface.ifindex);
        let (mode, reason) = self.attach(ebpf, interface, wanted, why)?;
        if mode != AttachMode::Clsact {
            self.remove_filter(interface.ifindex)?;
        }
        info!(ifindex = interface.ifindex, interface = %interface.name, ?mode, %reason, "attached");
        let attached = Attached {
            wanted,
            mode,
            reason,
        };
        let report = report(interface, &attached);
        self.by_ifindex.insert(interface.ifindex, attached);
        Ok((report, 1))
    }

    fn attach(
        &self,
        ebpf: &mut Ebpf,
        interface: &Interface,
        wanted: AttachMode,
        why: String,
    ) -> Result<(AttachMode, String), Error> {
        match wanted {
            AttachMode::XdpNative => {
                let behind = self.attach_classifier(ebpf, interface)?;
                match self.attach_xdp(ebpf, interface) {
                    Ok(()) => Ok((AttachMode::XdpNative, why)),
                    // What is behind it does the whole work as well.
                    Err(error) => {
                        let why = format!("driver refused XDP: {}", chain(&error));
                        warn!(interface = %interface.name, reason = %why, "the classifier serves alone");
                        Ok((behind, why))
                    }
                }
            }
            AttachMode::XdpGeneric => {
                // It sees packets after the skb is made, so it saves nothing; and packets it leaves to
                // the classifier reach that without their Ethernet header (seen on Linux 6.18).
                let mode = self.attach_classifier(ebpf, interface)?;
                self.remove_pins(interface.ifindex, &["xdp"])?;
                Ok((
                    mode,
                    "generic XDP has no advantage over the classifier".to_owned(),
                ))
            }
            AttachMode::Clsact => {
                self.remove_pins(interface.ifindex, &["xdp", "tcx"])?;
                self.attach_filter(ebpf, interface)?;
                Ok((AttachMode::Clsact, why))
            }
            AttachMode::Tcx | AttachMode::Auto => {
                let mode = self.attach_classifier(ebpf, interface)?;
                self.remove_pins(interface.ifindex, &["xdp"])?;
                let why = if mode == AttachMode::Clsact {
                    "this kernel has no tcx (Linux 6.6 and later)".to_owned()
                } else {
                    why
                };
                Ok((mode, why))
            }
        }
    }

    /// tcx, or a clsact filter where the kernel has no tcx.
    fn attach_classifier(
        &self,
        ebpf: &mut Ebpf,
        interface: &Interface,
    ) -> Result<AttachMode, Error> {
        let pin = self.pin("tcx", interface.ifindex);
        let program = classifier(ebpf)?;
        if let Some(link) = adopt(&pin)? {
            let updated = SchedClassifierLink::try_from(link)
                .map_err(|source| Error::Link {
                    path: pin.clone(),
                    source: Box::new(source),
                })
                .map(|link| program.attach_to_link(link));
            match updated {
                // The pin holds the link; our descriptor may go.
                Ok(Ok(id)) => {
                    drop(program.take_link(id).map_err(attaching(
                        CLASSIFIER,
                        interface,
                        AttachMode::Tcx,
                    ))?);
                    return Ok(AttachMode::Tcx);
                }
                // The interface it was for is gone, and another has its index.
                Ok(Err(_)) | Err(_) => remove_file(&pin)?,
            }
        }
        let attached = program.attach_with_options(
            &interface.name,
            TcAttachType::Ingress,
            TcAttachOptions::TcxOrder(LinkOrder::default()),
        );
        let id = match attached {
            Ok(id) => id,
            Err(error) if is_unsupported(&error) => {
                self.attach_filter(ebpf, interface)?;
                return Ok(AttachMode::Clsact);
            }
            Err(error) => return Err(attaching(CLASSIFIER, interface, AttachMode::Tcx)(error)),
        };
        let link =
            program
                .take_link(id)
                .map_err(attaching(CLASSIFIER, interface, AttachMode::Tcx))?;
        let link = FdLink::try_from(link).map_err(|source| Error::Link {
            path: pin.clone(),
            source: Box::new(source),
        })?;
        link.pin(&pin).map_err(|source| Error::Pin {
            path: pin,
            source: Box::new(source),
        })?;
        Ok(AttachMode::Tcx)
    }

    fn attach_xdp(&self, ebpf: &mut Ebpf, interface: &Interface) -> Result<(), Error> {
        let mode = AttachMode::XdpNative;
        let pin = self.pin("xdp", interface.ifindex);
        let program = xdp(ebpf)?;
        if let Some(link) = adopt(&pin)? {
            let updated = XdpLink::try_from(link)
                .map_err(|source| Error::Link {
                    path: pin.clone(),
                    source: Box::new(source),
                })
                .map(|link| program.attach_to_link(link));
            match updated {
                Ok(Ok(id)) => {
                    drop(
                        program
                            .take_link(id)
                            .map_err(attaching(XDP, interface, mode))?,
                    );
                    return Ok(());
                }
                Ok(Err(_)) | Err(_) => remove_file(&pin)?,
            }
        }
        let id = program
            .attach_to_if_index(interface.ifindex, XdpMode::Driver)
            .map_err(attaching(XDP, interface, mode))?;
        let link = program
            .take_link(id)
            .map_err(attaching(XDP, interface, mode))?;
        let link = FdLink::try_from(link).map_err(|source| Error::Link {
            path: pin.clone(),
            source: Box::new(source),
        })?;
        link.pin(&pin).map_err(|source| Error::Pin {
            path: pin,
            source: Box::new(source),
        })?;
        Ok(())
    }

    /// Detaches from interfaces that are not in `keep`, also those a process before us attached to.
    pub(crate) fn retain(&mut self, keep: &[u32]) -> Result<u64, Error> {
        let mut changes = 0;
        for ifindex in self.pinned()? {
            if !keep.contains(&ifindex) {
                self.remove_pins(ifindex, &["xdp", "tcx"])?;
                self.remove_filter(ifindex)?;
                changes += 1;
            }
        }
        self.by_ifindex.retain(|ifindex, _| keep.contains(ifindex));
        Ok(changes)
    }

    /// Writes down that the interface has a filter of ours, and adds it.
    fn attach_filter(&self, ebpf: &mut Ebpf, interface: &Interface) -> Result<(), Error> {
        let path = self.pin(FILTER, interface.ifindex);
        match fs::create_dir(&path) {
            Err(source) if source.kind() != io::ErrorKind::AlreadyExists => {
                Err(Error::CreateDirectory { path, source })
            }
            _ => attach_filter(ebpf, interface),
        }
    }

    /// Removes the filter of an interface that has one of ours, whichever process added it.
    fn remove_filter(&self, ifindex: u32) -> Result<(), Error> {
        let path = self.pin(FILTER, ifindex);
        if !path.exists() {
            return Ok(());
        }
        // An interface that is gone took its filters along.
        if let Some(name) = sys::interface_name(ifindex) {
            remove_filters(&name);
        }
        match fs::remove_dir(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(Error::RemovePin { path, source })
            }
            _ => Ok(()),
        }
    }

    fn pinned(&self) -> Result<Vec<u32>, Error> {
        let entries = fs::read_dir(&self.directory).map_err(|source| Error::ListPins {
            path: self.directory.clone(),
            source,
        })?;
        let mut found: Vec<u32> = entries
            .filter_map(|entry| {
                let name = entry.ok()?.file_name();
                name.to_str()?.rsplit_once('_')?.1.parse().ok()
            })
            .collect();
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    fn pin(&self, kind: &str, ifindex: u32) -> PathBuf {
        // bpffs refuses names with a dot.
        self.directory.join(format!("{kind}_{ifindex}"))
    }

    fn remove_pins(&self, ifindex: u32, kinds: &[&str]) -> Result<(), Error> {
        for kind in kinds {
            remove_file(&self.pin(kind, ifindex))?;
        }
        Ok(())
    }
}

/// The mode for an interface, and why. Pure but for the driver's name, asked only by `Auto`.
fn choose(
    wanted: AttachMode,
    driver: impl FnOnce() -> Option<String>,
    services: &[Service],
) -> (AttachMode, String) {
    if wanted != AttachMode::Auto {
        return (wanted, "configured".to_owned());
    }
    let all_udp = !services.is_empty() && services.iter().all(|s| s.protocol == Protocol::Udp);
    if !all_udp {
        return (
            AttachMode::Tcx,
            "TCP listeners: XDP would stop the peer from sending large segments".to_owned(),
        );
    }
    match driver().as_deref() {
        // Their packets come with partial checksums, which XDP cannot complete.
        Some(driver @ ("veth" | "tun" | "virtio_net" | "bridge" | "macvlan" | "ipvlan")) => (
            AttachMode::Tcx,
            format!("UDP only, but {driver} may deliver partial checksums"),
        ),
        Some(driver) => (AttachMode::XdpNative, format!("UDP only, on {driver}")),
        None => (
            AttachMode::Tcx,
            "UDP only, but the driver is not known".to_owned(),
        ),
    }
}

fn report(interface: &Interface, attached: &Attached) -> InterfaceReport {
    InterfaceReport {
        ifindex: interface.ifindex,
        name: interface.name.clone(),
        mode: attached.mode,
        reason: attached.reason.clone(),
    }
}

fn attach_filter(ebpf: &mut Ebpf, interface: &Interface) -> Result<(), Error> {
    if let Err(source) = qdisc_add_clsact(&interface.name)
        && !is_present(&source)
    {
        return Err(Error::AddClsact {
            interface: interface.name.clone(),
            source: Box::new(source),
        });
    }
    let program = classifier(ebpf)?;
    let handle = TcHandle::from(1u32);
    let mut last = None;
    for (index, priority) in CLSACT_PRIORITIES.into_iter().enumerate() {
        let options = NlOptions {
            priority,
            handle,
            classid: None,
        };
        match program.attach_with_options(
            &interface.name,
            TcAttachType::Ingress,
            TcAttachOptions::Netlink(options),
        ) {
            Ok(id) => {
                let link = program.take_link(id).map_err(attaching(
                    CLASSIFIER,
                    interface,
                    AttachMode::Clsact,
                ))?;
                // The filter must outlive this process.
                std::mem::forget(link);
                let other = CLSACT_PRIORITIES[1 - index];
                if let Ok(old) = SchedClassifierLink::attached(
                    &interface.name,
                    TcAttachType::Ingress,
                    other,
                    handle,
                    None,
                ) {
                    // Absent unless a process before us attached.
                    drop(old);
                }
                return Ok(());
            }
            Err(error) => last = Some(error),
        }
    }
    match last {
        Some(error) => Err(attaching(CLASSIFIER, interface, AttachMode::Clsact)(error)),
        None => Ok(()),
    }
}

fn remove_filters(interface: &str) {
    for priority in CLSACT_PRIORITIES {
        if let Ok(link) = SchedClassifierLink::attached(
            interface,
            TcAttachType::Ingress,
            priority,
            TcHandle::from(1u32),
            None,
        ) {
            // Detaches if there; an interface that is gone took its filters along.
            drop(link);
        }
    }
}

fn classifier(ebpf: &mut Ebpf) -> Result<&mut SchedClassifier, Error> {
    ebpf.program_mut(CLASSIFIER)
        .and_then(|program| program.try_into().ok())
        .ok_or(Error::MissingInObject { what: CLASSIFIER })
}

fn xdp(ebpf: &mut Ebpf) -> Result<&mut Xdp, Error> {
    ebpf.program_mut(XDP)
        .and_then(|program| program.try_into().ok())
        .ok_or(Error::MissingInObject { what: XDP })
}

fn attaching(
    program: &'static str,
    interface: &Interface,
    mode: AttachMode,
) -> impl FnOnce(aya::programs::ProgramError) -> Error {
    let interface = interface.name.clone();
    move |source| Error::Attach {
        program,
        interface,
        mode,
        source: Box::new(source),
    }
}

/// The link pinned at `path`, if there is one.
fn adopt(path: &Path) -> Result<Option<FdLink>, Error> {
    if !path.exists() {
        return Ok(None);
    }
    PinnedLink::from_pin(path)
        .map(|link| Some(FdLink::from(link)))
        .map_err(|source| Error::Link {
            path: path.to_owned(),
            source: Box::new(source),
        })
}

fn remove_file(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(Error::RemovePin {
            path: path.to_owned(),
            source,
        }),
        _ => Ok(()),
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

fn os_error(error: &(dyn std::error::Error + 'static)) -> Option<i32> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>()
            && let Some(code) = error.raw_os_error()
        {
            return Some(code);
        }
        cause = error.source();
    }
    None
}

fn is_unsupported(error: &(dyn std::error::Error + 'static)) -> bool {
    matches!(os_error(error), Some(libc::EINVAL | libc::EOPNOTSUPP))
}

fn is_present(error: &(dyn std::error::Error + 'static)) -> bool {
    os_error(error) == Some(libc::EEXIST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Algorithm;
    use std::time::Duration;
    use uuid::Uuid;

    fn service(protocol: Protocol) -> Service {
        Service {
            id: Uuid::from_u128(1),
            vips: Vec::new(),
            port: 80,
            protocol,
            algorithm: Algorithm::RoundRobin,
            idle_timeout: Duration::from_secs(1),
            connection_limit: None,
            allowed: Vec::new(),
            members: Vec::new(),
        }
    }

    #[test]
    fn auto_takes_xdp_only_for_udp_on_a_driver_with_full_checksums() {
        let (tcp, udp) = (service(Protocol::Tcp), service(Protocol::Udp));
        let table: &[(&[Service], Option<&str>, AttachMode)] = &[
            (&[], Some("ixgbe"), AttachMode::Tcx),
            (std::slice::from_ref(&tcp), Some("ixgbe"), AttachMode::Tcx),
            (
                std::slice::from_ref(&udp),
                Some("ixgbe"),
                AttachMode::XdpNative,
            ),
            (std::slice::from_ref(&udp), Some("veth"), AttachMode::Tcx),
            (std::slice::from_ref(&udp), None, AttachMode::Tcx),
            (&[tcp.clone(), udp.clone()], Some("ixgbe"), AttachMode::Tcx),
        ];
        for (services, driver, expected) in table {
            let (mode, reason) = choose(AttachMode::Auto, || driver.map(str::to_owned), services);
            assert_eq!(mode, *expected, "{driver:?}: {reason}");
            assert!(!reason.is_empty());
        }
    }

    #[test]
    fn a_configured_mode_is_taken_as_it_is() {
        for mode in [
            AttachMode::Tcx,
            AttachMode::XdpNative,
            AttachMode::XdpGeneric,
            AttachMode::Clsact,
        ] {
            assert_eq!(choose(mode, || None, &[]).0, mode);
        }
    }
}
