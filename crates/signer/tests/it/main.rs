//! Integration tests of the signer. Those named `foreign_…` hold it against what others have written: packages in the folder
//! `BURSAR_TEST_NODE_MODULES`, the Python in `BURSAR_TEST_PYTHON`, and the OpenBao `BURSAR_TEST_BAO`.

#![allow(clippy::unwrap_used, reason = "in a test an unwrap is an assertion")]

mod accepted;
mod access;
mod approvals;
mod client;
mod crashes;
mod faulty;
mod foreign;
mod hostile;
mod keystore;
mod known;
mod made;
mod mutations;
mod openapi;
mod policies;
mod prepared;
mod readings;
mod redteam;
mod refused;
mod remembered;
mod secrets;
mod served;
mod service;
mod service_tls;
mod slots;
mod snapshots;
mod vault;
mod whole;
mod windows;
mod world;
