//! Transactions and receipts as the roots of a header commit to them.
//!
//! A node writes them as JSON. Here they are encoded again, so that their hashes can be held against a header, and all that
//! counts is read from what was hashed: the sender is recovered from the signature, what a node says of it is not looked at.

use ::bitcoin::secp256k1::ecdsa::{RecoverableSignature, RecoveryId};
use ::bitcoin::secp256k1::{Message, SECP256K1};
use alloy_consensus::proofs::{calculate_receipt_root, ordered_trie_root_with_encoder};
use alloy_consensus::transaction::SignableTransaction;
use alloy_consensus::{
    Eip658Value, EthereumTxEnvelope, ReceiptEnvelope, ReceiptWithBloom, Transaction as _, TxEip1559, TxEip2930,
    TxEip4844, TxEip7702, TxLegacy, TxType,
};
use alloy_eips::eip2718::Encodable2718;
use alloy_eips::eip2930::{AccessList, AccessListItem};
use alloy_eips::eip7702::{Authorization, SignedAuthorization};
use alloy_primitives::{Address as Account, B256, Bytes, Log, LogData, Signature, TxKind, U256, keccak256};

use super::outputs::Fields;
use super::wire::{Access, Hex, Signed, WholeReceipt};

type Envelope = EthereumTxEnvelope<TxEip4844>;

/// Why something could not be encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unencodable {
    /// It is of a kind that is not known here.
    Unknown(String),
    /// A field that its type needs is not there, or cannot be.
    Lacks(&'static str),
}

/// A transaction, and what its own bytes say.
#[derive(Clone, Debug)]
pub(super) struct Encoded {
    pub bytes: Vec<u8>,
    pub fields: Fields,
    pub kind: TxType,
    /// What a unit of gas cost, by its own fields and the base fee of its block.
    pub gas_price: u128,
    pub blob_gas: u64,
}

pub(super) fn transaction(signed: &Signed, base_fee: Option<u64>) -> Result<Encoded, Unencodable> {
    let envelope = envelope(signed)?;
    let bytes = envelope.encoded_2718();
    let from = sender(&envelope).ok_or_else(|| Unencodable::Unknown("a signature that nobody made".to_owned()))?;
    let fields = Fields { hash: keccak256(&bytes), from, to: envelope.to(), value: envelope.value() };
    Ok(Encoded {
        bytes,
        fields,
        kind: envelope.tx_type(),
        gas_price: envelope.effective_gas_price(base_fee),
        blob_gas: envelope.blob_gas_used().unwrap_or(0),
    })
}

pub(super) fn transactions_root(transactions: &[Encoded]) -> B256 {
    ordered_trie_root_with_encoder(transactions, |one: &Encoded, out| out.extend_from_slice(&one.bytes))
}

fn need<T: Copy>(field: &Option<Hex<T>>, name: &'static str) -> Result<T, Unencodable> {
    field.as_ref().map(|value| value.0).ok_or(Unencodable::Lacks(name))
}

fn envelope(one: &Signed) -> Result<Envelope, Unencodable> {
    let to = one.to.map_or(TxKind::Create, |to| TxKind::Call(to.0));
    let called = || one.to.map(|to| to.0).ok_or(Unencodable::Lacks("to"));
    let (nonce, gas_limit, value) = (need(&one.nonce, "nonce")?, need(&one.gas, "gas")?, need(&one.value, "value")?);
    let input: Bytes = one.input.as_ref().map(|input| input.0.clone()).ok_or(Unencodable::Lacks("input"))?;
    // Nodes write a zero of a transaction that was never signed; a missing type is the oldest one.
    let kind = one.kind.map_or(0, |kind| kind.0);
    let chain_id = || need(&one.chain_id, "chainId");
    let (most, tip) =
        (|| need(&one.max_fee_per_gas, "maxFeePerGas"), || need(&one.max_priority_fee_per_gas, "maxPriorityFeePerGas"));
    Ok(match kind {
        0 => {
            let (chain_id, odd) = legacy_v(need(&one.v, "v")?)?;
            let gas_price = need(&one.gas_price, "gasPrice")?;
            let transaction = TxLegacy { chain_id, nonce, gas_price, gas_limit, to, value, input };
            transaction.into_signed(signature(one, odd)?).into()
        }
        1 => {
            let transaction = TxEip2930 {
                chain_id: chain_id()?,
                nonce,
                gas_price: need(&one.gas_price, "gasPrice")?,
                gas_limit,
                to,
                value,
                access_list: access_list(one.access_list.as_deref())?,
                input,
            };
            transaction.into_signed(signature(one, parity(one)?)?).into()
        }
        2 => {
            let transaction = TxEip1559 {
                chain_id: chain_id()?,
                nonce,
                gas_limit,
                max_fee_per_gas: most()?,
                max_priority_fee_per_gas: tip()?,
                to,
                value,
                access_list: access_list(one.access_list.as_deref())?,
                input,
            };
            transaction.into_signed(signature(one, parity(one)?)?).into()
        }
        3 => {
            let hashes = one.blob_versioned_hashes.as_ref().ok_or(Unencodable::Lacks("blobVersionedHashes"))?;
            let transaction = TxEip4844 {
                chain_id: chain_id()?,
                nonce,
                gas_limit,
                max_fee_per_gas: most()?,
                max_priority_fee_per_gas: tip()?,
                to: called()?,
                value,
                access_list: access_list(one.access_list.as_deref())?,
                blob_versioned_hashes: hashes.iter().map(|hash| hash.0).collect(),
                max_fee_per_blob_gas: need(&one.max_fee_per_blob_gas, "maxFeePerBlobGas")?,
                input,
            };
            transaction.into_signed(signature(one, parity(one)?)?).into()
        }
        4 => {
            let transaction = TxEip7702 {
                chain_id: chain_id()?,
                nonce,
                gas_limit,
                max_fee_per_gas: most()?,
                max_priority_fee_per_gas: tip()?,
                to: called()?,
                value,
                access_list: access_list(one.access_list.as_deref())?,
                authorization_list: authorizations(one)?,
                input,
            };
            transaction.into_signed(signature(one, parity(one)?)?).into()
        }
        other => return Err(Unencodable::Unknown(format!("a transaction of type {other}"))),
    })
}

