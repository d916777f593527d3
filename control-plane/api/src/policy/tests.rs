//! Roles against rules, in each way that roles can be set up.

use super::*;

const OWN: &str = "blue";
const OTHER: &str = "red";

fn caller(roles: &[&str]) -> Caller {
    Caller {
        user_id: Some("alice".to_owned()),
        project_id: Some(OWN.to_owned()),
        roles: roles.iter().map(|role| (*role).to_owned()).collect(),
        ..Caller::default()
    }
}

fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../etc/policy")
        .join(name)
}

fn with_file(name: &str, enforce_scope: bool) -> Policy {
    Policy::load(PolicySettings {
        file: Some(shipped(name)),
        enforce_scope,
        ..PolicySettings::default()
    })
    .unwrap()
}

/// What a caller may do, one rule for each kind there is:
/// read own, read other, list all, write own, write other, fail over, read other's quota, write quota, list amphorae,
/// list flavors.
fn may(policy: &Policy, caller: &Caller) -> String {
    let cases = [
        (Rule::LoadBalancerGetOne, OWN),
        (Rule::LoadBalancerGetOne, OTHER),
        (Rule::LoadBalancerGetAllGlobal, OTHER),
        (Rule::PoolPut, OWN),
        (Rule::PoolPut, OTHER),
        (Rule::LoadBalancerPutFailover, OWN),
        (Rule::QuotaGetOne, OTHER),
        (Rule::QuotaPut, OWN),
        (Rule::AmphoraGetAll, OWN),
        (Rule::FlavorGetAll, OWN),
    ];
    cases
        .iter()
        .map(|(rule, project)| {
            if policy.allows(*rule, caller, Some(project)) {
                'y'
            } else {
                '-'
            }
        })
        .collect()
}

#[test]
fn each_set_of_roles_may_do_what_octavia_lets_it_do() {
    let keystone = Policy::default();
    let both = Policy::load(PolicySettings {
        defaults: Defaults::KeystoneAndAdvanced,
        ..PolicySettings::default()
    })
    .unwrap();
    let advanced = with_file("advanced-rbac.yaml", true);
    let owner = with_file("admin-or-owner.yaml", true);
    // Keystone gives reader with member, and both with admin.
    for (roles, by_keystone, by_both, by_advanced, by_owner) in [
        (
            &[][..],
            "----------",
            "----------",
            "----------",
            "y--y-----y",
        ),
        (
            &["reader"],
            "y--------y",
            "y--------y",
            "----------",
            "y--y-----y",
        ),
        (
            &["member", "reader"],
            "y--y-----y",
            "y--y-----y",
            "----------",
            "y--y-----y",
        ),
        (
            &["admin", "member", "reader"],
            "yyyyyyyyyy",
            "yyyyyyyyyy",
            "yyyyyyyyyy",
            "yyyyyyyyyy",
        ),
        (
            &["ADMIN"],
            "yyyyyyyyyy",
            "yyyyyyyyyy",
            "yyyyyyyyyy",
            "yyyyyyyyyy",
        ),
        (
            &["service"],
            "----------",
            "----------",
            "----------",
            "y--y-----y",
        ),
        (
            &["load-balancer_observer"],
            "----------",
            "y--------y",
            "y--------y",
            "y--y-----y",
        ),
        (
            &["load-balancer_member"],
            "----------",
            "y--y-----y",
            "y--y-----y",
            "y--y-----y",
        ),
        (
            &["load-balancer_global_observer"],
            "----------",
            "yyy---y--y",
            "yyy---y--y",
            "y--y-----y",
        ),
        (
            &["load-balancer_quota_admin"],
            "----------",
            "------yy--",
            "------yy--",
            "y--y-----y",
        ),
        (
            &["load-balancer_admin"],
            "----------",
            "yyyyyyyyyy",
            "yyyyyyyyyy",
            "yyyyyyyyyy",
        ),
    ] {
        let caller = caller(roles);
        let found = [&keystone, &both, &advanced, &owner].map(|policy| may(policy, &caller));
        assert_eq!(
            found,
            [by_keystone, by_both, by_advanced, by_owner],
            "{roles:?}"
        );
    }
}

