//! For the operators of the process: whether it is alive, whether it may have traffic, and its counters.

use std::fmt::Write;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use super::Shared;
use super::error::json;

#[derive(Serialize, ToSchema)]
pub struct Health {
    /// ok, stopping, or what is missing.
    #[schema(example = "ok")]
    status: String,
}

/// The process runs
#[utoipa::path(get, path = "/health/live", tag = "operations", operation_id = "live",
    responses((status = 200, description = "It runs", body = Health)))]
pub async fn live() -> Response {
    json(StatusCode::OK, &Health { status: "ok".to_owned() })
}

/// It may have traffic
///
/// 503 while it stops, while its database does not answer, and while it has no node number to make ids with.
#[utoipa::path(get, path = "/health/ready", tag = "operations", operation_id = "ready",
    responses(
        (status = 200, description = "Send requests", body = Health),
        (status = 503, description = "Send them elsewhere", body = Health),
    ))]
pub async fn ready(State(app): Shared) -> Response {
    let status = if app.stopping.load(Ordering::Relaxed) {
        "stopping"
    } else if !app.intake.coordinator().has_lease() {
        "no node number"
    } else if !app.intake.is_whole() {
        "a lane has ended"
    } else if let Some((part, trouble)) = app.intake.coordinator().readiness().first_trouble() {
        let status = format!("{part}: {}: {}", trouble.code, trouble.words);
        return json(StatusCode::SERVICE_UNAVAILABLE, &Health { status });
    } else {
        let check = app.intake.coordinator().db().check_schema();
        match tokio::time::timeout(Duration::from_secs(2), check).await {
            Ok(Ok(())) => "ok",
            Ok(Err(_)) | Err(_) => "no database",
        }
    };
    let code = if status == "ok" { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    json(code, &Health { status: status.to_owned() })
}

/// Counters in Prometheus' text form
#[utoipa::path(get, path = "/metrics", tag = "operations", operation_id = "metrics",
    responses((status = 200, description = "Counters", body = String, content_type = "text/plain")))]
pub async fn metrics(State(app): Shared) -> Response {
    let mut text = String::new();
    let mut line = |name: &str, help: &str, value: u64| {
        // Writing to a string cannot fail.
        write!(text, "# HELP bursar_{name} {help}\n# TYPE bursar_{name} counter\nbursar_{name} {value}\n").ok();
    };
    for (name, help, value) in app.intake.coordinator().metrics().read() {
        line(&format!("{name}_total"), help, value);
    }
    text.push_str("# HELP bursar_http_requests_total answers by the first digit of their status\n");
    text.push_str("# TYPE bursar_http_requests_total counter\n");
    for (class, count) in app.requests.by_class.iter().enumerate().skip(2) {
        let count = count.load(Ordering::Relaxed);
        writeln!(text, "bursar_http_requests_total{{class=\"{class}xx\"}} {count}").ok();
    }
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}
