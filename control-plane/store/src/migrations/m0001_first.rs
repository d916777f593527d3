//! The first schema: load balancers with their children, amphorae, statistics and outcomes.

use sea_orm::DbBackend;
use sea_orm_migration::prelude::{
    ColumnDef, DbErr, ForeignKey, ForeignKeyCreateStatement, Index, IndexCreateStatement,
    MigrationName, MigrationTrait, SchemaManager, Table, TableCreateStatement,
};

pub(crate) struct Migration;

impl MigrationName for Migration {
    fn name(&self) -> &str {
        "m0001_first"
    }
}

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        super::create(manager, tables(manager.get_database_backend()), indexes()).await
    }
}

/// Tables, each after those it refers to.
pub(crate) fn tables(backend: DbBackend) -> Vec<TableCreateStatement> {
    let tables = [
        profile("flavor_profile"),
        offer("flavor", "flavor_profile"),
        profile("availability_zone_profile"),
        offer("availability_zone", "availability_zone_profile"),
        load_balancer(),
        pool(),
        member(),
        health_monitor(),
        listener(),
        l7policy(),
        l7rule(),
        amphora(),
        amphora_health(),
        listener_statistics(),
        reconcile_outcome(),
        tag(),
        quota(),
        receipt(),
    ];
    tables
        .iter()
        .map(|table| super::in_dialect(table, backend))
        .collect()
}

pub(crate) fn indexes() -> Vec<IndexCreateStatement> {
    let mut indexes = vec![
        index("load_balancer", &["next_attempt_at"]),
        index("amphora", &["load_balancer_id"]),
        index("amphora", &["status"]),
        index("amphora", &["created_at", "id"]),
        index("member", &["pool_id", "created_at", "id"]),
        index("listener", &["default_pool_id"]),
        index("l7policy", &["listener_id"]),
        index("l7policy", &["redirect_pool_id"]),
        index("l7rule", &["l7policy_id"]),
        index("listener_statistics", &["amphora_id"]),
        index("tag", &["tag"]),
        index("receipt", &["created_at"]),
        index("load_balancer", &["flavor_id"]),
        index("load_balancer", &["availability_zone"]),
    ];
    for table in [
        "load_balancer",
        "listener",
        "pool",
        "member",
        "health_monitor",
        "l7policy",
        "l7rule",
    ] {
        indexes.push(index(table, &["project_id", "created_at", "id"]));
        indexes.push(index(table, &["created_at", "id"]));
    }
    for table in [
        "listener",
        "pool",
        "member",
        "health_monitor",
        "l7policy",
        "l7rule",
    ] {
        indexes.push(index(table, &["load_balancer_id", "created_at", "id"]));
    }
    indexes
}

fn load_balancer() -> TableCreateStatement {
    let mut table = owned("load_balancer");
    table
        .col(text("description", 255))
        .col(text("provider", 64))
        .col(text("topology", 36))
        .col(text("vip_address", 64))
        .col(id("vip_port_id"))
        .col(id("vip_subnet_id"))
        .col(id("vip_network_id"))
        .col(optional(id("vip_qos_policy_id")))
        .col(text("vip_vnic_type", 64))
        .col(long_text("vip_sg_ids"))
        .col(flag("vip_port_is_ours"))
        .col(long_text("additional_vips"))
        .col(optional(id("flavor_id")))
        .col(optional(text("availability_zone", 255)))
        .col(long_text("tags"))
        .col(number("generation"))
        .col(optional(id("change_id")))
        .col(optional(long_text("error_reason")))
        .col(number("revision"))
        .col(optional(number("next_attempt_at")))
        .col(optional(text("lease_owner", 255)))
        .col(optional(number("lease_expires_at")))
        .col(number("fence"))
        .foreign_key(&mut refers("load_balancer", "flavor_id", "flavor"))
        .foreign_key(&mut refers_by(
            "load_balancer",
            "availability_zone",
            "availability_zone",
            "name",
        ));
    table
}

fn profile(name: &'static str) -> TableCreateStatement {
    let mut table = table(name);
    table
        .col(id("id").primary_key())
        .col(text("name", 255))
        .col(text("provider_name", 255))
        .col(long_text("data"))
        .col(number("created_at"));
    table
}

fn offer(name: &'static str, profiles: &'static str) -> TableCreateStatement {
    let mut table = table(name);
    table
        .col(id("id").primary_key())
        .col(text("name", 255))
        .col(text("description", 255))
        .col(flag("enabled"))
        .col(id("profile_id"))
        .col(number("created_at"))
        .foreign_key(&mut refers(name, "profile_id", profiles))
        .index(
            Index::create()
                .unique()
                .name(format!("{name}_name"))
                .col("name"),
        );
    table
}

