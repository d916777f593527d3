use lb_model::{Graph, MemberId, PoolId, ProvisioningStatus};
use sea_orm::{ConnectionTrait, DbBackend, Statement};
use uuid::Uuid;

use super::fixtures::{
    Choices, at, database, health_monitor, listener, load_balancer, member, plain_graph, pool,
};
use crate::testing::TestDatabase;
use crate::{Direction, Filter, Query, Store, StoreError, TagFilter};

fn filter(column: &str, value: &str) -> Query {
    Query {
        filters: vec![Filter {
            column: column.to_owned(),
            value: value.to_owned(),
        }],
        ..Query::default()
    }
}

async fn names(store: &Store, query: &Query) -> Result<String, StoreError> {
    let rows = store.list_load_balancers(query).await?;
    Ok(rows
        .into_iter()
        .map(|row| row.load_balancer.name)
        .collect::<Vec<_>>()
        .join(" "))
}

async fn four_load_balancers(store: &Store) {
    super::offers::zones(store, &["az7", "az6"]).await;
    for (number, (name, project, tags, up)) in [
        ("a", "p1", vec!["red", "big"], true),
        ("b", "p1", vec!["red"], false),
        ("c", "p2", vec!["blue", ""], true),
        ("d", "p1", vec![], true),
    ]
    .into_iter()
    .enumerate()
    {
        let mut graph = plain_graph(ProvisioningStatus::Active);
        let lb = &mut graph.load_balancer;
        lb.name = name.into();
        lb.project_id = project.into();
        lb.tags = tags.into_iter().map(str::to_owned).collect();
        lb.admin_state_up = up;
        lb.vip.address = format!("fd00::{number}").parse().unwrap();
        lb.created_at = at(number as i64).plus_millis(500);
        lb.availability_zone = (number > 1).then(|| format!("az{}", 9 - number));
        store.insert_graph(&graph).await.unwrap();
    }
    let mut deleted = plain_graph(ProvisioningStatus::Deleted);
    deleted.load_balancer.name = "x".into();
    store.insert_graph(&deleted).await.unwrap();
}

#[tokio::test]
async fn filters_compare_as_the_api_does() {
    let database = database().await;
    let store = database.store;
    four_load_balancers(&store).await;
    let cases = [
        ("name", "b", "b"),
        ("name", "B", ""),
        ("name", "%", ""),
        ("name", "b ", ""),
        ("project_id", "p1", "a b d"),
        ("admin_state_up", "False", "b"),
        ("enabled", "true", "a c d"),
        ("vip_address", "fd00:0:0::2", "c"),
        ("vip_address", "nonsense", ""),
        ("provisioning_status", "ACTIVE", "a b c d"),
        ("provisioning_status", "DELETED", ""),
        ("availability_zone", "az7", "c"),
        ("id", "not-a-uuid", ""),
        ("created_at", "2027-01-15T08:00:01", "b"),
        ("created_at", "2027-01-15T08:00:01.5", "b"),
        ("created_at", "2027-01-15T08:00:01.25", ""),
    ];
    for (column, value, expected) in cases {
        let found = names(&store, &filter(column, value)).await.unwrap();
        assert_eq!(found, expected, "{column}={value}");
    }
    let both = Query {
        project_id: Some("p1".into()),
        ..filter("admin_state_up", "true")
    };
    assert_eq!(names(&store, &both).await.unwrap(), "a d");
    for column in ["nonsense", "listeners", "revision", "fence", ""] {
        assert!(matches!(
            names(&store, &filter(column, "1")).await,
            Err(StoreError::UnknownColumn(name)) if name == column
        ));
    }
    // PostgreSQL has no text with a NUL; the others have none that matches.
    match names(&store, &filter("name", "b\0")).await {
        Ok(found) => assert_eq!(found, ""),
        Err(error) => assert!(matches!(error, StoreError::InvalidFilter { .. }), "{error}"),
    }
    for (column, value) in [("admin_state_up", "perhaps"), ("created_at", "today")] {
        assert!(matches!(
            names(&store, &filter(column, value)).await,
            Err(StoreError::InvalidFilter { .. })
        ));
    }
}

