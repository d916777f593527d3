//! What a rule says, in oslo.policy's language: parsed once, then asked.
//!
//! ```text
//! or    = and ("or" and)*
//! and   = not ("and" not)*
//! not   = "not" not | "(" or ")" | check
//! check = "@" | "!" | role:NAME | rule:NAME | is_admin:True | ATTRIBUTE:VALUE | 'TEXT':%(TARGET)s
//! ```
//! A value is text, or `%(project_id)s` for the target's. An empty rule always holds. Names of roles are compared
//! without regard to case, as Keystone does.

use lb_drivers::Caller;

/// Parentheses and `not` within each other, and rules that refer to rules.
pub(super) const MAX_DEPTH: usize = 64;

/// What is acted upon.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) project_id: Option<&'a str>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Check {
    Always,
    Never,
    Not(Box<Check>),
    All(Vec<Check>),
    Any(Vec<Check>),
    /// By its place among the rules.
    Rule(usize),
    Role(Value),
    IsAdmin(bool),
    Attribute(Attribute, Value),
    /// A text that the target's attribute has to be.
    Text(String, TargetAttribute),
}

/// What is known of the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attribute {
    UserId,
    UserDomainId,
    ProjectId,
    ProjectDomainId,
    DomainId,
    SystemScope,
}

/// What is known of the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TargetAttribute {
    ProjectId,
    /// Objects have no owner but their project: nobody is the user of one.
    UserId,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    Text(String),
    Target(TargetAttribute),
}

impl Check {
    pub(super) fn holds(&self, rules: &[Check], caller: &Caller, target: Target<'_>) -> bool {
        let holds = |check: &Check| check.holds(rules, caller, target);
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Not(check) => !holds(check),
            Self::All(checks) => checks.iter().all(holds),
            Self::Any(checks) => checks.iter().any(holds),
            Self::Rule(place) => rules.get(*place).is_some_and(holds),
            Self::Role(value) => value.text(target).is_some_and(|wanted| {
                caller
                    .roles
                    .iter()
                    .any(|role| role.eq_ignore_ascii_case(wanted))
            }),
            Self::IsAdmin(expected) => caller.is_admin == *expected,
            Self::Attribute(attribute, value) => {
                let own = attribute.of(caller);
                own.is_some() && own == value.text(target)
            }
            Self::Text(text, attribute) => attribute.of(target) == Some(text.as_str()),
        }
    }

    /// The places it refers to, with how deep it stands around them.
    pub(super) fn references(&self) -> Vec<(usize, usize)> {
        let mut found = Vec::new();
        self.collect(0, &mut found);
        found
    }

    fn collect(&self, depth: usize, found: &mut Vec<(usize, usize)>) {
        match self {
            Self::Not(check) => check.collect(depth + 1, found),
            Self::All(checks) | Self::Any(checks) => {
                for check in checks {
                    check.collect(depth + 1, found);
                }
            }
            Self::Rule(place) => found.push((*place, depth + 1)),
            Self::Always
            | Self::Never
            | Self::Role(_)
            | Self::IsAdmin(_)
            | Self::Attribute(..)
            | Self::Text(..) => {}
        }
    }
}

impl Value {
    fn text<'a>(&'a self, target: Target<'a>) -> Option<&'a str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Target(attribute) => attribute.of(target),
        }
    }
}

impl Attribute {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "user_id" | "user" => Self::UserId,
            "user_domain_id" | "user_domain" => Self::UserDomainId,
            "project_id" | "tenant_id" | "tenant" => Self::ProjectId,
            "project_domain_id" | "project_domain" => Self::ProjectDomainId,
            "domain_id" | "domain" => Self::DomainId,
            "system_scope" => Self::SystemScope,
            _ => return None,
        })
    }

    fn of(self, caller: &Caller) -> Option<&str> {
        match self {
            Self::UserId => caller.user_id.as_deref(),
            Self::UserDomainId => caller.user_domain_id.as_deref(),
            Self::ProjectId => caller.project_id.as_deref(),
            Self::ProjectDomainId => caller.project_domain_id.as_deref(),
            Self::DomainId => caller.domain_id.as_deref(),
            Self::SystemScope => caller.system_scope.as_deref(),
        }
    }
}

impl TargetAttribute {
    fn of(self, target: Target<'_>) -> Option<&str> {
        match self {
            Self::ProjectId => target.project_id,
            Self::UserId => None,
        }
    }
}

