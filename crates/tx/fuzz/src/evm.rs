//! EVM.

use tx::Address;
use tx::evm::{address, decode_signed, decode_unsigned};

use crate::any_chain;

/// BSC: most of the golden vectors are bound to it.
const CHAIN_ID: u64 = 56;

pub fn address(bytes: &[u8]) {
    any_chain::address(bytes, |text| address::parse(text).map(Address::Evm));
}

pub fn unsigned(bytes: &[u8]) {
    any_chain::unsigned(decode_unsigned(bytes, CHAIN_ID));
}

pub fn signed(bytes: &[u8]) {
    any_chain::signed(decode_signed(bytes, CHAIN_ID));
}
