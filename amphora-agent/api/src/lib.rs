//! amphora-agent/api
