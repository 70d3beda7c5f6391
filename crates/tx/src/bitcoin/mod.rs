//! Bitcoin: addresses, what size costs, and the bytes of transactions as PSBTs and as signed ones.

pub mod address;
pub mod fee;
pub mod hash;
pub mod transaction;

pub use fee::{PackageFacts, at_rate, cpfp_fee};
pub use hash::{hash_of, turned, txid_of};
pub use transaction::{
    MOST_FEE, MOST_FEE_PER_KVB, MOST_WEIGHT, Spending, SpentInput, build, decode_signed, decode_unsigned,
    estimated_weight, finalize, read_signed, read_unsigned,
};
