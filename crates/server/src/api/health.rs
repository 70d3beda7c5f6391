//! For the operators of the process: whether it is alive, and whether it may have traffic.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use store::error::Causes;
use transfer::Coordinator;
use utoipa::ToSchema;

use super::error::json;
use super::{App, Shared};

/// A database that takes longer than that is away.
const DATABASE_TIME: Duration = Duration::from_secs(2);
/// A disk that was full counts as full for so many intervals.
const FULL_INTERVALS: u32 = 10;

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
    match app.verdict() {
        Ok(()) => json(StatusCode::OK, &Health { status: "ok".to_owned() }),
        Err(status) => json(StatusCode::SERVICE_UNAVAILABLE, &Health { status }),
    }
}

impl App {
    /// Whether this process may have traffic, or why not. It is asked often, by anybody, so it asks nobody: whoever watches
    /// a part has said how the part is.
    pub fn verdict(&self) -> Result<(), String> {
        let coordinator = self.intake.coordinator();
        if self.stopping.load(Ordering::Relaxed) {
            Err("stopping".to_owned())
        } else if !coordinator.has_lease() {
            Err("no node number".to_owned())
        } else if let Some((part, trouble)) = coordinator.readiness().first_trouble() {
            // The words are in the log: anybody may ask here.
            Err(format!("{part}: {}", trouble.code))
        } else {
            Ok(())
        }
    }
}

/// Asks the database at intervals whether it is there and has the schema of this program, and says so.
///
/// That a disk is full is noticed by those who write. It is believed for a while, in which no new transfer is tried; then
/// they may try again.
pub async fn watch_database(coordinator: Arc<Coordinator>, interval: Duration) {
    let mut full = 0;
    loop {
        let parts = coordinator.readiness().read();
        let is_full = parts.iter().any(|(part, trouble)| {
            *part == "database" && trouble.as_ref().is_some_and(|trouble| trouble.code == "DATABASE_FULL")
        });
        full = if is_full { full + 1 } else { 0 };
        if full == 0 || full > FULL_INTERVALS {
            check_database(&coordinator).await;
        }
        tokio::time::sleep(interval).await;
    }
}

/// One such question.
pub async fn check_database(coordinator: &Coordinator) {
    let readiness = coordinator.readiness();
    match tokio::time::timeout(DATABASE_TIME, coordinator.db().check_ready()).await {
        Ok(Ok(())) => readiness.well("database"),
        Ok(Err(error)) => readiness.trouble("database", error.code(), Causes(&error).to_string()),
        Err(_) => {
            let words = format!("it did not answer within {} seconds", DATABASE_TIME.as_secs());
            readiness.trouble("database", "DATABASE_UNAVAILABLE", words);
        }
    }
}
