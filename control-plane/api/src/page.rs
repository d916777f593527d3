//! Lists: filters, tags, sorting, pages, links and field selection.

use std::collections::BTreeSet;

use axum::http::StatusCode;
use lb_model::spec::parse_uuid;
use lb_store::{Direction, Filter, Query, StoreError, TagFilter};
use serde_json::{Map, Value, json};

use crate::fault::{ApiFault, Result, invalid_marker};
use crate::policy;
use crate::query_string;
use crate::request::Request;

/// What a list request asks for.
pub(crate) struct Page {
    pub(crate) query: Query,
    /// The attribute that markers are values of.
    key: Key,
    fields: Vec<String>,
}

/// What tells the objects of a list apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Key {
    Id,
    Name,
    ProjectId,
}

impl Key {
    const fn attribute(self) -> &'static str {
        match self {
            Self::Id => "id",
            Self::Name => "name",
            Self::ProjectId => "project_id",
        }
    }
}

/// Parameters that shape a page; every other one is a filter.
const CONTROL: [&str; 7] = [
    "limit",
    "marker",
    "page_reverse",
    "sort",
    "sort_key",
    "sort_dir",
    "fields",
];
const TAGS: [&str; 4] = ["tags", "tags-any", "not-tags", "not-tags-any"];

impl Page {
    /// A list over all projects the caller may see.
    pub(crate) fn parse(request: &Request) -> Result<Self> {
        Self::parse_by(request, Key::Id)
    }

    pub(crate) fn parse_by(request: &Request, key: Key) -> Result<Self> {
        let mut page = Self::read(request, key)?;
        page.query.project_id = policy::listed_project(request, page.query.project_id)?;
        Ok(page)
    }

    /// A list below a parent, whose project has been checked.
    pub(crate) fn parse_nested(request: &Request) -> Result<Self> {
        Self::read(request, Key::Id)
    }

    /// A list of what belongs to no project.
    pub(crate) fn parse_shared(request: &Request, key: Key) -> Result<Self> {
        let page = Self::read(request, key)?;
        match &page.query.project_id {
            None => Ok(page),
            Some(_) => Err(StoreError::UnknownColumn("project_id".to_owned()).into()),
        }
    }

    fn read(request: &Request, key: Key) -> Result<Self> {
        let features = &request.state.config.lists;
        let mut filters = Vec::new();
        let mut project_id = None;
        let mut seen = BTreeSet::new();
        for (name, value) in &request.query {
            // No database is asked for what not every one can hold.
            if value.contains('\0') {
                return Err(StoreError::InvalidFilter {
                    column: name.clone(),
                    value: value.clone(),
                }
                .into());
            }
            if CONTROL.contains(&name.as_str()) || TAGS.contains(&name.as_str()) {
                continue;
            }
            // Whose objects are listed is not a filter but a right.
            if !features.filtering && name != "project_id" {
                continue;
            }
            if !seen.insert(name.as_str()) {
                return Err(StoreError::UnknownColumn(name.clone()).into());
            }
            if name == "project_id" {
                project_id = Some(value.clone());
                continue;
            }
            filters.push(Filter {
                column: name.clone(),
                value: value.clone(),
            });
        }
        let tags = |name| {
            if features.filtering {
                tags(request, name)
            } else {
                Vec::new()
            }
        };
        let marker = request.parameter("marker").filter(|_| features.pagination);
        let marker = match (marker, key) {
            (None, _) => None,
            (Some(text), Key::Id) => Some(parse_uuid(text).ok_or_else(invalid_marker)?.to_string()),
            (Some(text), Key::Name | Key::ProjectId) => Some(text.to_owned()),
        };
        Ok(Self {
            query: Query {
                project_id,
                filters,
                tags: TagFilter {
                    all: tags("tags"),
                    any: tags("tags-any"),
                    not_all: tags("not-tags"),
                    not_any: tags("not-tags-any"),
                },
                sort: if features.sorting {
                    sort(request)?
                } else {
                    Vec::new()
                },
                limit: if features.pagination {
                    limit(request)?
                } else {
                    None
                },
                marker,
                reverse: features.pagination && request.parameter("page_reverse") == Some("True"),
            },
            key,
            fields: match key {
                Key::Id | Key::Name => fields(request),
                // Quotas are shown whole, one by one and in lists.
                Key::ProjectId => Vec::new(),
            },
        })
    }

    /// `{"<name>": [...], "<name>_links": [...]}`; each item must have the attribute that tells it apart.
    pub(crate) fn answer(&self, request: &Request, name: &str, items: Vec<Value>) -> Value {
        self.answer_linked(request, name, &format!("{name}_links"), items)
    }

    /// As [`Page::answer`], where the links have a name of their own.
    pub(crate) fn answer_linked(
        &self,
        request: &Request,
        name: &str,
        links_name: &str,
        items: Vec<Value>,
    ) -> Value {
        let links = self.links(request, &items);
        let items: Vec<Value> = items
            .into_iter()
            .map(|item| select(item, &self.fields))
            .collect();
        let mut body = Map::new();
        body.insert(name.to_owned(), Value::Array(items));
        body.insert(links_name.to_owned(), Value::Array(links));
        Value::Object(body)
    }