/// The chain and the parity that the `v` of an old transaction says. Before EIP-155 it names no chain.
fn legacy_v(v: U256) -> Result<(Option<u64>, bool), Unencodable> {
    let v = u64::try_from(v).map_err(|_| Unencodable::Lacks("v"))?;
    match v {
        27 | 28 => Ok((None, v == 28)),
        35.. => Ok((Some((v - 35) / 2), (v - 35) % 2 == 1)),
        _ => Err(Unencodable::Unknown(format!("a transaction whose v is {v}"))),
    }
}

/// Some nodes say `yParity`, all say `v`, and it is the same.
fn parity(one: &Signed) -> Result<bool, Unencodable> {
    let odd = match (&one.y_parity, &one.v) {
        (Some(parity), _) => parity.0,
        (None, Some(v)) => u64::try_from(v.0).unwrap_or(u64::MAX),
        (None, None) => return Err(Unencodable::Lacks("yParity")),
    };
    match odd {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Unencodable::Lacks("yParity")),
    }
}

fn signature(one: &Signed, odd: bool) -> Result<Signature, Unencodable> {
    Ok(Signature::new(need(&one.r, "r")?, need(&one.s, "s")?, odd))
}

fn access_list(list: Option<&[Access]>) -> Result<AccessList, Unencodable> {
    let list = list.ok_or(Unencodable::Lacks("accessList"))?;
    let item = |one: &Access| AccessListItem {
        address: one.address.0,
        storage_keys: one.storage_keys.iter().map(|key| key.0).collect(),
    };
    Ok(AccessList(list.iter().map(item).collect()))
}

fn authorizations(one: &Signed) -> Result<Vec<SignedAuthorization>, Unencodable> {
    let list = one.authorization_list.as_ref().ok_or(Unencodable::Lacks("authorizationList"))?;
    let read = |one: &super::wire::Authorized| {
        let inner = Authorization { chain_id: one.chain_id.0, address: one.address.0, nonce: one.nonce.0 };
        // Whoever sends it may write any byte here: one that is no parity makes the authorization void, not the transaction.
        let odd = u8::try_from(one.y_parity.0).map_err(|_| Unencodable::Lacks("yParity of an authorization"))?;
        Ok(SignedAuthorization::new_unchecked(inner, odd, one.r.0, one.s.0))
    };
    list.iter().map(read).collect()
}

fn sender(envelope: &Envelope) -> Option<Account> {
    let signature = envelope.signature();
    let mut compact = [0; 64];
    compact[..32].copy_from_slice(&signature.r().to_be_bytes::<32>());
    compact[32..].copy_from_slice(&signature.s().to_be_bytes::<32>());
    let recovery = RecoveryId::from_i32(i32::from(signature.v())).ok()?;
    let signature = RecoverableSignature::from_compact(&compact, recovery).ok()?;
    let digest = Message::from_digest(envelope.signature_hash().0);
    let public = SECP256K1.recover_ecdsa(&digest, &signature).ok()?;
    Some(Account::from(tx::account_of(&public)))
}

