//! Text to address: form, checksum, network, and whether anybody can own what is sent there.

use ::bitcoin::address::NetworkUnchecked;
use ::bitcoin::base58;
use ::bitcoin::bech32::primitives::decode::{
    CharError, SegwitHrpstring, SegwitHrpstringError, UncheckedHrpstringError,
};
use ::bitcoin::{Address, AddressType, Network, Script, XOnlyPublicKey};

use crate::address::BadAddress;

/// The prefixes of the networks that there are. `tb` is both testnet's and signet's.
const PREFIXES: [&str; 3] = ["bc", "tb", "bcrt"];
/// No address is longer: BIP 173.
const LONGEST: usize = 90;
/// The version bytes of base58 addresses: P2PKH and P2SH, of the main network and of all test networks.
const BASE58_VERSIONS: [u8; 4] = [0, 5, 111, 196];

pub fn parse(text: &str, network: Network) -> Result<Address, BadAddress> {
    if !text.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Err(BadAddress::Malformed);
    }
    if text.is_empty() || text.len() > LONGEST {
        return Err(BadAddress::Length);
    }
    match SegwitHrpstring::new(text) {
        Ok(parts) if PREFIXES.iter().any(|prefix| parts.hrp().as_str().eq_ignore_ascii_case(prefix)) => {}
        // The checksum fits: it is an address of some other chain that has taken over the form.
        Ok(_) => return Err(BadAddress::WrongNetwork),
        Err(error) if has_segwit_prefix(text) => return Err(segwit_fault(&error)),
        Err(_) => check_base58(text)?,
    }
    let address: Address<NetworkUnchecked> = text.parse().map_err(|_| BadAddress::Malformed)?;
    let address = address.require_network(network).map_err(|_| BadAddress::WrongNetwork)?;
    match payable(&address) {
        Some(_) => Ok(address),
        None if address.script_pubkey().is_p2tr() => Err(BadAddress::Unspendable),
        // Witness versions from 2 on, version 1 of another length, pay-to-anchor: well-formed by BIP 350, but today
        // anybody can spend what lies there. A user who types one has a typing error or wallet software from a future
        // that this version does not know.
        None => Err(BadAddress::Malformed),
    }
}

/// The five types that have an owner. `None`: whatever is paid there is anybody's, or nobody's.
pub fn payable(address: &Address) -> Option<AddressType> {
    match address.address_type()? {
        // A taproot output is a point. Half of all 32-byte strings are none, and no key can ever spend those.
        AddressType::P2tr if !is_point(&address.script_pubkey()) => None,
        kind @ (AddressType::P2pkh
        | AddressType::P2sh
        | AddressType::P2wpkh
        | AddressType::P2wsh
        | AddressType::P2tr) => Some(kind),
        _ => None,
    }
}

/// The address that an output script pays, if it is one of the five types.
pub fn of_script(script: &Script, network: Network) -> Option<Address> {
    let address = Address::from_script(script, network).ok()?;
    payable(&address).is_some().then_some(address)
}

/// Whether the address can be used on the network. Base58 forms are the same on all test networks.
pub fn is_on(address: &Address, network: Network) -> bool {
    address.as_unchecked().is_valid_for_network(network)
}

fn is_point(script: &Script) -> bool {
    script.as_bytes().get(2..).is_some_and(|key| XOnlyPublicKey::from_slice(key).is_ok())
}

fn has_segwit_prefix(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    PREFIXES.iter().any(|prefix| lower.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('1')))
}

fn segwit_fault(error: &SegwitHrpstringError) -> BadAddress {
    match error {
        SegwitHrpstringError::Unchecked(UncheckedHrpstringError::Char(CharError::MixedCase)) => BadAddress::MixedCase,
        SegwitHrpstringError::NoData | SegwitHrpstringError::TooLong(_) | SegwitHrpstringError::WitnessLength(_) => {
            BadAddress::Length
        }
        // Also bech32 where bech32m belongs, and the other way round.
        SegwitHrpstringError::Checksum(_) => BadAddress::Checksum,
        _ => BadAddress::Malformed,
    }
}

