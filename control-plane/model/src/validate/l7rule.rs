//! Rules of an L7 rule: what each type compares, how, and with which values.

use super::require_support;
use crate::{Fault, L7Rule, L7RuleCompareType, L7RuleType, LoadBalancer, Rules};

/// Rules a policy may have.
pub(crate) const MAX_RULES: usize = 50;
/// Bytes a compiled expression may take: what a tenant sends must not fill the memory of a proxy.
const MAX_REGEX_BYTES: usize = 256 * 1024;

pub(crate) fn check_l7rule(rule: &L7Rule, lb: &LoadBalancer, rules: &Rules) -> Result<(), Fault> {
    check_compare_type(rule)
        .and_then(|()| check_key(rule))
        .and_then(|()| check_value(rule))
        .map_err(Fault::InvalidL7Rule)?;
    let served = rules.support(lb)?.l7rule_types;
    require_support(lb, served, rule.kind, "L7 rule")
}

fn check_compare_type(rule: &L7Rule) -> Result<(), String> {
    use L7RuleCompareType::{Contains, EndsWith, EqualTo, Regex, StartsWith};
    let allowed: &[L7RuleCompareType] = match rule.kind {
        L7RuleType::HostName
        | L7RuleType::Path
        | L7RuleType::Header
        | L7RuleType::Cookie
        | L7RuleType::SslDnField => &[Contains, EndsWith, EqualTo, Regex, StartsWith],
        L7RuleType::FileType => &[EqualTo, Regex],
        L7RuleType::SslConnHasCert | L7RuleType::SslVerifyResult => &[EqualTo],
    };
    if allowed.contains(&rule.compare_type) {
        Ok(())
    } else {
        Err(format!(
            "compare_type {} is invalid for rule type {}",
            rule.compare_type, rule.kind
        ))
    }
}

fn check_key(rule: &L7Rule) -> Result<(), String> {
    let key = rule.key.as_deref();
    let fits: fn(&str) -> bool = match rule.kind {
        // Not used.
        L7RuleType::HostName | L7RuleType::Path | L7RuleType::FileType => return Ok(()),
        L7RuleType::SslConnHasCert | L7RuleType::SslVerifyResult => {
            return match key {
                None => Ok(()),
                Some(_) => Err(format!("rule type {} does not take a key", rule.kind)),
            };
        }
        L7RuleType::Header | L7RuleType::Cookie => |key| key.bytes().all(is_token_byte),
        L7RuleType::SslDnField => |key| {
            key.starts_with(|c: char| c.is_ascii_alphabetic())
                && key
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        },
    };
    match key {
        None => Err(format!("rule type {} needs a key", rule.kind)),
        Some(key) if fits(key) => Ok(()),
        Some(_) => Err("Invalid characters in key".to_owned()),
    }
}

fn check_value(rule: &L7Rule) -> Result<(), String> {
    let value = rule.value.as_str();
    if rule.compare_type == L7RuleCompareType::Regex {
        return check_regex(value);
    }
    let fits = match rule.kind {
        L7RuleType::HostName | L7RuleType::Path | L7RuleType::FileType | L7RuleType::Header => {
            is_header_value(value)
        }
        L7RuleType::Cookie => value
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && !b"\",;\\".contains(&byte)),
        L7RuleType::SslDnField => true,
        L7RuleType::SslConnHasCert => {
            return if value.eq_ignore_ascii_case("true") {
                Ok(())
            } else {
                Err(format!("rule type {} needs the value True", rule.kind))
            };
        }
        L7RuleType::SslVerifyResult => {
            return if value.bytes().all(|byte| byte.is_ascii_digit())
                && value.parse::<u32>().is_ok()
            {
                Ok(())
            } else {
                Err(format!(
                    "rule type {} needs a value that is a number from 0",
                    rule.kind
                ))
            };
        }
    };
    if fits {
        Ok(())
    } else {
        Err("Invalid characters in value".to_owned())
    }
}

/// Visible ASCII; spaces and tabs only between double quotes.
fn is_header_value(value: &str) -> bool {
    let quoted = value.len() >= 2 && value.starts_with('"') && value.ends_with('"');
    value
        .bytes()
        .all(|byte| byte.is_ascii_graphic() || (quoted && matches!(byte, b' ' | b'\t')))
}

fn check_regex(value: &str) -> Result<(), String> {
    regex::RegexBuilder::new(value)
        .size_limit(MAX_REGEX_BYTES)
        .build()
        .map(drop)
        .map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => "the regular expression is too large".to_owned(),
            // The first lines of the text draw the expression.
            other => format!(
                "invalid regular expression: {}",
                other.to_string().lines().last().unwrap_or_default()
            ),
        })
}

/// A token of RFC 9110.
const fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'!' | b'#'
                | b'$'
                | b'%'
                | b'&'
                | b'\''
                | b'*'
                | b'+'
                | b'-'
                | b'.'
                | b'^'
                | b'_'
                | b'`'
                | b'|'
                | b'~'
        )
}
