//! Listeners.

use super::{apply_tags, require_mutable, set_listener, set_load_balancer};
use crate::spec::{Field, ListenerUpdate, NewListener};
use crate::validate::{check_default_pool, check_hsts_flags, check_listener, check_listener_port};
use crate::{
    ClientAuthentication, Fault, Graph, Listener, ListenerId, ListenerProtocol, OperatingStatus,
    ProvisioningStatus, Resource, Rules, Timestamp,
};

pub fn create_listener(
    graph: &mut Graph,
    spec: &NewListener,
    id: ListenerId,
    rules: &Rules,
    now: Timestamp,
) -> Result<(), Fault> {
    require_mutable(&graph.load_balancer)?;
    let listener = spec.build(id, &graph.load_balancer.project_id, rules, now);
    check_new_listener(graph, &listener, rules)?;
    graph.listeners.push(listener);
    set_load_balancer(graph, ProvisioningStatus::PendingUpdate, now);
    Ok(())
}

/// All the rules of a listener that is not in the graph yet.
pub(super) fn check_new_listener(
    graph: &Graph,
    listener: &Listener,
    rules: &Rules,
) -> Result<(), Fault> {
    if let Some(pool) = listener.default_pool_id {
        check_default_pool(graph, listener, pool)?;
    }
    check_listener_port(graph, listener)?;
    check_hsts_flags(listener)?;
    check_listener(listener, &graph.load_balancer, rules)
}

impl NewListener {
    /// The listener as it is stored at birth.
    pub(super) fn build(
        &self,
        id: ListenerId,
        project_id: &str,
        rules: &Rules,
        now: Timestamp,
    ) -> Listener {
        let tls = self.protocol == ListenerProtocol::TerminatedHttps;
        Listener {
            id,
            project_id: project_id.to_owned(),
            name: self.name.clone(),
            description: self.description.clone(),
            admin_state_up: self.admin_state_up,
            provisioning_status: ProvisioningStatus::PendingCreate,
            operating_status: OperatingStatus::Offline,
            protocol: self.protocol,
            protocol_port: self.protocol_port,
            connection_limit: self.connection_limit.unwrap_or(-1),
            default_pool_id: self.default_pool_id,
            default_tls_container_ref: self.default_tls_container_ref.clone(),
            sni_container_refs: self.sni_container_refs.clone(),
            insert_headers: self.insert_headers.clone(),
            timeout_client_data: self
                .timeout_client_data
                .unwrap_or(rules.timeout_client_data),
            timeout_member_connect: self
                .timeout_member_connect
                .unwrap_or(rules.timeout_member_connect),
            timeout_member_data: self
                .timeout_member_data
                .unwrap_or(rules.timeout_member_data),
            timeout_tcp_inspect: self
                .timeout_tcp_inspect
                .unwrap_or(rules.timeout_tcp_inspect),
            client_ca_tls_container_ref: self.client_ca_tls_container_ref.clone(),
            client_authentication: self
                .client_authentication
                .unwrap_or(ClientAuthentication::None),
            client_crl_container_ref: self.client_crl_container_ref.clone(),
            allowed_cidrs: self.allowed_cidrs.clone().and_then(normal_cidrs),
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
            hsts_max_age: self.hsts_max_age,
            hsts_include_subdomains: self.hsts_include_subdomains,
            hsts_preload: self.hsts_preload,
            tags: self.tags.clone(),
            created_at: now,
            updated_at: None,
            l7policies: Vec::new(),
        }
    }
}

pub fn update_listener(
    graph: &mut Graph,
    id: ListenerId,
    spec: &ListenerUpdate,
    rules: &Rules,
    now: Timestamp,
) -> Result<(), Fault> {
    let stored = graph
        .listener(id)
        .ok_or_else(|| Fault::not_found(Resource::Listener, id))?;
    require_mutable(&graph.load_balancer)?;
    let mut listener = stored.clone();
    apply(&mut listener, spec, rules);
    if let Field::Value(pool) = spec.default_pool_id {
        check_default_pool(graph, &listener, pool)?;
    }
    if spec.hsts_include_subdomains == Field::Value(true) || spec.hsts_preload == Field::Value(true)
    {
        check_hsts_flags(&listener)?;
    }
    check_listener(&listener, &graph.load_balancer, rules)?;
    set_listener(&mut listener, ProvisioningStatus::PendingUpdate, now);
    if let Some(slot) = graph.listener_mut(id) {
        *slot = listener;
    }
    set_load_balancer(graph, ProvisioningStatus::PendingUpdate, now);
    Ok(())
}

