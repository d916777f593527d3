//! Bodies of `POST` and `PUT /l7policies/{id}/rules`, and rules within a fully populated create.

use serde_json::Value;

use super::decode::{Field, Object, boolean, tags, text, word};
use crate::{Fault, L7RuleCompareType, L7RuleType};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewL7Rule {
    pub admin_state_up: bool,
    pub kind: L7RuleType,
    pub compare_type: L7RuleCompareType,
    pub key: Option<String>,
    pub value: String,
    pub invert: bool,
    pub tags: Vec<String>,
}

impl NewL7Rule {
    pub fn decode(body: &Value) -> Result<Self, Fault> {
        Self::decode_object(&Object::root(body, "rule")?)
    }

    pub(super) fn decode_object(object: &Object<'_>) -> Result<Self, Fault> {
        object.only(&[&[
            "admin_state_up",
            "type",
            "compare_type",
            "key",
            "value",
            "invert",
            "tags",
            // Taken and not used: a rule belongs to the project of its load balancer.
            "project_id",
            "tenant_id",
        ]])?;
        object.optional("project_id", text(36))?;
        object.optional("tenant_id", text(36))?;
        Ok(Self {
            admin_state_up: object.optional("admin_state_up", boolean)?.unwrap_or(true),
            kind: object.required("type", word(L7RuleType::ALL))?,
            compare_type: object.required("compare_type", word(L7RuleCompareType::ALL))?,
            key: object.optional("key", one_line)?,
            value: object.required("value", one_line)?,
            invert: object.optional("invert", boolean)?.unwrap_or(false),
            tags: object.optional("tags", tags)?.unwrap_or_default(),
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct L7RuleUpdate {
    pub admin_state_up: Field<bool>,
    pub kind: Option<L7RuleType>,
    pub compare_type: Option<L7RuleCompareType>,
    pub key: Field<String>,
    pub value: Option<String>,
    pub invert: Field<bool>,
    pub tags: Field<Vec<String>>,
}

impl L7RuleUpdate {
    pub fn decode(body: &Value) -> Result<Self, Fault> {
        let object = Object::root(body, "rule")?;
        object.only(&[&[
            "admin_state_up",
            "type",
            "compare_type",
            "key",
            "value",
            "invert",
            "tags",
        ]])?;
        Ok(Self {
            admin_state_up: object.field("admin_state_up", boolean)?,
            kind: object.not_null("type", word(L7RuleType::ALL))?,
            compare_type: object.not_null("compare_type", word(L7RuleCompareType::ALL))?,
            key: object.field("key", one_line)?,
            value: object.not_null("value", one_line)?,
            invert: object.field("invert", boolean)?,
            tags: object.field("tags", tags)?,
        })
    }
}

/// What goes into a comparison with a header: one line, and not empty.
fn one_line(value: &Value) -> Result<String, String> {
    let text = text(255)(value)?;
    if text.is_empty() {
        return Err("Value should not be empty".to_owned());
    }
    if text.contains(['\r', '\n', '\0']) {
        return Err("Value should be a single line".to_owned());
    }
    Ok(text)
}
