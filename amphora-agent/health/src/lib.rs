//! amphora-agent/health
