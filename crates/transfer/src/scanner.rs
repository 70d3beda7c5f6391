//! Recovery: transfers that have not ended are taken up again when they are due, for ever.
//!
//! They take the same path as a new transfer. Any number of scanners may run, in any number of processes.

use std::sync::Arc;
use std::time::Duration;

use domain::transfer::Transfer;
use store::StoreError;
use store::error::Causes;
use tokio::sync::watch;

use crate::coordinator::Coordinator;
use crate::supervisor::caught;

/// Transfers taken up at a time.
const BATCH: i64 = 256;

/// Scans until it is told to stop.
pub async fn scan(coordinator: Arc<Coordinator>, interval: Duration, mut stop: watch::Receiver<bool>) {
    loop {
        let taken = match scan_once(&coordinator).await {
            Ok(taken) => taken,
            Err(error) => {
                coordinator.note_failure(&error, "the scanner could not work");
                0
            }
        };
        if *stop.borrow() {
            return;
        }
        if i64::try_from(taken) == Ok(BATCH) {
            continue;
        }
        tokio::select! {
            () = tokio::time::sleep(interval) => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
    }
}

/// Takes up one batch of the transfers that are due, and returns how many there were.
pub async fn scan_once(coordinator: &Coordinator) -> Result<usize, StoreError> {
    let batch = coordinator.claim(BATCH).await?;
    let taken = batch.len();
    drive(coordinator, batch).await?;
    Ok(taken)
}

/// One transfer that cannot be driven must not hold up the others: if the batch fails, each is driven by itself. A panic
/// is such a failure too, or the transfer that causes it would end every batch that it is in.
async fn drive(coordinator: &Coordinator, batch: Vec<Transfer>) -> Result<(), StoreError> {
    if batch.is_empty() {
        return Ok(());
    }
    match caught(coordinator.step(batch.clone())).await {
        Ok(Ok(_)) => return Ok(()),
        Ok(Err(error @ (StoreError::Unavailable(_) | StoreError::CommitUnknown(_) | StoreError::Full(_)))) => {
            return Err(error);
        }
        Ok(Err(error)) => {
            tracing::error!(code = error.code(), error = %Causes(&error), "a batch of transfers is driven one by one");
        }
        Err(words) => {
            tracing::error!(code = "TASK_PANICKED", words, "a batch of transfers is driven one by one");
        }
    }
    for transfer in batch {
        let id = transfer.id;
        match caught(coordinator.step(vec![transfer])).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                tracing::error!(transfer = %id, code = error.code(), error = %Causes(&error), "a transfer cannot be driven on");
            }
            Err(words) => {
                tracing::error!(transfer = %id, code = "TASK_PANICKED", words, "a transfer cannot be driven on");
            }
        }
    }
    Ok(())
}