/// Reads a rule; `place` finds the rules it refers to. The error says what is wrong with it.
pub(super) fn parse(text: &str, place: &dyn Fn(&str) -> Option<usize>) -> Result<Check, String> {
    let tokens = tokens(text)?;
    if tokens.is_empty() {
        return Ok(Check::Always);
    }
    let mut parser = Parser {
        tokens: &tokens,
        next: 0,
        place,
    };
    let check = parser.any(0)?;
    match parser.peek() {
        None => Ok(check),
        Some(token) => Err(format!("unexpected {}", token.shown())),
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Open,
    Close,
    And,
    Or,
    Not,
    Check(String),
}

impl Token {
    fn shown(&self) -> String {
        match self {
            Self::Open => "\"(\"".to_owned(),
            Self::Close => "\")\"".to_owned(),
            Self::And => "\"and\"".to_owned(),
            Self::Or => "\"or\"".to_owned(),
            Self::Not => "\"not\"".to_owned(),
            Self::Check(text) => format!("{text:?}"),
        }
    }
}

/// Words end at white space and parentheses; those of `%(name)s` belong to the word.
fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '(' => {
                tokens.push(Token::Open);
                1
            }
            ')' => {
                tokens.push(Token::Close);
                1
            }
            _ => {
                let length = word(rest)?;
                let (word, _) = rest.split_at(length);
                tokens.push(match word.to_ascii_lowercase().as_str() {
                    "and" => Token::And,
                    "or" => Token::Or,
                    "not" => Token::Not,
                    _ => Token::Check(word.to_owned()),
                });
                length
            }
        };
        rest = rest.split_at(length).1.trim_start();
    }
    Ok(tokens)
}

/// Bytes of the word that the text begins with.
fn word(text: &str) -> Result<usize, String> {
    let mut quote = None;
    let mut within = false;
    let mut before = ' ';
    for (at, character) in text.char_indices() {
        match (quote, character) {
            (Some(open), _) if open == character => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(character),
            (None, '(') if before == '%' => within = true,
            (None, ')') if within => within = false,
            (None, '(' | ')') => return Ok(at),
            (None, _) if character.is_whitespace() => return Ok(at),
            (None, _) => {}
        }
        before = character;
    }
    match quote {
        Some(quote) => Err(format!("a {quote} is not closed")),
        None => Ok(text.len()),
    }
}

struct Parser<'a> {
    tokens: &'a [Token],
    next: usize,
    place: &'a dyn Fn(&str) -> Option<usize>,
}

impl Parser<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next)
    }

    fn take(&mut self, token: &Token) -> bool {
        let taken = self.peek() == Some(token);
        if taken {
            self.next += 1;
        }
        taken
    }

    fn any(&mut self, depth: usize) -> Result<Check, String> {
        let mut checks = vec![self.all(depth)?];
        while self.take(&Token::Or) {
            checks.push(self.all(depth)?);
        }
        Ok(one_or(checks, Check::Any))
    }

    fn all(&mut self, depth: usize) -> Result<Check, String> {
        let mut checks = vec![self.one(depth)?];
        while self.take(&Token::And) {
            checks.push(self.one(depth)?);
        }
        Ok(one_or(checks, Check::All))
    }

    fn one(&mut self, depth: usize) -> Result<Check, String> {
        if depth > MAX_DEPTH {
            return Err(format!("more than {MAX_DEPTH} levels within each other"));
        }
        let Some(token) = self.peek().cloned() else {
            return Err("a check is missing at the end".to_owned());
        };
        self.next += 1;
        match token {
            Token::Not => Ok(Check::Not(Box::new(self.one(depth + 1)?))),
            Token::Open => {
                let check = self.any(depth + 1)?;
                if self.take(&Token::Close) {
                    Ok(check)
                } else {
                    Err("a parenthesis is not closed".to_owned())
                }
            }
            Token::Check(text) => self.check(&text),
            Token::Close | Token::And | Token::Or => Err(format!("unexpected {}", token.shown())),
        }
    }

    fn check(&self, text: &str) -> Result<Check, String> {
        match text {
            "@" => return Ok(Check::Always),
            "!" => return Ok(Check::Never),
            _ => {}
        }
        if let Some(quote) = text
            .chars()
            .next()
            .filter(|first| ['\'', '"'].contains(first))
        {
            return quoted(text, quote);
        }
        let (kind, value) = text
            .split_once(':')
            .filter(|(kind, value)| !kind.is_empty() && !value.is_empty())
            .ok_or_else(|| format!("{text:?}: a check is kind:value"))?;
        match kind {
            "rule" => (self.place)(value)
                .map(Check::Rule)
                .ok_or_else(|| format!("rule:{value}: there is no such rule")),
            "role" => Ok(Check::Role(parse_value(value)?)),
            "is_admin" => match value.to_ascii_lowercase().as_str() {
                "true" => Ok(Check::IsAdmin(true)),
                "false" => Ok(Check::IsAdmin(false)),
                _ => Err(format!("{text}: is_admin is True or False")),
            },
            "http" | "https" => Err(format!(
                "{text}: checks by a remote service are not supported"
            )),
            _ => match Attribute::parse(kind) {
                Some(attribute) => Ok(Check::Attribute(attribute, parse_value(value)?)),
                None => Err(format!("{text}: nothing is known as {kind:?} of a caller")),
            },
        }
    }
}

fn one_or(mut checks: Vec<Check>, make: fn(Vec<Check>) -> Check) -> Check {
    if checks.len() == 1 {
        checks.remove(0)
    } else {
        make(checks)
    }
}

