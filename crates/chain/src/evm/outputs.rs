//! What one transaction pays to watched addresses and takes from them: the same answer for a scan and for a proof.

use alloy_primitives::{Address as Account, B256, U256, b256};
use domain::RawAmount;
use tx::{Address, BlockRef, Coin, TxHash};

use super::trace::Moved;
use super::wire::{Log, Receipt};
use crate::block::{Output, Place, Spend};
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
    (!log.removed).then(|| transfer_of(log.address.0, [topic.0, from.0, to.0], log.data.0.0, tokens))?
}

/// The same of a log in any form: who logged, its topics, and its data when that is one word.
pub(super) fn transfer_of(
    token: Account,
    [topic, from, to]: [B256; 3],
    amount: Option<U256>,
    tokens: &[Account],
) -> Option<TokenTransfer> {
    let clean = |word: &B256| word.0[..12] == [0; 12];
    if topic != TRANSFER || !clean(&from) || !clean(&to) || !tokens.contains(&token) {
        return None;
    }
    let account = |word: &B256| Account::from_slice(&word.0[12..]);
    Some(TokenTransfer { token, from: account(&from), to: account(&to), amount: amount? })
}

pub(super) fn find(watched: &Watched, account: &Account) -> Option<u32> {
    watched.find(&WatchKey::of_account(&account.into_array()))
}

/// What a transaction's own fields say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fields {
    pub hash: B256,
    pub from: Account,
    /// `None`: it makes a contract.
    pub to: Option<Account>,
    pub value: U256,
}

/// Everything about one transaction that can pay somebody or cost somebody something.
pub(super) struct Told<'a> {
    pub block: BlockRef,
    pub fields: Fields,
    pub ok: bool,
    pub fee: U256,
    /// With the place of their logs among those of the transaction.
    pub transfers: Vec<(u32, TokenTransfer)>,
    pub moved: &'a [Moved],
}

impl<'a> Told<'a> {
    pub(super) fn by_receipt(
        block: BlockRef,
        fields: Fields,
        receipt: &Receipt,
        moved: &'a [Moved],
        tokens: &[Account],
    ) -> Self {
        let logs = (0_u32..).zip(&receipt.logs);
        let transfers = logs.filter_map(|(place, log)| Some((place, token_transfer(log, tokens)?))).collect();
        Self { block, fields, ok: receipt.status.0 == 1, fee: receipt.fee(), transfers, moved }
    }

