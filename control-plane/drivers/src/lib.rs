//! control-plane/drivers
