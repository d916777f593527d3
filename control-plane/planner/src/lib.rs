//! control-plane/planner