fn check_base58(text: &str) -> Result<(), BadAddress> {
    let data = base58::decode_check(text).map_err(|error| match error {
        base58::Error::IncorrectChecksum(_) => BadAddress::Checksum,
        base58::Error::TooShort(_) => BadAddress::Length,
        _ => BadAddress::Malformed,
    })?;
    match data.split_first() {
        Some((version, rest)) if BASE58_VERSIONS.contains(version) => {
            if rest.len() == 20 {
                Ok(())
            } else {
                Err(BadAddress::Length)
            }
        }
        // Another coin's address, or a private key: its text must not be kept, so no error here carries it.
        Some((_, rest)) if rest.len() == 20 => Err(BadAddress::WrongNetwork),
        _ => Err(BadAddress::Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NETWORKS: [Network; 5] =
        [Network::Bitcoin, Network::Testnet, Network::Testnet4, Network::Signet, Network::Regtest];

    #[test]
    fn every_standard_type_is_taken_on_its_networks_alone() {
        use Network::{Bitcoin, Regtest, Signet, Testnet, Testnet4};
        let tests = [Testnet, Testnet4, Signet, Regtest];
        let cases: [(&str, &[Network]); 11] = [
            ("1BqSysnSYUqHuX5KKMukg5f1nnDKZ5GLDB", &[Bitcoin]),
            ("3FgE6azsZq9tteeQExb7EPvaHb93EthAKn", &[Bitcoin]),
            ("bc1qtzz8gdlwlpvtpva6c55yct4r0ew8pgzr2dqq5k", &[Bitcoin]),
            ("bc1qqta9w7x7l0xn6rgmcxgj0usfajefksj2qzke9l7rvfsr9kqjlt9sx3sj7a", &[Bitcoin]),
            ("bc1p4h6g27aw4gv5un7vjkdaq7s2gs0utj27d4jp9g3lvq87rxszcrssjuujg7", &[Bitcoin]),
            ("BC1P4H6G27AW4GV5UN7VJKDAQ7S2GS0UTJ27D4JP9G3LVQ87RXSZCRSSJUUJG7", &[Bitcoin]),
            ("mrMQGvsRMWGYgdYw2vt8VzsLemp2Y2RGs7", &tests),
            ("2N7ESAKvuBHfF6SGwv6CyrLuqVwMD6kJvH6", &tests),
            ("tb1qtzz8gdlwlpvtpva6c55yct4r0ew8pgzrqtmn09", &[Testnet, Testnet4, Signet]),
            ("bcrt1q9zcjpapdx647gyp7xhwpwjshv2zldprhzlz0xj", &[Regtest]),
            ("bcrt1pyyjfg8lc0r5qn40ld0nl0ddzme32qmcfh7y0euxmv4prcvkfepysper5vu", &[Regtest]),
        ];
        for (text, on) in cases {
            for network in NETWORKS {
                let parsed = parse(text, network);
                if on.contains(&network) {
                    let canonical = parsed.expect(text).to_string();
                    let expected = if text.starts_with("BC1") { text.to_ascii_lowercase() } else { text.to_owned() };
                    assert_eq!(canonical, expected, "the one text that is shown and stored");
                } else {
                    assert_eq!(parsed, Err(BadAddress::WrongNetwork), "{text} on {network}");
                }
            }
        }
    }

    #[test]
    fn each_fault_has_its_name() {
        use BadAddress::{Checksum, Length, Malformed, MixedCase, Unspendable, WrongNetwork};
        for (text, fault) in [
            ("", Length),
            ("1H3sPPAxB3SMHXfGpQ1CZx2pBzFJZVwuKq", Checksum),
            ("1H3sPPAxB3SMHXfGpQ1CZx2pBzFJZVwuK", Checksum),
            (" 1H3sPPAxB3SMHXfGpQ1CZx2pBzFJZVwuKx", Malformed),
            ("1H3sPPAxB3SMHXfGpQ1CZx2pBzFJZVwuKx\n", Malformed),
            ("bc1qkqxw0rgszexr7468lrgn767ydafw78gz3ccshp", Checksum),
            ("bc1qkqxw0rgszexr7468LRGN767YDAFW78GZ3CCSHQ", MixedCase),
            ("BC1qkqxw0rgszexr7468lrgn767ydafw78gz3ccshq", MixedCase),
            // bech32m where bech32 belongs, and the other way round.
            ("bc1qccdr84484rqlx4xp7hrl8fgnk93rn3ts4763s7", Checksum),
            ("bc1pccdr84484rqlx4xp7hrl8fgnk93rn3tstsuhpy4rx6asudlfdzmsvesdcs", Checksum),
            // Witness versions 2 and 16, version 1 of 20 bytes, pay-to-anchor: anybody's.
            ("bc1zccdr84484rqlx4xp7hrl8fgnk93rn3tstsuhpy4rx6asudlfdzms3cewne", Malformed),
            ("bc1sccdr84484rqlx4xp7hrl8fgnk93rn3tstsuhpy4rx6asudlfdzms662x4q", Malformed),
            ("bc1pccdr84484rqlx4xp7hrl8fgnk93rn3ts7qd6a4", Malformed),
            ("bc1pfeessrawgf", Malformed),
            // Version 17 is none.
            ("bc13ccdr84484rqlx4xp7hrl8fgnk93rn3tstsuhpy4rx6asudlfdzms936rg7", Malformed),
            ("bc1plllllllllllllllllllllllllllllllllllllllllllllllllllsr7rg6v", Unspendable),
            ("bc1qccdr84484rqlx4xp7hrl8fgnk93rn3gkdrcl4", Length),
            ("bc1gmk9yu", Checksum),
            ("bc1qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqpk5k97m", Malformed),
            ("ltc1qccdr84484rqlx4xp7hrl8fgnk93rn3tsy7sedv", WrongNetwork),
            ("LdHRSmztQGinhBamd4D9b3UBAv9XLmL2xA", WrongNetwork),
            ("TU2gBd4nULbgbYxF3BsZqB6YsVXZSTauWs", WrongNetwork),
            ("156KPnUCdPYCt4boYhc5q38a51dYPDc6N", Length),
            ("12NiJydHof9bQK1coTPuieZCLkrzha9kRCmU", Length),
            ("Kzito2u7xBGaxP7dhmQbzNCeLMf2TngtdLpLMSnewfxUaRPbsJGg", Malformed),
            ("0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed", Malformed),
            ("bitcoin:bc1qkqxw0rgszexr7468lrgn767ydafw78gz3ccshq", Malformed),
            ("0014b00ce78d10164c3f5747f8d13f6bc46f52ef1d02", Malformed),
            ("bc1é", Malformed),
        ] {
            assert_eq!(parse(text, Network::Bitcoin), Err(fault), "{text:?}");
        }
        assert_eq!(parse(&"1".repeat(91), Network::Bitcoin), Err(Length));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(bc1|tb1|bcrt1|1|3|m|2)?[ -~é]{0,100}") {
            for network in NETWORKS {
                if let Ok(address) = parse(&text, network) {
                    prop_assert_eq!(parse(&address.to_string(), network), Ok(address));
                }
            }
        }

        /// One wrong letter is always found.
        #[test]
        fn a_typing_error_never_pays(place in 0_usize..62, letter in "[a-z0-9]") {
            let good = "bc1p4h6g27aw4gv5un7vjkdaq7s2gs0utj27d4jp9g3lvq87rxszcrssjuujg7";
            let mut text = good.to_owned();
            text.replace_range(place..=place, &letter);
            prop_assert!(text == good || parse(&text, Network::Bitcoin).is_err());
        }
    }
}
