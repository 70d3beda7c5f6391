//! A signed transaction as it came over the wire, and the rules that need no chain to check it.

use alloy_consensus::{EthereumTxEnvelope, Transaction as _, TxEip4844};
use alloy_eips::eip2718::{Decodable2718, Encodable2718};
use alloy_primitives::{Address, B256, Bytes, TxKind, U256};
use revm::context::TxEnv;
use revm::context_interface::cfg::GasParams;
use revm::primitives::hardfork::SpecId;
use secp256k1::ecdsa::{RecoverableSignature, RecoveryId};
use secp256k1::{Message, SECP256K1};

use super::Settings;
use tx::account_of;

/// The rules of the hard fork that Ethereum and BSC run.
pub(super) const FORK: SpecId = SpecId::OSAKA;
/// EIP-7825: no transaction may ask for more gas.
pub(super) const GAS_CAP: u64 = 1 << 24;
/// EIP-3860.
const INITCODE_BYTES: usize = 49_152;
/// No pool takes a longer transaction.
const LONGEST: usize = 128 * 1024;
/// Half the order of the curve: EIP-2 takes no signature with a greater s.
const HALF_ORDER: U256 = U256::from_be_bytes([
    0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x5d, 0x57, 0x6e,
    0x73, 0x57, 0xa4, 0x50, 0x1d, 0xdf, 0xe9, 0x2f, 0x46, 0x68, 0x1b, 0x20, 0xa0,
]);

pub(super) type Envelope = EthereumTxEnvelope<TxEip4844>;

/// A transaction whose signature is good.
#[derive(Clone, Debug)]
pub(super) struct Received {
    pub envelope: Envelope,
    pub from: Address,
    pub hash: B256,
    pub raw: Bytes,
}

impl Received {
    /// Decodes and recovers the sender. The texts are geth's.
    pub(super) fn decode(raw: &[u8], chain_id: u64) -> Result<Self, String> {
        match raw.first() {
            None => return Err("typed transaction too short".to_owned()),
            Some(kind @ (3 | 4)) => {
                return Err(format!("transaction type not supported: tx type {kind} not supported by this pool"));
            }
            Some(1 | 2 | 0xc0..) => {}
            Some(_) => return Err("transaction type not supported".to_owned()),
        }
        let envelope = Envelope::decode_2718_exact(raw).map_err(|error| format!("rlp: {error}"))?;
        if envelope.encoded_2718() != raw {
            return Err("rlp: the encoding is not canonical".to_owned());
        }
        match envelope.chain_id() {
            None => return Err("only replay-protected (EIP-155) transactions allowed over RPC".to_owned()),
            Some(id) if id != chain_id => {
                return Err(format!("invalid sender: invalid chain id for signer: have {id} want {chain_id}"));
            }
            Some(_) => {}
        }
        let from = sender(&envelope).ok_or("invalid sender: invalid transaction v, r, s values")?;
        Ok(Self { from, hash: *envelope.tx_hash(), raw: Bytes::copy_from_slice(raw), envelope })
    }

    pub(super) fn nonce(&self) -> u64 {
        self.envelope.nonce()
    }

    pub(super) fn gas(&self) -> u64 {
        self.envelope.gas_limit()
    }

    pub(super) fn to(&self) -> Option<Address> {
        self.envelope.to()
    }

    /// What it pays for a unit of gas at the most.
    pub(super) fn fee_cap(&self) -> u128 {
        self.envelope.max_fee_per_gas()
    }

    /// What the miner gets of it at the most.
    pub(super) fn tip_cap(&self) -> u128 {
        self.envelope.max_priority_fee_per_gas().unwrap_or_else(|| self.fee_cap())
    }

    /// What the miner gets at this base fee, if the fee reaches that far.
    pub(super) fn tip_at(&self, base_fee: u64) -> Option<u128> {
        let left = self.fee_cap().checked_sub(u128::from(base_fee))?;
        Some(left.min(self.tip_cap()))
    }

    /// What the sender must own.
    pub(super) fn cost(&self) -> U256 {
        let gas = U256::from(self.gas()).saturating_mul(U256::from(self.fee_cap()));
        gas.saturating_add(self.envelope.value())
    }

    pub(super) fn env(&self) -> TxEnv {
        TxEnv {
            tx_type: self.envelope.tx_type() as u8,
            caller: self.from,
            gas_limit: self.gas(),
            gas_price: self.fee_cap(),
            kind: self.envelope.kind(),
            value: self.envelope.value(),
            data: self.envelope.input().clone(),
            nonce: self.nonce(),
            chain_id: self.envelope.chain_id(),
            access_list: self.envelope.access_list().cloned().unwrap_or_default(),
            gas_priority_fee: self.envelope.max_priority_fee_per_gas(),
            ..TxEnv::default()
        }
    }

    /// The rules in geth's order, with geth's words.
    pub(super) fn check(&self, settings: &Settings, least_tip: u128) -> Result<(), String> {
        if self.raw.len() > LONGEST {
            return Err(format!("oversized data: transaction size {}, limit {LONGEST}", self.raw.len()));
        }
        let input = self.envelope.input();
        if self.envelope.kind() == TxKind::Create && input.len() > INITCODE_BYTES {
            return Err(format!("max initcode size exceeded: code size {}, limit {INITCODE_BYTES}", input.len()));
        }
        if self.gas() > GAS_CAP {
            return Err(format!("transaction gas limit too high (cap: {GAS_CAP}, tx: {})", self.gas()));
        }
        if self.gas() > settings.gas_limit {
            return Err("exceeds block gas limit".to_owned());
        }
        if self.tip_cap() > self.fee_cap() {
            return Err("max priority fee per gas higher than max fee per gas".to_owned());
        }
        if self.nonce() == u64::MAX {
            return Err("nonce has max value".to_owned());
        }
        let least = GasParams::new_spec(FORK).initial_tx_gas_for_tx(self.env(), None);
        if self.gas() < least.initial_regular_gas {
            let needed = least.initial_regular_gas;
            return Err(format!("intrinsic gas too low: gas {}, minimum needed {needed}", self.gas()));
        }
        if self.gas() < least.floor_gas {
            let needed = least.floor_gas;
            return Err(format!(
                "insufficient gas for floor data gas cost: gas {}, minimum needed {needed}",
                self.gas()
            ));
        }
        if self.tip_cap() < least_tip {
            let tip = self.tip_cap();
            return Err(format!("transaction underpriced: gas tip cap {tip}, minimum needed {least_tip}"));
        }
        Ok(())
    }
}

fn sender(envelope: &Envelope) -> Option<Address> {
    let signature = envelope.signature();
    if signature.s() > HALF_ORDER {
        return None;
    }
    let mut compact = [0; 64];
    compact[..32].copy_from_slice(&signature.r().to_be_bytes::<32>());
    compact[32..].copy_from_slice(&signature.s().to_be_bytes::<32>());
    let recovery = RecoveryId::from_i32(i32::from(signature.v())).ok()?;
    let signature = RecoverableSignature::from_compact(&compact, recovery).ok()?;
    let digest = Message::from_digest(envelope.signature_hash().0);
    let public = SECP256K1.recover_ecdsa(&digest, &signature).ok()?;
    Some(Address::from(account_of(&public)))
}
