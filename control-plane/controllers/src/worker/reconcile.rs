//! One load balancer under one lease: passes of observe, plan and apply until nothing is left to do.
//!
//! Errors that may pass are tried again, at first within the lease, then after giving it back; when the intent's time
//! is over, or an error is hopeless, what is half made is undone and only then the failure is written. A newer
//! generation starts over.

use std::time::{Duration, Instant};

use lb_model::{AmphoraId, Graph, ProvisioningStatus, Settlement, settle};
use lb_planner::{FreshIds, Plan};
use lb_store::{Finish, Lease, Outcome};

use super::Worker;
use super::apply::{Apply, StepError, chain, driver_error, store_error};
use super::observe::{lines, observe};

/// How long a generation has been tried, and how often.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    generation: u64,
    since: Instant,
    failures: u32,
}

/// More passes than any plan needs: something outside changes as fast as it is mended.
const PASSES: u32 = 24;
/// Failures in a row that are tried again without giving the lease back.
const QUICK_TRIES: u32 = 4;
/// The first of them waits so much less than a try that follows giving the lease back.
const QUICKER: u32 = 25;
/// The delay between tries grows to so many times the first.
const LONGEST_DELAY: u32 = 20;

/// What becomes of the lease.
enum End {
    /// Written; the store knows what is left to do.
    Done,
    /// Look again after this time.
    Later(Duration),
    LeaseLost,
}

/// What one claim knows.
struct Run {
    begun: Instant,
    outcome: Outcome,
    /// An amphora took over.
    took_over: bool,
    /// Why the intent is given up, and since when what is half made is being undone.
    given_up: Option<(String, Instant)>,
    failures: u32,
}

impl Run {
    fn new() -> Self {
        Self {
            begun: Instant::now(),
            outcome: Outcome::default(),
            took_over: false,
            given_up: None,
            failures: 0,
        }
    }
}

struct RandomIds;

impl FreshIds for RandomIds {
    fn amphora(&mut self) -> AmphoraId {
        AmphoraId::random()
    }
}

