//! The lenient typed layer: walks a JSON body against a table of fields and says exactly what is wrong.
//!
//! Clients send `"80"` for 80 and `"true"` for true; both are taken. What is not known is refused by name, with the
//! dotted path of the object that has no such attribute.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::{Fault, HttpVersion, SpelledIp};

/// An attribute of a PUT: absent keeps, null resets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Field<T> {
    #[default]
    Absent,
    Null,
    Value(T),
}

impl<T> Field<T> {
    /// The value, where null counts as not given (POST).
    pub fn given(self) -> Option<T> {
        match self {
            Self::Absent | Self::Null => None,
            Self::Value(value) => Some(value),
        }
    }

    /// Writes the new value to `slot`; null writes `reset`.
    pub(crate) fn apply(&self, slot: &mut T, reset: T)
    where
        T: Clone,
    {
        match self {
            Self::Absent => {}
            Self::Null => *slot = reset,
            Self::Value(value) => *slot = value.clone(),
        }
    }

    /// As [`Field::apply`] for something that null removes.
    pub(crate) fn apply_option(&self, slot: &mut Option<T>)
    where
        T: Clone,
    {
        match self {
            Self::Absent => {}
            Self::Null => *slot = None,
            Self::Value(value) => *slot = Some(value.clone()),
        }
    }

    /// As [`Field::apply_option`] for something that null sets to a default.
    pub(crate) fn apply_or(&self, slot: &mut Option<T>, default: &T)
    where
        T: Clone,
    {
        match self {
            Self::Absent => {}
            Self::Null => *slot = Some(default.clone()),
            Self::Value(value) => *slot = Some(value.clone()),
        }
    }

    pub(crate) const fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }
}

/// Why a value does not fit; becomes the last sentence of the fault.
pub(crate) type Reason = String;

/// A JSON object being decoded.
pub(crate) struct Object<'a> {
    argument: String,
    map: &'a Map<String, Value>,
}

impl<'a> Object<'a> {
    /// The object below the root key of a request body.
    pub(crate) fn root(body: &'a Value, key: &str) -> Result<Self, Fault> {
        Ok(Self {
            argument: key.to_owned(),
            map: match root_value(body, key)? {
                Value::Object(map) => map,
                other => return Err(invalid(key, other, "Value should be an object".to_owned())),
            },
        })
    }

    /// An item of a list, `path` being that of the list.
    pub(crate) fn item(path: &str, field: &str, value: &'a Value) -> Result<Self, Fault> {
        match value {
            Value::Object(map) => Ok(Self {
                argument: format!("{path}.{field}"),
                map,
            }),
            other => Err(invalid(
                field,
                other,
                "Value should be an object".to_owned(),
            )),
        }
    }

    /// Refuses attributes that are not in the table.
    pub(crate) fn only(&self, tables: &[&[&str]]) -> Result<(), Fault> {
        for name in self.map.keys() {
            if !tables.iter().any(|table| table.contains(&name.as_str())) {
                return Err(Fault::UnknownAttribute {
                    argument: self.argument.clone(),
                    attribute: name.chars().take(255).collect(),
                });
            }
        }
        Ok(())
    }

