//! TRON: addresses, the protobuf messages of a transfer, and `raw_data` made and read by us.

pub mod address;
pub mod proto;
pub mod transaction;

pub use address::TronAddress;