#[tokio::test]
async fn tag_filters_combine_by_and() {
    let database = database().await;
    let store = database.store;
    four_load_balancers(&store).await;
    // all, any, not all, not any, expected
    type Case<'a> = (
        &'a [&'a str],
        &'a [&'a str],
        &'a [&'a str],
        &'a [&'a str],
        &'a str,
    );
    let cases: [Case<'_>; 10] = [
        (&["red"], &[], &[], &[], "a b"),
        (&["red", "big"], &[], &[], &[], "a"),
        (&["RED"], &[], &[], &[], ""),
        (&[""], &[], &[], &[], "c"),
        (&[], &["big", "blue"], &[], &[], "a c"),
        (&[], &[], &["red", "big"], &[], "b c d"),
        (&[], &[], &["red"], &[], "c d"),
        (&[], &[], &[], &["big", "blue"], "b d"),
        (&["red"], &[], &["big"], &[], "b"),
        (&["red"], &["blue"], &[], &[], ""),
    ];
    for (all, any, not_all, not_any, expected) in cases {
        let owned = |tags: &[&str]| tags.iter().map(|tag| (*tag).to_owned()).collect();
        let query = Query {
            tags: TagFilter {
                all: owned(all),
                any: owned(any),
                not_all: owned(not_all),
                not_any: owned(not_any),
            },
            ..Query::default()
        };
        let found = names(&store, &query).await.unwrap();
        assert_eq!(found, expected, "{:?}", query.tags);
    }
}

#[tokio::test]
async fn rows_sort_by_the_keys_given_then_by_creation() {
    use Direction::{Ascending, Descending};
    let database = database().await;
    let store = database.store;
    four_load_balancers(&store).await;
    let cases: [(&[(&str, Direction)], &str); 7] = [
        (&[], "a b c d"),
        (&[("name", Descending)], "d c b a"),
        (&[("created_at", Descending)], "d c b a"),
        (&[("project_id", Descending)], "c a b d"),
        (
            &[("project_id", Ascending), ("admin_state_up", Descending)],
            "a d b c",
        ),
        (&[("availability_zone", Ascending)], "a b d c"),
        (&[("availability_zone", Descending)], "c d a b"),
    ];
    for (sort, expected) in cases {
        let sort: Vec<_> = sort
            .iter()
            .map(|(name, direction)| ((*name).to_owned(), *direction))
            .collect();
        let query = Query {
            sort: sort.clone(),
            ..Query::default()
        };
        assert_eq!(names(&store, &query).await.unwrap(), expected, "{sort:?}");
    }
    let query = Query {
        sort: vec![("nonsense".into(), Ascending)],
        ..Query::default()
    };
    assert!(matches!(
        names(&store, &query).await,
        Err(StoreError::UnknownColumn(_))
    ));
}

/// Walks pages of each size in both directions under many sort orders, with many equal keys.
#[tokio::test]
async fn pages_put_together_are_the_whole_list() {
    let database = database().await;
    let store = database.store;
    let mut choices = Choices(7);
    let mut graph = plain_graph(ProvisioningStatus::Active);
    let mut members = pool(at(0));
    for number in 0..23 {
        let mut member = member(at(number % 3));
        member.weight = choices.below(3) as u16;
        member.backup = choices.below(2) == 0;
        member.monitor_port = (choices.below(2) == 0).then_some(choices.below(3) as u16);
        member.name = format!("m{}", choices.below(4));
        members.members.push(member);
    }
    let pool_id = members.id;
    graph.pools.push(members);
    store.insert_graph(&graph).await.unwrap();
    use Direction::{Ascending, Descending};
    let sorts: [&[(&str, Direction)]; 7] = [
        &[],
        &[("weight", Descending)],
        &[("monitor_port", Ascending)],
        &[("monitor_port", Descending), ("name", Ascending)],
        &[("backup", Ascending), ("weight", Descending)],
        &[("created_at", Descending), ("id", Descending)],
        &[("address", Ascending), ("address", Descending)],
    ];
    for sort in sorts {
        let query = Query {
            sort: sort
                .iter()
                .map(|(name, direction)| ((*name).to_owned(), *direction))
                .collect(),
            ..Query::default()
        };
        let whole = ids(&store, pool_id, &query).await;
        assert_eq!(whole.len(), 23);
        for size in [1, 5, 23, 40] {
            let mut query = Query {
                limit: Some(size),
                ..query.clone()
            };
            let mut walked = Vec::new();
            loop {
                let page = ids(&store, pool_id, &query).await;
                let Some(last) = page.last() else { break };
                query.marker = Some(last.0.to_string());
                walked.extend(page);
            }
            assert_eq!(walked, whole, "{sort:?} by {size}");
            query.reverse = true;
            let mut back = Vec::new();
            loop {
                let page = ids(&store, pool_id, &query).await;
                let Some(first) = page.first() else { break };
                query.marker = Some(first.0.to_string());
                back.splice(0..0, page);
            }
            assert_eq!(back, whole[..22], "{sort:?} back by {size}");
        }
    }
    let query = Query {
        marker: Some(Uuid::nil().to_string()),
        ..Query::default()
    };
    assert!(matches!(
        store.list_members(pool_id, &query).await,
        Err(StoreError::UnknownMarker(id)) if id == Uuid::nil().to_string()
    ));
}

