//! A plan: steps in the order of their phases.

use std::collections::BTreeMap;
use std::fmt;

use lb_model::{AmphoraId, Unserved};

use crate::Step;

/// When a step is due. Phases follow one another; the steps of one phase do not depend on each other, and a phase
/// begins only when all of the one before is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Rows: what is to be, and what was learned.
    Record,
    /// Servers, ports and addresses come into being.
    Build,
    /// The agent answers, ports are plugged in.
    Connect,
    /// Rows: who serves from now on.
    Switch,
    /// The predecessor gives the VIP up.
    Quiesce,
    /// A predecessor that does not answer is removed, so that it cannot answer for the VIP later.
    Fence,
    /// Documents to those that serve, or are to.
    Push,
    /// Ports and addresses no document names any more go.
    Unplug,
    /// Servers that have nothing left to do go.
    Remove,
    /// Their ports go.
    RemovePorts,
    /// Their rows go.
    Forget,
}

/// What to do next.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    phases: BTreeMap<Phase, Vec<Step>>,
    /// Why the intent cannot be reached as it stands; waiting does not help.
    pub blocked_by: Vec<String>,
    /// Objects the documents leave out, with the reason.
    pub unserved: Vec<Unserved>,
    /// Replaced amphorae that finish the connections they have. They hold nothing up.
    pub draining: Vec<AmphoraId>,
}

impl Plan {
    /// Nothing to do, and nothing to say.
    pub const EMPTY: Self = Self {
        phases: BTreeMap::new(),
        blocked_by: Vec::new(),
        unserved: Vec::new(),
        draining: Vec::new(),
    };

    pub fn add(&mut self, phase: Phase, step: Step) {
        self.phases.entry(phase).or_default().push(step);
    }

    /// Nothing to do now: what can be reached is reached.
    pub fn is_empty(&self) -> bool {
        self.phases.is_empty()
    }

    /// Phases in their order.
    pub fn phases(&self) -> impl Iterator<Item = (Phase, &[Step])> {
        self.phases
            .iter()
            .map(|(phase, steps)| (*phase, steps.as_slice()))
    }

    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.phases.values().flatten()
    }

    /// One readable line a step.
    pub fn lines(&self) -> Vec<String> {
        self.steps().map(ToString::to_string).collect()
    }
}

/// A diff: `+` comes, `-` goes, `~` changes, `>` is sent, `.` is waited for, `!` is in the way.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (phase, steps) in self.phases() {
            writeln!(f, "{phase:?}")?;
            for step in steps {
                writeln!(f, "  {step}")?;
            }
        }
        for reason in &self.blocked_by {
            writeln!(f, "! {reason}")?;
        }
        for unserved in &self.unserved {
            writeln!(f, "! {unserved}")?;
        }
        for amphora in &self.draining {
            writeln!(f, ". amphora {amphora} drains")?;
        }
        Ok(())
    }
}