/// `'text':%(name)s`.
fn quoted(text: &str, quote: char) -> Result<Check, String> {
    let malformed = || format!("{text}: a quoted text is compared as 'text':%(name)s");
    let (literal, rest) = text
        .strip_prefix(quote)
        .and_then(|rest| rest.split_once(quote))
        .ok_or_else(malformed)?;
    match rest.strip_prefix(':').map(parse_value) {
        Some(Ok(Value::Target(attribute))) => Ok(Check::Text(literal.to_owned(), attribute)),
        Some(Err(problem)) => Err(problem),
        Some(Ok(Value::Text(_))) | None => Err(malformed()),
    }
}

fn parse_value(text: &str) -> Result<Value, String> {
    if !text.contains('%') {
        return Ok(Value::Text(text.to_owned()));
    }
    let name = text
        .strip_prefix("%(")
        .and_then(|rest| rest.strip_suffix(")s"))
        .ok_or_else(|| format!("{text}: a value is text or %(name)s as a whole"))?;
    match name {
        "project_id" | "tenant_id" => Ok(Value::Target(TargetAttribute::ProjectId)),
        "user_id" => Ok(Value::Target(TargetAttribute::UserId)),
        _ => Err(format!("{text}: nothing is known as {name:?} of a target")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(roles: &[&str]) -> Caller {
        Caller {
            user_id: Some("alice".to_owned()),
            project_id: Some("blue".to_owned()),
            roles: roles.iter().map(|role| (*role).to_owned()).collect(),
            ..Caller::default()
        }
    }

    /// Rules 0 and 1 are `yes` and `no`.
    fn holds(text: &str, caller: &Caller) -> bool {
        let place = |name: &str| ["yes", "no"].iter().position(|known| *known == name);
        let rules = [Check::Always, Check::Never];
        let target = Target {
            project_id: Some("blue"),
        };
        parse(text, &place).unwrap().holds(&rules, caller, target)
    }

    #[test]
    fn every_form_of_check_holds_when_it_should() {
        let member = caller(&["Member"]);
        for (text, expected) in [
            ("", true),
            ("  ", true),
            ("@", true),
            ("!", false),
            ("not !", true),
            ("not not !", false),
            ("role:member", true),
            ("role:admin", false),
            ("rule:yes", true),
            ("rule:no", false),
            ("is_admin:True", false),
            ("is_admin:false", true),
            ("project_id:%(project_id)s", true),
            ("tenant_id:%(tenant_id)s", true),
            ("project_id:red", false),
            ("project_id:blue", true),
            ("user_id:alice", true),
            ("user_id:%(user_id)s", false),
            ("system_scope:all", false),
            ("domain_id:%(project_id)s", false),
            ("'blue':%(project_id)s", true),
            ("\"red\":%(project_id)s", false),
            (
                "role:x or (role:member and project_id:%(project_id)s)",
                true,
            ),
            ("role:x or (role:y and project_id:%(project_id)s)", false),
            ("@ or ! and !", true),
            ("(@ or !) and !", false),
            ("! and ! or @", true),
            ("NOT ! AND @", true),
            ("not (! or @)", false),
            ("not ! and !", false),
            ("((@))", true),
        ] {
            assert_eq!(holds(text, &member), expected, "{text}");
        }
    }

    #[test]
    fn what_a_caller_lacks_equals_nothing() {
        let nobody = Caller::default();
        let check = parse("project_id:%(project_id)s", &|_| None).unwrap();
        let nowhere = Target { project_id: None };
        assert!(!check.holds(&[], &nobody, nowhere));
        assert!(!check.holds(&[], &caller(&[]), nowhere));
    }

    #[test]
    fn a_rule_that_is_none_says_why() {
        for (text, problem) in [
            ("role", "a check is kind:value"),
            ("role:", "a check is kind:value"),
            (":x", "a check is kind:value"),
            ("rule:absent", "there is no such rule"),
            ("is_admin:maybe", "True or False"),
            ("colour:red", "nothing is known as \"colour\" of a caller"),
            (
                "project_id:%(colour)s",
                "nothing is known as \"colour\" of a target",
            ),
            ("project_id:x%(project_id)s", "as a whole"),
            ("http://decide/%(name)s", "remote service"),
            ("@ or", "missing at the end"),
            ("and @", "unexpected \"and\""),
            ("@ @", "unexpected \"@\""),
            ("(@", "not closed"),
            ("@)", "unexpected \")\""),
            ("()", "unexpected \")\""),
            ("'blue:%(project_id)s", "a ' is not closed"),
            ("'blue':red", "is compared as"),
            ("'blue'", "is compared as"),
        ] {
            let error = parse(text, &|_| None).unwrap_err();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }

    #[test]
    fn nesting_has_an_end() {
        for text in ["(".repeat(100_000), "not ".repeat(100_000)] {
            let error = parse(&text, &|_| None).unwrap_err();
            assert!(error.contains("levels"), "{error}");
        }
        let wide = vec!["@"; 10_000].join(" and ");
        assert!(parse(&wide, &|_| None).is_ok());
    }
}
