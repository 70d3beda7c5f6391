//! The signature of each chain over a payload that was decided on. What comes out is read back by `tx` as any node would read it,
//! and must be from the key that was asked for.

use std::sync::Arc;

use bitcoin::hashes::Hash;
use bitcoin::psbt::Psbt;
use bitcoin::sighash::{EcdsaSighashType, SighashCache};
use bitcoin::{CompressedPublicKey, Network, ScriptBuf, ecdsa};
use secp256k1::ecdsa::Signature;
use tx::derivation::address_of;
use tx::{Address, DecodeError, Family, Meaning};

use super::error::KeyError;
use super::secret::AddressSecret;
use crate::approved::{Signed, SignerChain};

pub(super) fn sign(chain: SignerChain, keys: &[Arc<AddressSecret>], payload: &[u8]) -> Result<Signed, KeyError> {
    match chain {
        SignerChain::Evm { chain_id } => evm(chain_id, only(keys)?, payload),
        SignerChain::Tron => tron(only(keys)?, payload),
        SignerChain::Bitcoin(network) => bitcoin(network, keys, payload),
    }
}

fn only(keys: &[Arc<AddressSecret>]) -> Result<&AddressSecret, KeyError> {
    let [key] = keys else { return Err(KeyError::PathCount { wanted: 1, given: keys.len() }) };
    Ok(key)
}

fn evm(chain_id: u64, key: &AddressSecret, payload: &[u8]) -> Result<Signed, KeyError> {
    tx::evm::decode_unsigned(payload, chain_id)?;
    let (signature, odd) = key.sign(tx::evm::digest(payload));
    let (bytes, meaning) = tx::evm::attach_and_read(payload, &signature, odd, chain_id)?;
    finished(bytes, &meaning, Some(&address_of(&key.public(), Family::Evm)))
}

fn tron(key: &AddressSecret, payload: &[u8]) -> Result<Signed, KeyError> {
    let address = address_of(&key.public(), Family::Tron);
    if tx::tron::transaction::decode_unsigned(payload)?.from.as_ref() != Some(&address) {
        return Err(KeyError::OtherKey);
    }
    let (signature, odd) = key.sign(tx::tron::transaction::hash(payload).0);
    let (bytes, meaning) = tx::tron::transaction::attach_and_read(payload, &signature, odd)?;
    finished(bytes, &meaning, Some(&address))
}

/// A key for each input, in their order; every input is P2WPKH of its key.
fn bitcoin(network: Network, keys: &[Arc<AddressSecret>], payload: &[u8]) -> Result<Signed, KeyError> {
    let read = tx::bitcoin::decode_unsigned(payload, network)?;
    let mut psbt = Psbt::deserialize(payload).map_err(|_| DecodeError::Malformed("not a PSBT"))?;
    if psbt.inputs.len() != keys.len() {
        return Err(KeyError::PathCount { wanted: psbt.inputs.len(), given: keys.len() });
    }
    let mut signatures = Vec::with_capacity(keys.len());
    let mut cache = SighashCache::new(&psbt.unsigned_tx);
    for (index, key) in keys.iter().enumerate() {
        let public = CompressedPublicKey(key.public());
        let spent = psbt.spend_utxo(index).map_err(|_| DecodeError::Malformed("the output spent does not exist"))?;
        if spent.script_pubkey != ScriptBuf::new_p2wpkh(&public.wpubkey_hash()) {
            return Err(KeyError::OtherKey);
        }
        let digest = cache
            .p2wpkh_signature_hash(index, &spent.script_pubkey, spent.value, EcdsaSighashType::All)
            .map_err(|_| DecodeError::BadSignature)?;
        let (compact, _) = key.sign(digest.to_byte_array());
        let signature = Signature::from_compact(&compact).map_err(|_| DecodeError::BadSignature)?;
        signatures.push((public, ecdsa::Signature::sighash_all(signature)));
    }
    for (input, (public, signature)) in psbt.inputs.iter_mut().zip(signatures) {
        input.partial_sigs.insert(public.into(), signature);
    }
    // Checks every signature against the output that it spends.
    let bytes = tx::bitcoin::finalize(&psbt.serialize())?;
    let meaning = tx::bitcoin::decode_signed(&bytes, network)?;
    if meaning.payments != read.payments || meaning.slot != read.slot {
        return Err(KeyError::Payload(DecodeError::BadSignature));
    }
    finished(bytes, &meaning, None)
}

fn finished(bytes: Vec<u8>, meaning: &Meaning, from: Option<&Address>) -> Result<Signed, KeyError> {
    if meaning.from.as_ref() != from {
        return Err(KeyError::OtherKey);
    }
    let hash = meaning.hash.ok_or(KeyError::Payload(DecodeError::BadSignature))?;
    Ok(Signed { bytes, hash })
}
