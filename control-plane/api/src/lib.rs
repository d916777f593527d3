//! control-plane/api
