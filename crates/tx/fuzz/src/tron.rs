//! TRON.

use tx::Address;
use tx::tron::TronAddress;
use tx::tron::transaction::{decode_signed, decode_unsigned};

use crate::any_chain;

pub fn address(bytes: &[u8]) {
    any_chain::address(bytes, |text| TronAddress::parse(text).map(Address::Tron));
}

pub fn unsigned(bytes: &[u8]) {
    any_chain::unsigned(decode_unsigned(bytes));
}

pub fn signed(bytes: &[u8]) {
    any_chain::signed(decode_signed(bytes));
}
