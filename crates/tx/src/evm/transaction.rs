//! Transactions: built, read back, and given their signature. No node is asked.
//!
//! Only two things are ever sent: the chain's own coin without data, and `transfer(address,uint256)` of a token without
//! coin. Bytes that do anything else are refused, and so are bytes that say the same in another way: what is read is
//! written again and must come out as it went in.

use alloy_consensus::transaction::{RlpEcdsaDecodableTx, RlpEcdsaEncodableTx};
use alloy_consensus::{SignableTransaction, TxEip1559, TxEip2930, TxLegacy};
use alloy_primitives::{Address as Account, Bytes, Signature, TxKind, U256, keccak256};
use alloy_rlp::Decodable;
use domain::RawAmount;
use secp256k1::ecdsa::{RecoverableSignature, RecoveryId};
use secp256k1::{Message, SECP256K1};

use crate::address::{Address, account_of};
use crate::fee::Fee;
use crate::hash::TxHash;
use crate::transaction::{BuildError, Coin, DecodeError, Draft, Meaning, Payment, Slot, Unsigned};

/// `transfer(address,uint256)`.
const TRANSFER: [u8; 4] = [0xa9, 0x05, 0x9c, 0xbb];
const CALL_BYTES: usize = 4 + 32 + 32;
/// What every transaction costs at least.
pub const LEAST_GAS: u64 = 21_000;

/// A transaction before its signature.
enum Body {
    Legacy(TxLegacy),
    /// EIP-2930. It is read, with an empty access list, and never built: the older form says the same.
    Listed(TxEip2930),
    Dynamic(TxEip1559),
}

/// Which of them some bytes are.
enum Kind {
    Legacy,
    Listed,
    Dynamic,
}

pub fn call_data(to: Account, amount: U256) -> Vec<u8> {
    let mut data = Vec::with_capacity(CALL_BYTES);
    data.extend(TRANSFER);
    data.extend([0; 12]);
    data.extend(to);
    data.extend(amount.to_be_bytes::<32>());
    data
}

/// The most that so much gas can cost. 64 bits times 128 always fit 256.
pub fn most_fee(gas_limit: u64, fee: Fee) -> Option<U256> {
    let price = match fee {
        Fee::Legacy { gas_price } => gas_price,
        Fee::Eip1559 { max_fee, .. } => max_fee,
        Fee::PerKvb(_) | Fee::FeeLimit(_) => return None,
    };
    U256::from(gas_limit).checked_mul(U256::from(price))
}

/// The same draft gives the same bytes.
pub fn build(draft: &Draft, chain_id: u64) -> Result<Unsigned, BuildError> {
    let Draft::Evm { from: Address::Evm(from), nonce, payment, gas_limit, fee } = draft else {
        return Err(BuildError::OtherChain);
    };
    let Payment { to: Address::Evm(to), coin, amount } = payment else {
        return Err(BuildError::OtherChain);
    };
    let amount = amount.to_u256();
    // Nothing to oneself only takes a nonce: it cancels what was to have it, or fills a gap.
    if amount.is_zero() && (to != from || *coin != Coin::Native) {
        return Err(BuildError::NothingToPay);
    }
    if to.is_zero() || from.is_zero() {
        return Err(BuildError::Inconsistent("the zero address"));
    }
    if *nonce == u64::MAX {
        return Err(BuildError::Inconsistent("no account can use the highest nonce (EIP-2681)"));
    }
    if *gas_limit < LEAST_GAS {
        return Err(BuildError::Inconsistent("less gas than any transaction needs"));
    }
    if matches!(fee, Fee::Eip1559 { max_fee, max_priority } if max_priority > max_fee) {
        return Err(BuildError::Inconsistent("a priority fee above the whole fee"));
    }
    let most_fee = most_fee(*gas_limit, *fee).ok_or(BuildError::OtherChain)?;
    let (target, value, input) = match coin {
        Coin::Native => {
            amount.checked_add(most_fee).ok_or(BuildError::AmountTooLarge)?;
            (*to, amount, Bytes::new())
        }
        Coin::Token(Address::Evm(contract)) if contract.is_zero() || contract == to => {
            return Err(BuildError::Inconsistent("a token paid to its own contract is lost"));
        }
        Coin::Token(Address::Evm(contract)) => (*contract, U256::ZERO, Bytes::from(call_data(*to, amount))),
        Coin::Token(_) => return Err(BuildError::OtherChain),
    };
    let (to, nonce, gas_limit) = (TxKind::Call(target), *nonce, *gas_limit);
    let body = match *fee {
        Fee::Legacy { gas_price } => {
            Body::Legacy(TxLegacy { chain_id: Some(chain_id), nonce, gas_price, gas_limit, to, value, input })
        }
        Fee::Eip1559 { max_fee, max_priority } => Body::Dynamic(TxEip1559 {
            chain_id,
            nonce,
            gas_limit,
            max_fee_per_gas: max_fee,
            max_priority_fee_per_gas: max_priority,
            to,
            value,
            access_list: Default::default(),
            input,
        }),
        Fee::PerKvb(_) | Fee::FeeLimit(_) => return Err(BuildError::OtherChain),
    };
    let meaning = body.meaning(chain_id).map_err(|_| BuildError::Inconsistent("it would not be understood"))?;
    Ok(Unsigned { bytes: body.unsigned(), meaning })
}

