//! Bodies of `POST` and `PUT /l7policies`, and policies within a fully populated create.

use std::net::Ipv6Addr;

use serde_json::Value;

use super::decode::{Field, Object, boolean, integer, tags, text, uuid, word};
use super::{GraphPool, NewL7Rule};
use crate::{Fault, L7PolicyAction, ListenerId, PoolId};

/// A policy to be, as sent: what its action has no use for is dropped when it is built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewL7Policy {
    pub name: String,
    pub description: String,
    pub admin_state_up: bool,
    pub action: L7PolicyAction,
    pub redirect_pool_id: Option<PoolId>,
    pub redirect_url: Option<String>,
    pub redirect_prefix: Option<String>,
    pub redirect_http_code: Option<u16>,
    /// From 1; `None` is the end.
    pub position: Option<u32>,
    pub tags: Vec<String>,
}

const CREATE: &[&str] = &[
    "name",
    "description",
    "admin_state_up",
    "action",
    "redirect_url",
    "redirect_prefix",
    "redirect_http_code",
    "position",
    "tags",
    // Taken and not used: a policy belongs to the project of its load balancer.
    "project_id",
    "tenant_id",
];

impl NewL7Policy {
    /// All but `redirect_pool_id`, which a fully populated create does not have.
    fn decode(object: &Object<'_>) -> Result<Self, Fault> {
        object.optional("project_id", text(36))?;
        object.optional("tenant_id", text(36))?;
        Ok(Self {
            name: object.optional("name", text(255))?.unwrap_or_default(),
            description: object
                .optional("description", text(255))?
                .unwrap_or_default(),
            admin_state_up: object.optional("admin_state_up", boolean)?.unwrap_or(true),
            action: object.required("action", word(L7PolicyAction::ALL))?,
            redirect_pool_id: None,
            redirect_url: object.optional("redirect_url", http_url)?,
            redirect_prefix: object.optional("redirect_prefix", http_url)?,
            redirect_http_code: object.optional("redirect_http_code", redirect_http_code)?,
            position: object.optional("position", position())?,
            tags: object.optional("tags", tags)?.unwrap_or_default(),
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct L7PolicyCreate {
    pub listener_id: ListenerId,
    pub l7policy: NewL7Policy,
}

impl L7PolicyCreate {
    pub fn decode(body: &Value) -> Result<Self, Fault> {
        let object = Object::root(body, "l7policy")?;
        object.only(&[
            CREATE,
            &["listener_id", "redirect_pool_id", "redirect_pool", "rules"],
        ])?;
        object.refuse_nested(&["redirect_pool", "rules"])?;
        Ok(Self {
            listener_id: object.required("listener_id", uuid)?,
            l7policy: NewL7Policy {
                redirect_pool_id: object.optional("redirect_pool_id", uuid)?,
                ..NewL7Policy::decode(&object)?
            },
        })
    }
}

/// A policy within a fully populated create; its pool is an object, not an id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphL7Policy {
    pub l7policy: NewL7Policy,
    pub redirect_pool: Option<GraphPool>,
    pub rules: Vec<NewL7Rule>,
}

impl GraphL7Policy {
    pub(super) fn decode(object: &Object<'_>) -> Result<Self, Fault> {
        object.only(&[CREATE, &["redirect_pool", "rules"]])?;
        Ok(Self {
            l7policy: NewL7Policy::decode(object)?,
            redirect_pool: object
                .object("redirect_pool")?
                .map(|pool| GraphPool::decode(&pool))
                .transpose()?,
            rules: object
                .objects("rules")?
                .iter()
                .map(NewL7Rule::decode_object)
                .collect::<Result<_, _>>()?,
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct L7PolicyUpdate {
    pub name: Field<String>,
    pub description: Field<String>,
    pub admin_state_up: Field<bool>,
    pub action: Option<L7PolicyAction>,
    pub redirect_pool_id: Field<PoolId>,
    pub redirect_url: Field<String>,
    pub redirect_prefix: Field<String>,
    pub redirect_http_code: Field<u16>,
    /// Null keeps the position.
    pub position: Option<u32>,
    pub tags: Field<Vec<String>>,
}

impl L7PolicyUpdate {
    pub fn decode(body: &Value) -> Result<Self, Fault> {
        let object = Object::root(body, "l7policy")?;
        object.only(&[&[
            "name",
            "description",
            "admin_state_up",
            "action",
            "redirect_pool_id",
            "redirect_url",
            "redirect_prefix",
            "redirect_http_code",
            "position",
            "tags",
        ]])?;
        if object.is_empty() {
            return Err(Fault::InvalidL7Policy("Invalid update options".to_owned()));
        }
        Ok(Self {
            name: object.field("name", text(255))?,
            description: object.field("description", text(255))?,
            admin_state_up: object.field("admin_state_up", boolean)?,
            action: object.not_null("action", word(L7PolicyAction::ALL))?,
            redirect_pool_id: object.field("redirect_pool_id", uuid)?,
            redirect_url: object.field("redirect_url", http_url)?,
            redirect_prefix: object.field("redirect_prefix", http_url)?,
            redirect_http_code: object.field("redirect_http_code", redirect_http_code)?,
            position: object.optional("position", position())?,
            tags: object.field("tags", tags)?,
        })
    }
}

fn position() -> impl Fn(&Value) -> Result<u32, String> {
    integer(1, i64::from(i32::MAX))
}

fn redirect_http_code(value: &Value) -> Result<u16, String> {
    integer::<u16>(0, i64::from(u16::MAX))(value)
        .ok()
        .filter(|code| [301, 302, 303, 307, 308].contains(code))
        .ok_or_else(|| "Value should be one of: 301, 302, 303, 307, 308".to_owned())
}

/// An absolute URL of http or https, with nothing in it that could end the header it is sent in.
fn http_url(value: &Value) -> Result<String, String> {
    let url = text(255)(value)?;
    if is_http_url(&url) {
        Ok(url)
    } else {
        Err("Value should be an absolute http or https URL".to_owned())
    }
}

fn is_http_url(url: &str) -> bool {
    // RFC 3986: what is neither reserved nor unreserved nor a percent sign.
    let clean = url
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte));
    let Some((scheme, rest)) = url.split_once("://") else {
        return false;
    };
    let http = ["http", "https"]
        .iter()
        .any(|known| scheme.eq_ignore_ascii_case(known));
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host_and_port = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    let (host, port) = match host_and_port.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((address, port)) if address.parse::<Ipv6Addr>().is_ok() => (address, port),
            _ => return false,
        },
        None => host_and_port
            .find(':')
            .and_then(|colon| host_and_port.split_at_checked(colon))
            .unwrap_or((host_and_port, "")),
    };
    let port = match port.strip_prefix(':') {
        None => port.is_empty(),
        Some("") => true,
        Some(digits) => digits.parse::<u16>().is_ok(),
    };
    clean && http && !host.is_empty() && !host.contains(['[', ']']) && port
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_goes_to_an_absolute_url_that_cannot_break_out_of_its_header() {
        for url in [
            "http://localhost",
            "https://www.example.org/a/b?c=d&e#f",
            "HTTPS://user@example.org:8443/",
            "http://[2001:db8::1]:80/x",
            "http://192.0.2.1:/",
            "https://example.org/%20x",
        ] {
            assert!(is_http_url(url), "{url}");
        }
        // P53
        for url in [
            "",
            "/a",
            "example.org",
            "ftp://example.org",
            "http://",
            "http:///x",
            "http://:80/",
            "http://user@/",
            "http://example.org:port/",
            "http://example.org:65536/",
            "http://[2001:db8::1/",
            "http://[x]/",
            "http://a]b/",
            "http://example.org/a b",
            "http://example.org/\r\nSet-Cookie: x",
            "http://example.org/\u{0}",
            "http://example.org/\"",
            "http://exämple.org/",
        ] {
            assert!(!is_http_url(url), "{url:?}");
        }
    }
}
