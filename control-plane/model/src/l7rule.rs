//! An L7 rule: one condition of a policy.

use serde::{Deserialize, Serialize};

use crate::text::text_enum;
use crate::{L7RuleId, OperatingStatus, ProvisioningStatus, Timestamp};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct L7Rule {
    pub id: L7RuleId,
    pub project_id: String,
    pub admin_state_up: bool,
    pub provisioning_status: ProvisioningStatus,
    pub operating_status: OperatingStatus,
    pub kind: L7RuleType,
    pub compare_type: L7RuleCompareType,
    pub key: Option<String>,
    pub value: String,
    pub invert: bool,
    pub tags: Vec<String>,
    pub created_at: Timestamp,
    pub updated_at: Option<Timestamp>,
}

text_enum! {
    L7RuleType {
        Cookie = "COOKIE",
        FileType = "FILE_TYPE",
        Header = "HEADER",
        HostName = "HOST_NAME",
        Path = "PATH",
        SslConnHasCert = "SSL_CONN_HAS_CERT",
        SslVerifyResult = "SSL_VERIFY_RESULT",
        SslDnField = "SSL_DN_FIELD",
    }
}

text_enum! {
    L7RuleCompareType {
        Contains = "CONTAINS",
        EndsWith = "ENDS_WITH",
        EqualTo = "EQUAL_TO",
        Regex = "REGEX",
        StartsWith = "STARTS_WITH",
    }
}
