//! Health monitors.

use super::{apply_tags, pend_pool, pool_or_fault, require_mutable, require_mutable_pool};
use crate::spec::{Field, HealthMonitorUpdate, NewHealthMonitor};
use crate::validate::check_health_monitor;
use crate::{
    ExpectedCodes, Fault, Graph, HealthMonitor, HealthMonitorId, OperatingStatus, PoolId,
    ProvisioningStatus, Resource, Rules, Timestamp,
};

const DEFAULT_METHOD: &str = "GET";
const DEFAULT_PATH: &str = "/";
const DEFAULT_CODES: &str = "200";
const DEFAULT_RETRIES_DOWN: u8 = 3;

pub fn create_health_monitor(
    graph: &mut Graph,
    pool_id: PoolId,
    spec: &NewHealthMonitor,
    id: HealthMonitorId,
    rules: &Rules,
    now: Timestamp,
) -> Result<(), Fault> {
    let pool = pool_or_fault(graph, pool_id)?;
    if pool.health_monitor.is_some() {
        return Err(Fault::DuplicateHealthMonitor);
    }
    require_mutable_pool(pool)?;
    require_mutable(&graph.load_balancer)?;
    let monitor = spec.build(id, &graph.load_balancer.project_id, now)?;
    check_health_monitor(&monitor, pool.protocol, &graph.load_balancer, rules)?;
    if let Some(pool) = graph.pool_mut(pool_id) {
        pool.health_monitor = Some(monitor);
    }
    pend_pool(graph, pool_id, now);
    Ok(())
}

impl NewHealthMonitor {
    /// The monitor as it is stored at birth.
    pub(super) fn build(
        &self,
        id: HealthMonitorId,
        project_id: &str,
        now: Timestamp,
    ) -> Result<HealthMonitor, Fault> {
        let http = self.kind.is_http();
        if !http {
            let given = [
                ("http_method", self.http_method.is_some()),
                ("url_path", self.url_path.is_some()),
                ("expected_codes", self.expected_codes.is_some()),
            ];
            refuse_http_attributes(self.kind, &given)?;
        }
        Ok(HealthMonitor {
            id,
            project_id: project_id.to_owned(),
            name: self.name.clone(),
            admin_state_up: self.admin_state_up,
            provisioning_status: ProvisioningStatus::PendingCreate,
            operating_status: OperatingStatus::Offline,
            kind: self.kind,
            delay: self.delay,
            timeout: self.timeout,
            max_retries: self.max_retries,
            max_retries_down: self.max_retries_down.unwrap_or(DEFAULT_RETRIES_DOWN),
            http_method: self
                .http_method
                .clone()
                .or_else(|| http.then(|| DEFAULT_METHOD.to_owned())),
            url_path: self
                .url_path
                .clone()
                .or_else(|| http.then(|| DEFAULT_PATH.to_owned())),
            expected_codes: self
                .expected_codes
                .clone()
                .or_else(|| if http { default_codes() } else { None }),
            http_version: self.http_version,
            domain_name: self.domain_name.clone(),
            tags: self.tags.clone(),
            created_at: now,
            updated_at: None,
        })
    }
}

fn default_codes() -> Option<ExpectedCodes> {
    DEFAULT_CODES.parse().ok()
}

fn refuse_http_attributes(kind: crate::MonitorType, given: &[(&str, bool)]) -> Result<(), Fault> {
    match given.iter().find(|(_, given)| *given) {
        Some((attribute, _)) => Err(Fault::option(attribute, &format!("{kind} health monitors"))),
        None => Ok(()),
    }
}

pub fn update_health_monitor(
    graph: &mut Graph,
    id: HealthMonitorId,
    spec: &HealthMonitorUpdate,
    rules: &Rules,
    now: Timestamp,
) -> Result<(), Fault> {
    let (pool, stored) = graph
        .pool_of_monitor(id)
        .ok_or_else(|| Fault::not_found(Resource::HealthMonitor, id))?;
    require_mutable_pool(pool)?;
    require_mutable(&graph.load_balancer)?;
    let mut monitor = stored.clone();
    apply(&mut monitor, spec)?;
    check_health_monitor(&monitor, pool.protocol, &graph.load_balancer, rules)?;
    monitor.provisioning_status = ProvisioningStatus::PendingUpdate;
    monitor.updated_at = Some(now);
    let pool_id = pool.id;
    if let Some(pool) = graph.pool_mut(pool_id) {
        pool.health_monitor = Some(monitor);
    }
    pend_pool(graph, pool_id, now);
    Ok(())
}

fn apply(monitor: &mut HealthMonitor, spec: &HealthMonitorUpdate) -> Result<(), Fault> {
    let HealthMonitorUpdate {
        name,
        admin_state_up,
        delay,
        timeout,
        max_retries,
        max_retries_down,
        http_method,
        url_path,
        expected_codes,
        http_version,
        domain_name,
        tags,
    } = spec;
    if !monitor.kind.is_http() {
        // Even as null.
        let given = [
            ("http_method", !http_method.is_absent()),
            ("url_path", !url_path.is_absent()),
            ("expected_codes", !expected_codes.is_absent()),
        ];
        refuse_http_attributes(monitor.kind, &given)?;
    }
    name.apply(&mut monitor.name, String::new());
    admin_state_up.apply(&mut monitor.admin_state_up, false);
    monitor.delay = delay.unwrap_or(monitor.delay);
    monitor.timeout = timeout.unwrap_or(monitor.timeout);
    monitor.max_retries = max_retries.unwrap_or(monitor.max_retries);
    max_retries_down.apply(&mut monitor.max_retries_down, DEFAULT_RETRIES_DOWN);
    http_method.apply_or(&mut monitor.http_method, &DEFAULT_METHOD.to_owned());
    url_path.apply_or(&mut monitor.url_path, &DEFAULT_PATH.to_owned());
    match expected_codes {
        Field::Absent => {}
        Field::Null => monitor.expected_codes = default_codes(),
        Field::Value(codes) => monitor.expected_codes = Some(codes.clone()),
    }
    http_version.apply_option(&mut monitor.http_version);
    domain_name.apply_option(&mut monitor.domain_name);
    apply_tags(tags, &mut monitor.tags);
    Ok(())
}

pub fn delete_health_monitor(
    graph: &mut Graph,
    id: HealthMonitorId,
    now: Timestamp,
) -> Result<(), Fault> {
    let (pool, _) = graph
        .pool_of_monitor(id)
        .ok_or_else(|| Fault::not_found(Resource::HealthMonitor, id))?;
    require_mutable_pool(pool)?;
    require_mutable(&graph.load_balancer)?;
    let pool_id = pool.id;
    let monitor = graph
        .pool_mut(pool_id)
        .and_then(|pool| pool.health_monitor.as_mut());
    if let Some(monitor) = monitor {
        monitor.provisioning_status = ProvisioningStatus::PendingDelete;
        monitor.updated_at = Some(now);
    }
    pend_pool(graph, pool_id, now);
    Ok(())
}