fn listener() -> TableCreateStatement {
    let mut table = child("listener");
    table
        .col(text("description", 255))
        .col(text("protocol", 36))
        .col(small("protocol_port"))
        .col(small("connection_limit"))
        .col(optional(id("default_pool_id")))
        .col(optional(text("default_tls_container_ref", 255)))
        .col(long_text("sni_container_refs"))
        .col(long_text("insert_headers"))
        .col(number("timeout_client_data"))
        .col(number("timeout_member_connect"))
        .col(number("timeout_member_data"))
        .col(number("timeout_tcp_inspect"))
        .col(optional(text("client_ca_tls_container_ref", 255)))
        .col(text("client_authentication", 36))
        .col(optional(text("client_crl_container_ref", 255)))
        .col(optional(long_text("allowed_cidrs")))
        .col(optional(long_text("tls_ciphers")))
        .col(optional(long_text("tls_versions")))
        .col(optional(long_text("alpn_protocols")))
        .col(optional(number("hsts_max_age")))
        .col(flag("hsts_include_subdomains"))
        .col(flag("hsts_preload"))
        .col(long_text("tags"))
        .foreign_key(&mut refers("listener", "default_pool_id", "pool"));
    table
}

fn pool() -> TableCreateStatement {
    let mut table = child("pool");
    table
        .col(text("description", 255))
        .col(text("protocol", 36))
        .col(text("lb_algorithm", 36))
        .col(optional(long_text("session_persistence")))
        .col(optional(text("tls_container_ref", 255)))
        .col(optional(text("ca_tls_container_ref", 255)))
        .col(optional(text("crl_container_ref", 255)))
        .col(flag("tls_enabled"))
        .col(optional(long_text("tls_ciphers")))
        .col(optional(long_text("tls_versions")))
        .col(optional(long_text("alpn_protocols")))
        .col(long_text("tags"));
    table
}

fn member() -> TableCreateStatement {
    let mut table = child("member");
    table
        .col(id("pool_id"))
        .col(text("address", 64))
        .col(small("protocol_port"))
        .col(small("weight"))
        .col(flag("backup"))
        .col(optional(id("subnet_id")))
        .col(optional(text("monitor_address", 64)))
        .col(optional(small("monitor_port")))
        .col(text("vnic_type", 64))
        .col(long_text("tags"))
        .foreign_key(&mut refers("member", "pool_id", "pool"));
    table
}

fn health_monitor() -> TableCreateStatement {
    let mut table = child("health_monitor");
    table
        .col(id("pool_id"))
        .col(text("monitor_type", 36))
        .col(number("delay"))
        .col(number("timeout"))
        .col(small("max_retries"))
        .col(small("max_retries_down"))
        .col(optional(text("http_method", 16)))
        .col(optional(text("url_path", 2048)))
        .col(optional(text("expected_codes", 64)))
        .col(optional(text("http_version", 8)))
        .col(optional(text("domain_name", 255)))
        .col(long_text("tags"))
        .foreign_key(&mut refers("health_monitor", "pool_id", "pool"))
        .index(
            Index::create()
                .unique()
                .name("health_monitor_pool_id")
                .col("pool_id"),
        );
    table
}

fn l7policy() -> TableCreateStatement {
    let mut table = child("l7policy");
    table
        .col(id("listener_id"))
        .col(text("description", 255))
        .col(text("action", 36))
        .col(optional(id("redirect_pool_id")))
        .col(optional(text("redirect_url", 255)))
        .col(optional(text("redirect_prefix", 255)))
        .col(optional(small("redirect_http_code")))
        .col(number("position"))
        .col(long_text("tags"))
        .foreign_key(&mut refers("l7policy", "listener_id", "listener"))
        .foreign_key(&mut refers("l7policy", "redirect_pool_id", "pool"));
    table
}

fn l7rule() -> TableCreateStatement {
    let mut table = resource("l7rule");
    table
        .col(id("load_balancer_id"))
        .col(id("l7policy_id"))
        .col(text("rule_type", 36))
        .col(text("compare_type", 36))
        .col(optional(text("rule_key", 255)))
        .col(text("rule_value", 255))
        .col(flag("invert"))
        .col(long_text("tags"))
        .foreign_key(&mut refers("l7rule", "load_balancer_id", "load_balancer"))
        .foreign_key(&mut refers("l7rule", "l7policy_id", "l7policy"));
    table
}

fn amphora() -> TableCreateStatement {
    let mut table = table("amphora");
    table
        .col(id("id").primary_key())
        .col(id("load_balancer_id"))
        .col(text("status", 36))
        .col(optional(text("role", 36)))
        .col(optional(text("compute_id", 255)))
        .col(optional(text("lb_network_ip", 64)))
        .col(optional(text("vrrp_ip", 64)))
        .col(optional(text("ha_ip", 64)))
        .col(optional(id("vrrp_port_id")))
        .col(optional(id("ha_port_id")))
        .col(optional(text("vrrp_interface", 16)))
        .col(optional(small("vrrp_id")))
        .col(optional(small("vrrp_priority")))
        .col(optional(number("cert_expiration")))
        .col(flag("cert_busy"))
        .col(optional(text("cached_zone", 255)))
        .col(optional(text("image_id", 255)))
        .col(optional(text("compute_flavor", 255)))
        .col(flag("failover_requested"))
        .col(number("config_generation"))
        .col(number("created_at"))
        .col(optional(number("updated_at")))
        .foreign_key(&mut refers("amphora", "load_balancer_id", "load_balancer"));
    table
}