fn apply(listener: &mut Listener, spec: &ListenerUpdate, rules: &Rules) {
    let ListenerUpdate {
        name,
        description,
        admin_state_up,
        connection_limit,
        default_pool_id,
        default_tls_container_ref,
        sni_container_refs,
        insert_headers,
        timeout_client_data,
        timeout_member_connect,
        timeout_member_data,
        timeout_tcp_inspect,
        client_ca_tls_container_ref,
        client_authentication,
        client_crl_container_ref,
        allowed_cidrs,
        tls_ciphers,
        tls_versions,
        alpn_protocols,
        hsts_max_age,
        hsts_include_subdomains,
        hsts_preload,
        tags,
    } = spec;
    name.apply(&mut listener.name, String::new());
    description.apply(&mut listener.description, String::new());
    admin_state_up.apply(&mut listener.admin_state_up, false);
    connection_limit.apply(&mut listener.connection_limit, -1);
    default_pool_id.apply_option(&mut listener.default_pool_id);
    default_tls_container_ref.apply_option(&mut listener.default_tls_container_ref);
    sni_container_refs.apply(&mut listener.sni_container_refs, Vec::new());
    insert_headers.apply(&mut listener.insert_headers, Default::default());
    timeout_client_data.apply(&mut listener.timeout_client_data, rules.timeout_client_data);
    timeout_member_connect.apply(
        &mut listener.timeout_member_connect,
        rules.timeout_member_connect,
    );
    timeout_member_data.apply(&mut listener.timeout_member_data, rules.timeout_member_data);
    timeout_tcp_inspect.apply(&mut listener.timeout_tcp_inspect, rules.timeout_tcp_inspect);
    client_ca_tls_container_ref.apply_option(&mut listener.client_ca_tls_container_ref);
    client_authentication.apply(
        &mut listener.client_authentication,
        ClientAuthentication::None,
    );
    client_crl_container_ref.apply_option(&mut listener.client_crl_container_ref);
    match allowed_cidrs {
        Field::Absent => {}
        Field::Null => listener.allowed_cidrs = None,
        Field::Value(cidrs) => listener.allowed_cidrs = normal_cidrs(cidrs.clone()),
    }
    tls_ciphers.apply_or(&mut listener.tls_ciphers, &rules.default_ciphers);
    tls_versions.apply_or(&mut listener.tls_versions, &rules.default_tls_versions);
    alpn_protocols.apply_or(&mut listener.alpn_protocols, &rules.default_alpn_protocols);
    hsts_max_age.apply_option(&mut listener.hsts_max_age);
    hsts_include_subdomains.apply(&mut listener.hsts_include_subdomains, false);
    hsts_preload.apply(&mut listener.hsts_preload, false);
    apply_tags(tags, &mut listener.tags);
}

/// Each network once; none at all means any source.
fn normal_cidrs(cidrs: Vec<ipnet::IpNet>) -> Option<Vec<ipnet::IpNet>> {
    let mut seen = std::collections::BTreeSet::new();
    let unique: Vec<ipnet::IpNet> = cidrs
        .into_iter()
        .filter(|cidr| seen.insert(*cidr))
        .collect();
    (!unique.is_empty()).then_some(unique)
}

/// Its pools stay; its policies go with it.
pub fn delete_listener(graph: &mut Graph, id: ListenerId, now: Timestamp) -> Result<(), Fault> {
    if graph.listener(id).is_none() {
        return Err(Fault::not_found(Resource::Listener, id));
    }
    require_mutable(&graph.load_balancer)?;
    if let Some(listener) = graph.listener_mut(id) {
        set_listener(listener, ProvisioningStatus::PendingDelete, now);
    }
    set_load_balancer(graph, ProvisioningStatus::PendingUpdate, now);
    Ok(())
}
