//! amphora-agent/proxy
