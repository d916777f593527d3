//! What is asked of the API, and the closed loop that asks.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use serde_json::{Value, json};

use super::client::{Answer, Call, Client};
use crate::stop::Stop;

/// Load balancers of one list.
pub(crate) const PAGE: usize = 100;
const COLLECTION: &str = "/v2/lbaas/loadbalancers";
/// How long work may take that nobody waits for.
const PATIENCE: Duration = Duration::from_secs(300);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Workload {
    List,
    Show,
    Create,
    CreateToActive,
}

impl Workload {
    pub(crate) const ALL: [Self; 4] = [Self::List, Self::Show, Self::Create, Self::CreateToActive];

    /// Octavia's CPU by ours that we want to reach.
    pub(crate) fn goal(self) -> Option<f64> {
        match self {
            Self::List | Self::Show => Some(100.0),
            Self::Create => Some(50.0),
            Self::CreateToActive => None,
        }
    }
}

/// What came of asking.
#[derive(Debug, Default)]
pub(crate) struct Run {
    pub(crate) elapsed: Duration,
    /// Of each request that was answered as it should be.
    pub(crate) latencies: Vec<Duration>,
    /// Length of all these answers.
    pub(crate) bytes: usize,
    pub(crate) errors: usize,
    pub(crate) first_error: Option<String>,
}

impl Run {
    fn add(&mut self, begun: Instant, asked: Result<Answer>, status: u16) {
        match asked {
            Ok(answer) if answer.status == status => {
                self.latencies.push(begun.elapsed());
                self.bytes += answer.body.len();
            }
            Ok(answer) => {
                self.fail(format!(
                    "{} in place of {status}: {}",
                    answer.status,
                    String::from_utf8_lossy(&answer.body)
                ));
            }
            Err(error) => self.fail(format!("{error:#}")),
        }
    }

    fn fail(&mut self, why: String) {
        self.errors += 1;
        self.first_error.get_or_insert(why);
    }

    fn join(&mut self, other: Self) {
        self.latencies.extend(other.latencies);
        self.bytes += other.bytes;
        self.errors += other.errors;
        if let Some(why) = other.first_error {
            self.first_error.get_or_insert(why);
        }
    }
}

/// Where a loop of requests ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit {
    pub(crate) duration: Duration,
    pub(crate) requests: usize,
}

/// Asks on `connections` at once, each again as soon as it was answered, call after call in turn; every answer has to
/// have this status.
pub(crate) async fn ask(
    address: SocketAddr,
    calls: impl Fn(usize) -> Call + Send + Sync + 'static,
    status: u16,
    connections: usize,
    limit: Limit,
    stop: &Stop,
) -> Result<Run> {
    let calls = Arc::new(calls);
    let next = Arc::new(AtomicUsize::new(0));
    let begun = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..connections {
        let (calls, next, stop) = (calls.clone(), next.clone(), stop.clone());
        tasks.spawn(async move {
            let mut run = Run::default();
            let mut client = Client::new(address);
            while begun.elapsed() < limit.duration && !stop.told() {
                let turn = next.fetch_add(1, Ordering::Relaxed);
                if turn >= limit.requests {
                    break;
                }
                let call = calls(turn);
                let begun = Instant::now();
                let asked = client.call(&call).await;
                run.add(begun, asked, status);
                if run.errors >= 100 {
                    break;
                }
            }
            run
        });
    }
    let mut all = Run::default();
    while let Some(run) = tasks.join_next().await {
        all.join(run.context("a connection's task")?);
    }
    all.elapsed = begun.elapsed();
    stop.pause(Duration::ZERO)?;
    Ok(all)
}

/// Asks for a new load balancer.
pub(crate) fn create(number: usize) -> Call {
    Call::post(
        COLLECTION,
        &json!({"loadbalancer": {
            "name": format!("lb-{number}"),
            "description": "made by the benchmark",
            "project_id": "4d9f7ee43a8b4f6f8f0d8c1b3a5e6f70",
            "vip_subnet_id": "6c1f5a3e-25b0-4c8e-9a0e-7d5b1b7c2f11",
        }}),
    )
}