#[test]
fn telemetry_lists_members_by_the_service_role_and_nothing_else() {
    let policy = Policy::default();
    let service = caller(&["service"]);
    let allowed: Vec<&Rule> = Rule::ALL
        .iter()
        .filter(|rule| policy.allows(**rule, &service, Some(OTHER)))
        .collect();
    assert_eq!(allowed, [&Rule::MemberGetAll]);
}

#[test]
fn tokens_of_system_and_domain_are_refused_unless_scope_is_not_enforced() {
    let system = Caller {
        project_id: None,
        system_scope: Some("all".to_owned()),
        ..caller(&["admin", "member", "reader"])
    };
    let reader = Caller {
        roles: vec!["reader".to_owned()],
        ..system.clone()
    };
    let domain = Caller {
        system_scope: None,
        domain_id: Some("default".to_owned()),
        ..system.clone()
    };
    assert_eq!(may(&Policy::default(), &system), "----------");
    assert_eq!(may(&Policy::default(), &domain), "----------");
    let scoped = with_file("keystone-default-roles-scoped.yaml", false);
    assert_eq!(may(&scoped, &system), "yyyyyyyyyy");
    assert_eq!(may(&scoped, &reader), "yyy---y--y");
}

#[test]
fn without_an_identity_service_everything_is_allowed_whatever_the_rules() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("policy.yaml");
    std::fs::write(&file, "\"load-balancer:write\": \"!\"\n").unwrap();
    let policy = Policy::load(PolicySettings {
        file: Some(file),
        ..PolicySettings::default()
    })
    .unwrap();
    let anyone = Caller {
        is_admin: true,
        ..Caller::default()
    };
    for rule in Rule::ALL {
        assert!(policy.allows(*rule, &anyone, None), "{rule:?}");
    }
    assert!(!policy.allows(Rule::PoolPost, &caller(&["admin"]), Some(OWN)));
}

#[test]
fn a_changed_file_is_taken_over_and_a_wrong_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("policy.yaml");
    std::fs::write(&file, "").unwrap();
    let policy = Policy::load(PolicySettings {
        file: Some(file.clone()),
        ..PolicySettings::default()
    })
    .unwrap();
    let boss = caller(&["boss"]);
    let allowed = || policy.allows(Rule::AmphoraGetAll, &boss, Some(OWN));
    assert!(!allowed());
    assert!(!policy.refresh().unwrap());
    std::fs::write(&file, "\"load-balancer:admin\": \"role:boss\"\n").unwrap();
    assert!(policy.refresh().unwrap());
    assert!(allowed());
    std::fs::write(&file, "\"load-balancer:admin\": \"role:boss and\"\n").unwrap();
    let error = policy.refresh().unwrap_err().to_string();
    assert!(error.contains("line 1: load-balancer:admin: "), "{error}");
    assert!(allowed());
    // It is not read over and over.
    assert!(!policy.refresh().unwrap());
    std::fs::remove_file(&file).unwrap();
    assert!(matches!(policy.reload(), Err(PolicyFileError::Read { .. })));
    assert!(allowed());
}

#[test]
fn a_file_that_is_not_there_or_too_long_is_an_error_at_start() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("policy.yaml");
    let load = || {
        Policy::load(PolicySettings {
            file: Some(file.clone()),
            ..PolicySettings::default()
        })
    };
    assert!(matches!(load(), Err(PolicyFileError::Read { .. })));
    std::fs::write(&file, "#".repeat(1024 * 1024 + 1)).unwrap();
    assert!(matches!(load(), Err(PolicyFileError::Read { .. })));
}

#[test]
fn the_rules_in_force_say_where_they_come_from() {
    let effective = with_file("advanced-rbac.yaml", true).effective();
    assert_eq!(
        effective.len(),
        Policy::default().effective().len(),
        "the shipped file only overrides"
    );
    let rule = |name: &str| {
        effective
            .iter()
            .find(|rule| rule.name == name)
            .unwrap()
            .clone()
    };
    assert!(rule("load-balancer:admin").line.is_some());
    assert_eq!(rule("os_load-balancer_api:quota:put").line, None);
    assert_eq!(
        rule("os_load-balancer_api:quota:put").text,
        "rule:load-balancer:write-quota"
    );
}
