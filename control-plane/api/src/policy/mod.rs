//! Who may do what: Octavia's rules, its defaults, and a file that overrides them.
//!
//! Each route and method has one [`Rule`] (`Route::rule`); a rule is asked with the caller and the project of the object.
//! The object is looked up first: what is not there is 404 to everybody, another project's is 403. A file that cannot
//! be read or holds a wrong rule changes nothing: the rules in force stay.

mod check;
mod file;
mod rule;
mod rules;

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use arc_swap::ArcSwap;
use lb_drivers::Caller;
use lb_model::{Fault, LoadBalancerId, Resource};

use crate::fault::{ApiFault, Result};
use crate::request::Request;
use check::Target;
use rules::RuleSet;

pub use rule::{Defaults, Rule};
pub use rules::EffectiveRule;

/// A policy file is not longer.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// `[oslo_policy]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicySettings {
    /// `oslo_policy.policy_file`
    pub file: Option<PathBuf>,
    /// Tokens that are scoped to the system or a domain are refused (`oslo_policy.enforce_scope`).
    pub enforce_scope: bool,
    /// `oslo_policy.enforce_new_defaults`
    pub defaults: Defaults,
}

impl Default for PolicySettings {
    fn default() -> Self {
        Self {
            file: None,
            enforce_scope: true,
            defaults: Defaults::Keystone,
        }
    }
}

/// What is wrong with a rule, or with the file it stands in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyError {
    pub line: Option<usize>,
    pub rule: Option<String>,
    pub problem: String,
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        if let Some(rule) = &self.rule {
            write!(f, "{rule}: ")?;
        }
        f.write_str(&self.problem)
    }
}

/// Why rules were not taken over.
#[derive(Debug, thiserror::Error)]
pub enum PolicyFileError {
    #[error("read policy file {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },

    #[error("policy file {path}:\n{}", lines(.problems))]
    Wrong {
        path: PathBuf,
        problems: Vec<PolicyError>,
    },
}

fn lines(problems: &[PolicyError]) -> String {
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

/// The rules in force.
#[derive(Debug)]
pub struct Policy {
    settings: PolicySettings,
    rules: ArcSwap<RuleSet>,
    /// Of the file when it was last looked at.
    seen: Mutex<Option<Stamp>>,
}

/// A file that changed has another.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    bytes: u64,
}

impl Default for Policy {
    /// The built-in rules.
    fn default() -> Self {
        let rules = RuleSet::build(Defaults::Keystone, Vec::new())
            .expect("a test builds the rules that are built in");
        Self {
            settings: PolicySettings::default(),
            rules: ArcSwap::from_pointee(rules),
            seen: Mutex::new(None),
        }
    }
}

impl Policy {
    pub fn load(settings: PolicySettings) -> std::result::Result<Self, PolicyFileError> {
        let seen = settings.file.as_deref().and_then(stamp);
        let rules = read(&settings)?;
        Ok(Self {
            settings,
            rules: ArcSwap::from_pointee(rules),
            seen: Mutex::new(seen),
        })
    }

    /// Takes over what the file says now; on an error the rules in force stay.
    pub fn reload(&self) -> std::result::Result<(), PolicyFileError> {
        let seen = self.settings.file.as_deref().and_then(stamp);
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = seen;
        self.rules.store(Arc::new(read(&self.settings)?));
        Ok(())
    }

    /// As [`Self::reload`], if the file is another than when it was last looked at; `true` when it was taken over.
    pub fn refresh(&self) -> std::result::Result<bool, PolicyFileError> {
        let now = self.settings.file.as_deref().and_then(stamp);
        if now == *self.seen.lock().unwrap_or_else(PoisonError::into_inner) {
            return Ok(false);
        }
        self.reload().map(|()| true)
    }

    /// Every rule in force, by the order they refer to each other: names first, then the API's.
    pub fn effective(&self) -> Vec<EffectiveRule> {
        self.rules.load().rules().to_vec()
    }

