//! All rules together: what is built in, with those of a file in their place, each resolved to what it refers to.

use std::collections::BTreeMap;

use lb_drivers::Caller;

use super::check::{self, Check, MAX_DEPTH, Target};
use super::file::Override;
use super::rule::{BASE, CONTEXT_IS_ADMIN};
use super::{Defaults, PolicyError, Rule};

/// A rule as it is in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EffectiveRule {
    pub name: String,
    pub text: String,
    /// Of the policy file; `None` when it is built in.
    pub line: Option<usize>,
}

#[derive(Debug)]
pub(super) struct RuleSet {
    rules: Vec<EffectiveRule>,
    checks: Vec<Check>,
    /// Place of each [`Rule`], in the order of [`Rule::ALL`].
    places: Vec<usize>,
    context_is_admin: usize,
}

impl RuleSet {
    /// The error has every problem.
    pub(super) fn build(
        defaults: Defaults,
        overrides: Vec<Override>,
    ) -> Result<Self, Vec<PolicyError>> {
        let mut rules = built_in(defaults);
        let mut places: BTreeMap<String, usize> = rules
            .iter()
            .enumerate()
            .map(|(place, rule)| (rule.name.clone(), place))
            .collect();
        let mut problems = Vec::new();
        for given in overrides {
            let rule = EffectiveRule {
                name: given.name.clone(),
                text: given.text,
                line: Some(given.line),
            };
            match places
                .get(&given.name)
                .and_then(|place| rules.get_mut(*place))
            {
                Some(known) => *known = rule,
                None if given.name.starts_with("os_load-balancer_api:") => {
                    problems.push(problem(&rule, "the API has no such rule".to_owned()));
                }
                None => {
                    places.insert(given.name, rules.len());
                    rules.push(rule);
                }
            }
        }
        let mut checks = Vec::new();
        for rule in &rules {
            let place = |name: &str| places.get(name).copied();
            let check = check::parse(&rule.text, &place).unwrap_or_else(|text| {
                problems.push(problem(rule, text));
                Check::Never
            });
            checks.push(check);
        }
        let mut depths = Depths {
            checks: &checks,
            known: vec![None; checks.len()],
        };
        for (place, rule) in rules.iter().enumerate() {
            if depths.of(place, 0).is_none() {
                problems.push(problem(
                    rule,
                    "refers to itself, or to others too deep".to_owned(),
                ));
            }
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let place_of = |name: &str| places.get(name).copied().unwrap_or(usize::MAX);
        Ok(Self {
            places: Rule::ALL.iter().map(|rule| place_of(rule.name())).collect(),
            context_is_admin: place_of(CONTEXT_IS_ADMIN),
            rules,
            checks,
        })
    }

    /// A rule without a place holds for nobody.
    pub(super) fn holds(&self, rule: Rule, caller: &Caller, target: Target<'_>) -> bool {
        // The order of the variants is that of the list.
        let place = self.places.get(rule as usize);
        place.is_some_and(|place| self.holds_at(*place, caller, target))
    }

    pub(super) fn is_admin(&self, caller: &Caller) -> bool {
        let target = Target {
            project_id: caller.project_id.as_deref(),
        };
        self.holds_at(self.context_is_admin, caller, target)
    }

    fn holds_at(&self, place: usize, caller: &Caller, target: Target<'_>) -> bool {
        self.checks
            .get(place)
            .is_some_and(|check| check.holds(&self.checks, caller, target))
    }

    pub(super) fn rules(&self) -> &[EffectiveRule] {
        &self.rules
    }
}

fn built_in(defaults: Defaults) -> Vec<EffectiveRule> {
    let base = BASE.iter().map(|base| {
        let text = match (defaults, base.advanced) {
            (Defaults::KeystoneAndAdvanced, Some(advanced)) => {
                format!("({}) or ({advanced})", base.text)
            }
            (Defaults::KeystoneAndAdvanced, None) | (Defaults::Keystone, _) => base.text.to_owned(),
        };
        (base.name, text)
    });
    let api = Rule::ALL
        .iter()
        .map(|rule| (rule.name(), rule.default_text().to_owned()));
    base.chain(api)
        .map(|(name, text)| EffectiveRule {
            name: name.to_owned(),
            text,
            line: None,
        })
        .collect()
}

fn problem(rule: &EffectiveRule, problem: String) -> PolicyError {
    PolicyError {
        line: rule.line,
        rule: Some(rule.name.clone()),
        problem,
    }
}

/// How deep rules go through those they refer to.
struct Depths<'a> {
    checks: &'a [Check],
    known: Vec<Option<usize>>,
}

