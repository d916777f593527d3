//! Random sequences of calls against the API and against a small model of it: the same statuses, the same objects.
//!
//! The model knows what exists, what is on its way out and whether the load balancer is locked, and nothing of how the
//! API is made. The worker plays along at random.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use lb_model::ProvisioningStatus;
use serde_json::{Value, json};

use crate::support::{ABSENT, Api, id_of};

const SEQUENCES: u64 = 10;
/// With `LB_SOAK` set.
const MANY_SEQUENCES: u64 = 200;
const STEPS: usize = 80;

/// A fixed sequence of choices.
struct Choices(u64);

impl Choices {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// One of the ids, and now and then one of nothing.
    fn id<T>(&mut self, all: &BTreeMap<String, T>) -> String {
        let index = self.below(all.len() + 1);
        all.keys()
            .nth(index)
            .map_or(ABSENT, String::as_str)
            .to_owned()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Active,
    Locked,
    Error,
}

#[derive(Debug, Default)]
struct Listener {
    protocol: &'static str,
    port: usize,
    default_pool: Option<String>,
    /// In the order of their positions, with the pools they redirect to.
    policies: Vec<(String, Option<String>)>,
    going: bool,
}

#[derive(Debug, Default)]
struct Pool {
    protocol: &'static str,
    /// By id: the last byte of the address, and whether it is going.
    members: BTreeMap<String, (usize, bool)>,
    monitor: Option<(String, bool)>,
    going: bool,
}

struct Model {
    lb: String,
    state: State,
    listeners: BTreeMap<String, Listener>,
    pools: BTreeMap<String, Pool>,
    going_policies: Vec<String>,
}

impl Model {
    fn transport(protocol: &str) -> &str {
        if protocol == "UDP" { "UDP" } else { "TCP" }
    }

    fn fits(listener: &str, pool: &str) -> bool {
        match listener {
            "HTTP" => pool == "HTTP",
            "TCP" => pool != "UDP",
            _ => pool == "UDP",
        }
    }

    fn locked(&self) -> bool {
        self.state != State::Active
    }

    fn owner(&self, policy: &str) -> Option<String> {
        self.listeners
            .iter()
            .find(|(_, listener)| listener.policies.iter().any(|(id, _)| id == policy))
            .map(|(id, _)| id.clone())
    }