async fn ids(store: &Store, pool: PoolId, query: &Query) -> Vec<MemberId> {
    let rows = store.list_members(pool, query).await.unwrap();
    rows.into_iter().map(|row| row.member.id).collect()
}

#[tokio::test]
async fn rows_name_their_relatives() {
    let database = database().await;
    let store = database.store;
    let graph = related();
    store.insert_graph(&graph).await.unwrap();
    let all = Query::default();
    let id = graph.load_balancer.id;

    let rows = store.list_load_balancers(&all).await.unwrap();
    let listener_ids: Vec<_> = graph.listeners.iter().map(|listener| listener.id).collect();
    let pool_ids: Vec<_> = graph.pools.iter().map(|pool| pool.id).collect();
    assert_eq!(rows[0].load_balancer, graph.load_balancer);
    assert_eq!(
        (&rows[0].listener_ids, &rows[0].pool_ids),
        (&listener_ids, &pool_ids)
    );

    let rows = store.list_listeners(&all).await.unwrap();
    assert_eq!(rows.len(), 2);
    for (row, listener) in rows.iter().zip(&graph.listeners) {
        let policies: Vec<_> = listener.l7policies.iter().map(|policy| policy.id).collect();
        let mut listener = listener.clone();
        listener.l7policies.clear();
        assert_eq!((&row.listener, row.load_balancer_id), (&listener, id));
        assert_eq!(row.l7policy_ids, policies);
    }

    let policy = &graph.listeners[1].l7policies[0];
    let rows = store
        .list_l7policies(&filter("redirect_pool_id", &graph.pools[0].id.to_string()))
        .await
        .unwrap();
    assert_eq!(rows[0].l7policy.id, policy.id);
    assert_eq!(rows[0].listener_id, graph.listeners[1].id);
    assert_eq!(rows[0].rule_ids, vec![policy.rules[0].id]);
    let rules = store
        .list_l7rules(policy.id, &filter("key", "X-A"))
        .await
        .unwrap();
    assert_eq!(rules, policy.rules);

    let rows = store.list_pools(&all).await.unwrap();
    assert_eq!(rows[0].listener_ids, listener_ids);
    assert_eq!(rows[0].member_ids, vec![graph.pools[0].members[0].id]);
    assert_eq!(
        rows[0].health_monitor_id,
        graph.pools[0]
            .health_monitor
            .as_ref()
            .map(|monitor| monitor.id)
    );
    assert_eq!(rows[1].listener_ids, vec![]);

    let rows = store.list_members(graph.pools[0].id, &all).await.unwrap();
    assert_eq!(rows[0].member, graph.pools[0].members[0]);
    assert_eq!(rows[0].load_balancer_id, id);
    let monitors = store
        .list_health_monitors(&filter("pool_id", &graph.pools[0].id.to_string()))
        .await
        .unwrap();
    assert_eq!(
        Some(&monitors[0].health_monitor),
        graph.pools[0].health_monitor.as_ref()
    );
    assert_eq!(monitors[0].pool_id, graph.pools[0].id);
    let found = store
        .list_health_monitors(&filter("type", "HTTP"))
        .await
        .unwrap();
    assert_eq!(found, vec![]);

    let amphorae = store
        .list_amphorae(&Query {
            project_id: Some(lb_model::sample::PROJECT.into()),
            ..filter("loadbalancer_id", &id.to_string())
        })
        .await
        .unwrap();
    assert_eq!(amphorae, graph.amphorae);
    let other = Query {
        project_id: Some("other".into()),
        ..Query::default()
    };
    assert_eq!(store.list_amphorae(&other).await.unwrap(), vec![]);
}

