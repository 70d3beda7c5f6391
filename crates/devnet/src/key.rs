//! The devnet's keys. They are public: everybody's test keys, and no secret of anybody.

use bitcoin::hashes::{Hash, sha256};
use bitcoin::key::{CompressedPublicKey, Keypair, TapTweak};
use bitcoin::psbt::Psbt;
use bitcoin::sighash::{EcdsaSighashType, Prevouts, SighashCache, TapSighashType};
use bitcoin::{KnownHrp, Network, ScriptBuf, TxOut, ecdsa, taproot};
use secp256k1::{Message, PublicKey, SECP256K1, SecretKey};

use tx::tron::TronAddress;
use tx::{Address, account_of};

/// The ten accounts that every Ethereum development node has (mnemonic `test test … junk`), so that habits and
/// snippets carry over. The same keys own coins on all three chains.
const KNOWN: [&str; 10] = [
    "ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80",
    "59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d",
    "5de4111afa1a4b94908f83103eb1f1706367c2e68ca870fc3fb9a804cdab365a",
    "7c852118294e51e653712a81e05800f419141751be58f605c371e15141b007a6",
    "47e179ec197488593b187f80a00eb0da91f1b9d0b13f8733639f19c30a34926a",
    "8b3a350cf5c34c9194ca85829a2df0ec3153be0318b5e2d3348e872092edffba",
    "92db14e403b83dfe3df233f83dfa3a0d7096f21ca9b0d6d6b8d88b2b4ec1564e",
    "4bbbf85ce3377467afe5d46f804f221813b2bb87f24d81f60f1fcdbf7cbf4356",
    "dbda1821b80551c9d65939329250298aa3472ba22feea921c0cf5d620ea67b97",
    "2a871d0798f97d79848a013d4936a73bf4cc922c825d33c1cf7073dff6d409c6",
];

/// How many accounts a devnet funds when it starts.
pub const PREFUNDED: u32 = 10;

#[derive(Clone, Copy)]
pub struct Key(SecretKey);

impl Key {
    /// The first ten are [`KNOWN`]; any number of others follow.
    pub fn numbered(number: u32) -> Self {
        let known = usize::try_from(number).ok().and_then(|number| KNOWN.get(number));
        if let Some(secret) = known.and_then(|text| text.parse().ok()) {
            return Self(secret);
        }
        let mut digest = sha256::Hash::hash(format!("bursar devnet key {number}").as_bytes());
        // All but one in 2^128 digests are keys.
        loop {
            match SecretKey::from_slice(digest.as_byte_array()) {
                Ok(secret) => return Self(secret),
                Err(_) => digest = sha256::Hash::hash(digest.as_byte_array()),
            }
        }
    }

    pub const fn secret(&self) -> &SecretKey {
        &self.0
    }

    pub fn public(&self) -> PublicKey {
        self.0.public_key(SECP256K1)
    }

    /// The 20 bytes that both EVM and TRON know it by.
    pub fn account(&self) -> [u8; 20] {
        account_of(&self.public())
    }

    pub fn evm(&self) -> Address {
        Address::Evm(self.account().into())
    }

    pub fn tron(&self) -> Address {
        Address::Tron(TronAddress(self.account()))
    }

    /// P2WPKH.
    pub fn bitcoin(&self, network: Network) -> Address {
        let public = CompressedPublicKey(self.public());
        Address::Bitcoin(bitcoin::Address::p2wpkh(&public, KnownHrp::from(network)))
    }

    /// P2TR with this key alone.
    pub fn taproot(&self, network: Network) -> Address {
        let (key, _) = Keypair::from_secret_key(SECP256K1, &self.0).x_only_public_key();
        Address::Bitcoin(bitcoin::Address::p2tr(SECP256K1, key, None, KnownHrp::from(network)))
    }

    /// Signs the inputs of a PSBT that spend this key's P2WPKH and P2TR outputs, and leaves the others. Bytes that are
    /// no PSBT come back as they are: this is for tests, and finalising finds out.
    pub fn sign_psbt(&self, psbt: &[u8]) -> Vec<u8> {
        let Ok(mut read) = Psbt::deserialize(psbt) else {
            return psbt.to_vec();
        };
        let spent: Option<Vec<TxOut>> = read.inputs.iter().map(|input| input.witness_utxo.clone()).collect();
        let Some(spent) = spent.filter(|spent| spent.len() == read.unsigned_tx.input.len()) else {
            return psbt.to_vec();
        };
        let public = CompressedPublicKey(self.public());
        let pair = Keypair::from_secret_key(SECP256K1, &self.0);
        let (internal, _) = pair.x_only_public_key();
        let transaction = read.unsigned_tx.clone();
        let mut cache = SighashCache::new(&transaction);
        for (index, (input, output)) in read.inputs.iter_mut().zip(&spent).enumerate() {
            let script = &output.script_pubkey;
            if *script == ScriptBuf::new_p2wpkh(&public.wpubkey_hash()) {
                let digest = cache.p2wpkh_signature_hash(index, script, output.value, EcdsaSighashType::All);
                let Ok(digest) = digest else { continue };
                let signature = SECP256K1.sign_ecdsa(&Message::from_digest(digest.to_byte_array()), &self.0);
                input.partial_sigs.insert(public.into(), ecdsa::Signature::sighash_all(signature));
            } else if *script == ScriptBuf::new_p2tr(SECP256K1, internal, None) {
                let kind = TapSighashType::Default;
                let digest = cache.taproot_key_spend_signature_hash(index, &Prevouts::All(&spent), kind);
                let Ok(digest) = digest else { continue };
                let tweaked = pair.tap_tweak(SECP256K1, None).to_keypair();
                let message = Message::from_digest(digest.to_byte_array());
                let signature = SECP256K1.sign_schnorr_no_aux_rand(&message, &tweaked);
                input.tap_key_sig = Some(taproot::Signature { signature, sighash_type: kind });
            }
        }
        read.serialize()
    }

    /// r and s, low s, and which of the two points it was: what EVM and TRON put into a transaction.
    pub fn sign(&self, digest: [u8; 32]) -> ([u8; 64], bool) {
        let signature = SECP256K1.sign_ecdsa_recoverable(&Message::from_digest(digest), &self.0);
        let (recovery, bytes) = signature.serialize_compact();
        (bytes, recovery.to_i32() % 2 == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_key_is_the_one_that_everybody_knows() {
        assert_eq!(Key::numbered(0).evm().to_string(), "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266");
        assert_eq!(Key::numbered(9).evm().to_string(), "0xa0Ee7A142d267C1f36714E4a8F75612F20a79720");
        assert_ne!(Key::numbered(10).evm(), Key::numbered(11).evm());
    }
}
