//! Pools.

use super::{apply_tags, pend_above_pool, pend_pool, pool_or_fault, require_mutable, set_listener};
use crate::spec::{Field, NewPool, PoolUpdate, SessionPersistenceSpec};
use crate::validate::{check_default_pool, check_pool};
use crate::{
    Fault, Graph, ListenerId, OperatingStatus, Pool, PoolId, ProvisioningStatus, Resource, Rules,
    SessionPersistence, Timestamp,
};

/// A pool made under a listener becomes its default pool.
pub fn create_pool(
    graph: &mut Graph,
    spec: &NewPool,
    id: PoolId,
    listener: Option<ListenerId>,
    rules: &Rules,
    now: Timestamp,
) -> Result<(), Fault> {
    let taken = match listener {
        None => false,
        Some(listener) => graph
            .listener(listener)
            .ok_or_else(|| Fault::not_found(Resource::Listener, listener))?
            .default_pool_id
            .is_some(),
    };
    if taken {
        return Err(Fault::DuplicatePool);
    }
    require_mutable(&graph.load_balancer)?;
    let pool = spec.build(id, &graph.load_balancer.project_id, rules, now)?;
    check_pool(&pool, &graph.load_balancer, rules)?;
    graph.pools.push(pool);
    if let Some(listener) = listener.and_then(|listener| graph.listener(listener)) {
        check_default_pool(graph, listener, id)?;
    }
    if let Some(listener) = listener.and_then(|listener| graph.listener_mut(listener)) {
        listener.default_pool_id = Some(id);
        set_listener(listener, ProvisioningStatus::PendingUpdate, now);
    }
    pend_above_pool(graph, id, now);
    Ok(())
}

impl NewPool {
    /// The pool as it is stored at birth, without members and monitor.
    pub(super) fn build(
        &self,
        id: PoolId,
        project_id: &str,
        rules: &Rules,
        now: Timestamp,
    ) -> Result<Pool, Fault> {
        let tls = self.tls_enabled;
        Ok(Pool {
            id,
            project_id: project_id.to_owned(),
            name: self.name.clone(),
            description: self.description.clone(),
            admin_state_up: self.admin_state_up,
            provisioning_status: ProvisioningStatus::PendingCreate,
            operating_status: OperatingStatus::Offline,
            protocol: self.protocol,
            lb_algorithm: self.lb_algorithm,
            session_persistence: self
                .session_persistence
                .as_ref()
                .map(|spec| session_persistence(spec, None))
                .transpose()?,
            tls_container_ref: self.tls_container_ref.clone(),
            ca_tls_container_ref: self.ca_tls_container_ref.clone(),
            crl_container_ref: self.crl_container_ref.clone(),
            tls_enabled: tls,
            tls_ciphers: self
                .tls_ciphers
                .clone()
                .or_else(|| tls.then(|| rules.default_ciphers.clone())),
            tls_versions: self
                .tls_versions
                .clone()
                .or_else(|| tls.then(|| rules.default_tls_versions.clone())),
            alpn_protocols: self
                .alpn_protocols
                .clone()
                .or_else(|| tls.then(|| rules.default_alpn_protocols.clone())),
            tags: self.tags.clone(),
            created_at: now,
            updated_at: None,
            members: Vec::new(),
            health_monitor: None,
        })
    }
}

/// A type that is not sent is the stored one; what else is not sent is gone.
fn session_persistence(
    spec: &SessionPersistenceSpec,
    stored: Option<&SessionPersistence>,
) -> Result<SessionPersistence, Fault> {
    let kind = spec
        .kind
        .or_else(|| stored.map(|stored| stored.kind))
        .ok_or_else(|| Fault::InvalidInput {
            field: "type".to_owned(),
            value: "None".to_owned(),
            reason: "Mandatory field missing.".to_owned(),
        })?;
    Ok(SessionPersistence {
        kind,
        cookie_name: spec.cookie_name.clone(),
        persistence_timeout: spec.persistence_timeout,
        persistence_granularity: spec.persistence_granularity.clone(),
    })
}

/// The pool itself may be in ERROR: this is how it gets out of it.
pub fn update_pool(
    graph: &mut Graph,
    id: PoolId,
    spec: &PoolUpdate,
    rules: &Rules,
    now: Timestamp,
) -> Result<(), Fault> {
    let mut pool = pool_or_fault(graph, id)?.clone();
    require_mutable(&graph.load_balancer)?;
    apply(&mut pool, spec, rules)?;
    check_pool(&pool, &graph.load_balancer, rules)?;
    if let Some(slot) = graph.pool_mut(id) {
        *slot = pool;
    }
    pend_pool(graph, id, now);
    Ok(())
}

fn apply(pool: &mut Pool, spec: &PoolUpdate, rules: &Rules) -> Result<(), Fault> {
    let PoolUpdate {
        name,
        description,
        admin_state_up,
        lb_algorithm,
        session_persistence: persistence,
        tls_container_ref,
        ca_tls_container_ref,
        crl_container_ref,
        tls_enabled,
        tls_ciphers,
        tls_versions,
        alpn_protocols,
        tags,
    } = spec;
    name.apply(&mut pool.name, String::new());
    description.apply(&mut pool.description, String::new());
    admin_state_up.apply(&mut pool.admin_state_up, false);
    if let Some(algorithm) = lb_algorithm {
        pool.lb_algorithm = *algorithm;
    }
    match persistence {
        Field::Absent => {}
        Field::Null => pool.session_persistence = None,
        Field::Value(spec) => {
            pool.session_persistence = Some(session_persistence(
                spec,
                pool.session_persistence.as_ref(),
            )?);
        }
    }
    tls_container_ref.apply_option(&mut pool.tls_container_ref);
    ca_tls_container_ref.apply_option(&mut pool.ca_tls_container_ref);
    crl_container_ref.apply_option(&mut pool.crl_container_ref);
    tls_enabled.apply(&mut pool.tls_enabled, false);
    tls_ciphers.apply_or(&mut pool.tls_ciphers, &rules.default_ciphers);
    tls_versions.apply_or(&mut pool.tls_versions, &rules.default_tls_versions);
    alpn_protocols.apply_option(&mut pool.alpn_protocols);
    apply_tags(tags, &mut pool.tags);
    Ok(())
}

/// Refused while a policy redirects to it; a listener that has it as default pool loses it.
pub fn delete_pool(graph: &mut Graph, id: PoolId, now: Timestamp) -> Result<(), Fault> {
    pool_or_fault(graph, id)?;
    let policy = graph
        .listeners
        .iter()
        .flat_map(|listener| &listener.l7policies)
        .find(|policy| policy.redirect_pool_id == Some(id));
    if let Some(policy) = policy {
        return Err(Fault::PoolInUse {
            pool: id.0,
            policy: policy.id.0,
        });
    }
    require_mutable(&graph.load_balancer)?;
    pend_above_pool(graph, id, now);
    if let Some(pool) = graph.pool_mut(id) {
        pool.provisioning_status = ProvisioningStatus::PendingDelete;
        pool.updated_at = Some(now);
    }
    Ok(())
}
