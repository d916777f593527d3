//! The eBPF object that the build script embedded.

use crate::error::Error;

static OBJECT: &[u8] = aya::include_bytes_aligned!(env!("XDP_LB_OBJECT"));
const MISSING: &str = env!("XDP_LB_MISSING");

/// The object's bytes.
pub(crate) fn object() -> Result<&'static [u8], Error> {
    if OBJECT.is_empty() {
        return Err(Error::NotBuilt { missing: MISSING });
    }
    Ok(OBJECT)
}
