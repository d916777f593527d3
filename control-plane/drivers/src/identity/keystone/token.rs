//! The token document of `/v3/auth/tokens`, as far as it matters here.

use std::time::Duration;

use serde::Deserialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::super::Caller;

/// Ids are 64 characters at most in Keystone's own tables.
const MAX_ID_CHARS: usize = 64;
/// More roles than anybody has.
const MAX_ROLES: usize = 1000;

/// What a token says.
#[derive(Debug)]
pub(super) struct Token {
    expires_at: OffsetDateTime,
    caller: Caller,
}

#[derive(Deserialize)]
struct Document {
    token: Body,
}

#[derive(Deserialize)]
struct Body {
    expires_at: String,
    user: Entity,
    project: Option<Entity>,
    domain: Option<Entity>,
    system: Option<System>,
    #[serde(default)]
    roles: Vec<Role>,
}

#[derive(Deserialize)]
struct Entity {
    id: String,
    domain: Option<DomainOf>,
}

#[derive(Deserialize)]
struct DomainOf {
    id: Option<String>,
}

#[derive(Deserialize)]
struct System {
    #[serde(default)]
    all: bool,
}

#[derive(Deserialize)]
struct Role {
    name: String,
}

impl Token {
    /// The error says what is wrong with the document and quotes nothing of it.
    pub(super) fn parse(body: &[u8]) -> Result<Self, String> {
        let Document { token } = serde_json::from_slice(body).map_err(|error| {
            format!(
                "the token document is not understood (line {}, column {})",
                error.line(),
                error.column()
            )
        })?;
        let expires_at = OffsetDateTime::parse(&token.expires_at, &Rfc3339)
            .map_err(|_| "expires_at of the token document is no time".to_owned())?;
        let ids = [
            Some(&token.user),
            token.project.as_ref(),
            token.domain.as_ref(),
        ];
        if ids
            .into_iter()
            .flatten()
            .any(|entity| entity.id.is_empty() || entity.id.len() > MAX_ID_CHARS)
        {
            return Err("an id of the token document is empty or too long".to_owned());
        }
        if token.roles.len() > MAX_ROLES {
            return Err(format!("the token document has over {MAX_ROLES} roles"));
        }
        let domain_of = |entity: &Entity| entity.domain.as_ref()?.id.clone();
        let caller = Caller {
            user_domain_id: domain_of(&token.user),
            user_id: Some(token.user.id),
            project_domain_id: token.project.as_ref().and_then(domain_of),
            project_id: token.project.map(|project| project.id),
            domain_id: token.domain.map(|domain| domain.id),
            system_scope: token
                .system
                .filter(|system| system.all)
                .map(|_| "all".to_owned()),
            roles: token.roles.into_iter().map(|role| role.name).collect(),
            is_admin: false,
        };
        Ok(Self { expires_at, caller })
    }

    /// Zero when it is over.
    pub(super) fn time_left(&self) -> Duration {
        (self.expires_at - OffsetDateTime::now_utc())
            .try_into()
            .unwrap_or(Duration::ZERO)
    }

    pub(super) fn into_caller(self) -> Caller {
        self.caller
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_scoped_token_names_user_project_domains_and_roles() {
        let body = br#"{"token": {
            "methods": ["password"], "audit_ids": ["x"], "issued_at": "2026-01-30T14:00:00.000000Z",
            "expires_at": "2026-01-30T15:00:00.000000Z", "is_domain": false,
            "user": {"id": "u", "name": "demo", "domain": {"id": "default", "name": "Default"}},
            "project": {"id": "p", "name": "demo", "domain": {"id": "d", "name": "D"}},
            "roles": [{"id": "1", "name": "member"}, {"id": "2", "name": "reader"}]}}"#;
        let caller = Token::parse(body).unwrap().into_caller();
        assert_eq!(
            caller,
            Caller {
                user_id: Some("u".to_owned()),
                user_domain_id: Some("default".to_owned()),
                project_id: Some("p".to_owned()),
                project_domain_id: Some("d".to_owned()),
                domain_id: None,
                system_scope: None,
                roles: vec!["member".to_owned(), "reader".to_owned()],
                is_admin: false,
            }
        );
    }

    #[test]
    fn other_scopes_have_no_project() {
        let scoped = |scope: &str| {
            let body = format!(
                r#"{{"token": {{"expires_at": "2026-01-30T15:00:00Z", "user": {{"id": "u"}}{scope}}}}}"#
            );
            Token::parse(body.as_bytes()).unwrap().into_caller()
        };
        let system = scoped(r#", "system": {"all": true}, "roles": [{"name": "admin"}]"#);
        assert_eq!(system.system_scope.as_deref(), Some("all"));
        assert_eq!(system.project_id, None);
        let domain = scoped(r#", "domain": {"id": "d", "name": "D"}"#);
        assert_eq!(domain.domain_id.as_deref(), Some("d"));
        assert_eq!(scoped("").roles, Vec::<String>::new());
    }

    #[test]
    fn a_document_that_is_none_is_refused_without_quoting_it() {
        let long = "x".repeat(65);
        let wrong_id = format!(
            r#"{{"token": {{"expires_at": "2026-01-30T15:00:00Z", "user": {{"id": "{long}"}}}}}}"#
        );
        for body in [
            "",
            "hunter2",
            "[]",
            r#"{"token": {"user": {"id": "hunter2"}}}"#,
            r#"{"token": {"expires_at": "hunter2", "user": {"id": "u"}}}"#,
            r#"{"token": {"expires_at": "2026-01-30T15:00:00Z", "user": {"id": ""}}}"#,
            &wrong_id,
        ] {
            let error = Token::parse(body.as_bytes()).unwrap_err();
            assert!(error.contains("token document"), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