/// What the payload that is to be signed will do.
pub fn decode_unsigned(bytes: &[u8], chain_id: u64) -> Result<Meaning, DecodeError> {
    Body::read(bytes)?.meaning(chain_id)
}

/// What a signed transaction does, with its hash and who signed it.
pub fn decode_signed(bytes: &[u8], chain_id: u64) -> Result<Meaning, DecodeError> {
    let (body, signature) = Body::read_signed(bytes)?;
    let mut meaning = body.meaning(chain_id)?;
    meaning.from = Some(Address::Evm(body.signer(&signature)?));
    meaning.hash = Some(TxHash(keccak256(bytes).0));
    Ok(meaning)
}

/// What a key signs of the unsigned bytes.
pub fn digest(unsigned: &[u8]) -> [u8; 32] {
    keccak256(unsigned).0
}

/// The signed transaction: `unsigned` with r and s, and whether the point's y was odd.
pub fn attach(unsigned: &[u8], signature: &[u8; 64], odd: bool) -> Result<Vec<u8>, DecodeError> {
    let body = Body::read(unsigned)?;
    let signature = parity_signature(signature, odd);
    body.signer(&signature)?;
    Ok(body.signed(&signature))
}

/// The same, read back as any node reads it. Finding the key of a signature takes as long as making one, and it is done once here.
pub fn attach_and_read(
    unsigned: &[u8],
    signature: &[u8; 64],
    odd: bool,
    chain_id: u64,
) -> Result<(Vec<u8>, Meaning), DecodeError> {
    let bytes = Body::read(unsigned)?.signed(&parity_signature(signature, odd));
    let meaning = decode_signed(&bytes, chain_id)?;
    Ok((bytes, meaning))
}

fn parity_signature(signature: &[u8; 64], odd: bool) -> Signature {
    let (r, s) = signature.split_at(32);
    Signature::new(U256::from_be_slice(r), U256::from_be_slice(s), odd)
}

impl Body {
    fn read(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (kind, mut rest) = kind(bytes)?;
        let body = match kind {
            Kind::Legacy => TxLegacy::decode(&mut rest).map(Self::Legacy),
            Kind::Listed => TxEip2930::rlp_decode(&mut rest).map(Self::Listed),
            Kind::Dynamic => TxEip1559::rlp_decode(&mut rest).map(Self::Dynamic),
        };
        let body = body.map_err(|_| DecodeError::Malformed("not the fields of a transaction"))?;
        // alloy reads more than it writes: other values for EIP-155's two zeros, for one.
        if body.unsigned() != bytes {
            return Err(DecodeError::Malformed("not in the one form that it has"));
        }
        Ok(body)
    }

    fn read_signed(bytes: &[u8]) -> Result<(Self, Signature), DecodeError> {
        let (kind, mut rest) = kind(bytes)?;
        let rest = &mut rest;
        let read = match kind {
            Kind::Legacy => TxLegacy::rlp_decode_with_signature(rest).map(|(body, sign)| (Self::Legacy(body), sign)),
            Kind::Listed => TxEip2930::rlp_decode_with_signature(rest).map(|(body, sign)| (Self::Listed(body), sign)),
            Kind::Dynamic => TxEip1559::rlp_decode_with_signature(rest).map(|(body, sign)| (Self::Dynamic(body), sign)),
        };
        let (body, signature) = read.map_err(|_| DecodeError::Malformed("not the fields of a signed transaction"))?;
        if body.signed(&signature) != bytes {
            return Err(DecodeError::Malformed("not in the one form that it has"));
        }
        Ok((body, signature))
    }

    fn unsigned(&self) -> Vec<u8> {
        match self {
            Self::Legacy(body) => body.encoded_for_signing(),
            Self::Listed(body) => body.encoded_for_signing(),
            Self::Dynamic(body) => body.encoded_for_signing(),
        }
    }

