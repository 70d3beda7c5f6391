//! HTTP API, authentication, metrics.
