//! Recovery: transfers that have not ended are taken up again when they are due, for ever.
//!
//! They take the same path as a new transfer. Any number of scanners may run, in any number of processes.

use std::sync::Arc;
use std::time::Duration;

use domain::transfer::Transfer;
use store::StoreError;
use tokio::sync::watch;

use crate::coordinator::Coordinator;

/// Transfers taken up at a time.
const BATCH: i64 = 256;

/// Scans until it is told to stop.
pub async fn scan(coordinator: Arc<Coordinator>, interval: Duration, mut stop: watch::Receiver<bool>) {
    loop {
        let taken = match scan_once(&coordinator).await {
            Ok(taken) => taken,
            Err(error) => {
                tracing::warn!(code = error.code(), "the scanner could not work");
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

/// One transfer that cannot be driven must not hold up the others: if the batch fails, each is driven by itself.
async fn drive(coordinator: &Coordinator, batch: Vec<Transfer>) -> Result<(), StoreError> {
    if batch.is_empty() {
        return Ok(());
    }
    match coordinator.step(batch.clone()).await {
        Ok(_) => Ok(()),
        Err(error @ (StoreError::Unavailable(_) | StoreError::CommitUnknown(_) | StoreError::Full(_))) => Err(error),
        Err(error) => {
            tracing::error!(code = error.code(), %error, "a batch of transfers is driven one by one");
            for transfer in batch {
                let id = transfer.id;
                if let Err(error) = coordinator.step(vec![transfer]).await {
                    tracing::error!(transfer = %id, code = error.code(), %error, "a transfer cannot be driven on");
                }
            }
            Ok(())
        }
    }
}
