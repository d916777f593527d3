//! From a [`Query`] to rows.

use std::net::IpAddr;

use sea_orm::sea_query::{
    Alias, Condition, Expr, ExprTrait, IntoColumnRef, Order, Query as Sql, SelectStatement,
};
use sea_orm::{
    ConnectionTrait, EntityTrait, QueryFilter, QueryOrder, QueryResult, QuerySelect, Select, Value,
};
use time::PrimitiveDateTime;
use time::macros::format_description;
use uuid::Uuid;

use super::columns::{Column, Kind, Resource};
use super::{Direction, Filter, Query};
use crate::StoreError;

/// The page of `base` that `query` asks for.
pub(crate) async fn page<C, E>(
    db: &C,
    base: Select<E>,
    resource: &Resource,
    query: &Query,
) -> Result<Vec<E::Model>, StoreError>
where
    C: ConnectionTrait,
    E: EntityTrait,
{
    let keys = sort_keys(resource, query)?;
    let marker = match &query.marker {
        Some(marker) => Some(marker_values(db, resource, &keys, marker).await?),
        None => None,
    };
    let mut rows = build(base, resource, query, &keys, marker.as_deref())?
        .all(db)
        .await?;
    if query.reverse {
        rows.reverse();
    }
    Ok(rows)
}

pub(super) fn build<E: EntityTrait>(
    base: Select<E>,
    resource: &Resource,
    query: &Query,
    keys: &[Key],
    marker: Option<&[Value]>,
) -> Result<Select<E>, StoreError> {
    let mut select = base;
    if let Some(project) = &query.project_id {
        select = select.filter(in_table(resource, "project_id").eq(project.as_str()));
    }
    for filter in &query.filters {
        select = select.filter(matches(resource, filter)?);
    }
    select = select.filter(tags(resource, query));
    if let Some(marker) = marker {
        select = select.filter(after(keys, marker, query.reverse));
    }
    for key in keys {
        let order = if (key.direction == Direction::Ascending) == query.reverse {
            Order::Desc
        } else {
            Order::Asc
        };
        select = select.order_by(key.expr.clone(), order);
    }
    Ok(select.limit(query.limit))
}

/// One expression rows are sorted by. None is ever null.
#[derive(Debug, Clone)]
pub(super) struct Key {
    expr: Expr,
    kind: KeyKind,
    direction: Direction,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyKind {
    Text,
    Number,
    Flag,
}

pub(super) fn sort_keys(resource: &Resource, query: &Query) -> Result<Vec<Key>, StoreError> {
    let mut keys = Vec::new();
    let mut named: Vec<&str> = Vec::new();
    for (name, direction) in &query.sort {
        let column = find(resource, name)?;
        // A key that comes twice decides nothing the second time.
        if named.contains(&column.sql) {
            continue;
        }
        named.push(column.sql);
        let kind = match column.kind {
            Kind::Text | Kind::Id | Kind::Ip => KeyKind::Text,
            Kind::Number | Kind::Time => KeyKind::Number,
            Kind::Flag => KeyKind::Flag,
        };
        let value = in_table(resource, column.sql);
        if column.nullable {
            // The databases do not agree where nulls sort: two keys that are never null say it.
            keys.push(Key {
                expr: Expr::case(value.clone().is_null(), 0_i64)
                    .finally(1_i64)
                    .into(),
                kind: KeyKind::Number,
                direction: *direction,
            });
            let filler: Value = match kind {
                KeyKind::Text => "".into(),
                KeyKind::Number => 0_i64.into(),
                KeyKind::Flag => false.into(),
            };
            keys.push(Key {
                expr: value.if_null(filler),
                kind,
                direction: *direction,
            });
        } else {
            keys.push(Key {
                expr: value,
                kind,
                direction: *direction,
            });
        }
    }
    // Oldest first, of those whose age is shown.
    let age = resource
        .column("created_at")
        .map(|it| (it.sql, KeyKind::Number));
    for (column, kind) in age.into_iter().chain([(resource.key, KeyKind::Text)]) {
        if !named.contains(&column) {
            keys.push(Key {
                expr: in_table(resource, column),
                kind,
                direction: Direction::Ascending,
            });
        }
    }
    Ok(keys)
}

async fn marker_values<C: ConnectionTrait>(
    db: &C,
    resource: &Resource,
    keys: &[Key],
    marker: &str,
) -> Result<Vec<Value>, StoreError> {
    let mut select: SelectStatement = Sql::select();
    for (index, key) in keys.iter().enumerate() {
        select.expr_as(key.expr.clone(), Alias::new(format!("key{index}")));
    }
    select
        .from(resource.table)
        .and_where(in_table(resource, resource.key).eq(marker));
    let row = db
        .query_one(&select)
        .await?
        .ok_or(StoreError::UnknownMarker(marker.to_owned()))?;
    keys.iter()
        .enumerate()
        .map(|(index, key)| read_key(&row, &format!("key{index}"), key.kind))
        .collect()
}

fn read_key(row: &QueryResult, name: &str, kind: KeyKind) -> Result<Value, StoreError> {
    Ok(match kind {
        KeyKind::Text => row.try_get::<String>("", name)?.into(),
        KeyKind::Number => match row.try_get::<i64>("", name) {
            Ok(value) => value.into(),
            // Columns of 32 bits, where the driver insists on the width.
            Err(_) => i64::from(row.try_get::<i32>("", name)?).into(),
        },
        KeyKind::Flag => row.try_get::<bool>("", name)?.into(),
    })
}

/// Rows after the marker; before it when reversed. With one direction throughout this is one comparison of tuples,
/// which an index on the keys answers; else it is spelled out.
fn after(keys: &[Key], marker: &[Value], reverse: bool) -> Condition {
    let ascending = |key: &Key| (key.direction == Direction::Ascending) != reverse;
    let mut directions = keys.iter().map(ascending);
    let first = directions.next().unwrap_or(true);
    let pairs = || keys.iter().zip(marker);
    if directions.all(|direction| direction == first) {
        let left = Expr::tuple(pairs().map(|(key, _)| key.expr.clone()));
        let right = Expr::tuple(pairs().map(|(_, value)| Expr::val(value.clone())));
        let after = if first {
            left.gt(right)
        } else {
            left.lt(right)
        };
        // Follows from the comparison of the tuples, but MariaDB finds no place in an index by that: it would read
        // all rows before the marker. SQLite takes the first that serves.
        let from = pairs().next().map(|(key, value)| {
            let (key, value) = (key.expr.clone(), Expr::val(value.clone()));
            if first {
                key.gte(value)
            } else {
                key.lte(value)
            }
        });
        return Condition::all().add(after).add_option(from);
    }
    let mut any = Condition::any();
    for (position, (key, value)) in pairs().enumerate() {
        let mut all = Condition::all();
        for (key, value) in pairs().take(position) {
            all = all.add(key.expr.clone().eq(Expr::val(value.clone())));
        }
        let value = Expr::val(value.clone());
        any = any.add(all.add(if ascending(key) {
            key.expr.clone().gt(value)
        } else {
            key.expr.clone().lt(value)
        }));
    }
    any
}

fn find(resource: &Resource, name: &str) -> Result<&'static Column, StoreError> {
    resource
        .column(name)
        .ok_or_else(|| StoreError::UnknownColumn(name.to_owned()))
}

