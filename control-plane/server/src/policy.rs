//! `[oslo_policy]`: the rules in force, read again when their file changes or on SIGHUP; and showing them.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use lb_api::policy::{Defaults, EffectiveRule, Policy, PolicyFileError, PolicySettings, Rule};
use lb_drivers::Caller;
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};

/// Between looks at the policy file.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// `[oslo_policy]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct OsloPolicy {
    /// YAML file of rules that stand in place of the built-in ones (`oslo_policy.policy_file`).
    pub(crate) policy_file: Option<PathBuf>,
    /// Refuse tokens that are scoped to the system or a domain (`oslo_policy.enforce_scope`).
    pub(crate) enforce_scope: bool,
    /// Only Keystone's default roles count; without it the `load-balancer_*` roles do too
    /// (`oslo_policy.enforce_new_defaults`).
    pub(crate) enforce_new_defaults: bool,
}

impl Default for OsloPolicy {
    fn default() -> Self {
        Self {
            policy_file: None,
            enforce_scope: true,
            enforce_new_defaults: true,
        }
    }
}

/// `control-plane policy …`
#[derive(Subcommand)]
pub(crate) enum PolicyCommand {
    /// Print every rule in force, and where it comes from.
    List,
    /// Report every problem of the policy file; with roles, print what a caller may do.
    Check(Persona),
}

/// A caller to ask the rules about.
#[derive(Args)]
pub(crate) struct Persona {
    /// A role of the caller; may be given more than once.
    #[arg(long = "role")]
    roles: Vec<String>,
    /// The caller's project.
    #[arg(long, default_value = "own")]
    project: String,
    /// The project of the object; the caller's when absent.
    #[arg(long)]
    target_project: Option<String>,
}

pub(crate) fn load(settings: &OsloPolicy) -> Result<Policy> {
    Policy::load(PolicySettings {
        file: settings.policy_file.clone(),
        enforce_scope: settings.enforce_scope,
        defaults: if settings.enforce_new_defaults {
            Defaults::Keystone
        } else {
            Defaults::KeystoneAndAdvanced
        },
    })
    .context("oslo_policy.policy_file")
}

/// Takes over the policy file whenever it changes, and on SIGHUP.
pub(crate) async fn watch(policy: Arc<Policy>) -> Result<Infallible> {
    let mut hang_up = signal(SignalKind::hangup())?;
    loop {
        let asked = tokio::select! {
            _ = hang_up.recv() => true,
            () = tokio::time::sleep(LOOK_INTERVAL) => false,
        };
        let policy = Arc::clone(&policy);
        let looked = tokio::task::spawn_blocking(move || {
            if asked {
                policy.reload().map(|()| true)
            } else {
                policy.refresh()
            }
        });
        report(looked.await?);
    }
}

fn report(looked: std::result::Result<bool, PolicyFileError>) {
    match looked {
        Ok(true) => tracing::info!("policy rules are read again"),
        Ok(false) => {}
        Err(error) => {
            let error = anyhow::Error::new(error);
            tracing::error!("policy rules stay as they were: {error:#}");
        }
    }
}

pub(crate) fn run(settings: &OsloPolicy, command: &PolicyCommand) -> Result<()> {
    let policy = load(settings)?;
    match command {
        PolicyCommand::List => {
            for rule in policy.effective() {
                println!("{}", shown(&rule));
            }
        }
        PolicyCommand::Check(persona) if persona.roles.is_empty() => {
            println!("{} rules", policy.effective().len());
        }
        PolicyCommand::Check(persona) => {
            let target = persona.target_project.as_ref().unwrap_or(&persona.project);
            let caller = Caller {
                project_id: Some(persona.project.clone()),
                roles: persona.roles.clone(),
                ..Caller::default()
            };
            for rule in Rule::ALL {
                let allowed = policy.allows(*rule, &caller, Some(target));
                let verdict = if allowed { "allowed" } else { "refused" };
                println!("{verdict} {}", rule.name());
            }
        }
    }
    Ok(())
}

/// As a line of a policy file.
fn shown(rule: &EffectiveRule) -> String {
    let EffectiveRule { name, text, line } = rule;
    let origin = match line {
        None => "built in".to_owned(),
        Some(line) => format!("line {line} of the policy file"),
    };
    format!("{name:?}: {text:?}  # {origin}")
}