/// The root of these receipts, which are of transactions of these types.
pub(super) fn receipts_root(receipts: &[WholeReceipt], kinds: &[TxType]) -> Result<B256, Unencodable> {
    let envelopes = receipts.iter().zip(kinds).map(|(receipt, kind)| {
        let status = match receipt.status.map(|status| status.0) {
            Some(0) => false,
            Some(1) => true,
            Some(_) => return Err(Unencodable::Lacks("status")),
            None => return Err(Unencodable::Unknown("a receipt without a status".to_owned())),
        };
        let logs = receipt.logs.iter().map(|log| {
            let topics = log.topics.iter().map(|topic| topic.0).collect();
            Log { address: log.address.0, data: LogData::new_unchecked(topics, log.data.0.clone()) }
        });
        let inner = alloy_consensus::Receipt {
            status: Eip658Value::Eip658(status),
            cumulative_gas_used: receipt.cumulative_gas_used.0,
            logs: logs.collect(),
        };
        let inner = ReceiptWithBloom { receipt: inner, logs_bloom: receipt.logs_bloom.0 };
        Ok(match kind {
            TxType::Legacy => ReceiptEnvelope::Legacy(inner),
            TxType::Eip2930 => ReceiptEnvelope::Eip2930(inner),
            TxType::Eip1559 => ReceiptEnvelope::Eip1559(inner),
            TxType::Eip4844 => ReceiptEnvelope::Eip4844(inner),
            TxType::Eip7702 => ReceiptEnvelope::Eip7702(inner),
        })
    });
    let envelopes = envelopes.collect::<Result<Vec<ReceiptEnvelope>, _>>()?;
    Ok(calculate_receipt_root(&envelopes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::bitcoin::secp256k1::SecretKey;
    use serde_json::{Value, json};

    /// Signs as a wallet does, apart from what is tested.
    fn signed<T: SignableTransaction<Signature>>(transaction: T, secret: u8) -> (Signature, T) {
        let key = SecretKey::from_slice(&[secret; 32]).expect("a key");
        let digest = Message::from_digest(transaction.signature_hash().0);
        let (odd, rs) = SECP256K1.sign_ecdsa_recoverable(&digest, &key).serialize_compact();
        let word = |bytes: &[u8]| U256::from_be_slice(bytes);
        (Signature::new(word(&rs[..32]), word(&rs[32..]), odd.to_i32() == 1), transaction)
    }

    fn owner(secret: u8) -> Account {
        let key = SecretKey::from_slice(&[secret; 32]).expect("a key");
        Account::from(tx::account_of(&key.public_key(SECP256K1)))
    }

    fn access() -> AccessList {
        AccessList(vec![AccessListItem { address: Account::repeat_byte(8), storage_keys: vec![B256::repeat_byte(9)] }])
    }

    /// One of each type, and the JSON of its own fields.
    fn all() -> Vec<(Envelope, Value)> {
        let to = Account::repeat_byte(7);
        let input = Bytes::from_static(b"data");
        let mut all = Vec::new();
        for chain_id in [None, Some(56)] {
            let legacy = TxLegacy {
                chain_id,
                nonce: 1,
                gas_price: 2,
                gas_limit: 3,
                to: TxKind::Create,
                value: U256::MAX,
                input: input.clone(),
            };
            let (signature, legacy) = signed(legacy, 1);
            let odd = u64::from(signature.v());
            let v = chain_id.map_or(27 + odd, |id| id * 2 + 35 + odd);
            let envelope = legacy.into_signed(signature).into();
            all.push((envelope, json!({ "gasPrice": "0x2", "to": null, "v": format!("{v:#x}") })));
        }
        let list = json!([{ "address": Account::repeat_byte(8).to_string(), "storageKeys": [B256::repeat_byte(9).to_string()] }]);
        let (nonce, gas_limit, value, chain_id) = (1, 3, U256::MAX, 56);
        let listed = TxEip2930 {
            chain_id,
            nonce,
            gas_price: 2,
            gas_limit,
            to: to.into(),
            value,
            access_list: access(),
            input: input.clone(),
        };
        let (signature, listed) = signed(listed, 1);
        all.push((listed.into_signed(signature).into(), json!({ "gasPrice": "0x2", "accessList": list })));
        let (max_fee_per_gas, max_priority_fee_per_gas) = (90, 5);
        let fees =
            json!({ "maxFeePerGas": "0x5a", "maxPriorityFeePerGas": "0x5", "gasPrice": "0x1", "accessList": list });
        let dynamic = TxEip1559 {
            chain_id,
            nonce,
            gas_limit,
            max_fee_per_gas,
            max_priority_fee_per_gas,
            to: to.into(),
            value,
            access_list: access(),
            input: input.clone(),
        };
        let (signature, dynamic) = signed(dynamic, 1);
        all.push((dynamic.into_signed(signature).into(), fees.clone()));
        let blobs = TxEip4844 {
            chain_id,
            nonce,
            gas_limit,
            max_fee_per_gas,
            max_priority_fee_per_gas,
            to,
            value,
            access_list: access(),
            blob_versioned_hashes: vec![B256::repeat_byte(1); 2],
            max_fee_per_blob_gas: 4,
            input: input.clone(),
        };
        let (signature, blobs) = signed(blobs, 1);
        let mut json = fees.clone();
        json["blobVersionedHashes"] = json!([B256::repeat_byte(1).to_string(), B256::repeat_byte(1).to_string()]);
        json["maxFeePerBlobGas"] = json!("0x4");
        all.push((blobs.into_signed(signature).into(), json));
        let inner = Authorization { chain_id: U256::ZERO, address: Account::repeat_byte(6), nonce: 12 };
        let authorization = SignedAuthorization::new_unchecked(inner, 1, U256::from(77), U256::from(78));
        let delegating = TxEip7702 {
            chain_id,
            nonce,
            gas_limit,
            max_fee_per_gas,
            max_priority_fee_per_gas,
            to,
            value,
            access_list: access(),
            authorization_list: vec![authorization],
            input,
        };
        let (signature, delegating) = signed(delegating, 1);
        let mut json = fees;
        json["authorizationList"] = json!([{
            "chainId": "0x0", "address": Account::repeat_byte(6).to_string(), "nonce": "0xc",
            "yParity": "0x1", "r": "0x4d", "s": "0x4e",
        }]);
        all.push((delegating.into_signed(signature).into(), json));
        all
    }

    fn written(envelope: &Envelope, own: &Value) -> Value {
        let signature = envelope.signature();
        let odd = format!("{:#x}", u8::from(signature.v()));
        let mut json = json!({
            "type": format!("{:#x}", envelope.tx_type() as u8),
            "nonce": "0x1",
            "gas": "0x3",
            "to": Account::repeat_byte(7).to_string(),
            "value": format!("{:#x}", U256::MAX),
            "input": envelope.input().to_string(),
            "chainId": "0x38",
            "v": odd,
            "yParity": odd,
            "r": format!("{:#x}", signature.r()),
            "s": format!("{:#x}", signature.s()),
            // What a node says of the sender and the hash is not looked at.
            "from": Account::repeat_byte(0xbb).to_string(),
            "hash": B256::repeat_byte(0xcc).to_string(),
        });
        for (name, value) in own.as_object().expect("an object") {
            json[name] = value.clone();
        }
        json
    }

    #[test]
    fn each_type_is_encoded_as_it_was_signed_and_its_sender_recovered() {
        let all = all();
        assert_eq!(all.len(), 6);
        for (envelope, own) in &all {
            let json = written(envelope, own);
            let read: Signed = serde_json::from_value(json.clone()).expect("the form of a transaction");
            let encoded = transaction(&read, Some(70)).expect("a known type");
            assert_eq!(encoded.bytes, envelope.encoded_2718(), "{json}");
            let expected = Fields { hash: *envelope.tx_hash(), from: owner(1), to: envelope.to(), value: U256::MAX };
            assert_eq!(encoded.fields, expected);
            let dynamic = envelope.tx_type() as u8 >= 2;
            assert_eq!(encoded.gas_price, if dynamic { 75 } else { 2 });
            assert_eq!(encoded.blob_gas, if envelope.tx_type() == TxType::Eip4844 { 262_144 } else { 0 });
        }
    }

    #[test]
    fn every_field_that_is_signed_changes_the_bytes_and_one_that_is_missing_is_said() {
        for (envelope, own) in &all() {
            let good = written(envelope, own);
            for name in good.as_object().expect("an object").keys() {
                let mut bad = good.clone();
                bad.as_object_mut().expect("an object").remove(name);
                let read: Signed = serde_json::from_value(bad).expect("all are optional");
                let hash = transaction(&read, None).map(|encoded| encoded.fields.hash);
                let unread = ["from", "hash", "v", "yParity", "gasPrice", "chainId", "to", "type", "accessList"];
                let same = hash.as_ref().is_ok_and(|hash| hash == envelope.tx_hash());
                assert!(!same || unread.contains(&name.as_str()), "{name} of {good}");
            }
        }
    }

    #[test]
    fn an_unknown_type_is_said_to_be_one() {
        let (envelope, own) = &all()[0];
        let mut json = written(envelope, own);
        for (kind, known) in [("0x0", true), ("0x5", false), ("0x64", false), ("0x7e", false)] {
            json["type"] = json!(kind);
            let read: Signed = serde_json::from_value(json.clone()).expect("the form of a transaction");
            let encoded = transaction(&read, None);
            assert_eq!(matches!(encoded, Err(Unencodable::Unknown(_))), !known, "{kind}");
        }
    }
}