    fn signed(&self, signature: &Signature) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self {
            Self::Legacy(body) => body.eip2718_encode(signature, &mut bytes),
            Self::Listed(body) => body.eip2718_encode(signature, &mut bytes),
            Self::Dynamic(body) => body.eip2718_encode(signature, &mut bytes),
        }
        bytes
    }

    /// Who signed it. A high s is the same signature in another form, and would give it another hash (EIP-2).
    fn signer(&self, signature: &Signature) -> Result<Account, DecodeError> {
        let compact = [signature.r().to_be_bytes::<32>(), signature.s().to_be_bytes()].concat();
        let point = RecoveryId::from_i32(i32::from(signature.v())).map_err(|_| DecodeError::BadSignature)?;
        let recoverable = RecoverableSignature::from_compact(&compact, point).map_err(|_| DecodeError::BadSignature)?;
        let given = recoverable.to_standard();
        let mut low = given;
        low.normalize_s();
        if low != given {
            return Err(DecodeError::BadSignature);
        }
        let digest = Message::from_digest(digest(&self.unsigned()));
        let public = SECP256K1.recover_ecdsa(&digest, &recoverable).map_err(|_| DecodeError::BadSignature)?;
        Ok(Account::from(account_of(&public)))
    }

    fn meaning(&self, ours: u64) -> Result<Meaning, DecodeError> {
        let (chain_id, nonce, gas_limit, to, value, input, fee) = match self {
            Self::Legacy(TxLegacy { chain_id, nonce, gas_price, gas_limit, to, value, input }) => {
                let chain_id =
                    chain_id.ok_or(DecodeError::NotUnderstood("valid on every chain: it can be replayed"))?;
                (chain_id, nonce, gas_limit, to, value, input, Fee::Legacy { gas_price: *gas_price })
            }
            Self::Listed(body) => {
                if !body.access_list.is_empty() {
                    return Err(DecodeError::NotUnderstood("an access list"));
                }
                let fee = Fee::Legacy { gas_price: body.gas_price };
                (body.chain_id, &body.nonce, &body.gas_limit, &body.to, &body.value, &body.input, fee)
            }
            Self::Dynamic(body) => {
                if !body.access_list.is_empty() {
                    return Err(DecodeError::NotUnderstood("an access list"));
                }
                let fee = Fee::Eip1559 { max_fee: body.max_fee_per_gas, max_priority: body.max_priority_fee_per_gas };
                (body.chain_id, &body.nonce, &body.gas_limit, &body.to, &body.value, &body.input, fee)
            }
        };
        if chain_id != ours {
            return Err(DecodeError::OtherNetwork);
        }
        if matches!(fee, Fee::Eip1559 { max_fee, max_priority } if max_priority > max_fee) {
            return Err(DecodeError::NotUnderstood("a priority fee above the whole fee"));
        }
        let TxKind::Call(target) = *to else {
            return Err(DecodeError::NotUnderstood("no recipient: it makes a contract"));
        };
        let payment = if input.is_empty() {
            Payment { to: Address::Evm(target), coin: Coin::Native, amount: RawAmount::from_u256(*value) }
        } else {
            let (to, amount) = transfer(input)?;
            if !value.is_zero() {
                return Err(DecodeError::NotUnderstood("coin sent along with a call"));
            }
            Payment {
                to: Address::Evm(to),
                coin: Coin::Token(Address::Evm(target)),
                amount: RawAmount::from_u256(amount),
            }
        };
        // What `build` does not make is not signed either.
        if payment.to == Address::Evm(Account::ZERO) || payment.coin == Coin::Token(payment.to.clone()) {
            return Err(DecodeError::NotUnderstood("what it pays would be lost"));
        }
        Ok(Meaning {
            hash: None,
            from: None,
            payments: vec![payment],
            most_fee: most_fee(*gas_limit, fee).map(RawAmount::from_u256),
            fee,
            slot: Slot::Nonce(*nonce),
            chain_id: Some(chain_id),
        })
    }
}

/// The type, and what follows it.
fn kind(bytes: &[u8]) -> Result<(Kind, &[u8]), DecodeError> {
    match bytes {
        [0x01, rest @ ..] => Ok((Kind::Listed, rest)),
        [0x02, rest @ ..] => Ok((Kind::Dynamic, rest)),
        [0xc0..=0xff, ..] => Ok((Kind::Legacy, bytes)),
        [0x03 | 0x04, ..] => Err(DecodeError::NotUnderstood("a type of transaction that is never sent")),
        _ => Err(DecodeError::Malformed("no type of transaction")),
    }
}

/// The recipient and the amount of a call of `transfer`, and of nothing else.
fn transfer(input: &[u8]) -> Result<(Account, U256), DecodeError> {
    let not = DecodeError::NotUnderstood("data that is not exactly a token transfer");
    if input.len() != CALL_BYTES || input[..4] != TRANSFER || input[4..16] != [0; 12] {
        return Err(not);
    }
    Ok((Account::from_slice(&input[16..36]), U256::from_be_slice(&input[36..])))
}

#[cfg(test)]
mod tests;
