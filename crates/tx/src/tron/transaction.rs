//! `raw_data` built, hashed, signed for and read by us. A node is never trusted to build what we sign.
//!
//! Reading is strict: what is read is written again, and must give the same bytes. Protobuf lets one meaning have many
//! encodings (other orders, repeated fields, unknown fields); of a plain transfer exactly one is taken, so nothing can
//! hide in what the reader skips.

use alloy_primitives::U256;
use bitcoin::hashes::{Hash, sha256};
use domain::{RawAmount, Timestamp};
use prost::Message as _;
use secp256k1::ecdsa::{RecoverableSignature, RecoveryId, Signature};
use secp256k1::{Message, SECP256K1};

use super::TronAddress;
use super::proto::{Any, Contract, Envelope, Raw, TransferContract, TriggerSmartContract};
use crate::address::Address;
use crate::fee::Fee;
use crate::hash::{BlockRef, TxHash};
use crate::transaction::{BuildError, Coin, DecodeError, Draft, Meaning, Payment, Slot, Unsigned};

/// 15,000 TRX: the network's own bound for `fee_limit`.
pub const MOST_FEE_LIMIT: i64 = 15_000_000_000;
/// A node takes no transaction that expires later than this after its head.
pub const MOST_LIFE_MS: i64 = 86_400_000;
/// No time is later: the year 9999, so that milliseconds always fit our microseconds.
pub const LAST_MS: i64 = 253_402_300_799_999;
/// A transfer has fewer than 350 bytes; nothing longer is looked at.
const LONGEST: usize = 1_024;

/// Sun for each byte when an account has no bandwidth, and for making the recipient's account: what the network has
/// asked since 2021. Only [`Meaning::most_fee`] rests on them; a quote asks the nodes.
const SUN_PER_BYTE: u64 = 1_000;
const SUN_FOR_ACCOUNT: u64 = 1_100_000;
/// What a block's producer adds to a transaction is charged as this many bytes.
pub const RESULT_BYTES: usize = 64;

const TRANSFER: [u8; 4] = [0xa9, 0x05, 0x9c, 0xbb];

/// `transfer(address,uint256)`. tronweb and tronpy write the recipient as EVM does, without the 0x41: old contracts
/// ignore the upper 12 bytes of the word and new ones revert on anything there, so only zeros mean the same to all.
pub fn transfer_call(to: &TronAddress, amount: U256) -> Vec<u8> {
    let mut data = Vec::with_capacity(68);
    data.extend_from_slice(&TRANSFER);
    data.extend_from_slice(&[0; 12]);
    data.extend_from_slice(&to.0);
    data.extend_from_slice(&amount.to_be_bytes::<32>());
    data
}

/// The bytes of the draft. The same draft gives the same bytes.
pub fn build(draft: &Draft) -> Result<Unsigned, BuildError> {
    let Draft::Tron { from: Address::Tron(from), payment, fee_limit, reference, created, expires } = draft else {
        return Err(BuildError::OtherChain);
    };
    let Address::Tron(to) = payment.to else { return Err(BuildError::OtherChain) };
    let amount = payment.amount.to_u256();
    if amount.is_zero() {
        return Err(BuildError::NothingToPay);
    }
    if to.0 == [0; 20] {
        return Err(BuildError::Inconsistent("it pays the zero address"));
    }
    let contract = match &payment.coin {
        Coin::Native => {
            if *fee_limit != 0 {
                return Err(BuildError::Inconsistent("a TRX transfer has no fee limit"));
            }
            if *from == to {
                return Err(BuildError::Inconsistent("the network takes no TRX transfer to oneself"));
            }
            let amount = i64::try_from(amount).map_err(|_| BuildError::AmountTooLarge)?;
            transfer_contract(from, &to, amount)
        }
        Coin::Token(Address::Tron(token)) => {
            if *fee_limit <= 0 {
                return Err(BuildError::Inconsistent("a contract call needs a fee limit"));
            }
            if *fee_limit > MOST_FEE_LIMIT {
                return Err(BuildError::FeeTooLarge);
            }
            if *token == to {
                return Err(BuildError::Inconsistent("it pays a token to the token's own contract"));
            }
            trigger_contract(from, token, transfer_call(&to, amount))
        }
        Coin::Token(_) => return Err(BuildError::OtherChain),
    };
    let (created_ms, expires_ms) = (created.millis(), expires.millis());
    if created_ms <= 0 || expires_ms <= created_ms || expires_ms > LAST_MS || expires_ms - created_ms > MOST_LIFE_MS {
        return Err(BuildError::Inconsistent("it must expire within 24 hours of its making"));
    }
    let (ref_block_bytes, ref_block_hash) = refer(reference)?;
    let raw = Raw {
        ref_block_bytes,
        ref_block_hash,
        expiration: expires_ms,
        contract: vec![contract],
        timestamp: created_ms,
        fee_limit: *fee_limit,
        ..Raw::default()
    };
    let bytes = raw.encode_to_vec();
    // Whatever is built can be read, or it is not built: the signer will read it.
    let meaning = decode_unsigned(&bytes).map_err(|_| BuildError::Inconsistent("it could not be read again"))?;
    Ok(Unsigned { bytes, meaning })
}

