//! The INI dialect of Octavia's configuration files, as far as agents are given it: sections, `key = value` or
//! `key: value`, comment lines that begin with `#` or `;`. Every problem is collected, none ends the reading.

use std::collections::BTreeMap;

/// Values by (section, key), each with the line it is on.
#[derive(Debug, Default)]
pub(super) struct Ini {
    pub(super) values: BTreeMap<(String, String), (usize, String)>,
}

impl Ini {
    pub(super) fn parse(text: &str, problems: &mut Vec<String>) -> Self {
        let mut ini = Ini::default();
        let mut section = String::from("DEFAULT");
        for (number, line) in text.lines().enumerate().map(|(i, l)| (i + 1, l.trim())) {
            if line.is_empty() || line.starts_with(['#', ';']) {
                continue;
            }
            if let Some(name) = line.strip_prefix('[') {
                match name.strip_suffix(']') {
                    Some(name) => section = name.trim().to_owned(),
                    None => {
                        problems.push(format!("line {number}: section without closing bracket"))
                    }
                }
                continue;
            }
            let Some((key, value)) = line.split_once(['=', ':']) else {
                problems.push(format!(
                    "line {number}: neither a section nor `key = value`"
                ));
                continue;
            };
            let place = (section.clone(), key.trim().to_owned());
            if let Some((first, _)) = ini.values.get(&place) {
                problems.push(format!(
                    "line {number}: {} is on line {first} already",
                    name(&place)
                ));
                continue;
            }
            ini.values.insert(place, (number, value.trim().to_owned()));
        }
        ini
    }

    pub(super) fn take(&mut self, section: &str, key: &str) -> Option<String> {
        self.values
            .remove(&(section.to_owned(), key.to_owned()))
            .map(|(_, value)| value)
    }
}

pub(super) fn name((section, key): &(String, String)) -> String {
    format!("[{section}] {key}")
}