    /// Refuses objects that only a fully populated create may have inside another.
    pub(crate) fn refuse_nested(&self, names: &[&str]) -> Result<(), Fault> {
        match names.iter().find(|name| self.raw(name).is_some()) {
            None => Ok(()),
            Some(name) => Err(Fault::validation(format!(
                "{name} can only be given within a fully populated load balancer create"
            ))),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Nothing but this attribute is set.
    pub(crate) fn has_only(&self, name: &str) -> bool {
        self.map
            .iter()
            .all(|(key, value)| key == name || value.is_null())
    }

    pub(crate) fn raw(&self, name: &str) -> Option<&'a Value> {
        self.map.get(name).filter(|value| !value.is_null())
    }

    pub(crate) fn field<T>(
        &self,
        name: &str,
        decode: impl Fn(&Value) -> Result<T, Reason>,
    ) -> Result<Field<T>, Fault> {
        match self.map.get(name) {
            None => Ok(Field::Absent),
            Some(Value::Null) => Ok(Field::Null),
            Some(value) => match decode(value) {
                Ok(decoded) => Ok(Field::Value(decoded)),
                Err(reason) => Err(invalid(name, value, reason)),
            },
        }
    }

    /// Null counts as not given.
    pub(crate) fn optional<T>(
        &self,
        name: &str,
        decode: impl Fn(&Value) -> Result<T, Reason>,
    ) -> Result<Option<T>, Fault> {
        self.field(name, decode).map(Field::given)
    }

    pub(crate) fn required<T>(
        &self,
        name: &str,
        decode: impl Fn(&Value) -> Result<T, Reason>,
    ) -> Result<T, Fault> {
        self.optional(name, decode)?
            .ok_or_else(|| invalid(name, &Value::Null, "Mandatory field missing.".to_owned()))
    }

    /// As [`Object::field`], for what may be changed but never reset.
    pub(crate) fn not_null<T>(
        &self,
        name: &str,
        decode: impl Fn(&Value) -> Result<T, Reason>,
    ) -> Result<Option<T>, Fault> {
        match self.field(name, decode)? {
            Field::Absent => Ok(None),
            Field::Value(value) => Ok(Some(value)),
            Field::Null => Err(invalid(
                name,
                &Value::Null,
                "Value must not be null.".to_owned(),
            )),
        }
    }

    pub(crate) fn objects(&self, name: &str) -> Result<Vec<Object<'a>>, Fault> {
        match self.raw(name) {
            None => Ok(Vec::new()),
            Some(Value::Array(items)) => items
                .iter()
                .map(|item| Object::item(&self.argument, name, item))
                .collect(),
            Some(other) => Err(invalid(name, other, "Value should be a list".to_owned())),
        }
    }

    pub(crate) fn object(&self, name: &str) -> Result<Option<Object<'a>>, Fault> {
        self.raw(name)
            .map(|value| Object::item(&self.argument, name, value))
            .transpose()
    }
}

/// The value below the only key a body may have.
pub(crate) fn root_value<'a>(body: &'a Value, key: &str) -> Result<&'a Value, Fault> {
    let Value::Object(map) = body else {
        return Err(Fault::Malformed("an object is expected".to_owned()));
    };
    if let Some(other) = map.keys().find(|name| name.as_str() != key) {
        return Err(Fault::UnknownAttribute {
            argument: "body".to_owned(),
            attribute: other.chars().take(255).collect(),
        });
    }
    match map.get(key) {
        None | Some(Value::Null) => Err(Fault::MissingArgument(key.to_owned())),
        Some(value) => Ok(value),
    }
}

fn invalid(field: &str, value: &Value, reason: Reason) -> Fault {
    let shown = match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    Fault::InvalidInput {
        field: field.to_owned(),
        // A hostile value must not be sent back at length.
        value: shown.chars().take(255).collect(),
        reason,
    }
}

pub(crate) fn text(max: usize) -> impl Fn(&Value) -> Result<String, Reason> {
    move |value| match value {
        // PostgreSQL has no such text.
        Value::String(text) if text.contains('\0') => {
            Err("Value should not contain a NUL character".to_owned())
        }
        Value::String(text) if text.chars().count() <= max => Ok(text.clone()),
        Value::String(_) => Err(format!(
            "Value should have a maximum character requirement of {max}"
        )),
        _ => Err("Wrong type. Expected 'str'".to_owned()),
    }
}

pub(crate) fn boolean(value: &Value) -> Result<bool, Reason> {
    let word = match value {
        Value::Bool(flag) => return Ok(*flag),
        Value::String(text) => text.to_ascii_lowercase(),
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    };
    lenient_bool(&word).ok_or_else(|| "Value should be a boolean".to_owned())
}

/// Words for yes and no, in any case.
pub fn lenient_bool(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "t" | "yes" | "y" | "on" | "1" => Some(true),
        "false" | "f" | "no" | "n" | "off" | "0" => Some(false),
        _ => None,
    }
}

pub(crate) fn integer<T: TryFrom<i64>>(min: i64, max: i64) -> impl Fn(&Value) -> Result<T, Reason> {
    move |value| {
        let number = match value {
            Value::Number(number) => number.as_i64(),
            Value::String(text) => text.trim().parse().ok(),
            _ => None,
        }
        .ok_or_else(|| "Value should be an integer".to_owned())?;
        if number < min {
            return Err(format!("Value should be greater or equal to {min}"));
        }
        if number > max {
            return Err(format!("Value should be lower or equal to {max}"));
        }
        T::try_from(number).map_err(|_| format!("Value should be lower or equal to {max}"))
    }
}

