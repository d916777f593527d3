//! control-plane/store
