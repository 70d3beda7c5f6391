//! Mined blocks.

use std::cell::OnceCell;
use std::sync::Arc;

use alloy_consensus::proofs::{calculate_receipt_root, ordered_trie_root_with_encoder};
use alloy_consensus::{Eip658Value, Header, ReceiptEnvelope, ReceiptWithBloom, TxType};
use alloy_primitives::{Address, B256, Bloom, Log};
use alloy_rlp::Encodable;

use super::transaction::Received;

#[derive(Clone, Debug)]
pub(super) struct Receipt {
    pub ok: bool,
    pub gas_used: u64,
    pub cumulative_gas_used: u64,
    pub gas_price: u128,
    pub contract: Option<Address>,
    pub logs: Vec<Log>,
    pub bloom: Bloom,
    /// How many logs the block has before its own.
    pub first_log: usize,
}

impl Receipt {
    fn envelope(&self, kind: TxType) -> ReceiptEnvelope {
        let receipt = alloy_consensus::Receipt {
            status: Eip658Value::Eip658(self.ok),
            cumulative_gas_used: self.cumulative_gas_used,
            logs: self.logs.clone(),
        };
        let receipt = ReceiptWithBloom { receipt, logs_bloom: self.bloom };
        match kind {
            TxType::Legacy => ReceiptEnvelope::Legacy(receipt),
            TxType::Eip2930 => ReceiptEnvelope::Eip2930(receipt),
            TxType::Eip1559 => ReceiptEnvelope::Eip1559(receipt),
            TxType::Eip4844 => ReceiptEnvelope::Eip4844(receipt),
            TxType::Eip7702 => ReceiptEnvelope::Eip7702(receipt),
        }
    }
}

/// JSON that was asked for once and will be asked for again.
#[derive(Clone, Debug, Default)]
pub(super) struct Rendered {
    pub hashes: OnceCell<String>,
    pub full: OnceCell<String>,
    pub receipts: OnceCell<String>,
}

#[derive(Clone, Debug)]
pub(super) struct Block {
    pub header: Header,
    pub hash: B256,
    pub transactions: Vec<Arc<Received>>,
    pub receipts: Vec<Receipt>,
    /// The base fee without the factor of a fee spike.
    pub usual_base_fee: u64,
    pub rendered: Rendered,
}

impl Block {
    /// `header` lacks only what follows from the transactions.
    pub(super) fn seal(
        mut header: Header,
        transactions: Vec<Arc<Received>>,
        receipts: Vec<Receipt>,
        usual_base_fee: u64,
    ) -> Self {
        header.transactions_root = ordered_trie_root_with_encoder(&transactions, |sent: &Arc<Received>, out| {
            out.extend_from_slice(&sent.raw);
        });
        let kinds = transactions.iter().map(|sent| sent.envelope.tx_type());
        let envelopes: Vec<_> = receipts.iter().zip(kinds).map(|(receipt, kind)| receipt.envelope(kind)).collect();
        header.receipts_root = calculate_receipt_root(&envelopes);
        header.logs_bloom = receipts.iter().fold(Bloom::ZERO, |bloom, receipt| bloom | receipt.bloom);
        header.gas_used = receipts.last().map_or(0, |receipt| receipt.cumulative_gas_used);
        let hash = header.hash_slow();
        Self { header, hash, transactions, receipts, usual_base_fee, rendered: Rendered::default() }
    }

    pub(super) fn base_fee(&self) -> u64 {
        self.header.base_fee_per_gas.unwrap_or_default()
    }

    /// Its length in RLP, with no uncles and no withdrawals.
    pub(super) fn size(&self) -> usize {
        let wrapped = |sent: &Arc<Received>| match sent.envelope.tx_type() {
            TxType::Legacy => sent.raw.len(),
            _ => sent.raw.length(),
        };
        let transactions: usize = self.transactions.iter().map(wrapped).sum();
        let list = |payload: usize| payload + alloy_rlp::length_of_length(payload);
        list(self.header.length() + list(transactions) + 2)
    }
}