pub(crate) fn uuid<T: From<Uuid>>(value: &Value) -> Result<T, Reason> {
    value
        .as_str()
        .and_then(parse_uuid)
        .map(T::from)
        .ok_or_else(|| "Value should be UUID format".to_owned())
}

/// As [`uuid`]; an empty text means none, as some clients send it.
pub(crate) fn uuid_or_empty<T: From<Uuid>>(value: &Value) -> Result<Option<T>, Reason> {
    match value {
        Value::String(text) if text.is_empty() => Ok(None),
        other => uuid(other).map(Some),
    }
}

/// Canonical form or the same without dashes; nothing else.
pub fn parse_uuid(text: &str) -> Option<Uuid> {
    match text.len() {
        36 | 32 => Uuid::try_parse(text).ok(),
        _ => None,
    }
}

pub(crate) fn ip(value: &Value) -> Result<IpAddr, Reason> {
    spelled_ip(value).map(|address| address.ip())
}

/// The same, for those that are answered as they were given.
pub(crate) fn spelled_ip(value: &Value) -> Result<SpelledIp, Reason> {
    value
        .as_str()
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| "Value should be IPv4 or IPv6 format".to_owned())
}

/// Host bits are cleared; a bare address is its own network.
pub(crate) fn cidr(value: &Value) -> Result<IpNet, Reason> {
    let text = value.as_str().unwrap_or_default();
    text.parse::<IpNet>()
        .map(|net| net.trunc())
        .or_else(|_| text.parse::<IpAddr>().map(IpNet::from))
        .map_err(|_| "Value should be IPv4 or IPv6 CIDR format".to_owned())
}

/// A word of a closed list, exact case.
pub(crate) fn word<T: FromStr + Copy + Display>(all: &[T]) -> impl Fn(&Value) -> Result<T, Reason> {
    move |value| {
        value
            .as_str()
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| {
                let words: Vec<String> = all.iter().map(ToString::to_string).collect();
                format!("Value should be one of: {}", words.join(", "))
            })
    }
}

pub(crate) fn one_of(words: &'static [&'static str]) -> impl Fn(&Value) -> Result<String, Reason> {
    move |value| match value.as_str() {
        Some(text) if words.contains(&text) => Ok(text.to_owned()),
        _ => Err(format!("Value should be one of: {}", words.join(", "))),
    }
}

pub(crate) fn list<T>(
    decode: impl Fn(&Value) -> Result<T, Reason>,
) -> impl Fn(&Value) -> Result<Vec<T>, Reason> {
    move |value| match value {
        Value::Array(items) => items.iter().map(&decode).collect(),
        _ => Err("Value should be a list".to_owned()),
    }
}

/// Each tag once, in the order given.
pub(crate) fn tags(value: &Value) -> Result<Vec<String>, Reason> {
    let mut tags: Vec<String> = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    for tag in list(text(255))(value)? {
        if seen.insert(tag.clone()) {
            tags.push(tag);
        }
    }
    Ok(tags)
}

pub(crate) fn string_map(value: &Value) -> Result<BTreeMap<String, String>, Reason> {
    let Value::Object(map) = value else {
        return Err("Value should be an object of strings".to_owned());
    };
    map.iter()
        .map(|(key, value)| match value {
            Value::String(text) if text.chars().count() <= 255 && key.chars().count() <= 255 => {
                Ok((key.clone(), text.clone()))
            }
            Value::String(_) => {
                Err("Value should have a maximum character requirement of 255".to_owned())
            }
            _ => Err(format!("Value of {key} should be a string")),
        })
        .collect()
}

