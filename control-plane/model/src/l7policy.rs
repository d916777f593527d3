//! An L7 policy: what to do with requests that match its rules.

use serde::{Deserialize, Serialize};

use crate::text::text_enum;
use crate::{L7PolicyId, L7Rule, OperatingStatus, PoolId, ProvisioningStatus, Timestamp};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct L7Policy {
    pub id: L7PolicyId,
    pub project_id: String,
    pub name: String,
    pub description: String,
    pub admin_state_up: bool,
    pub provisioning_status: ProvisioningStatus,
    pub operating_status: OperatingStatus,
    pub action: L7PolicyAction,
    pub redirect_pool_id: Option<PoolId>,
    pub redirect_url: Option<String>,
    pub redirect_prefix: Option<String>,
    /// 301, 302, 303, 307 or 308.
    pub redirect_http_code: Option<u16>,
    /// Contiguous from 1 within a listener.
    pub position: u32,
    pub tags: Vec<String>,
    pub created_at: Timestamp,
    pub updated_at: Option<Timestamp>,
    pub rules: Vec<L7Rule>,
}

text_enum! {
    L7PolicyAction {
        RedirectPrefix = "REDIRECT_PREFIX",
        RedirectToPool = "REDIRECT_TO_POOL",
        RedirectToUrl = "REDIRECT_TO_URL",
        Reject = "REJECT",
    }
}
