//! Between the values of rows and those of the domain. Text and numbers of a row are parsed, never trusted.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::StoreError;

/// A typed id, or any word that parses.
pub(crate) fn id<T: FromStr>(column: &'static str, text: &str) -> Result<T, StoreError> {
    parsed(column, text)
}

pub(crate) fn parsed<T: FromStr>(column: &'static str, text: &str) -> Result<T, StoreError> {
    text.parse().map_err(|_| corrupt(column, text))
}

pub(crate) fn optional<T: FromStr>(
    column: &'static str,
    text: Option<&str>,
) -> Result<Option<T>, StoreError> {
    text.map(|text| parsed(column, text)).transpose()
}

/// Into a narrower or unsigned integer.
pub(crate) fn narrow<S, T>(column: &'static str, value: S) -> Result<T, StoreError>
where
    S: Copy + fmt::Display,
    T: TryFrom<S>,
{
    T::try_from(value).map_err(|_| corrupt(column, value))
}

pub(crate) fn unsigned(column: &'static str, value: i64) -> Result<u64, StoreError> {
    narrow(column, value)
}

/// Into the widest integer all three databases have; saturates.
pub(crate) fn wide(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(crate) fn write_json<T: Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value).expect("lists, maps with text keys and plain structs serialise")
}

pub(crate) fn read_json<T: DeserializeOwned>(
    column: &'static str,
    text: &str,
) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|_| corrupt(column, text))
}

fn corrupt(column: &'static str, value: impl fmt::Display) -> StoreError {
    StoreError::Corrupt {
        column,
        value: value.to_string(),
    }
}
