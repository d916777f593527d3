//! The handle on the fast path of one network namespace.

use std::fs;
use std::path::{Path, PathBuf};

use aya::programs::{SchedClassifier, Xdp};
use aya::{Ebpf, EbpfLoader};
use xdp_lb_common::limits::ABI_VERSION;

use crate::apply;
use crate::attach::{Attachments, CLASSIFIER, XDP};
use crate::clock::{self, CLOCK};
use crate::config::{Config, Options};
use crate::error::Error;
use crate::maps::Maps;
use crate::object::object;
use crate::report::{Report, Stats, SweepReport};
use crate::slots::Slots;
use crate::stats;
use crate::sweep::Sweep;
use crate::sys;
use crate::validate::validate;

/// Flow capacities that make sense.
const CAPACITY: std::ops::RangeInclusive<u32> = 1024..=4_194_304;

/// The fast path of the calling thread's network namespace.
///
/// Dropping it leaves everything running: maps and links are pinned, and the next
/// [`FastPath::open`] adopts them. [`FastPath::detach`] takes everything away.
///
/// All calls must come from a thread in the same network namespace.
pub struct FastPath {
    ebpf: Ebpf,
    maps: Maps,
    slots: Slots,
    attachments: Attachments,
    sweep: Sweep,
    directory: PathBuf,
}

impl FastPath {
    /// Loads the programs, with the maps that a process before us left, if any.
    ///
    /// Adopted maps keep flows, counters and configuration; links of the process before us go on
    /// running its programs until the first [`FastPath::apply`] replaces them in place.
    ///
    /// # Errors
    ///
    /// [`Error::NotBuilt`] says what the build lacked; [`Error::LoadProgram`] carries the
    /// verifier's log.
    pub fn open(options: Options) -> Result<Self, Error> {
        let Options {
            pin_dir,
            flow_capacity,
        } = options;
        if !CAPACITY.contains(&flow_capacity) {
            return Err(Error::FlowCapacity {
                capacity: flow_capacity,
            });
        }
        let object = object()?;
        let maps_directory = pin_dir.join(format!("maps-v{ABI_VERSION}"));
        let links_directory = pin_dir.join("links");
        create(&pin_dir)?;
        if !sys::is_bpffs(&pin_dir) {
            return Err(Error::NotBpffs { pin_dir });
        }
        create(&maps_directory)?;
        create(&links_directory)?;
        sys::allow_route_lookups()?;
        let adopted = maps_directory.join("FLOWS").exists();
        let tick_ns = sys::tick_ns();
        let mut ebpf = EbpfLoader::new()
            .default_map_pin_directory(&maps_directory)
            .map_max_entries("FLOWS", flow_capacity * 2)
            .override_global("TICK_NS", &tick_ns, true)
            .load(object)
            .map_err(|source| Error::LoadObject {
                source: Box::new(source),
            })?;
        load_programs(&mut ebpf)?;
        let maps = Maps::take(&mut ebpf)?;
        let slots = if adopted {
            Slots::adopt(&maps)?
        } else {
            Slots::default()
        };
        Ok(Self {
            ebpf,
            maps,
            slots,
            attachments: Attachments::new(links_directory),
            sweep: Sweep::new(),
            directory: pin_dir,
        })
    }

    /// Brings maps and interfaces to the configuration. The same again changes nothing.
    ///
    /// Existing flows keep their member: also one that now has weight 0, is removed, or whose
    /// listener is removed. Only flows of a member that is down end: TCP is answered with RST by
    /// the stack, UDP moves to another member.
    ///
    /// # Errors
    ///
    /// Nothing is written when the configuration contradicts itself. After another error the maps
    /// hold part of it, usable; calling again carries on.
    pub fn apply(&mut self, config: &Config) -> Result<Report, Error> {
        validate(config)?;
        let mut report = Report {
            changes: apply::apply(&mut self.maps, &mut self.slots, config)?,
            ..Report::default()
        };
        for interface in &config.interfaces {
            let (attached, changes) =
                self.attachments
                    .ensure(&mut self.ebpf, interface, &config.services)?;
            report.interfaces.push(attached);
            report.changes += changes;
        }
        let keep: Vec<u32> = config.interfaces.iter().map(|i| i.ifindex).collect();
        report.changes += self.attachments.retain(&keep)?;
        Ok(report)
    }

