//! Model types as the API shows them.

use std::fmt::Display;

use lb_model::{
    Amphora, Graph, HealthMonitor, L7Policy, L7PolicyId, L7Rule, L7RuleId, Listener, ListenerId,
    LoadBalancer, LoadBalancerId, Member, Offer, OfferKind, PerResource, Pool, PoolId, Profile,
};
use lb_store::{PoolRow, Statistics};
use serde_json::{Value, json};

fn ids<T: Display>(ids: impl IntoIterator<Item = T>) -> Value {
    ids.into_iter()
        .map(|id| json!({"id": id.to_string()}))
        .collect()
}

fn text(value: Option<impl Display>) -> Value {
    value.map_or(Value::Null, |value| Value::String(value.to_string()))
}

pub(crate) fn load_balancer(
    lb: &LoadBalancer,
    listeners: &[ListenerId],
    pools: &[PoolId],
) -> Value {
    let mut object = load_balancer_fields(lb);
    object["listeners"] = ids(listeners);
    object["pools"] = ids(pools);
    object
}

fn load_balancer_fields(lb: &LoadBalancer) -> Value {
    let additional: Vec<Value> = lb
        .additional_vips
        .iter()
        .map(|vip| {
            json!({
                "subnet_id": vip.subnet_id,
                "ip_address": vip.ip_address,
                "port_id": vip.port_id,
            })
        })
        .collect();
    json!({
        "id": lb.id,
        "name": lb.name,
        "description": lb.description,
        "provisioning_status": lb.provisioning_status,
        "operating_status": lb.operating_status,
        "admin_state_up": lb.admin_state_up,
        "project_id": lb.project_id,
        "tenant_id": lb.project_id,
        "created_at": lb.created_at,
        "updated_at": lb.updated_at,
        "vip_address": lb.vip.address,
        "vip_port_id": lb.vip.port_id,
        "vip_subnet_id": lb.vip.subnet_id,
        "vip_network_id": lb.vip.network_id,
        "vip_qos_policy_id": lb.vip.qos_policy_id,
        "vip_vnic_type": lb.vip.vnic_type,
        "vip_sg_ids": lb.vip.sg_ids,
        "additional_vips": additional,
        "provider": lb.provider,
        "flavor_id": lb.flavor_id,
        "availability_zone": lb.availability_zone,
        "tags": lb.tags,
    })
}

/// The load balancer of a graph, as `PUT` answers it.
pub(crate) fn load_balancer_of(graph: &Graph) -> Value {
    let listeners: Vec<ListenerId> = graph.listeners.iter().map(|item| item.id).collect();
    let pools: Vec<PoolId> = graph.pools.iter().map(|item| item.id).collect();
    load_balancer(&graph.load_balancer, &listeners, &pools)
}

/// A load balancer with everything in full, as `POST` answers it.
pub(crate) fn full_load_balancer(graph: &Graph) -> Value {
    let mut object = load_balancer_fields(&graph.load_balancer);
    object["listeners"] = graph.listeners.iter().map(full_listener).collect();
    object["pools"] = graph
        .pools
        .iter()
        .map(|pool| full_pool(graph, pool))
        .collect();
    object
}

fn full_listener(item: &Listener) -> Value {
    let mut object = listener_fields(item);
    object["l7policies"] = item
        .l7policies
        .iter()
        .map(|policy| {
            let mut object = l7policy_fields(policy, item.id);
            object["rules"] = policy.rules.iter().map(l7rule).collect();
            object
        })
        .collect();
    object
}

fn full_pool(graph: &Graph, item: &Pool) -> Value {
    let mut object = pool_fields(item);
    object["listeners"] = ids(graph.listeners_of_pool(item.id).map(|listener| listener.id));
    object["members"] = item.members.iter().map(member).collect();
    object["healthmonitor"] = item
        .health_monitor
        .as_ref()
        .map_or(Value::Null, |monitor| health_monitor(monitor, item.id));
    object
}

