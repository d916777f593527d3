//! Provisioning and operating status of every resource, and what each allows.
//!
//! ```text
//!            POST            worker done
//!   (none) -------> PENDING_CREATE -----+
//!                                       v      worker failed
//!            PUT, child write   +--> ACTIVE <-------------------- ERROR
//!   ACTIVE ------> PENDING_UPDATE ------+       failover, child's own update
//!   ACTIVE, ERROR --DELETE--> PENDING_DELETE ----> gone (load balancers and amphorae: DELETED)
//! ```

use serde::{Deserialize, Serialize};

use crate::text::text_enum;

text_enum! {
    /// What the control plane is doing with a resource.
    ProvisioningStatus {
        Active = "ACTIVE",
        PendingCreate = "PENDING_CREATE",
        PendingUpdate = "PENDING_UPDATE",
        PendingDelete = "PENDING_DELETE",
        Error = "ERROR",
        Deleted = "DELETED",
    }
}

impl ProvisioningStatus {
    pub const fn is_pending(self) -> bool {
        match self {
            Self::PendingCreate | Self::PendingUpdate | Self::PendingDelete => true,
            Self::Active | Self::Error | Self::Deleted => false,
        }
    }

    /// May be updated, and may have children written.
    pub const fn is_mutable(self) -> bool {
        matches!(self, Self::Active)
    }

    pub const fn is_deletable(self) -> bool {
        matches!(self, Self::Active | Self::Error)
    }

    pub const fn may_fail_over(self) -> bool {
        matches!(self, Self::Active | Self::Error)
    }
}

text_enum! {
    /// What the data plane reports of a resource.
    OperatingStatus {
        Online = "ONLINE",
        Draining = "DRAINING",
        Offline = "OFFLINE",
        Degraded = "DEGRADED",
        Error = "ERROR",
        NoMonitor = "NO_MONITOR",
    }
}

text_enum! {
    /// Life of an amphora.
    AmphoraStatus {
        Booting = "BOOTING",
        Allocated = "ALLOCATED",
        Ready = "READY",
        PendingCreate = "PENDING_CREATE",
        PendingUpdate = "PENDING_UPDATE",
        PendingDelete = "PENDING_DELETE",
        Error = "ERROR",
        FailoverStopped = "FAILOVER_STOPPED",
        Deleted = "DELETED",
    }
}
