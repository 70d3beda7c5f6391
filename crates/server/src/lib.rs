//! HTTP API, authentication, metrics.

pub mod auth;
pub mod limit;
