//! Coordinator, legs, worker, recovery for internal transfers.
