//! EVM chains: addresses, what a replacement must offer, and the bytes of transactions.

pub mod address;
pub mod fee;
pub mod transaction;

pub use fee::replacement;
pub use transaction::{attach, attach_and_read, build, call_data, decode_signed, decode_unsigned, digest, most_fee};
