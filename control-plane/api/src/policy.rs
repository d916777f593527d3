//! Who may do what. With identity `none` every caller is an administrator; the rules stand here for the callers that
//! an identity service knows.

use lb_drivers::Caller;
use lb_model::LoadBalancerId;
use lb_store::{Filter, Query};

use crate::ApiState;
use crate::fault::{ApiFault, Result};

/// Administrators, and callers of the project itself.
pub(crate) fn allow_project(caller: &Caller, project_id: &str) -> Result<()> {
    if caller.is_admin || caller.project_id.as_deref() == Some(project_id) {
        Ok(())
    } else {
        Err(ApiFault::forbidden())
    }
}

pub(crate) fn allow_admin(caller: &Caller) -> Result<()> {
    if caller.is_admin {
        Ok(())
    } else {
        Err(ApiFault::forbidden())
    }
}

/// As [`allow_project`], for the project of a load balancer; reads it only when it decides something.
pub(crate) async fn allow_load_balancer(
    state: &ApiState,
    caller: &Caller,
    id: LoadBalancerId,
) -> Result<()> {
    if caller.is_admin {
        return Ok(());
    }
    let query = Query {
        filters: vec![Filter {
            column: "id".to_owned(),
            value: id.to_string(),
        }],
        limit: Some(1),
        ..Query::default()
    };
    let rows = state.store.list_load_balancers(&query).await?;
    match rows.first() {
        Some(row) => allow_project(caller, &row.load_balancer.project_id),
        None => Err(ApiFault::forbidden()),
    }
}

/// The project a list is limited to: administrators see all unless they ask for one; others see their own.
pub(crate) fn listed_project(caller: &Caller, asked: Option<String>) -> Result<Option<String>> {
    if caller.is_admin {
        return Ok(asked);
    }
    let own = caller.project_id.clone().ok_or_else(ApiFault::forbidden)?;
    match asked {
        Some(asked) if asked != own => Err(ApiFault::forbidden()),
        _ => Ok(Some(own)),
    }
}