/// 1.0 or 1.1, as a number or as its text.
pub(crate) fn http_version(value: &Value) -> Result<HttpVersion, Reason> {
    let text = match value {
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.clone(),
        _ => String::new(),
    };
    match text.as_str() {
        "1.0" | "1" => Ok(HttpVersion::V1_0),
        "1.1" => Ok(HttpVersion::V1_1),
        _ => Err("Value should be one of: 1.0, 1.1".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::ListenerProtocol;

    fn fault<T>(result: Result<T, Fault>) -> String {
        match result {
            Ok(_) => "accepted".to_owned(),
            Err(fault) => fault.to_string(),
        }
    }

    #[test]
    fn the_root_key_is_checked_before_anything_else() {
        let cases = [
            (json!({}), "Missing argument: \"pool\""),
            (json!({"pool": null}), "Missing argument: \"pool\""),
            (json!([]), "Malformed request body: an object is expected"),
            (
                json!("pool"),
                "Malformed request body: an object is expected",
            ),
            (
                json!({"pools": {}}),
                "Unknown attribute for argument body: pools",
            ),
            (
                json!({"pool": 3}),
                "Invalid input for field/attribute pool. Value: '3'. Value should be an object",
            ),
        ];
        for (body, expected) in cases {
            assert_eq!(fault(Object::root(&body, "pool")), expected, "{body}");
        }
    }

    #[test]
    fn unknown_attributes_are_named_with_their_dotted_path() {
        let body = json!({"loadbalancer": {"listeners": [{"colour": 1}]}});
        let root = Object::root(&body, "loadbalancer").unwrap();
        let listener = root.objects("listeners").unwrap().remove(0);
        assert_eq!(
            fault(listener.only(&[&["name"]])),
            "Unknown attribute for argument loadbalancer.listeners: colour"
        );
    }

    #[test]
    fn integers_come_as_numbers_or_text_within_their_range() {
        let port = integer::<u16>(1, 65535);
        let cases = [
            (json!(80), Ok(80)),
            (json!("80"), Ok(80)),
            (json!(0), Err("Value should be greater or equal to 1")),
            (json!(65536), Err("Value should be lower or equal to 65535")),
            (json!(80.5), Err("Value should be an integer")),
            (json!("eighty"), Err("Value should be an integer")),
            (json!(true), Err("Value should be an integer")),
            (json!([80]), Err("Value should be an integer")),
            (
                json!(18_446_744_073_709_551_615_u64),
                Err("Value should be an integer"),
            ),
        ];
        for (value, expected) in cases {
            assert_eq!(port(&value), expected.map_err(str::to_owned), "{value}");
        }
    }

    #[test]
    fn booleans_come_in_many_spellings() {
        for yes in ["true", "T", "YES", "y", "on", "1"] {
            assert_eq!(boolean(&json!(yes)), Ok(true), "{yes}");
        }
        for no in ["false", "F", "NO", "n", "off", "0"] {
            assert_eq!(boolean(&json!(no)), Ok(false), "{no}");
        }
        assert_eq!(boolean(&json!(true)), Ok(true));
        for other in [json!("maybe"), json!([]), json!(2), json!("")] {
            assert!(boolean(&other).is_err(), "{other}");
        }
    }

    #[test]
    fn a_bad_word_lists_the_allowed_ones_in_the_frame_clients_match() {
        let body = json!({"listener": {"protocol": "tcp"}});
        let root = Object::root(&body, "listener").unwrap();
        let text = fault(root.required("protocol", word(ListenerProtocol::ALL)));
        assert!(
            text.starts_with(
                "Invalid input for field/attribute protocol. Value: 'tcp'. Value should be one of: "
            ),
            "{text}"
        );
    }

    #[test]
    fn uuids_are_taken_with_and_without_dashes_and_in_no_other_form() {
        let plain = "8f2b7a4e1c3d4e5f8a9b0c1d2e3f4a5b";
        let dashed = "8f2b7a4e-1c3d-4e5f-8a9b-0c1d2e3f4a5b";
        assert_eq!(parse_uuid(plain), parse_uuid(dashed));
        assert!(parse_uuid(dashed).is_some());
        for other in [
            "",
            "web",
            "{8f2b7a4e-1c3d-4e5f-8a9b-0c1d2e3f4a5b}",
            "urn:uuid:8f2b7a4e-1c3d-4e5f-8a9b-0c1d2e3f4a5b",
        ] {
            assert_eq!(parse_uuid(other), None, "{other}");
        }
    }

    #[test]
    fn cidrs_lose_their_host_bits() {
        let cases = [
            ("10.0.0.5/24", Some("10.0.0.0/24")),
            ("10.0.0.5", Some("10.0.0.5/32")),
            ("2001:db8::1/64", Some("2001:db8::/64")),
            ("2001:db8::1", Some("2001:db8::1/128")),
            ("10.0.0.0/33", None),
            ("anywhere", None),
        ];
        for (text, expected) in cases {
            let decoded = cidr(&json!(text)).ok().map(|net| net.to_string());
            assert_eq!(decoded.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn a_long_value_is_not_sent_back_whole() {
        let body = json!({"pool": {"name": "x".repeat(100_000)}});
        let root = Object::root(&body, "pool").unwrap();
        assert!(fault(root.optional("name", text(255))).len() < 500);
    }
}
