//! control-plane/controllers