fn matches(resource: &Resource, filter: &Filter) -> Result<Condition, StoreError> {
    let column = find(resource, &filter.column)?;
    let left = in_table(resource, column.sql);
    let text = filter.value.as_str();
    let invalid = || StoreError::InvalidFilter {
        column: filter.column.clone(),
        value: filter.value.clone(),
    };
    let none = || Condition::all().add(Expr::val(1).eq(0));
    Ok(match column.kind {
        Kind::Text => Condition::all().add(left.eq(text)),
        Kind::Id => match Uuid::parse_str(text) {
            Ok(id) => Condition::all().add(left.eq(id.to_string())),
            Err(_) => none(),
        },
        Kind::Ip => match text.parse::<IpAddr>() {
            Ok(address) => Condition::all().add(left.is_in([text, &address.to_string()])),
            Err(_) => none(),
        },
        Kind::Number => match text.parse::<i32>() {
            Ok(number) => Condition::all().add(left.eq(number)),
            Err(_) => match text.parse::<i64>() {
                Ok(number) => Condition::all().add(left.eq(number)),
                Err(_) => none(),
            },
        },
        Kind::Flag => Condition::all().add(left.eq(flag(text).ok_or_else(invalid)?)),
        Kind::Time => match moment(text).ok_or_else(invalid)? {
            // Answers show whole seconds; what was read there must match.
            (micros, false) => Condition::all()
                .add(left.clone().gte(micros))
                .add(left.lt(micros.saturating_add(1_000_000))),
            (micros, true) => Condition::all().add(left.eq(micros)),
        },
    })
}

fn tags(resource: &Resource, query: &Query) -> Condition {
    let having = |tags: &[&String]| {
        let mut select: SelectStatement = Sql::select();
        select
            .column("resource_id")
            .from("tag")
            .and_where(Expr::col("tag").is_in(tags.iter().map(|tag| tag.as_str())));
        select
    };
    let id = || in_table(resource, resource.key);
    let each = |tags: &[String]| {
        tags.iter().fold(Condition::all(), |all, tag| {
            all.add(id().in_subquery(having(&[tag])))
        })
    };
    let filter = &query.tags;
    let mut condition = each(&filter.all);
    if !filter.any.is_empty() {
        condition = condition.add(id().in_subquery(having(&filter.any.iter().collect::<Vec<_>>())));
    }
    if !filter.not_all.is_empty() {
        condition = condition.add(each(&filter.not_all).not());
    }
    if !filter.not_any.is_empty() {
        condition =
            condition.add(id().not_in_subquery(having(&filter.not_any.iter().collect::<Vec<_>>())));
    }
    condition
}

fn flag(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "t" | "yes" | "y" | "on" | "1" => Some(true),
        "false" | "f" | "no" | "n" | "off" | "0" => Some(false),
        _ => None,
    }
}

/// Microseconds since the epoch, and whether the text had a fraction.
fn moment(text: &str) -> Option<(i64, bool)> {
    let whole = format_description!("[year]-[month]-[day][first [T][ ]][hour]:[minute]:[second]");
    let fractional = format_description!(
        "[year]-[month]-[day][first [T][ ]][hour]:[minute]:[second].[subsecond]"
    );
    let text = text.strip_suffix('Z').unwrap_or(text);
    let (moment, fraction) = match PrimitiveDateTime::parse(text, whole) {
        Ok(moment) => (moment, false),
        Err(_) => (PrimitiveDateTime::parse(text, fractional).ok()?, true),
    };
    let micros = i64::try_from(moment.assume_utc().unix_timestamp_nanos() / 1000).ok()?;
    Some((micros, fraction))
}

fn in_table(resource: &Resource, column: &'static str) -> Expr {
    Expr::col((resource.table, column).into_column_ref())
}