/// Without a foreign key: one heartbeat of an amphora that has just gone must not undo a whole batch.
fn amphora_health() -> TableCreateStatement {
    let mut table = table("amphora_health");
    table
        .col(id("amphora_id").primary_key())
        .col(number("last_update"))
        .col(flag("busy"))
        .col(optional(number("newest_seq")))
        .col(optional(number("newest_sent_at_ms")));
    table
}

fn listener_statistics() -> TableCreateStatement {
    let mut table = table("listener_statistics");
    table.col(id("listener_id")).col(id("amphora_id"));
    for column in [
        "epoch",
        "active_connections",
        "base_bytes_in",
        "base_bytes_out",
        "base_total_connections",
        "base_request_errors",
        "current_bytes_in",
        "current_bytes_out",
        "current_total_connections",
        "current_request_errors",
    ] {
        table.col(number(column));
    }
    table.primary_key(Index::create().col("listener_id").col("amphora_id"));
    table
}

fn reconcile_outcome() -> TableCreateStatement {
    let mut table = table("reconcile_outcome");
    table
        .col(id("load_balancer_id").primary_key())
        .col(number("generation"))
        .col(number("attempts"))
        .col(number("finished_at"))
        .col(long_text("document"))
        .foreign_key(&mut refers(
            "reconcile_outcome",
            "load_balancer_id",
            "load_balancer",
        ));
    table
}

fn tag() -> TableCreateStatement {
    let mut table = table("tag");
    table
        .col(id("resource_id"))
        .col(text("tag", 255))
        .primary_key(Index::create().col("resource_id").col("tag"));
    table
}

fn quota() -> TableCreateStatement {
    let mut table = table("quota");
    table.col(text("project_id", 255).primary_key());
    for resource in [
        "load_balancer",
        "listener",
        "pool",
        "member",
        "health_monitor",
        "l7policy",
        "l7rule",
    ] {
        table.col(optional(small(resource)));
    }
    table.col(number("created_at")).col(number("revision"));
    table
}

fn receipt() -> TableCreateStatement {
    let mut table = table("receipt");
    table
        .col(text("project_id", 255))
        .col(text("idempotency_key", 255))
        .col(text("fingerprint", 64))
        .col(text("location", 512))
        .col(number("created_at"))
        .primary_key(Index::create().col("project_id").col("idempotency_key"));
    table
}

fn table(name: &'static str) -> TableCreateStatement {
    let mut table = Table::create();
    table.table(name);
    table
}

/// What every resource of the API has.
fn resource(name: &'static str) -> TableCreateStatement {
    let mut table = table(name);
    table
        .col(id("id").primary_key())
        .col(text("project_id", 255))
        .col(flag("admin_state_up"))
        .col(text("provisioning_status", 16))
        .col(text("operating_status", 16))
        .col(number("created_at"))
        .col(optional(number("updated_at")));
    table
}

/// A resource with a name.
fn owned(name: &'static str) -> TableCreateStatement {
    let mut table = resource(name);
    table.col(text("name", 255));
    table
}

/// A named resource of a load balancer.
fn child(name: &'static str) -> TableCreateStatement {
    let mut table = owned(name);
    table.col(id("load_balancer_id")).foreign_key(&mut refers(
        name,
        "load_balancer_id",
        "load_balancer",
    ));
    table
}

fn id(name: &'static str) -> ColumnDef {
    text(name, 36)
}

fn text(name: &'static str, length: u32) -> ColumnDef {
    let mut column = ColumnDef::new(name);
    column.string_len(length).not_null();
    column
}

fn long_text(name: &'static str) -> ColumnDef {
    let mut column = ColumnDef::new(name);
    column.text().not_null();
    column
}

fn small(name: &'static str) -> ColumnDef {
    let mut column = ColumnDef::new(name);
    column.integer().not_null();
    column
}

fn number(name: &'static str) -> ColumnDef {
    let mut column = ColumnDef::new(name);
    column.big_integer().not_null();
    column
}

fn flag(name: &'static str) -> ColumnDef {
    let mut column = ColumnDef::new(name);
    column.boolean().not_null();
    column
}

fn optional(mut column: ColumnDef) -> ColumnDef {
    column.null();
    column
}

fn index(table: &'static str, columns: &[&'static str]) -> IndexCreateStatement {
    let mut index = Index::create();
    index
        .name(format!("{table}_{}", columns.join("_")))
        .table(table);
    for column in columns {
        index.col(*column);
    }
    index
}

fn refers(from: &'static str, column: &'static str, to: &'static str) -> ForeignKeyCreateStatement {
    refers_by(from, column, to, "id")
}

fn refers_by(
    from: &'static str,
    column: &'static str,
    to: &'static str,
    to_column: &'static str,
) -> ForeignKeyCreateStatement {
    let mut key = ForeignKey::create();
    key.name(format!("{from}_{column}_key"))
        .from(from, column)
        .to(to, to_column);
    key
}
