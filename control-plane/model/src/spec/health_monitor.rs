//! Bodies of `POST` and `PUT /healthmonitors`, and monitors within a fully populated create.

use serde_json::Value;

use super::decode::{
    Field, Object, boolean, http_version, integer, one_of, tags, text, uuid, word,
};
use crate::{ExpectedCodes, Fault, HttpVersion, MonitorType, PoolId};

const METHODS: &[&str] = &[
    "CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE",
];

/// A monitor to be; what is `None` gets its default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewHealthMonitor {
    pub name: String,
    pub admin_state_up: bool,
    pub kind: MonitorType,
    pub delay: u32,
    pub timeout: u32,
    pub max_retries: u8,
    pub max_retries_down: Option<u8>,
    pub http_method: Option<String>,
    pub url_path: Option<String>,
    pub expected_codes: Option<ExpectedCodes>,
    pub http_version: Option<HttpVersion>,
    pub domain_name: Option<String>,
    pub tags: Vec<String>,
}

const CREATE: &[&str] = &[
    "name",
    "admin_state_up",
    "type",
    "delay",
    "timeout",
    "max_retries",
    "max_retries_down",
    "http_method",
    "url_path",
    "expected_codes",
    "http_version",
    "domain_name",
    "tags",
    // Taken and not used: a monitor belongs to the project of its load balancer.
    "project_id",
    "tenant_id",
];

impl NewHealthMonitor {
    /// For a monitor within another object; `CREATE` is all it may have.
    pub(super) fn decode(object: &Object<'_>) -> Result<Self, Fault> {
        object.only(&[CREATE])?;
        Self::decode_fields(object)
    }

    fn decode_fields(object: &Object<'_>) -> Result<Self, Fault> {
        object.optional("project_id", text(36))?;
        object.optional("tenant_id", text(36))?;
        Ok(Self {
            name: object.optional("name", text(255))?.unwrap_or_default(),
            admin_state_up: object.optional("admin_state_up", boolean)?.unwrap_or(true),
            kind: object.required("type", word(MonitorType::ALL))?,
            delay: object.required("delay", seconds())?,
            timeout: object.required("timeout", seconds())?,
            max_retries: object.required("max_retries", retries())?,
            max_retries_down: object.optional("max_retries_down", retries())?,
            http_method: object.optional("http_method", one_of(METHODS))?,
            url_path: object.optional("url_path", url_path)?,
            expected_codes: object.optional("expected_codes", expected_codes)?,
            http_version: object.optional("http_version", http_version)?,
            domain_name: object.optional("domain_name", domain_name)?,
            tags: object.optional("tags", tags)?.unwrap_or_default(),
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthMonitorCreate {
    pub pool_id: PoolId,
    pub health_monitor: NewHealthMonitor,
}

impl HealthMonitorCreate {
    pub fn decode(body: &Value) -> Result<Self, Fault> {
        let object = Object::root(body, "healthmonitor")?;
        object.only(&[CREATE, &["pool_id"]])?;
        Ok(Self {
            pool_id: object.required("pool_id", uuid)?,
            health_monitor: NewHealthMonitor::decode_fields(&object)?,
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HealthMonitorUpdate {
    pub name: Field<String>,
    pub admin_state_up: Field<bool>,
    pub delay: Option<u32>,
    pub timeout: Option<u32>,
    pub max_retries: Option<u8>,
    pub max_retries_down: Field<u8>,
    pub http_method: Field<String>,
    pub url_path: Field<String>,
    pub expected_codes: Field<ExpectedCodes>,
    pub http_version: Field<HttpVersion>,
    pub domain_name: Field<String>,
    pub tags: Field<Vec<String>>,
}

impl HealthMonitorUpdate {
    pub fn decode(body: &Value) -> Result<Self, Fault> {
        let object = Object::root(body, "healthmonitor")?;
        object.only(&[&[
            "name",
            "admin_state_up",
            "delay",
            "timeout",
            "max_retries",
            "max_retries_down",
            "http_method",
            "url_path",
            "expected_codes",
            "http_version",
            "domain_name",
            "tags",
        ]])?;
        Ok(Self {
            name: object.field("name", text(255))?,
            admin_state_up: object.field("admin_state_up", boolean)?,
            delay: object.not_null("delay", seconds())?,
            timeout: object.not_null("timeout", seconds())?,
            max_retries: object.not_null("max_retries", retries())?,
            max_retries_down: object.field("max_retries_down", retries())?,
            http_method: object.field("http_method", one_of(METHODS))?,
            url_path: object.field("url_path", url_path)?,
            expected_codes: object.field("expected_codes", expected_codes)?,
            http_version: object.field("http_version", http_version)?,
            domain_name: object.field("domain_name", domain_name)?,
            tags: object.field("tags", tags)?,
        })
    }
}

/// The database column is a signed 32-bit integer.
fn seconds() -> impl Fn(&Value) -> Result<u32, String> {
    integer(0, i64::from(i32::MAX))
}

fn retries() -> impl Fn(&Value) -> Result<u8, String> {
    integer(1, 10)
}

fn url_path(value: &Value) -> Result<String, String> {
    let path = text(2048)(value)?;
    let clean = path
        .chars()
        .all(|c| c.is_ascii() && !c.is_ascii_control() && !c.is_ascii_whitespace());
    if path.starts_with('/') && !path.starts_with("//") && clean {
        Ok(path)
    } else {
        Err("Value should be a url path beginning with '/'".to_owned())
    }
}

fn expected_codes(value: &Value) -> Result<ExpectedCodes, String> {
    value
        .as_str()
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| "Value should be a list of status codes or one range".to_owned())
}

fn domain_name(value: &Value) -> Result<String, String> {
    let name = text(255)(value)?;
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    if name
        .strip_suffix('.')
        .unwrap_or(&name)
        .split('.')
        .all(label)
    {
        Ok(name)
    } else {
        Err("Value should be a domain name".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// P53
    #[test]
    fn nothing_can_be_smuggled_into_the_request_line_of_a_check() {
        for path in [
            "",
            "x",
            "//host/",
            "/a b",
            "/a\r\nX: y",
            "/a\u{0}",
            "/a\tb",
            "http://h/",
            "/é",
        ] {
            assert!(url_path(&json!(path)).is_err(), "{path:?}");
        }
        for path in ["/", "/health?x=1&y=%20", "/a/b.html#c"] {
            assert!(url_path(&json!(path)).is_ok(), "{path:?}");
        }
        for name in ["", ".", "a b", "a\r\nb", "-a", "a-", "a..b", "a/b"] {
            assert!(domain_name(&json!(name)).is_err(), "{name:?}");
        }
        for name in ["a", "www.example.org", "example.org."] {
            assert!(domain_name(&json!(name)).is_ok(), "{name:?}");
        }
    }
}
