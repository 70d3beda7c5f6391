//! Bitcoin.

use ::bitcoin::Network;
use tx::Address;
use tx::bitcoin::{address, decode_signed, decode_unsigned};

use crate::any_chain;

const NETWORK: Network = Network::Regtest;

pub fn address(bytes: &[u8]) {
    any_chain::address(bytes, |text| address::parse(text, NETWORK).map(Address::Bitcoin));
}

pub fn unsigned(bytes: &[u8]) {
    any_chain::unsigned(decode_unsigned(bytes, NETWORK));
}

pub fn signed(bytes: &[u8]) {
    any_chain::signed(decode_signed(bytes, NETWORK));
}
