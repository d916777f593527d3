//! control-plane/model