    /// Whether the caller may do this to an object of the project.
    pub fn allows(&self, rule: Rule, caller: &Caller, project_id: Option<&str>) -> bool {
        if caller.is_admin {
            return true;
        }
        let project_scoped = caller.system_scope.is_none() && caller.domain_id.is_none();
        if self.settings.enforce_scope && !project_scoped {
            return false;
        }
        self.rules.load().holds(rule, caller, Target { project_id })
    }

    /// Whether the caller sees and uses everybody's networks.
    pub(crate) fn is_admin(&self, caller: &Caller) -> bool {
        caller.is_admin || self.rules.load().is_admin(caller)
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let metadata = std::fs::metadata(path).ok()?;
    Some(Stamp {
        modified: metadata.modified().ok(),
        bytes: metadata.len(),
    })
}

fn read(settings: &PolicySettings) -> std::result::Result<RuleSet, PolicyFileError> {
    let path = settings.file.clone().unwrap_or_default();
    let mut text = String::new();
    if let Some(file) = &settings.file {
        let failed = |source| PolicyFileError::Read {
            path: path.clone(),
            source,
        };
        let opened = File::open(file).map_err(failed)?;
        opened
            .take(MAX_FILE_BYTES + 1)
            .read_to_string(&mut text)
            .map_err(failed)?;
        if u64::try_from(text.len()).is_ok_and(|length| length > MAX_FILE_BYTES) {
            return Err(failed(io::Error::other("longer than a megabyte")));
        }
    }
    file::parse(&text)
        .and_then(|overrides| RuleSet::build(settings.defaults, overrides))
        .map_err(|problems| PolicyFileError::Wrong { path, problems })
}

/// Refuses unless the request may do what its route and method say, to an object of this project.
pub(crate) fn allow(request: &Request, project_id: &str) -> Result<()> {
    decide(request, request.rule, Some(project_id))
}

/// As [`allow`], for what belongs to no project.
pub(crate) fn allow_own(request: &Request) -> Result<()> {
    decide(request, request.rule, request.caller.project_id.as_deref())
}

/// As [`allow`], for a further rule than that of the route and method.
pub(crate) fn allow_rule(request: &Request, rule: Rule, project_id: &str) -> Result<()> {
    decide(request, Some(rule), Some(project_id))
}

/// As [`allow`], for the project of a load balancer; 404 when there is none.
pub(crate) async fn allow_load_balancer(request: &Request, id: LoadBalancerId) -> Result<()> {
    allow(request, &project_of(request, id).await?)
}

/// As [`allow_rule`], for the project of a load balancer.
pub(crate) async fn allow_rule_in(request: &Request, rule: Rule, id: LoadBalancerId) -> Result<()> {
    allow_rule(request, rule, &project_of(request, id).await?)
}

async fn project_of(request: &Request, id: LoadBalancerId) -> Result<String> {
    let project_id = request.state.store.project_of_load_balancer(id).await?;
    Ok(project_id.ok_or_else(|| Fault::not_found(Resource::LoadBalancer, id))?)
}

/// The project a list is limited to: who may see all sees all, or the one asked for; others see their own.
pub(crate) fn listed_project(request: &Request, asked: Option<String>) -> Result<Option<String>> {
    let global = request.rule.and_then(Rule::global);
    if decide(request, global, asked.as_deref()).is_ok() {
        return Ok(asked);
    }
    let project_id = asked
        .or_else(|| request.caller.project_id.clone())
        .ok_or_else(|| ApiFault::forbidden(request.rule))?;
    allow(request, &project_id)?;
    Ok(Some(project_id))
}

/// What no rule governs nobody may do.
fn decide(request: &Request, rule: Option<Rule>, project_id: Option<&str>) -> Result<()> {
    let allowed = rule.is_some_and(|rule| {
        request
            .state
            .policy
            .allows(rule, &request.caller, project_id)
    });
    if allowed {
        Ok(())
    } else {
        Err(ApiFault::forbidden(rule))
    }
}

#[cfg(test)]
mod tests;