    /// What the worker's success leaves.
    fn settle(&mut self) {
        self.state = State::Active;
        self.listeners.retain(|_, listener| !listener.going);
        self.pools.retain(|_, pool| !pool.going);
        for pool in self.pools.values_mut() {
            pool.members.retain(|_, (_, going)| !*going);
            pool.monitor = pool.monitor.take().filter(|(_, going)| !going);
        }
        for listener in self.listeners.values_mut() {
            listener
                .policies
                .retain(|(id, _)| !self.going_policies.contains(id));
            listener.default_pool = listener
                .default_pool
                .take()
                .filter(|pool| self.pools.contains_key(pool));
        }
        self.going_policies.clear();
    }
}

/// One call and the status the model expects.
async fn step(api: &Api, model: &mut Model, choices: &mut Choices) -> String {
    match choices.below(14) {
        0 => create_listener(api, model, choices).await,
        1 => {
            let id = choices.id(&model.listeners);
            let found = model.listeners.contains_key(&id);
            let status = write(model, found);
            if status == 204 {
                model.listeners.get_mut(&id).unwrap().going = true;
            }
            expect(api, "DELETE", &format!("listeners/{id}"), None, status)
                .await
                .0
        }
        2 => create_pool(api, model, choices).await,
        3 => {
            let id = choices.id(&model.pools);
            let used = model
                .listeners
                .values()
                .flat_map(|listener| &listener.policies)
                .any(|(_, pool)| pool.as_deref() == Some(&id));
            let status = if used {
                409
            } else {
                write(model, model.pools.contains_key(&id))
            };
            if status == 204 {
                model.pools.get_mut(&id).unwrap().going = true;
            }
            expect(api, "DELETE", &format!("pools/{id}"), None, status)
                .await
                .0
        }
        4 => create_member(api, model, choices).await,
        5 => {
            let pool = choices.id(&model.pools);
            let Some(entry) = model.pools.get(&pool) else {
                return "nothing".to_owned();
            };
            let id = choices.id(&entry.members);
            let status = write(model, entry.members.contains_key(&id));
            if status == 204 {
                model
                    .pools
                    .get_mut(&pool)
                    .unwrap()
                    .members
                    .get_mut(&id)
                    .unwrap()
                    .1 = true;
            }
            let path = format!("pools/{pool}/members/{id}");
            expect(api, "DELETE", &path, None, status).await.0
        }
        6 => batch(api, model, choices).await,
        7 => create_monitor(api, model, choices).await,
        8 => {
            let pool = choices.id(&model.pools);
            let monitor = model.pools.get(&pool).and_then(|pool| pool.monitor.clone());
            let id = monitor.as_ref().map_or(ABSENT, |(id, _)| id).to_owned();
            let status = write(model, monitor.is_some());
            if status == 204 {
                model.pools.get_mut(&pool).unwrap().monitor = Some((id.clone(), true));
            }
            expect(api, "DELETE", &format!("healthmonitors/{id}"), None, status)
                .await
                .0
        }
        9 | 10 => create_policy(api, model, choices).await,
        11 => change_policy(api, model, choices).await,
        12 => {
            let status = if model.locked() { 409 } else { 200 };
            if status == 200 {
                model.state = State::Locked;
            }
            let body = json!({"loadbalancer": {"name": "n"}});
            expect(
                api,
                "PUT",
                &format!("loadbalancers/{}", model.lb),
                Some(body),
                status,
            )
            .await
            .0
        }
        _ => {
            let status = if model.state == State::Locked {
                409
            } else {
                202
            };
            if status == 202 {
                model.state = State::Locked;
            }
            let path = format!("loadbalancers/{}/failover", model.lb);
            expect(api, "PUT", &path, None, status).await.0
        }
    }
}

/// A delete: 404 comes before 409.
fn write(model: &mut Model, found: bool) -> u16 {
    if !found {
        404
    } else if model.locked() {
        409
    } else {
        model.state = State::Locked;
        204
    }
}

async fn expect(
    api: &Api,
    method: &str,
    path: &str,
    body: Option<Value>,
    status: u16,
) -> (String, Value) {
    let answer = api
        .call(method, &format!("/v2/lbaas/{path}"), body.clone())
        .await;
    let what = format!(
        "{method} {path} {body:?} -> {} {}",
        answer.status, answer.text
    );
    assert_eq!(answer.status.as_u16(), status, "{what}");
    (what, answer.body)
}

/// A create under the load balancer, of which `valid` says what is wrong besides a lock.
async fn create(
    api: &Api,
    model: &mut Model,
    path: &str,
    root: &str,
    object: Value,
    verdict: u16,
) -> (String, Option<String>) {
    let body = json!({root: object});
    let (what, answer) = expect(api, "POST", path, Some(body), verdict).await;
    if verdict != 201 {
        return (what, None);
    }
    model.state = State::Locked;
    (what, Some(id_of(&answer[root]).to_owned()))
}

async fn create_listener(api: &Api, model: &mut Model, choices: &mut Choices) -> String {
    let protocol = choices.one_of(&["HTTP", "TCP", "UDP"]);
    let port = 80 + choices.below(4);
    let pool = (choices.below(2) == 0).then(|| choices.id(&model.pools));
    let taken = model.listeners.values().any(|other| {
        other.port == port && Model::transport(other.protocol) == Model::transport(protocol)
    });
    let verdict = match pool.as_ref().map(|pool| model.pools.get(pool)) {
        _ if model.locked() => 409,
        Some(None) => 404,
        Some(Some(pool)) if !Model::fits(protocol, pool.protocol) => 400,
        _ if taken => 409,
        _ => 201,
    };
    let object = json!({"loadbalancer_id": model.lb, "protocol": protocol, "protocol_port": port, "default_pool_id": pool});
    let (what, id) = create(api, model, "listeners", "listener", object, verdict).await;
    if let Some(id) = id {
        let listener = Listener {
            protocol,
            port,
            default_pool: pool,
            ..Listener::default()
        };
        model.listeners.insert(id, listener);
    }
    what
}

async fn create_pool(api: &Api, model: &mut Model, choices: &mut Choices) -> String {
    let protocol = choices.one_of(&["HTTP", "TCP", "UDP"]);
    let listener = (choices.below(3) == 0).then(|| choices.id(&model.listeners));
    let parent = listener.as_ref().map(|id| model.listeners.get(id));
    let verdict = match parent {
        Some(None) => 404,
        Some(Some(listener)) if listener.default_pool.is_some() => 409,
        _ if model.locked() => 409,
        Some(Some(listener)) if !Model::fits(listener.protocol, protocol) => 400,
        _ => 201,
    };
    let object = json!({"loadbalancer_id": model.lb, "listener_id": listener, "protocol": protocol, "lb_algorithm": "ROUND_ROBIN"});
    let (what, id) = create(api, model, "pools", "pool", object, verdict).await;
    if let Some(id) = id {
        if let Some(listener) = listener {
            model.listeners.get_mut(&listener).unwrap().default_pool = Some(id.clone());
        }
        let pool = Pool {
            protocol,
            ..Pool::default()
        };
        model.pools.insert(id, pool);
    }
    what
}

async fn create_member(api: &Api, model: &mut Model, choices: &mut Choices) -> String {
    let pool = choices.id(&model.pools);
    let last = 20 + choices.below(4);
    let verdict = match model.pools.get(&pool) {
        None => 404,
        Some(_) if model.locked() => 409,
        Some(pool) if pool.members.values().any(|(other, _)| *other == last) => 409,
        Some(_) => 201,
    };
    let object = json!({"address": format!("10.0.0.{last}"), "protocol_port": 80});
    let path = format!("pools/{pool}/members");
    let (what, id) = create(api, model, &path, "member", object, verdict).await;
    if let Some(id) = id {
        let pool = model.pools.get_mut(&pool).unwrap();
        pool.members.insert(id, (last, false));
    }
    what
}

/// Makes the members of a pool those of the batch; what is there stays as it is.
async fn batch(api: &Api, model: &mut Model, choices: &mut Choices) -> String {
    let pool = choices.id(&model.pools);
    let wanted: Vec<usize> = (0..choices.below(4))
        .map(|_| 20 + choices.below(4))
        .collect();
    let additive = choices.below(2) == 0;
    let twice = wanted
        .iter()
        .enumerate()
        .any(|(index, last)| wanted[..index].contains(last));
    let verdict = match model.pools.get(&pool) {
        None => 404,
        Some(_) if model.locked() => 409,
        Some(_) if twice => 400,
        Some(_) => 202,
    };
    let members: Vec<Value> = wanted
        .iter()
        .map(|last| json!({"address": format!("10.0.0.{last}"), "protocol_port": 80}))
        .collect();
    let path = format!("pools/{pool}/members?additive_only={additive}");
    let body = json!({"members": members});
    let (what, _) = expect(api, "PUT", &path, Some(body), verdict).await;
    if verdict != 202 {
        return what;
    }
    let listed = api.get(&format!("/v2/lbaas/pools/{pool}/members")).await;
    let pool = model.pools.get_mut(&pool).unwrap();
    let mut changed = false;
    for (last, going) in pool.members.values_mut() {
        *going = !additive && !wanted.contains(last);
        changed |= *going;
    }
    for member in listed.body["members"].as_array().unwrap() {
        let last: usize = member["address"].as_str().unwrap()[7..].parse().unwrap();
        let id = id_of(member).to_owned();
        if let Entry::Vacant(place) = pool.members.entry(id) {
            assert!(wanted.contains(&last), "{what}: {member}");
            place.insert((last, false));
            changed = true;
        }
    }
    for last in wanted {
        assert!(
            pool.members.values().any(|(other, _)| *other == last),
            "{what}"
        );
    }
    if changed {
        model.state = State::Locked;
    }
    what
}

async fn create_monitor(api: &Api, model: &mut Model, choices: &mut Choices) -> String {
    let pool = choices.id(&model.pools);
    let kind = choices.one_of(&["TCP", "PING", "UDP-CONNECT"]);
    let verdict = match model.pools.get(&pool) {
        None => 404,
        Some(pool) if pool.monitor.is_some() => 409,
        Some(_) if model.locked() => 409,
        Some(pool) if kind == "PING" && pool.protocol == "UDP" => 400,
        Some(pool) if kind == "UDP-CONNECT" && pool.protocol != "UDP" => 400,
        Some(_) => 201,
    };
    let object = json!({"pool_id": pool, "type": kind, "delay": 5, "timeout": 5, "max_retries": 3});
    let (what, id) = create(
        api,
        model,
        "healthmonitors",
        "healthmonitor",
        object,
        verdict,
    )
    .await;
    if let Some(id) = id {
        model.pools.get_mut(&pool).unwrap().monitor = Some((id, false));
    }
    what
}

async fn create_policy(api: &Api, model: &mut Model, choices: &mut Choices) -> String {
    let listener = choices.id(&model.listeners);
    let pool = (choices.below(2) == 0).then(|| choices.id(&model.pools));
    let position = (choices.below(2) == 0).then(|| 1 + choices.below(5));
    let verdict = match model.listeners.get(&listener) {
        None => 404,
        Some(_) if model.locked() => 409,
        Some(listener) if listener.protocol != "HTTP" => 400,
        Some(_) => match pool.as_ref().map(|pool| model.pools.get(pool)) {
            Some(None) => 404,
            Some(Some(pool)) if pool.protocol != "HTTP" => 400,
            _ => 201,
        },
    };
    let action = if pool.is_some() {
        "REDIRECT_TO_POOL"
    } else {
        "REJECT"
    };
    let object = json!({"listener_id": listener, "action": action, "redirect_pool_id": pool, "position": position});
    let (what, id) = create(api, model, "l7policies", "l7policy", object, verdict).await;
    if let Some(id) = id {
        let policies = &mut model.listeners.get_mut(&listener).unwrap().policies;
        let index = position.map_or(policies.len(), |position| {
            (position - 1).min(policies.len())
        });
        policies.insert(index, (id, pool));
    }
    what
}

/// Moves a policy, or deletes it.
async fn change_policy(api: &Api, model: &mut Model, choices: &mut Choices) -> String {
    let all: BTreeMap<String, ()> = model
        .listeners
        .values()
        .flat_map(|listener| &listener.policies)
        .map(|(id, _)| (id.clone(), ()))
        .collect();
    let id = choices.id(&all);
    let path = format!("l7policies/{id}");
    let mut status = write(model, all.contains_key(&id));
    if choices.below(2) == 0 {
        if status == 204 {
            model.going_policies.push(id);
        }
        return expect(api, "DELETE", &path, None, status).await.0;
    }
    let position = 1 + choices.below(5);
    if status == 204 {
        status = 200;
        let listener = model.owner(&id).unwrap();
        let policies = &mut model.listeners.get_mut(&listener).unwrap().policies;
        let at = policies.iter().position(|(other, _)| *other == id).unwrap();
        let policy = policies.remove(at);
        policies.insert((position - 1).min(policies.len()), policy);
    }
    let body = json!({"l7policy": {"position": position}});
    expect(api, "PUT", &path, Some(body), status).await.0
}

/// Everything the API shows is what the model has.
async fn compare(api: &Api, model: &Model, history: &[String]) {
    let ids = |list: &Value| -> Vec<String> {
        let mut ids: Vec<String> = list
            .as_array()
            .unwrap()
            .iter()
            .map(|item| id_of(item).to_owned())
            .collect();
        ids.sort();
        ids
    };
    let history = || history.join("\n");
    let answer = api
        .get(&format!("/v2/lbaas/loadbalancers/{}", model.lb))
        .await;
    let lb = &answer.body["loadbalancer"];
    let status = match model.state {
        State::Active => "ACTIVE",
        State::Locked => "PENDING_UPDATE",
        State::Error => "ERROR",
    };
    assert_eq!(lb["provisioning_status"], status, "{}", history());
    assert!(
        ids(&lb["listeners"]).iter().eq(model.listeners.keys()),
        "{}",
        history()
    );
    assert!(
        ids(&lb["pools"]).iter().eq(model.pools.keys()),
        "{}",
        history()
    );
    let listed = api.get("/v2/lbaas/listeners").await;
    for listener in listed.body["listeners"].as_array().unwrap() {
        let expected = &model.listeners[id_of(listener)];
        assert_eq!(
            listener["default_pool_id"],
            json!(expected.default_pool),
            "{}",
            history()
        );
        let policies: Vec<&str> = listener["l7policies"]
            .as_array()
            .unwrap()
            .iter()
            .map(id_of)
            .collect();
        let wanted: Vec<&str> = expected
            .policies
            .iter()
            .map(|(id, _)| id.as_str())
            .collect();
        assert_eq!(policies, wanted, "{}", history());
    }
    let listed = api.get("/v2/lbaas/pools").await;
    for pool in listed.body["pools"].as_array().unwrap() {
        let expected = &model.pools[id_of(pool)];
        assert!(
            ids(&pool["members"]).iter().eq(expected.members.keys()),
            "{}",
            history()
        );
        let monitor = expected.monitor.as_ref().map(|(id, _)| id);
        assert_eq!(
            pool.get("healthmonitor_id"),
            monitor.map(|id| json!(id)).as_ref(),
            "{}",
            history()
        );
    }
    let listed = api.get("/v2/lbaas/l7policies").await;
    for policy in listed.body["l7policies"].as_array().unwrap() {
        let listener = &model.listeners[policy["listener_id"].as_str().unwrap()];
        let position = listener
            .policies
            .iter()
            .position(|(id, _)| id == id_of(policy))
            .unwrap();
        assert_eq!(policy["position"], json!(position + 1), "{}", history());
    }
}

#[tokio::test]
async fn random_sequences_of_calls_agree_with_a_small_model() {
    let sequences = if std::env::var_os("LB_SOAK").is_some() {
        MANY_SEQUENCES
    } else {
        SEQUENCES
    };
    for seed in 1..=sequences {
        let api = Api::serving_everything().await;
        let lb = api.load_balancer(json!({})).await;
        let mut model = Model {
            lb: id_of(&lb).to_owned(),
            state: State::Active,
            listeners: BTreeMap::new(),
            pools: BTreeMap::new(),
            going_policies: Vec::new(),
        };
        let mut choices = Choices(seed);
        let mut history = vec![format!("seed {seed}")];
        for _ in 0..STEPS {
            let what = step(&api, &mut model, &mut choices).await;
            history.push(what);
            compare(&api, &model, &history).await;
            match choices.below(20) {
                // Most of the time the worker is quick.
                0..14 if model.state == State::Locked => {
                    api.settle(&model.lb).await;
                    model.settle();
                }
                // It failed, and nothing of it is left but the load balancer's status.
                14 if model.state == State::Active => {
                    api.edit(&model.lb, |graph| {
                        graph.load_balancer.provisioning_status = ProvisioningStatus::Error;
                    })
                    .await;
                    model.state = State::Error;
                }
                _ => {}
            }
            compare(&api, &model, &history).await;
        }
    }
}
