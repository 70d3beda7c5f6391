//! What one transaction pays to watched addresses: the same answer for a scan and for a proof.

use alloy_primitives::{Address as Account, B256, U256, b256};
use domain::RawAmount;
use tx::{Address, BlockRef, Coin, TxHash};

use super::trace::Moved;
use super::wire::{Log, Receipt};
use crate::block::{Output, Place};
use crate::watch::{WatchKey, Watched};

/// `Transfer(address,address,uint256)`.
pub(super) const TRANSFER: B256 = b256!("ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef");

/// A transfer of a listed token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TokenTransfer {
    pub token: Account,
    pub from: Account,
    pub to: Account,
    pub amount: U256,
}

/// `None`: another event, another contract, or a form that is not ERC-20's (ERC-721 has a fourth topic and no data).
pub(super) fn token_transfer(log: &Log, tokens: &[Account]) -> Option<TokenTransfer> {
    let [topic, from, to] = log.topics.as_slice() else { return None };
    let clean = |word: &B256| word.0[..12] == [0; 12];
    if topic.0 != TRANSFER || log.removed || !clean(&from.0) || !clean(&to.0) || !tokens.contains(&log.address.0) {
        return None;
    }
    let account = |word: &B256| Account::from_slice(&word.0[12..]);
    Some(TokenTransfer { token: log.address.0, from: account(&from.0), to: account(&to.0), amount: log.data.0.0? })
}

pub(super) fn find(watched: &Watched, account: &Account) -> Option<u32> {
    watched.find(&WatchKey::of_account(&account.into_array()))
}

/// Everything about one transaction that can pay somebody.
pub(super) struct Told<'a> {
    pub block: BlockRef,
    pub to: Option<Account>,
    pub value: U256,
    pub receipt: &'a Receipt,
    pub moved: &'a [Moved],
}

impl Told<'_> {
    pub(super) fn outputs(&self, tokens: &[Account], watched: &Watched) -> Vec<Output> {
        let ok = self.receipt.status.0 == 1;
        let mut outputs = Vec::new();
        let mut pay = |place: Place, to: Account, coin: Coin, amount: U256| {
            if let Some(number) = find(watched, &to).filter(|_| !amount.is_zero()) {
                outputs.push(Output {
                    block: self.block,
                    transaction: TxHash(self.receipt.transaction_hash.0.0),
                    place,
                    watched: number,
                    to: Address::Evm(to),
                    coin,
                    amount: RawAmount::from_u256(amount),
                    ok,
                    coinbase: false,
                });
            }
        };
        if let Some(to) = self.to {
            pay(Place::Value, to, Coin::Native, self.value);
        }
        for (log, index) in self.receipt.logs.iter().zip(0_u32..) {
            if let Some(transfer) = token_transfer(log, tokens) {
                let coin = Coin::Token(Address::Evm(transfer.token));
                pay(Place::Log(index), transfer.to, coin, transfer.amount);
            }
        }
        if ok {
            for moved in self.moved {
                pay(Place::Internal(moved.position), moved.to, Coin::Native, moved.amount);
            }
        }
        outputs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evm::wire::{Hex, Word};
    use tx::BlockHash;

    fn log(token: u8, to: u8, data: Option<u64>) -> Log {
        let word = |number: u8| Hex(B256::left_padding_from(&[number; 20]));
        Log {
            address: Hex(Account::from([token; 20])),
            topics: vec![Hex(TRANSFER), word(1), word(to)],
            data: Hex(Word(data.map(U256::from))),
            block_hash: Hex(B256::ZERO),
            block_number: Hex(1),
            transaction_hash: Hex(B256::ZERO),
            log_index: Hex(0),
            removed: false,
        }
    }

    fn receipt(status: u64, logs: Vec<Log>) -> Receipt {
        Receipt {
            transaction_hash: Hex(B256::ZERO),
            transaction_index: Hex(0),
            block_hash: Hex(B256::ZERO),
            block_number: Hex(1),
            status: Hex(status),
            gas_used: Hex(21_000),
            effective_gas_price: Hex(1),
            logs,
        }
    }

    const TOKENS: [Account; 1] = [Account::repeat_byte(7)];

    #[test]
    fn only_the_erc20_form_of_a_listed_contract_is_a_transfer() {
        let good = log(7, 2, Some(5));
        assert_eq!(token_transfer(&good, &TOKENS).map(|transfer| transfer.amount), Some(U256::from(5)));
        let spoil: [fn(&mut Log); 8] = [
            |log| log.address = Hex(Account::repeat_byte(8)),
            |log| log.topics[0] = Hex(B256::ZERO),
            |log| log.topics.push(Hex(B256::ZERO)),
            |log| log.topics.truncate(2),
            |log| log.topics.clear(),
            |log| log.data = Hex(Word(None)),
            |log| log.removed = true,
            |log| log.topics[2].0.0[0] = 1,
        ];
        for (number, spoil) in spoil.iter().enumerate() {
            let mut bad = good.clone();
            spoil(&mut bad);
            assert_eq!(token_transfer(&bad, &TOKENS), None, "{number}");
        }
    }

    #[test]
    fn logs_are_counted_within_the_transaction_and_nothing_is_paid_twice() {
        let mut watched = Watched::default();
        let number = watched.insert(WatchKey::of_account(&[2; 20]));
        let receipt = receipt(1, vec![log(8, 2, Some(1)), log(7, 3, Some(1)), log(7, 2, Some(9)), log(7, 2, Some(0))]);
        let moved = [Moved { position: 4, to: Account::repeat_byte(2), amount: U256::from(3) }];
        let block = BlockRef { height: 1, hash: BlockHash([0; 32]) };
        let told =
            Told { block, to: Some(Account::repeat_byte(2)), value: U256::from(6), receipt: &receipt, moved: &moved };
        let found: Vec<_> = told
            .outputs(&TOKENS, &watched)
            .into_iter()
            .map(|output| (output.place, output.amount.to_string(), output.watched, output.ok))
            .collect();
        let expected = [(Place::Value, "6"), (Place::Log(2), "9"), (Place::Internal(4), "3")];
        assert_eq!(found, expected.map(|(place, amount)| (place, amount.to_owned(), number, true)));
    }

    #[test]
    fn a_reverted_payment_is_told_as_not_ok_and_moved_nothing_inside() {
        let mut watched = Watched::default();
        watched.insert(WatchKey::of_account(&[2; 20]));
        let receipt = receipt(0, Vec::new());
        let moved = [Moved { position: 1, to: Account::repeat_byte(2), amount: U256::from(3) }];
        let block = BlockRef { height: 1, hash: BlockHash([0; 32]) };
        let told =
            Told { block, to: Some(Account::repeat_byte(2)), value: U256::from(6), receipt: &receipt, moved: &moved };
        let outputs = told.outputs(&TOKENS, &watched);
        assert_eq!(outputs.len(), 1);
        assert!(!outputs[0].ok && outputs[0].place == Place::Value);
    }
}