/// TAPOS: the low two bytes of the height, and the middle of the block's id.
fn refer(block: &BlockRef) -> Result<(Vec<u8>, Vec<u8>), BuildError> {
    let height = block.height.to_be_bytes();
    if block.hash.0[..8] != height {
        return Err(BuildError::Inconsistent("the reference block's id is not of its height"));
    }
    Ok((height[6..].to_vec(), block.hash.0[8..16].to_vec()))
}

pub fn transfer_contract(from: &TronAddress, to: &TronAddress, amount: i64) -> Contract {
    let value =
        TransferContract { owner_address: from.prefixed().to_vec(), to_address: to.prefixed().to_vec(), amount };
    wrap(TransferContract::TYPE, TransferContract::URL, value.encode_to_vec())
}

pub fn trigger_contract(from: &TronAddress, token: &TronAddress, data: Vec<u8>) -> Contract {
    let value = TriggerSmartContract {
        owner_address: from.prefixed().to_vec(),
        contract_address: token.prefixed().to_vec(),
        data,
        ..TriggerSmartContract::default()
    };
    wrap(TriggerSmartContract::TYPE, TriggerSmartContract::URL, value.encode_to_vec())
}

fn wrap(r#type: i32, type_url: &str, value: Vec<u8>) -> Contract {
    let parameter = Some(Any { type_url: type_url.to_owned(), value });
    Contract { r#type, parameter, ..Contract::default() }
}

/// The transaction's id.
pub fn hash(raw_data: &[u8]) -> TxHash {
    TxHash(sha256::Hash::hash(raw_data).to_byte_array())
}

/// What `raw_data` does: a plain transfer of TRX or of a token, or it is refused.
pub fn decode_unsigned(bytes: &[u8]) -> Result<Meaning, DecodeError> {
    use DecodeError::{Malformed, NotUnderstood};
    if bytes.len() > LONGEST {
        return Err(Malformed("longer than any transfer"));
    }
    let raw = Raw::decode(bytes).map_err(|_| Malformed("raw_data is not protobuf"))?;
    if raw.encode_to_vec() != bytes {
        return Err(NotUnderstood("raw_data has unknown fields, or is not in its plain form"));
    }
    for (wrong, what) in [
        (raw.ref_block_num != 0, "a reference block by number"),
        (!raw.auths.is_empty(), "auths"),
        (!raw.data.is_empty(), "a memo"),
        (!raw.scripts.is_empty(), "scripts"),
    ] {
        if wrong {
            return Err(NotUnderstood(what));
        }
    }
    if raw.ref_block_bytes.len() != 2 || raw.ref_block_hash.len() != 8 {
        return Err(Malformed("the reference block is two bytes and eight"));
    }
    let in_order = 0 < raw.timestamp && raw.timestamp < raw.expiration && raw.expiration <= LAST_MS;
    if !in_order || raw.expiration - raw.timestamp > MOST_LIFE_MS {
        return Err(NotUnderstood("it does not expire within 24 hours of its making"));
    }
    let [contract] = raw.contract.as_slice() else { return Err(NotUnderstood("other than one contract")) };
    let (from, payment) = read_contract(contract, raw.fee_limit)?;
    let most_fee = most_fee(bytes.len(), &payment.coin, raw.fee_limit).ok_or(Malformed("the fee limit is negative"))?;
    Ok(Meaning {
        hash: Some(hash(bytes)),
        from: Some(Address::Tron(from)),
        payments: vec![payment],
        most_fee: Some(most_fee),
        fee: Fee::FeeLimit(raw.fee_limit),
        slot: Slot::Expiry(Timestamp::from_micros(raw.expiration.saturating_mul(1_000))),
        chain_id: None,
    })
}

fn most_fee(raw_bytes: usize, coin: &Coin, fee_limit: i64) -> Option<RawAmount> {
    let bandwidth = u64::try_from(bandwidth(raw_bytes)).ok()?.checked_mul(SUN_PER_BYTE)?;
    let beyond = match coin {
        Coin::Native => SUN_FOR_ACCOUNT,
        Coin::Token(_) => u64::try_from(fee_limit).ok()?,
    };
    bandwidth.checked_add(beyond).map(|sun| RawAmount::from_u256(U256::from(sun)))
}

/// The bytes that a transaction is charged for, from the length of its `raw_data`: the two fields of the envelope, the
/// signature, and what the producer adds.
pub fn bandwidth(raw_bytes: usize) -> usize {
    let length = prost::encoding::encoded_len_varint(u64::try_from(raw_bytes).unwrap_or(u64::MAX));
    1 + length + raw_bytes + 2 + 65 + RESULT_BYTES
}

fn read_contract(contract: &Contract, fee_limit: i64) -> Result<(TronAddress, Payment), DecodeError> {
    use DecodeError::{Malformed, NotUnderstood};
    if !contract.provider.is_empty() || !contract.contract_name.is_empty() {
        return Err(NotUnderstood("a provider or a contract name"));
    }
    if contract.permission_id != 0 {
        return Err(NotUnderstood("another permission than the owner's"));
    }
    let Some(parameter) = &contract.parameter else { return Err(Malformed("a contract without content")) };
    match (contract.r#type, parameter.type_url.as_str()) {
        (TransferContract::TYPE, TransferContract::URL) => {
            if fee_limit != 0 {
                return Err(NotUnderstood("a TRX transfer with a fee limit"));
            }
            read_transfer(&parameter.value)
        }
        (TriggerSmartContract::TYPE, TriggerSmartContract::URL) => {
            if fee_limit <= 0 || fee_limit > MOST_FEE_LIMIT {
                return Err(NotUnderstood("a fee limit that the network does not allow"));
            }
            read_trigger(&parameter.value)
        }
        (TransferContract::TYPE | TriggerSmartContract::TYPE, _) => {
            Err(NotUnderstood("a contract whose content is of another type"))
        }
        _ => Err(NotUnderstood("neither a TRX transfer nor a contract call")),
    }
}

fn read_transfer(bytes: &[u8]) -> Result<(TronAddress, Payment), DecodeError> {
    use DecodeError::{Malformed, NotUnderstood};
    let transfer = TransferContract::decode(bytes).map_err(|_| Malformed("the transfer is not protobuf"))?;
    if transfer.encode_to_vec() != bytes {
        return Err(NotUnderstood("the transfer has unknown fields, or is not in its plain form"));
    }
    let amount = u64::try_from(transfer.amount).map_err(|_| Malformed("a negative amount"))?;
    let payment = payment(account(&transfer.to_address)?, Coin::Native, U256::from(amount))?;
    Ok((account(&transfer.owner_address)?, payment))
}

fn read_trigger(bytes: &[u8]) -> Result<(TronAddress, Payment), DecodeError> {
    use DecodeError::{Malformed, NotUnderstood};
    let call = TriggerSmartContract::decode(bytes).map_err(|_| Malformed("the call is not protobuf"))?;
    if call.encode_to_vec() != bytes {
        return Err(NotUnderstood("the call has unknown fields, or is not in its plain form"));
    }
    if call.call_value != 0 || call.call_token_value != 0 || call.token_id != 0 {
        return Err(NotUnderstood("a call that also moves TRX or a TRC-10 token"));
    }
    let Some((&TRANSFER, arguments)) = call.data.split_first_chunk::<4>() else {
        return Err(NotUnderstood("a call of another function than transfer"));
    };
    let Ok(arguments) = <&[u8; 64]>::try_from(arguments) else {
        return Err(NotUnderstood("a transfer with more or less than its two arguments"));
    };
    let (address, amount) = arguments.split_at(32);
    let (upper, to) = address.split_at(12);
    if upper != [0; 12] {
        return Err(NotUnderstood("a recipient that contracts may read in different ways"));
    }
    let to = <[u8; 20]>::try_from(to).map_err(|_| Malformed("the recipient"))?;
    let token = Coin::Token(Address::Tron(account(&call.contract_address)?));
    let payment = payment(TronAddress(to), token, U256::from_be_slice(amount))?;
    Ok((account(&call.owner_address)?, payment))
}

fn payment(to: TronAddress, coin: Coin, amount: U256) -> Result<Payment, DecodeError> {
    if amount.is_zero() {
        return Err(DecodeError::NotUnderstood("it pays nothing"));
    }
    let to = Address::Tron(to);
    if to == Address::Tron(TronAddress([0; 20])) || coin == Coin::Token(to.clone()) {
        return Err(DecodeError::NotUnderstood("what it pays would be lost"));
    }
    Ok(Payment { to, coin, amount: RawAmount::from_u256(amount) })
}

fn account(bytes: &[u8]) -> Result<TronAddress, DecodeError> {
    TronAddress::from_prefixed(bytes).ok_or(DecodeError::Malformed("an address is 41 and 20 bytes"))
}

/// What a signed transaction does, once its one signature is known to be the owner's.
pub fn decode_signed(bytes: &[u8]) -> Result<Meaning, DecodeError> {
    use DecodeError::{Malformed, NotUnderstood};
    if bytes.len() > LONGEST {
        return Err(Malformed("longer than any transfer"));
    }
    let envelope = Envelope::decode(bytes).map_err(|_| Malformed("the transaction is not protobuf"))?;
    if envelope.encode_to_vec() != bytes {
        return Err(NotUnderstood("the transaction has unknown fields, or is not in its plain form"));
    }
    if !envelope.ret.is_empty() {
        return Err(NotUnderstood("a transaction that says what became of it"));
    }
    let meaning = decode_unsigned(&envelope.raw_data)?;
    let signature = match envelope.signature.as_slice() {
        [signature] => <&[u8; 65]>::try_from(signature.as_slice()).map_err(|_| DecodeError::BadSignature)?,
        [] => return Err(DecodeError::BadSignature),
        _ => return Err(NotUnderstood("more than one signature")),
    };
    let signer = recover(&hash(&envelope.raw_data), signature).ok_or(DecodeError::BadSignature)?;
    if meaning.from != Some(Address::Tron(signer)) {
        return Err(DecodeError::BadSignature);
    }
    Ok(meaning)
}

/// Who signed. Both ways to write the last byte are in use: 0 and 1, and Ethereum's 27 and 28. Of the two signatures
/// that fit one message only the one with the low s is taken.
pub fn recover(hash: &TxHash, signature: &[u8; 65]) -> Option<TronAddress> {
    let (compact, last) = signature.split_at(64);
    let recovery = match last {
        [0 | 27] => 0,
        [1 | 28] => 1,
        _ => return None,
    };
    let given = Signature::from_compact(compact).ok()?;
    let mut low = given;
    low.normalize_s();
    if low != given {
        return None;
    }
    let signature = RecoverableSignature::from_compact(compact, RecoveryId::from_i32(recovery).ok()?).ok()?;
    let public = SECP256K1.recover_ecdsa(&Message::from_digest(hash.0), &signature).ok()?;
    Some(TronAddress::of_public(&public))
}

/// Puts r and s, and which of the two points it was, to the bytes that were signed.
pub fn attach(raw_data: &[u8], signature: &[u8; 64], odd: bool) -> Result<Vec<u8>, DecodeError> {
    attach_and_read(raw_data, signature, odd).map(|(bytes, _)| bytes)
}

/// The same, and what was read back of it.
pub fn attach_and_read(raw_data: &[u8], signature: &[u8; 64], odd: bool) -> Result<(Vec<u8>, Meaning), DecodeError> {
    let mut whole = signature.to_vec();
    whole.push(27 + u8::from(odd));
    let envelope = Envelope { raw_data: raw_data.to_vec(), signature: vec![whole], ret: Vec::new() };
    let bytes = envelope.encode_to_vec();
    let meaning = decode_signed(&bytes)?;
    Ok((bytes, meaning))
}