impl Worker {
    /// Works on a load balancer as long as the lease holds, and gives the lease back.
    #[tracing::instrument(
        name = "reconcile",
        skip_all,
        fields(load_balancer_id = %lease.load_balancer_id, generation = lease.generation)
    )]
    pub(crate) async fn reconcile(&self, lease: Lease) {
        let mut held = lease.clone();
        let end = tokio::select! {
            end = self.passes(&mut held) => end,
            () = self.keep(&lease) => End::LeaseLost,
        };
        let next = match end {
            End::Done => None,
            End::Later(delay) => Some(self.now().plus_millis(millis(delay))),
            End::LeaseLost => {
                tracing::warn!("lease lost; another worker goes on");
                return;
            }
        };
        if let Err(error) = self.deps.store.release(&held, next).await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "give a lease back"
            );
        }
    }

    /// Renews the lease; returns when it is lost.
    async fn keep(&self, lease: &Lease) {
        let ttl = self.deps.settings.lease;
        let mut good_until = Instant::now() + ttl;
        loop {
            tokio::time::sleep(ttl / 3).await;
            match self.deps.store.renew(lease, ttl, self.now()).await {
                Ok(true) => good_until = Instant::now() + ttl,
                Ok(false) => return,
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "renew a lease");
                    if Instant::now() >= good_until {
                        return;
                    }
                }
            }
        }
    }

    async fn passes(&self, lease: &mut Lease) -> End {
        let mut run = Run::new();
        for _ in 0..PASSES {
            match self.pass(lease, &mut run).await {
                Ok(Some(end)) => return end,
                Ok(None) => run.failures = 0,
                Err(StepError::LeaseLost) => return End::LeaseLost,
                Err(StepError::Permanent(reason)) => {
                    if let Some(end) = self.failed(lease, &mut run, reason, true).await {
                        return end;
                    }
                }
                Err(StepError::Transient(reason)) => {
                    if let Some(end) = self.failed(lease, &mut run, reason, false).await {
                        return end;
                    }
                }
            }
        }
        run.failures = QUICK_TRIES;
        let reason = format!("does not settle within {PASSES} passes");
        self.failed(lease, &mut run, reason, false)
            .await
            .unwrap_or(End::Later(self.deps.settings.retry_delay))
    }

    /// One look and one plan; `None` asks for another pass.
    async fn pass(&self, lease: &mut Lease, run: &mut Run) -> Result<Option<End>, StepError> {
        let loaded = self.deps.store.load_graph(lease.load_balancer_id).await;
        let Some(graph) = loaded.map_err(|error| store_error(&error))? else {
            self.forget(lease);
            return Ok(Some(End::Done));
        };
        if graph.load_balancer.generation != lease.generation {
            tracing::debug!(
                newer = graph.load_balancer.generation,
                "intent changed, starting over"
            );
            lease.generation = graph.load_balancer.generation;
            *run = Run::new();
        }
        let begun = Instant::now();
        let observed = observe(&self.deps, &graph, self.now()).await;
        spend(&mut run.outcome, "Observe", begun);
        let mut observation = observed.map_err(driver_error)?;
        observation.world.out_of_time = run.given_up.is_some();
        run.outcome.observed = lines(&graph, &observation.world);
        let plan = lb_planner::plan(
            &graph,
            &observation.world,
            &self.deps.settings.planner,
            &mut RandomIds,
        );
        run.outcome.planned.extend(plan.lines());
        run.outcome.blocked_by.clone_from(&plan.blocked_by);
        tracing::debug!(%plan, "planned");
        if !plan.is_empty() {
            let apply = Apply {
                deps: &self.deps,
                lease,
                graph: &graph,
                observation: &observation,
            };
            apply
                .run(&plan, &mut run.outcome, &mut run.took_over)
                .await?;
            return Ok(None);
        }
        let pending = graph.load_balancer.provisioning_status.is_pending();
        if pending && run.given_up.is_none() && !plan.blocked_by.is_empty() {
            return Err(StepError::Permanent(plan.blocked_by.join("; ")));
        }
        self.finish(lease, run, &graph, Some(&plan)).await
    }

    /// Writes how it ended. `plan` is the empty one; without, the world cannot even be looked at.
    async fn finish(
        &self,
        lease: &Lease,
        run: &mut Run,
        graph: &Graph,
        plan: Option<&Plan>,
    ) -> Result<Option<End>, StepError> {
        let abandoned = plan.is_none();
        let plan = plan.unwrap_or(const { &Plan::EMPTY });
        let pending = graph.load_balancer.provisioning_status.is_pending();
        let drain = self.deps.settings.drain_poll;
        if !pending && run.outcome.done.is_empty() && !plan.draining.is_empty() {
            return Ok(Some(End::Later(drain)));
        }
        let settlement = self.settlement(run, graph, plan);
        let outcome = &mut run.outcome;
        outcome.intended = intended(graph);
        outcome.error.clone_from(&settlement.error);
        spend(outcome, "Total", run.begun);
        let now = self.now();
        let finished = self
            .deps
            .store
            .finish(lease, lease.generation, outcome, now, |graph| {
                if abandoned {
                    lb_planner::abandon(graph, now);
                }
                settle(graph, &settlement, now);
            })
            .await
            .map_err(|error| store_error(&error))?;
        match finished {
            Finish::Written => {
                self.forget(lease);
                report(run, &settlement);
                Ok(Some(if plan.draining.is_empty() {
                    End::Done
                } else {
                    End::Later(drain)
                }))
            }
            Finish::Superseded => Ok(None),
            Finish::LeaseLost => Err(StepError::LeaseLost),
        }
    }

    /// A pass went wrong. `None`: another one follows.
    async fn failed(
        &self,
        lease: &Lease,
        run: &mut Run,
        reason: String,
        hopeless: bool,
    ) -> Option<End> {
        let slow = self.deps.settings.retry_delay;
        run.failures += 1;
        run.outcome.error = Some(reason.clone());
        let effort = self.effort(lease);
        let graph = self.graph(lease).await;
        let pending = graph
            .as_ref()
            .filter(|graph| graph.load_balancer.provisioning_status.is_pending());
        let undoing = run.given_up.as_ref().map(|(_, since)| since.elapsed());
        match (pending, undoing) {
            (Some(graph), Some(spent)) if spent >= self.deps.settings.deadlines.compensation => {
                // What is left stays marked in its rows and is undone later; the status must not wait for ever.
                return match self.finish(lease, run, graph, None).await {
                    Ok(end) => end,
                    Err(StepError::LeaseLost) => Some(End::LeaseLost),
                    Err(StepError::Transient(_) | StepError::Permanent(_)) => {
                        Some(End::Later(slow))
                    }
                };
            }
            (Some(graph), None) if hopeless || effort.since.elapsed() >= self.deadline(graph) => {
                tracing::warn!(reason, "intent is given up");
                run.given_up = Some((reason, Instant::now()));
                run.failures = 0;
                return None;
            }
            _ => {}
        }
        tracing::info!(reason, failures = effort.failures, "will be tried again");
        if run.failures < QUICK_TRIES && !hopeless {
            tokio::time::sleep(slow / QUICKER * 2u32.pow(run.failures.saturating_sub(1))).await;
            return None;
        }
        if undoing.is_some() {
            tokio::time::sleep(slow).await;
            return None;
        }
        let exponent = effort.failures.min(5);
        let noted = self
            .deps
            .store
            .note_attempt(lease, lease.generation, &run.outcome, self.now())
            .await;
        match noted {
            Ok(true) => Some(End::Later(slow * 2u32.pow(exponent).min(LONGEST_DELAY))),
            Ok(false) => Some(End::LeaseLost),
            Err(error) => {
                tracing::warn!(reason = chain(&error), "note an attempt");
                Some(End::Later(slow))
            }
        }
    }

    async fn graph(&self, lease: &Lease) -> Option<Graph> {
        self.deps
            .store
            .load_graph(lease.load_balancer_id)
            .await
            .ok()
            .flatten()
    }

    fn settlement(&self, run: &Run, graph: &Graph, plan: &Plan) -> Settlement {
        let error = run.given_up.as_ref().map(|(reason, _)| reason.clone());
        // A driver that makes nothing serve leaves nothing out.
        let unserved = if self.deps.amphora.serves_documents() {
            plan.unserved.clone()
        } else {
            Vec::new()
        };
        Settlement {
            failed_over: run.took_over || (error.is_some() && run_was_failover(run, graph)),
            error,
            unserved,
        }
    }

    fn deadline(&self, graph: &Graph) -> Duration {
        let deadlines = &self.deps.settings.deadlines;
        match graph.load_balancer.provisioning_status {
            ProvisioningStatus::PendingCreate => deadlines.create,
            ProvisioningStatus::PendingDelete => deadlines.delete,
            ProvisioningStatus::Active
            | ProvisioningStatus::PendingUpdate
            | ProvisioningStatus::Error
            | ProvisioningStatus::Deleted => {
                if is_failover(graph) {
                    deadlines.failover
                } else {
                    deadlines.update
                }
            }
        }
    }

    /// Counts a failure of this generation.
    fn effort(&self, lease: &Lease) -> Effort {
        let mut efforts = self.efforts();
        let effort = efforts
            .entry(lease.load_balancer_id)
            .and_modify(|effort| {
                if effort.generation != lease.generation {
                    *effort = Effort::new(lease.generation);
                }
            })
            .or_insert_with(|| Effort::new(lease.generation));
        effort.failures = effort.failures.saturating_add(1);
        *effort
    }

    fn forget(&self, lease: &Lease) {
        self.efforts().remove(&lease.load_balancer_id);
    }

    fn efforts(
        &self,
    ) -> std::sync::MutexGuard<'_, std::collections::HashMap<lb_model::LoadBalancerId, Effort>>
    {
        self.efforts
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Effort {
    fn new(generation: u64) -> Self {
        Self {
            generation,
            since: Instant::now(),
            failures: 0,
        }
    }
}

/// An amphora is to be replaced, or none serves.
fn is_failover(graph: &Graph) -> bool {
    graph.amphorae.iter().any(|row| row.failover_requested)
        || graph.live_amphorae().next().is_none()
}

/// Undoing clears the marks in the rows, so what was planned tells.
fn run_was_failover(run: &Run, graph: &Graph) -> bool {
    is_failover(graph)
        || run
            .outcome
            .planned
            .iter()
            .any(|line| line.starts_with("+ amphora "))
}

fn intended(graph: &Graph) -> String {
    let lb = &graph.load_balancer;
    let doing = match lb.provisioning_status {
        ProvisioningStatus::PendingCreate => "create",
        ProvisioningStatus::PendingDelete => "delete",
        ProvisioningStatus::PendingUpdate => "update",
        ProvisioningStatus::Active | ProvisioningStatus::Error => "clean up",
        ProvisioningStatus::Deleted => "nothing",
    };
    format!(
        "{doing}: generation {}, {} listeners, {} pools, {} members",
        lb.generation,
        graph.listeners.len(),
        graph.pools.len(),
        graph
            .pools
            .iter()
            .map(|pool| pool.members.len())
            .sum::<usize>(),
    )
}

fn report(run: &Run, settlement: &Settlement) {
    let intended = &run.outcome.intended;
    let spent_ms = run.begun.elapsed().as_millis();
    match &settlement.error {
        Some(error) => tracing::warn!(intended, error, spent_ms, "reconcile failed"),
        None => tracing::info!(intended, spent_ms, "reconciled"),
    }
}

fn spend(outcome: &mut Outcome, what: &str, begun: Instant) {
    let spent = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    *outcome.durations_ms.entry(what.to_owned()).or_default() += spent;
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
