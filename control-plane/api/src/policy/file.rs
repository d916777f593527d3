//! The override file: YAML, one mapping of rule names to rules, as oslo.policy reads it.

use saphyr_parser::{Event, Parser, ScalarStyle};

use super::PolicyError;

/// A rule of a file, with the line it begins on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Override {
    pub(super) line: usize,
    pub(super) name: String,
    pub(super) text: String,
}

/// Every rule of the text in its order; an empty file has none.
pub(super) fn parse(text: &str) -> Result<Vec<Override>, Vec<PolicyError>> {
    let mut overrides: Vec<Override> = Vec::new();
    let mut problems = Vec::new();
    let mut name: Option<(usize, String)> = None;
    let mut within = false;
    let error = |line, name: Option<&str>, problem: String| PolicyError {
        line: Some(line),
        rule: name.map(str::to_owned),
        problem,
    };
    for event in Parser::new_from_str(text) {
        let (event, line) = match event {
            Ok((event, span)) => (event, span.start.line()),
            Err(bad) => {
                problems.push(error(
                    bad.marker().line(),
                    None,
                    format!("not YAML: {}", bad.info()),
                ));
                break;
            }
        };
        match (event, name.take()) {
            (Event::MappingStart(..), None) if !within => within = true,
            (Event::Scalar(key, _, _, None), None) if within => {
                if overrides.iter().any(|known| known.name == key) {
                    problems.push(error(line, Some(&key), "given twice".to_owned()));
                }
                name = Some((line, key.into_owned()));
            }
            (Event::Scalar(value, style, _, None), Some((at, key))) => {
                if style == ScalarStyle::Plain && is_null(&value) {
                    problems.push(error(
                        at,
                        Some(&key),
                        "no rule; one that always holds is \"@\"".to_owned(),
                    ));
                } else {
                    overrides.push(Override {
                        line: at,
                        name: key,
                        text: value.into_owned(),
                    });
                }
            }
            // What an empty document holds.
            (Event::Scalar(value, ScalarStyle::Plain, _, None), None)
                if !within && is_null(&value) => {}
            (Event::Scalar(_, ScalarStyle::Plain, _, None), None) if !within => {
                problems.push(error(
                    line,
                    None,
                    "a mapping of names to rules is due".to_owned(),
                ));
                break;
            }
            (Event::MappingEnd, None) => within = false,
            (
                Event::Nothing
                | Event::StreamStart
                | Event::StreamEnd
                | Event::DocumentStart(_)
                | Event::DocumentEnd,
                None,
            ) => {}
            (Event::Scalar(_, _, _, Some(_)), key) => {
                let name = key.as_ref().map(|(_, name)| name.as_str());
                let problem = "a tag is not a rule; quote what begins with \"!\"";
                problems.push(error(line, name, problem.to_owned()));
            }
            (_, key) => {
                let name = key.as_ref().map(|(_, name)| name.as_str());
                let problem = "a rule is text; lists, mappings and aliases are not understood";
                problems.push(error(line, name, problem.to_owned()));
                break;
            }
        }
    }
    if problems.is_empty() {
        Ok(overrides)
    } else {
        Err(problems)
    }
}

fn is_null(text: &str) -> bool {
    ["", "~", "null"].contains(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_come_with_their_lines() {
        let text = concat!(
            "# what differs here\n",
            "\"load-balancer:admin\": \"role:boss\"\n",
            "\n",
            "load-balancer:read: role:reader or\n",
            "  role:member\n",
            "'always': ''\n",
        );
        let shown: Vec<(usize, String, String)> = parse(text)
            .unwrap()
            .into_iter()
            .map(|rule| (rule.line, rule.name, rule.text))
            .collect();
        let rule = |line, name: &str, text: &str| (line, name.to_owned(), text.to_owned());
        assert_eq!(
            shown,
            [
                rule(2, "load-balancer:admin", "role:boss"),
                rule(4, "load-balancer:read", "role:reader or role:member"),
                rule(6, "always", ""),
            ]
        );
    }

    #[test]
    fn json_is_yaml_and_nothing_is_no_rule() {
        assert_eq!(parse("{\"a\": \"@\", \"b\": \"!\"}").unwrap().len(), 2);
        for text in ["", "# only a comment\n", "---\n...\n", "{}"] {
            assert_eq!(parse(text).unwrap(), [], "{text:?}");
        }
    }

    #[test]
    fn what_is_no_policy_names_line_and_rule() {
        for (text, line, rule, problem) in [
            (
                "a: \"@\"\nb: [\"role:x\"]\n",
                2,
                Some("b"),
                "a rule is text",
            ),
            ("a: {b: c}\n", 1, Some("a"), "a rule is text"),
            ("a: &x \"@\"\nb: *x\n", 2, Some("b"), "a rule is text"),
            ("- a\n", 1, None, "a rule is text"),
            ("role:admin\n", 1, None, "a mapping of names"),
            ("a: \"@\"\na: \"!\"\n", 2, Some("a"), "given twice"),
            ("a: \"@\"\nb:\n", 2, Some("b"), "no rule"),
            ("a: \"@\"\nb: !\n", 2, Some("b"), "a tag is not a rule"),
            ("a: \"@\"\nb: @\n", 2, None, "not YAML"),
            ("a: \"role:x\n", 1, None, "not YAML"),
        ] {
            let errors = parse(text).unwrap_err();
            let error = errors.first().unwrap();
            assert!(error.problem.contains(problem), "{text:?}: {error}");
            assert_eq!(error.rule.as_deref(), rule, "{text:?}: {error}");
            let at = error.line.unwrap();
            assert!((line..=line + 1).contains(&at), "{text:?}: {error}");
        }
    }
}
