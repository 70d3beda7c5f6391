//! What an address or a script is watched by.

use bitcoin::hashes::{Hash as _, sha256};
use tx::Address;

/// A kind, and 20 bytes. Two scripts share a key only if their SHA-256 agree in 160 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchKey([u8; 21]);

/// What the 20 bytes are.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Kind {
    /// An account of EVM or TRON.
    Account,
    /// RIPEMD-160 of SHA-256 of a public key, in the old form of a script.
    KeyHash,
    /// The same of a script.
    ScriptHash,
    /// The same as `KeyHash` in a witness program, which is another script and another address.
    WitnessKeyHash,
    /// The first 20 bytes of the SHA-256 of a script.
    Script,
}

impl WatchKey {
    pub const BYTES: usize = 21;

    /// What the watched set knows an address by.
    pub fn of(address: &Address) -> Self {
        match address {
            Address::Bitcoin(address) => Self::of_script(&address.script_pubkey()),
            Address::Evm(address) => Self::of_account(&address.into_array()),
            Address::Tron(address) => Self::of_account(&address.0),
        }
    }

    /// EVM and TRON alike: each has its own set.
    pub fn of_account(account: &[u8; 20]) -> Self {
        Self::new(Kind::Account, account)
    }

    /// The three forms that hold just 20 bytes are read off; all others are hashed.
    ///
    /// **P2WSH and P2TR are not cut to 20 of their 32 bytes.** Anybody can pay to a program that begins like a watched
    /// one and ends as he likes. Nobody could ever spend that output, and we would credit it: he burns a coin and
    /// withdraws one of ours.
    pub fn of_script(script: &bitcoin::Script) -> Self {
        match script.as_bytes() {
            [0x76, 0xa9, 0x14, hash @ .., 0x88, 0xac] if hash.len() == 20 => Self::new(Kind::KeyHash, hash),
            [0xa9, 0x14, hash @ .., 0x87] if hash.len() == 20 => Self::new(Kind::ScriptHash, hash),
            [0x00, 0x14, hash @ ..] if hash.len() == 20 => Self::new(Kind::WitnessKeyHash, hash),
            other => Self::new(Kind::Script, &sha256::Hash::hash(other).as_byte_array()[..20]),
        }
    }

    pub const fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }

    fn new(kind: Kind, bytes: &[u8]) -> Self {
        let mut key = [kind as u8; Self::BYTES];
        key[1..].copy_from_slice(bytes);
        Self(key)
    }
}

#[cfg(test)]
mod tests {
    use bitcoin::ScriptBuf;

    use super::*;

    fn key(hex: &str) -> WatchKey {
        WatchKey::of_script(&ScriptBuf::from_hex(hex).unwrap())
    }

    fn kind(key: WatchKey) -> u8 {
        key.0[0]
    }

    #[test]
    fn one_hash_in_different_scripts_gives_different_keys() {
        let hash = "00112233445566778899aabbccddeeff00112233";
        let keys = [
            key(&format!("76a914{hash}88ac")),
            key(&format!("a914{hash}87")),
            key(&format!("0014{hash}")),
            key(&format!("5114{hash}")),
            WatchKey::of_account(bitcoin::hex::FromHex::from_hex(hash).as_ref().unwrap()),
        ];
        for (at, one) in keys.iter().enumerate() {
            for other in &keys[at + 1..] {
                assert_ne!(one, other);
            }
        }
        for key in [keys[0], keys[1], keys[2], keys[4]] {
            assert_eq!(key.as_bytes()[1..], keys[4].as_bytes()[1..], "the hash is read off");
        }
        assert_eq!(keys.map(kind), [1, 2, 3, 4, 0]);
    }

    #[test]
    fn a_program_that_only_begins_like_a_watched_one_is_another_key() {
        let begin = "00112233445566778899aabbccddeeff00112233";
        for version in ["00", "51", "52"] {
            let one = key(&format!("{version}20{begin}000000000000000000000000"));
            let other = key(&format!("{version}20{begin}000000000000000000000001"));
            assert_ne!(one, other);
        }
    }

    #[test]
    fn a_script_that_only_looks_like_a_known_form_is_hashed() {
        let hash = "00112233445566778899aabbccddeeff00112233";
        for script in [
            String::new(),
            "00".into(),
            "0014".into(),
            format!("0014{hash}00"),
            format!("0014{}", &hash[2..]),
            format!("0015{hash}"),
            format!("0114{hash}"),
            format!("a914{hash}"),
            format!("a914{hash}8700"),
            format!("a914{hash}88"),
            format!("a914{}87", &hash[2..]),
            format!("a915{hash}87"),
            format!("aa14{hash}87"),
            format!("76a914{hash}88"),
            format!("76a914{hash}88ad"),
            format!("76a914{hash}89ac"),
            format!("76a914{hash}0088ac"),
            format!("76a915{hash}88ac"),
            format!("76a814{hash}88ac"),
            format!("77a914{hash}88ac"),
            format!("0020{hash}000000000000000000000000"),
            format!("5120{hash}000000000000000000000000"),
            format!("6a14{hash}"),
        ] {
            let key = key(&script);
            let bytes = ScriptBuf::from_hex(&script).unwrap();
            assert_eq!(kind(key), 4, "{script}");
            assert_eq!(key.0[1..], sha256::Hash::hash(bytes.as_bytes()).as_byte_array()[..20], "{script}");
        }
    }

    #[test]
    fn the_forms_are_those_that_bitcoin_knows() {
        use bitcoin::hashes::hash160;
        use bitcoin::{PubkeyHash, ScriptHash, WPubkeyHash};

        let hash = hash160::Hash::hash(b"bursar");
        assert_eq!(kind(WatchKey::of_script(&ScriptBuf::new_p2pkh(&PubkeyHash::from(hash)))), 1);
        assert_eq!(kind(WatchKey::of_script(&ScriptBuf::new_p2sh(&ScriptHash::from(hash)))), 2);
        assert_eq!(kind(WatchKey::of_script(&ScriptBuf::new_p2wpkh(&WPubkeyHash::from(hash)))), 3);
    }
}