/// Two listeners share a pool, one through a policy; a second pool is used by none.
fn related() -> Graph {
    let mut graph = Graph {
        load_balancer: load_balancer(),
        listeners: vec![listener(80, at(0)), listener(81, at(1))],
        pools: vec![pool(at(0)), pool(at(1))],
        amphorae: Vec::new(),
    };
    graph
        .amphorae
        .extend(plain_graph(ProvisioningStatus::Active).amphorae);
    graph.amphorae[0].load_balancer_id = graph.load_balancer.id;
    graph.pools[0].members.push(member(at(0)));
    graph.pools[0].health_monitor = Some(health_monitor(at(0)));
    graph.listeners[0].default_pool_id = Some(graph.pools[0].id);
    graph.listeners[1].l7policies.push(lb_model::L7Policy {
        id: lb_model::L7PolicyId::random(),
        project_id: lb_model::sample::PROJECT.into(),
        name: String::new(),
        description: String::new(),
        admin_state_up: true,
        provisioning_status: ProvisioningStatus::Active,
        operating_status: lb_model::OperatingStatus::Online,
        action: lb_model::L7PolicyAction::RedirectToPool,
        redirect_pool_id: Some(graph.pools[0].id),
        redirect_url: None,
        redirect_prefix: None,
        redirect_http_code: None,
        position: 1,
        tags: Vec::new(),
        created_at: at(0),
        updated_at: None,
        rules: vec![lb_model::L7Rule {
            id: lb_model::L7RuleId::random(),
            project_id: "project".into(),
            admin_state_up: true,
            provisioning_status: ProvisioningStatus::Active,
            operating_status: lb_model::OperatingStatus::Online,
            kind: lb_model::L7RuleType::Header,
            compare_type: lb_model::L7RuleCompareType::EqualTo,
            key: Some("X-A".into()),
            value: "b".into(),
            invert: false,
            tags: Vec::new(),
            created_at: at(0),
            updated_at: None,
        }],
    });
    graph
}

#[tokio::test]
async fn a_page_far_down_twenty_thousand_members_is_the_right_one() {
    let database = database().await;
    let store = database.store;
    let mut graph = plain_graph(ProvisioningStatus::Active);
    let mut large = pool(at(0));
    large.members = (0..20_000).map(|number| member(at(number / 100))).collect();
    let pool_id = large.id;
    graph.pools.push(large);
    store.insert_graph(&graph).await.unwrap();

    let query = Query {
        limit: Some(100),
        ..Query::default()
    };
    let whole = ids(&store, pool_id, &Query::default()).await;
    assert_eq!(whole.len(), 20_000);
    let query = Query {
        marker: Some(whole[14_999].0.to_string()),
        ..query
    };
    assert_eq!(ids(&store, pool_id, &query).await, whole[15_000..15_100]);
}

/// P86
#[tokio::test]
async fn every_page_of_every_list_is_read_from_an_index_in_its_order() {
    let database = TestDatabase::sqlite().await;
    let store = database.store().await;
    let everybody = Query {
        limit: Some(100),
        ..Query::default()
    };
    let of_a_project = Query {
        project_id: Some("project".into()),
        ..everybody.clone()
    };
    for (query, prefix, condition) in [
        (everybody, "", ""),
        (of_a_project, "project_id_", "project_id=? AND "),
    ] {
        for (table, sql) in
            crate::list::page_statements(&query, PoolId::random(), at(149), Uuid::nil())
        {
            let plan = store
                .db
                .query_all_raw(Statement::from_string(
                    DbBackend::Sqlite,
                    format!("EXPLAIN QUERY PLAN {sql}"),
                ))
                .await
                .unwrap();
            let plan: Vec<String> = plan
                .iter()
                .map(|row| row.try_get::<String>("", "detail").unwrap())
                .collect();
            let (prefix, condition) = match table {
                "member" => ("pool_id_", "pool_id=? AND "),
                _ => (prefix, condition),
            };
            assert_eq!(
                plan,
                vec![format!(
                    "SEARCH {table} USING INDEX {table}_{prefix}created_at_id ({condition}(created_at,id)>(?,?))"
                )],
                "{sql}"
            );
        }
    }
}