    /// Forgets idle flows and corrects the active counts. To be called about once a second.
    ///
    /// # Errors
    ///
    /// When the kernel refuses a map access.
    pub fn sweep(&mut self) -> Result<SweepReport, Error> {
        let now = clock::now(&self.ebpf)?;
        self.sweep.step(&mut self.maps, &mut self.slots, now)
    }

    /// Reads all counters.
    ///
    /// # Errors
    ///
    /// When the kernel refuses a map access.
    pub fn stats(&self) -> Result<Stats, Error> {
        stats::stats(&self.maps, &self.slots)
    }

    /// Detaches from all interfaces and removes maps and pins.
    ///
    /// # Errors
    ///
    /// When a pin cannot be removed.
    pub fn detach(mut self) -> Result<(), Error> {
        self.attachments.retain(&[])?;
        let directory = self.directory.clone();
        drop(self);
        let entries = fs::read_dir(&directory).map_err(|source| Error::ListPins {
            path: directory.clone(),
            source,
        })?;
        for entry in entries.flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            // Only what is ours: the directory may be the root of a bpffs.
            if name == "links" || name.starts_with("maps-v") {
                remove_directory(&entry.path())?;
            }
        }
        // A mount point, or shared with others: then it stays.
        let _ = fs::remove_dir(&directory);
        Ok(())
    }

    /// The classifier, for tests and benchmarks that run packets through it.
    ///
    /// # Errors
    ///
    /// When the object has no such program.
    pub fn classifier(&self) -> Result<&SchedClassifier, Error> {
        self.ebpf
            .program(CLASSIFIER)
            .and_then(|program| program.try_into().ok())
            .ok_or(Error::MissingInObject { what: CLASSIFIER })
    }

    /// The XDP program, for tests and benchmarks that run packets through it.
    ///
    /// # Errors
    ///
    /// When the object has no such program.
    pub fn xdp(&self) -> Result<&Xdp, Error> {
        self.ebpf
            .program(XDP)
            .and_then(|program| program.try_into().ok())
            .ok_or(Error::MissingInObject { what: XDP })
    }
}

impl std::fmt::Debug for FastPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FastPath")
            .field("directory", &self.directory)
            .finish_non_exhaustive()
    }
}

fn load_programs(ebpf: &mut Ebpf) -> Result<(), Error> {
    let classifier: &mut SchedClassifier = ebpf
        .program_mut(CLASSIFIER)
        .and_then(|program| program.try_into().ok())
        .ok_or(Error::MissingInObject { what: CLASSIFIER })?;
    classifier.load().map_err(|source| Error::LoadProgram {
        program: CLASSIFIER,
        source: Box::new(source),
    })?;
    let xdp: &mut Xdp = ebpf
        .program_mut(XDP)
        .and_then(|program| program.try_into().ok())
        .ok_or(Error::MissingInObject { what: XDP })?;
    xdp.load().map_err(|source| Error::LoadProgram {
        program: XDP,
        source: Box::new(source),
    })?;
    let clock: &mut Xdp = ebpf
        .program_mut(CLOCK)
        .and_then(|program| program.try_into().ok())
        .ok_or(Error::MissingInObject { what: CLOCK })?;
    clock.load().map_err(|source| Error::LoadProgram {
        program: CLOCK,
        source: Box::new(source),
    })
}

fn create(path: &Path) -> Result<(), Error> {
    fs::create_dir_all(path).map_err(|source| Error::CreateDirectory {
        path: path.to_owned(),
        source,
    })
}

fn remove_directory(path: &Path) -> Result<(), Error> {
    fs::remove_dir_all(path).map_err(|source| Error::RemovePin {
        path: path.to_owned(),
        source,
    })
}