pub(crate) fn listener(item: &Listener, lb: LoadBalancerId, l7policies: &[L7PolicyId]) -> Value {
    let mut object = listener_fields(item);
    object["loadbalancers"] = ids([lb]);
    object["l7policies"] = ids(l7policies);
    object
}

fn listener_fields(item: &Listener) -> Value {
    json!({
        "id": item.id,
        "name": item.name,
        "description": item.description,
        "provisioning_status": item.provisioning_status,
        "operating_status": item.operating_status,
        "admin_state_up": item.admin_state_up,
        "protocol": item.protocol,
        "protocol_port": item.protocol_port,
        "connection_limit": item.connection_limit,
        "default_tls_container_ref": item.default_tls_container_ref,
        "sni_container_refs": item.sni_container_refs,
        "project_id": item.project_id,
        "tenant_id": item.project_id,
        "default_pool_id": item.default_pool_id,
        "insert_headers": item.insert_headers,
        "created_at": item.created_at,
        "updated_at": item.updated_at,
        "timeout_client_data": item.timeout_client_data,
        "timeout_member_connect": item.timeout_member_connect,
        "timeout_member_data": item.timeout_member_data,
        "timeout_tcp_inspect": item.timeout_tcp_inspect,
        "tags": item.tags,
        "client_ca_tls_container_ref": item.client_ca_tls_container_ref,
        "client_authentication": item.client_authentication,
        "client_crl_container_ref": item.client_crl_container_ref,
        "allowed_cidrs": item.allowed_cidrs,
        "tls_ciphers": item.tls_ciphers,
        "tls_versions": item.tls_versions,
        "alpn_protocols": item.alpn_protocols,
        "hsts_max_age": item.hsts_max_age,
        "hsts_include_subdomains": item.hsts_include_subdomains,
        "hsts_preload": item.hsts_preload,
    })
}

fn pool_fields(item: &Pool) -> Value {
    json!({
        "id": item.id,
        "name": item.name,
        "description": item.description,
        "provisioning_status": item.provisioning_status,
        "operating_status": item.operating_status,
        "admin_state_up": item.admin_state_up,
        "protocol": item.protocol,
        "lb_algorithm": item.lb_algorithm,
        "session_persistence": item.session_persistence,
        "project_id": item.project_id,
        "tenant_id": item.project_id,
        "created_at": item.created_at,
        "updated_at": item.updated_at,
        "tags": item.tags,
        "tls_container_ref": item.tls_container_ref,
        "ca_tls_container_ref": item.ca_tls_container_ref,
        "crl_container_ref": item.crl_container_ref,
        "tls_enabled": item.tls_enabled,
        "tls_ciphers": item.tls_ciphers,
        "tls_versions": item.tls_versions,
        "alpn_protocols": item.alpn_protocols,
    })
}

pub(crate) fn pool(row: &PoolRow) -> Value {
    let mut object = pool_fields(&row.pool);
    object["loadbalancers"] = ids([row.load_balancer_id]);
    object["listeners"] = ids(&row.listener_ids);
    object["members"] = ids(&row.member_ids);
    // The key is absent when there is no monitor.
    if let Some(monitor) = row.health_monitor_id {
        object["healthmonitor_id"] = json!(monitor);
    }
    object
}

/// A pool of a graph, as `POST` and `PUT` answer it.
pub(crate) fn pool_of(graph: &Graph, id: PoolId) -> Option<Value> {
    graph.pool(id).map(|item| {
        let mut object = pool_fields(item);
        object["loadbalancers"] = ids([graph.load_balancer.id]);
        object["listeners"] = ids(graph.listeners_of_pool(id).map(|listener| listener.id));
        object["members"] = ids(item.members.iter().map(|member| member.id));
        if let Some(monitor) = &item.health_monitor {
            object["healthmonitor_id"] = json!(monitor.id);
        }
        object
    })
}