    /// What moved inside. A transaction that reverted moved nothing, whatever its trace says.
    fn moved(&self) -> &'a [Moved] {
        if self.ok { self.moved } else { &[] }
    }

    pub(super) fn outputs(&self, watched: &Watched) -> Vec<Output> {
        let mut outputs = Vec::new();
        let mut pay = |place: Place, to: Account, coin: Coin, amount: U256| {
            if let Some(number) = find(watched, &to).filter(|_| !amount.is_zero()) {
                outputs.push(Output {
                    block: self.block,
                    transaction: TxHash(self.fields.hash.0),
                    place,
                    watched: number,
                    to: Address::Evm(to),
                    coin,
                    amount: RawAmount::from_u256(amount),
                    ok: self.ok,
                    coinbase: false,
                });
            }
        };
        if let Some(to) = self.fields.to {
            pay(Place::Value, to, Coin::Native, self.fields.value);
        }
        for (place, transfer) in &self.transfers {
            let coin = Coin::Token(Address::Evm(transfer.token));
            pay(Place::Log(*place), transfer.to, coin, transfer.amount);
        }
        for moved in self.moved() {
            pay(Place::Internal(moved.position), moved.to, Coin::Native, moved.amount);
        }
        outputs
    }

    pub(super) fn spends(&self, watched: &Watched) -> Vec<Spend> {
        let mut spends = Vec::new();
        let mut take = |place: Place, (from, to): (Account, Option<Account>), coin: Coin, amount: U256| {
            if let Some(number) = find(watched, &from).filter(|_| !amount.is_zero()) {
                spends.push(Spend {
                    block: self.block,
                    transaction: TxHash(self.fields.hash.0),
                    place,
                    watched: number,
                    from: Address::Evm(from),
                    to: to.map(Address::Evm),
                    coin,
                    amount: RawAmount::from_u256(amount),
                    ok: self.ok,
                });
            }
        };
        let sender = self.fields.from;
        // What reverted gave its value back.
        if self.ok {
            take(Place::Value, (sender, self.fields.to), Coin::Native, self.fields.value);
        }
        for (place, transfer) in &self.transfers {
            let coin = Coin::Token(Address::Evm(transfer.token));
            take(Place::Log(*place), (transfer.from, Some(transfer.to)), coin, transfer.amount);
        }
        for moved in self.moved() {
            take(Place::Internal(moved.position), (moved.from, Some(moved.to)), Coin::Native, moved.amount);
        }
        take(Place::Fee, (sender, None), Coin::Native, self.fee);
        spends
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
            blob_gas_used: None,
            blob_gas_price: None,
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

    const OURS: u8 = 2;
    const STRANGER: u8 = 1;

    fn told<'a>(from: u8, to: Option<u8>, receipt: &Receipt, moved: &'a [Moved]) -> Told<'a> {
        let account = |number| Account::repeat_byte(number);
        let fields = Fields { hash: B256::ZERO, from: account(from), to: to.map(account), value: U256::from(6) };
        let block = BlockRef { height: 1, hash: BlockHash([0; 32]) };
        Told::by_receipt(block, fields, receipt, moved, &TOKENS)
    }

    fn moved(position: u32, from: u8, to: u8, amount: u64) -> Moved {
        let (from, to) = (Account::repeat_byte(from), Account::repeat_byte(to));
        Moved { position, from, to, amount: U256::from(amount) }
    }

    fn ours() -> Watched {
        let mut watched = Watched::default();
        watched.insert(WatchKey::of_account(&[0x77; 20]));
        assert_eq!(watched.insert(WatchKey::of_account(&[OURS; 20])), 1);
        watched
    }

    #[test]
    fn logs_are_counted_within_the_transaction_and_nothing_is_paid_twice() {
        let receipt = receipt(1, vec![log(8, 2, Some(1)), log(7, 3, Some(1)), log(7, 2, Some(9)), log(7, 2, Some(0))]);
        let moved = [moved(4, STRANGER, OURS, 3)];
        let told = told(STRANGER, Some(OURS), &receipt, &moved);
        let found: Vec<_> = told
            .outputs(&ours())
            .into_iter()
            .map(|output| (output.place, output.amount.to_string(), output.watched, output.ok))
            .collect();
        let expected = [(Place::Value, "6"), (Place::Log(2), "9"), (Place::Internal(4), "3")];
        assert_eq!(found, expected.map(|(place, amount)| (place, amount.to_owned(), 1, true)));
        assert_eq!(told.spends(&ours()), [], "the sender and the payer of the token are strangers");
    }

    #[test]
    fn a_reverted_payment_is_told_as_not_ok_and_moved_nothing_inside() {
        let receipt = receipt(0, Vec::new());
        let moved = [moved(1, STRANGER, OURS, 3)];
        let outputs = told(STRANGER, Some(OURS), &receipt, &moved).outputs(&ours());
        assert_eq!(outputs.len(), 1);
        assert!(!outputs[0].ok && outputs[0].place == Place::Value);
    }

    fn spent(spends: &[Spend]) -> Vec<(Place, String, Option<Address>, bool)> {
        spends.iter().map(|one| (one.place, one.amount.to_string(), one.to.clone(), one.ok)).collect()
    }

    #[test]
    fn what_leaves_an_address_is_its_value_its_tokens_what_contracts_take_and_the_fee() {
        let from_us = |amount| {
            let mut log = log(7, 3, None);
            log.topics[1] = Hex(B256::left_padding_from(&[OURS; 20]));
            log.data = Hex(Word(Some(amount)));
            log
        };
        let receipt = Receipt {
            gas_used: Hex(10),
            effective_gas_price: Hex(7),
            ..receipt(1, vec![from_us(U256::MAX), from_us(U256::ZERO), log(7, 3, Some(5))])
        };
        let moved = [moved(1, STRANGER, 3, 4), moved(2, OURS, 3, 8)];
        let to = |number| Some(Address::Evm(Account::repeat_byte(number)));
        let told = told(OURS, Some(3), &receipt, &moved);
        let most = RawAmount::from_u256(U256::MAX).to_string();
        assert_eq!(
            spent(&told.spends(&ours())),
            [
                (Place::Value, "6".to_owned(), to(3), true),
                (Place::Log(0), most, to(3), true),
                (Place::Internal(2), "8".to_owned(), to(3), true),
                (Place::Fee, "70".to_owned(), None, true),
            ]
        );
        assert_eq!(told.outputs(&ours()), []);
    }

    #[test]
    fn what_reverted_costs_its_fee_and_nothing_else() {
        let receipt = Receipt { gas_used: Hex(10), effective_gas_price: Hex(7), ..receipt(0, Vec::new()) };
        let moved = [moved(1, OURS, 3, 8)];
        let spends = told(OURS, Some(3), &receipt, &moved).spends(&ours());
        assert_eq!(spent(&spends), [(Place::Fee, "70".to_owned(), None, false)]);
    }

    #[test]
    fn a_payment_to_oneself_comes_and_goes() {
        let receipt = receipt(1, Vec::new());
        let told = told(OURS, Some(OURS), &receipt, &[]);
        assert_eq!(told.outputs(&ours()).len(), 1);
        let to = Some(Address::Evm(Account::repeat_byte(OURS)));
        let expected = [(Place::Value, "6".to_owned(), to, true), (Place::Fee, "21000".to_owned(), None, true)];
        assert_eq!(spent(&told.spends(&ours())), expected);
    }

    #[test]
    fn blobs_are_paid_for_besides_the_gas() {
        let receipt = Receipt {
            gas_used: Hex(10),
            effective_gas_price: Hex(7),
            blob_gas_used: Some(Hex(131_072)),
            blob_gas_price: Some(Hex(3)),
            ..receipt(1, Vec::new())
        };
        let spends = told(OURS, None, &receipt, &[]).spends(&ours());
        assert_eq!(spent(&spends)[1], (Place::Fee, (70 + 3 * 131_072).to_string(), None, true));
        assert_eq!(spends[0].to, None, "it goes into a contract that the transaction makes");
    }
}