    /// Links keep every other parameter of the request: clients follow them as they are.
    fn links(&self, request: &Request, items: &[Value]) -> Vec<Value> {
        let mut links = Vec::new();
        let (Some(first), Some(last)) = (items.first(), items.last()) else {
            return links;
        };
        let key = self.key.attribute();
        let (Some(first), Some(last)) = (first[key].as_str(), last[key].as_str()) else {
            return links;
        };
        let limit = self.query.limit.map(|limit| limit.to_string());
        let link = |rel: &str, marker: &str, reverse: bool| {
            let kept = request
                .query
                .iter()
                .filter(|(name, _)| !["limit", "marker", "page_reverse"].contains(&name.as_str()))
                .map(|(name, value)| (name.as_str(), value.as_str()));
            let mut pairs: Vec<(&str, &str)> = Vec::new();
            pairs.extend(limit.as_deref().map(|limit| ("limit", limit)));
            pairs.extend(kept);
            pairs.push(("marker", marker));
            if reverse {
                pairs.push(("page_reverse", "True"));
            }
            let query = query_string::build(pairs);
            json!({"rel": rel, "href": format!("{}{}?{query}", request.origin, request.path)})
        };
        if self.query.marker.is_some() {
            links.push(link("previous", first, true));
        }
        let full = self
            .query
            .limit
            .is_some_and(|limit| u64::try_from(items.len()).is_ok_and(|count| count >= limit));
        if full {
            links.push(link("next", last, false));
        }
        links
    }
}

fn tags(request: &Request, name: &str) -> Vec<String> {
    request
        .query
        .iter()
        .filter(|(key, value)| key == name && !value.is_empty())
        .flat_map(|(_, value)| value.split(','))
        .map(str::to_owned)
        .collect()
}

fn limit(request: &Request) -> Result<Option<u64>> {
    let max = request.state.config.pagination_max_limit;
    let Some(text) = request.parameter("limit") else {
        return Ok(Some(max));
    };
    if text == "infinite" {
        return Ok(None);
    }
    match text.parse::<i64>() {
        Ok(limit) => Ok(u64::try_from(limit)
            .ok()
            .filter(|limit| *limit > 0)
            .map(|limit| limit.min(max))),
        Err(_) => Err(ApiFault::routing(
            StatusCode::BAD_REQUEST,
            "Supplied pagination limit is not valid.",
        )),
    }
}

fn sort(request: &Request) -> Result<Vec<(String, Direction)>> {
    let invalid = |text: &str| {
        ApiFault::routing(
            StatusCode::BAD_REQUEST,
            format!("Supplied sort direction '{text}' is not valid."),
        )
    };
    let direction = |text: &str| match text.to_ascii_lowercase().as_str() {
        "asc" => Ok(Direction::Ascending),
        "desc" => Ok(Direction::Descending),
        _ => Err(invalid(text)),
    };
    if let Some(sort) = request.parameter("sort").filter(|sort| !sort.is_empty()) {
        return sort
            .split(',')
            .map(|part| match part.split_once(':') {
                None => Ok((part.to_owned(), Direction::Ascending)),
                Some((key, text)) => Ok((key.to_owned(), direction(text)?)),
            })
            .collect();
    }
    let joined = |name: &str| -> Vec<String> {
        request
            .query
            .iter()
            .filter(|(key, value)| key == name && !value.is_empty())
            .flat_map(|(_, value)| value.split(',').map(str::to_owned))
            .collect()
    };
    let directions = joined("sort_dir");
    joined("sort_key")
        .into_iter()
        .enumerate()
        .map(|(index, key)| match directions.get(index) {
            None => Ok((key, Direction::Ascending)),
            Some(text) => Ok((key, direction(text)?)),
        })
        .collect()
}

/// The answer of a list whose sort key or filter the store does not know.
pub(crate) fn list_fault(error: StoreError, query: &Query) -> ApiFault {
    match &error {
        StoreError::UnknownColumn(name) if query.sort.iter().any(|(key, _)| key == name) => {
            ApiFault::resource(
                StatusCode::BAD_REQUEST,
                format!("Supplied sort key '{name}' is not valid."),
            )
        }
        _ => error.into(),
    }
}

fn fields(request: &Request) -> Vec<String> {
    if !request.state.config.lists.field_selection {
        return Vec::new();
    }
    request
        .query
        .iter()
        .filter(|(name, _)| name == "fields")
        .map(|(_, value)| value.clone())
        .collect()
}

/// `{"<root>": item}` with only the fields asked for.
pub(crate) fn show(request: &Request, root: &str, item: Value) -> Value {
    json!({root: fields_of(request, item)})
}

/// An item with only the fields asked for.
pub(crate) fn fields_of(request: &Request, item: Value) -> Value {
    select(item, &fields(request))
}

fn select(item: Value, fields: &[String]) -> Value {
    match item {
        Value::Object(map) if !fields.is_empty() => Value::Object(
            map.into_iter()
                .filter(|(key, _)| fields.contains(key))
                .collect(),
        ),
        item => item,
    }
}