pub(crate) fn member(item: &Member) -> Value {
    json!({
        "id": item.id,
        "name": item.name,
        "operating_status": item.operating_status,
        "provisioning_status": item.provisioning_status,
        "admin_state_up": item.admin_state_up,
        "address": item.address.to_string(),
        "protocol_port": item.protocol_port,
        "weight": item.weight,
        "backup": item.backup,
        "subnet_id": item.subnet_id,
        "project_id": item.project_id,
        "tenant_id": item.project_id,
        "created_at": item.created_at,
        "updated_at": item.updated_at,
        "monitor_address": item.monitor_address.as_ref().map(ToString::to_string),
        "monitor_port": item.monitor_port,
        "tags": item.tags,
        "vnic_type": item.vnic_type,
    })
}

pub(crate) fn health_monitor(item: &HealthMonitor, pool: PoolId) -> Value {
    json!({
        "id": item.id,
        "name": item.name,
        "type": item.kind,
        "delay": item.delay,
        "timeout": item.timeout,
        "max_retries": item.max_retries,
        "max_retries_down": item.max_retries_down,
        "http_method": item.http_method,
        "url_path": item.url_path,
        "expected_codes": text(item.expected_codes.as_ref()),
        "admin_state_up": item.admin_state_up,
        "project_id": item.project_id,
        "tenant_id": item.project_id,
        "pools": ids([pool]),
        "provisioning_status": item.provisioning_status,
        "operating_status": item.operating_status,
        "created_at": item.created_at,
        "updated_at": item.updated_at,
        "tags": item.tags,
        "http_version": item.http_version.map(lb_model::HttpVersion::as_f64),
        "domain_name": item.domain_name,
    })
}

pub(crate) fn l7policy(item: &L7Policy, listener: ListenerId, rules: &[L7RuleId]) -> Value {
    let mut object = l7policy_fields(item, listener);
    object["rules"] = ids(rules);
    object
}

fn l7policy_fields(item: &L7Policy, listener: ListenerId) -> Value {
    json!({
        "id": item.id,
        "name": item.name,
        "description": item.description,
        "provisioning_status": item.provisioning_status,
        "operating_status": item.operating_status,
        "admin_state_up": item.admin_state_up,
        "project_id": item.project_id,
        "tenant_id": item.project_id,
        "action": item.action,
        "listener_id": listener,
        "redirect_pool_id": item.redirect_pool_id,
        "redirect_url": item.redirect_url,
        "redirect_prefix": item.redirect_prefix,
        "redirect_http_code": item.redirect_http_code,
        "position": item.position,
        "created_at": item.created_at,
        "updated_at": item.updated_at,
        "tags": item.tags,
    })
}

pub(crate) fn l7rule(item: &L7Rule) -> Value {
    json!({
        "id": item.id,
        "type": item.kind,
        "compare_type": item.compare_type,
        "key": item.key,
        "value": item.value,
        "invert": item.invert,
        "provisioning_status": item.provisioning_status,
        "operating_status": item.operating_status,
        "created_at": item.created_at,
        "updated_at": item.updated_at,
        "project_id": item.project_id,
        "tenant_id": item.project_id,
        "admin_state_up": item.admin_state_up,
        "tags": item.tags,
    })
}

pub(crate) fn amphora(item: &Amphora) -> Value {
    json!({
        "id": item.id,
        "loadbalancer_id": item.load_balancer_id,
        "compute_id": item.compute_id,
        "lb_network_ip": item.lb_network_ip,
        "vrrp_ip": item.vrrp_ip,
        "ha_ip": item.ha_ip,
        "vrrp_port_id": item.vrrp_port_id,
        "ha_port_id": item.ha_port_id,
        "cert_expiration": item.cert_expiration,
        "cert_busy": item.cert_busy,
        "role": item.role,
        "status": item.status,
        "vrrp_interface": item.vrrp_interface,
        "vrrp_id": item.vrrp_id,
        "vrrp_priority": item.vrrp_priority,
        "cached_zone": item.cached_zone,
        "created_at": item.created_at,
        "updated_at": item.updated_at,
        "image_id": item.image_id,
        "compute_flavor": item.compute_flavor,
    })
}