pub(crate) fn show(id: &str) -> Call {
    Call::get(format!("{COLLECTION}/{id}"))
}

fn list(page: &str) -> Call {
    Call::get(format!("{COLLECTION}?limit={PAGE}{page}"))
}

/// All load balancers there are, as the calls that list them page by page, and their ids.
#[derive(Debug, Default)]
pub(crate) struct Inventory {
    pub(crate) pages: Vec<Call>,
    pub(crate) ids: Vec<String>,
    /// The fields of one that hold something.
    pub(crate) fields: Vec<String>,
}

impl Inventory {
    /// Of full pages only: every list asked for has as many.
    pub(crate) async fn take(address: SocketAddr, stop: &Stop) -> Result<Self> {
        let mut client = Client::new(address);
        let mut all = Self::default();
        let mut call = list("");
        loop {
            stop.pause(Duration::ZERO)?;
            let answer = client.call(&call).await?.json(200)?;
            let items = answer["loadbalancers"].as_array();
            let items = items.context("a list without load balancers")?;
            for item in items {
                ensure!(
                    item["provisioning_status"] == "ACTIVE",
                    "not ACTIVE: {item}"
                );
                all.ids.push(id(item)?);
            }
            if let Some(Value::Object(item)) = items.last() {
                let filled = item.iter().filter(|(_, value)| is_filled(value));
                all.fields = filled.map(|(name, _)| name.clone()).collect();
            }
            if items.len() == PAGE {
                all.pages.push(call);
            }
            let Some(last) = all.ids.last().filter(|_| items.len() == PAGE) else {
                return Ok(all);
            };
            call = list(&format!("&marker={last}"));
        }
    }
}

fn is_filled(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        Value::String(text) => !text.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => true,
    }
}

fn id(load_balancer: &Value) -> Result<String> {
    let id = load_balancer["id"].as_str();
    Ok(id
        .with_context(|| format!("no id in {load_balancer}"))?
        .to_owned())
}

/// Returns when nothing is in `PENDING_CREATE`. It asks seldom, as it is part of what is measured.
pub(crate) async fn settle(address: SocketAddr, stop: &Stop) -> Result<()> {
    let mut client = Client::new(address);
    let call = Call::get(format!(
        "{COLLECTION}?provisioning_status=PENDING_CREATE&limit=1&fields=id"
    ));
    let begun = Instant::now();
    let mut pause = Duration::from_millis(20);
    loop {
        stop.pause(Duration::ZERO)?;
        let answer = client.call(&call).await?.json(200)?;
        if answer["loadbalancers"]
            .as_array()
            .is_some_and(Vec::is_empty)
        {
            return Ok(());
        }
        ensure!(
            begun.elapsed() < PATIENCE,
            "still in PENDING_CREATE after {PATIENCE:?}: {answer}"
        );
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(500));
    }
}

/// One load balancer, from the request until it is seen to be ACTIVE. The pauses between looks are a tenth of the time
/// so far, so that looking costs little and the time is known to a tenth.
pub(crate) async fn create_to_active(
    client: &mut Client,
    number: usize,
) -> Result<(Value, Duration)> {
    let begun = Instant::now();
    let answer = client.call(&create(number)).await?.json(201)?;
    let id = id(&answer["loadbalancer"])?;
    loop {
        let answer = client.call(&show(&id)).await?.json(200)?;
        let load_balancer = &answer["loadbalancer"];
        match load_balancer["provisioning_status"].as_str() {
            Some("ACTIVE") => return Ok((answer["loadbalancer"].clone(), begun.elapsed())),
            Some("PENDING_CREATE") if begun.elapsed() < PATIENCE => {}
            _ => bail!("it does not become ACTIVE: {load_balancer}"),
        }
        let pause = begun.elapsed() / 10;
        tokio::time::sleep(pause.max(Duration::from_millis(1))).await;
    }
}