impl Depths<'_> {
    /// `None`: deeper than may be, as a circle is.
    fn of(&mut self, place: usize, above: usize) -> Option<usize> {
        if above > MAX_DEPTH {
            return None;
        }
        if let Some(known) = self.known.get(place).copied().flatten() {
            return (above + known <= MAX_DEPTH).then_some(known);
        }
        let mut deepest = 0;
        for (referred, depth) in self.checks.get(place)?.references() {
            deepest = deepest.max(depth + self.of(referred, above + depth)?);
        }
        if let Some(known) = self.known.get_mut(place) {
            *known = Some(deepest);
        }
        Some(deepest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overrides(rules: &[(&str, &str)]) -> Vec<Override> {
        rules
            .iter()
            .enumerate()
            .map(|(index, (name, text))| Override {
                line: index + 1,
                name: (*name).to_owned(),
                text: (*text).to_owned(),
            })
            .collect()
    }

    fn build(rules: &[(&str, &str)]) -> Result<RuleSet, Vec<PolicyError>> {
        RuleSet::build(Defaults::Keystone, overrides(rules))
    }

    #[test]
    fn what_is_built_in_resolves_and_every_rule_has_its_place() {
        for defaults in [Defaults::Keystone, Defaults::KeystoneAndAdvanced] {
            let set = RuleSet::build(defaults, Vec::new()).unwrap();
            for rule in Rule::ALL {
                let place = set.places[*rule as usize];
                assert_eq!(set.rules[place].name, rule.name());
            }
            assert_eq!(set.rules[set.context_is_admin].name, CONTEXT_IS_ADMIN);
        }
    }

    #[test]
    fn an_override_stands_in_place_of_the_default_and_may_use_new_names() {
        let set = build(&[
            ("load-balancer:admin", "rule:boss"),
            ("boss", "role:boss and not role:intern"),
        ])
        .unwrap();
        let nowhere = Target { project_id: None };
        for (roles, expected) in [
            (&["boss"][..], true),
            (&["admin"][..], false),
            (&["boss", "intern"][..], false),
        ] {
            let caller = Caller {
                roles: roles.iter().map(|role| (*role).to_owned()).collect(),
                ..Caller::default()
            };
            let holds = set.holds(Rule::AmphoraGetAll, &caller, nowhere);
            assert_eq!(holds, expected, "{roles:?}");
        }
    }

    #[test]
    fn every_problem_names_its_line_and_rule() {
        let chain: Vec<(String, String)> = (0..200)
            .map(|number| (format!("r{number}"), format!("rule:r{}", number + 1)))
            .chain([("r200".to_owned(), "@".to_owned())])
            .collect();
        let chain: Vec<(&str, &str)> = chain
            .iter()
            .map(|(name, text)| (name.as_str(), text.as_str()))
            .collect();
        let errors = build(&chain).unwrap_err();
        assert!(
            errors
                .iter()
                .all(|error| error.problem.contains("too deep"))
        );
        let errors = build(&[
            ("os_load-balancer_api:loadbalancer:pst", "@"),
            ("load-balancer:owner", "role"),
            ("a", "rule:b"),
            ("b", "not rule:a"),
        ])
        .unwrap_err();
        let shown: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let shown = shown.join("\n");
        for expected in [
            "line 1: os_load-balancer_api:loadbalancer:pst: the API has no such rule",
            "line 2: load-balancer:owner: \"role\"",
            "line 3: a: refers to itself",
            "line 4: b: refers to itself",
        ] {
            assert!(shown.contains(expected), "{expected}:\n{shown}");
        }
    }
}