pub(crate) fn offer(kind: OfferKind, item: &Offer) -> Value {
    let mut object = json!({
        "name": item.name,
        "description": item.description,
        "enabled": item.enabled,
        kind.profile_id_name(): item.profile_id,
    });
    match kind {
        OfferKind::Flavor => object["id"] = json!(item.id),
        OfferKind::AvailabilityZone => {}
    }
    object
}

pub(crate) fn profile(kind: OfferKind, item: &Profile) -> Value {
    json!({
        "id": item.id,
        "name": item.name,
        "provider_name": item.provider_name,
        kind.data_name(): item.data,
    })
}

/// Two limits have two names.
pub(crate) fn quota(project_id: &str, limits: &PerResource<i32>) -> Value {
    json!({
        "project_id": project_id,
        "tenant_id": project_id,
        "loadbalancer": limits.load_balancer,
        "load_balancer": limits.load_balancer,
        "listener": limits.listener,
        "pool": limits.pool,
        "member": limits.member,
        "healthmonitor": limits.health_monitor,
        "health_monitor": limits.health_monitor,
        "l7policy": limits.l7policy,
        "l7rule": limits.l7rule,
    })
}

/// Exactly five numbers.
pub(crate) fn statistics(stats: &Statistics) -> Value {
    json!({
        "bytes_in": stats.bytes_in,
        "bytes_out": stats.bytes_out,
        "active_connections": stats.active_connections,
        "total_connections": stats.total_connections,
        "request_errors": stats.request_errors,
    })
}

/// The status tree: listeners with their pools. Pools that no listener uses are not in it.
pub(crate) fn status_tree(graph: &Graph) -> Value {
    let lb = &graph.load_balancer;
    let listeners: Vec<Value> = graph
        .listeners
        .iter()
        .map(|listener| {
            let pools: Vec<Value> = status_pools(listener)
                .into_iter()
                .filter_map(|id| graph.pool(id))
                .map(pool_status)
                .collect();
            json!({
                "id": listener.id,
                "name": listener.name,
                "operating_status": listener.operating_status,
                "provisioning_status": listener.provisioning_status,
                "pools": pools,
            })
        })
        .collect();
    json!({"loadbalancer": {
        "id": lb.id,
        "name": lb.name,
        "operating_status": lb.operating_status,
        "provisioning_status": lb.provisioning_status,
        "listeners": listeners,
    }})
}

/// The default pool, and those of enabled policies with an enabled rule.
fn status_pools(listener: &Listener) -> Vec<PoolId> {
    let mut pools: Vec<PoolId> = listener.default_pool_id.into_iter().collect();
    let redirects = listener.l7policies.iter().filter(|policy| {
        policy.admin_state_up && policy.rules.iter().any(|rule| rule.admin_state_up)
    });
    for pool in redirects.filter_map(|policy| policy.redirect_pool_id) {
        if !pools.contains(&pool) {
            pools.push(pool);
        }
    }
    pools
}

fn pool_status(pool: &Pool) -> Value {
    let monitor = pool.health_monitor.as_ref().map(|monitor| {
        json!({
            "id": monitor.id,
            "name": monitor.name,
            "type": monitor.kind,
            "provisioning_status": monitor.provisioning_status,
            "operating_status": monitor.operating_status,
        })
    });
    let members: Vec<Value> = pool
        .members
        .iter()
        .map(|member| {
            json!({
                "id": member.id,
                "name": member.name,
                "operating_status": member.operating_status,
                "provisioning_status": member.provisioning_status,
                "address": member.address.to_string(),
                "protocol_port": member.protocol_port,
            })
        })
        .collect();
    json!({
        "id": pool.id,
        "name": pool.name,
        "provisioning_status": pool.provisioning_status,
        "operating_status": pool.operating_status,
        "health_monitor": monitor,
        "members": members,
    })
}
