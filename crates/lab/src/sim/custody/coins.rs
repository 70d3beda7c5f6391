//! Bitcoin as it is: outputs, and pools in which what pays more takes the place of what spends the same.

use std::collections::HashSet;
use std::sync::Arc;

use bitcoin::consensus::serialize;
use bitcoin::{Amount, OutPoint, Sequence, Transaction, TxIn, TxOut, Txid, Witness, absolute, transaction};
use custody::bitcoin::tx_of_bytes;
use tx::{Address, Coin, Fee, Meaning, Payment, Slot, TxHash};

use super::model::{Mined, Net, Outpoint, Waiting, raw, units};

pub(crate) const NETWORK: bitcoin::Network = bitcoin::Network::Regtest;

/// Virtual bytes, about.
fn size_of(meaning: &Meaning) -> u128 {
    let inputs = inputs_of(meaning).len();
    11 + 68 * inputs as u128 + 31 * meaning.payments.len() as u128
}

pub(crate) fn inputs_of(meaning: &Meaning) -> &[Outpoint] {
    match &meaning.slot {
        Slot::Inputs(inputs) => inputs,
        Slot::Nonce(_) | Slot::Expiry(_) => &[],
    }
}

impl Net {
    /// What miners want now, satoshi for 1,000 virtual bytes.
    pub const fn rate(&self) -> u128 {
        self.price / 1_000_000
    }

    /// What an output holds that is there, or that something which waits would make.
    fn worth(&self, outpoint: &Outpoint) -> Option<u128> {
        if let Some((_, amount)) = self.coins.get(outpoint) {
            return Some(*amount);
        }
        let maker = self.pool.iter().find(|one| one.hash == outpoint.0)?;
        Some(units(maker.meaning.payments.get(usize::try_from(outpoint.1).ok()?)?.amount))
    }

    pub fn fee_of(&self, one: &Waiting) -> Option<u128> {
        let held = inputs_of(&one.meaning).iter().try_fold(0_u128, |sum, input| Some(sum + self.worth(input)?))?;
        let paid: u128 = one.meaning.payments.iter().map(|payment| units(payment.amount)).sum();
        held.checked_sub(paid)
    }

    /// Whose the first coin is that it spends.
    pub fn spender(&self, meaning: &Meaning) -> Option<Address> {
        let first = inputs_of(meaning).first()?;
        if let Some((owner, _)) = self.coins.get(first) {
            return Some(owner.clone());
        }
        let maker = self.pool.iter().find(|one| one.hash == first.0)?;
        maker.meaning.payments.get(usize::try_from(first.1).ok()?).map(|payment| payment.to.clone())
    }

    /// Whatever waits and spends one of the same outputs, with all that builds on it.
    pub fn rivals(&self, meaning: &Meaning) -> HashSet<TxHash> {
        let inputs = inputs_of(meaning);
        let same = |one: &&Waiting| inputs_of(&one.meaning).iter().any(|input| inputs.contains(input));
        self.pool.iter().filter(same).flat_map(|one| self.with_children(one.hash)).collect()
    }

    /// Itself, and all that waits and builds on it.
    fn with_children(&self, first: TxHash) -> HashSet<TxHash> {
        let mut family = HashSet::from([first]);
        loop {
            let before = family.len();
            for one in &self.pool {
                if inputs_of(&one.meaning).iter().any(|input| family.contains(&input.0)) {
                    family.insert(one.hash);
                }
            }
            if family.len() == before {
                return family;
            }
        }
    }

    /// Whether a miner takes it: alone, or for what builds on it.
    pub fn is_worth(&self, one: &Waiting) -> bool {
        if inputs_of(&one.meaning).is_empty() {
            return true;
        }
        let pays = |some: &mut dyn Iterator<Item = &Waiting>| {
            let (fee, size) = some
                .fold((0, 0), |(fee, size), one| (fee + self.fee_of(one).unwrap_or(0), size + size_of(&one.meaning)));
            fee * 1_000 >= size * self.rate()
        };
        if pays(&mut std::iter::once(one)) {
            return true;
        }
        let family = self.with_children(one.hash);
        let others = self.pool.iter().filter(|other| family.contains(&other.hash) && other.hash != one.hash);
        pays(&mut std::iter::once(one).chain(others))
    }

    /// What spends the same leaves, with all that builds on it, if the new one pays more than all of them.
    pub fn make_room(&mut self, new: &Waiting) -> Result<(), &'static str> {
        let fee = self.fee_of(new).ok_or("bad-txns-inputs-missingorspent")?;
        let leaves = self.rivals(&new.meaning);
        if leaves.is_empty() {
            return Ok(());
        }
        let (gone, stay): (Vec<Waiting>, Vec<Waiting>) =
            self.pool.iter().cloned().partition(|one| leaves.contains(&one.hash));
        let lost: u128 = gone.iter().map(|one| self.fee_of(one).unwrap_or(0)).sum();
        if fee < lost + size_of(&new.meaning) / 10 {
            return Err("insufficient fee, rejecting replacement");
        }
        self.pool = stay;
        self.dropped(gone);
        Ok(())
    }

    /// What spends an output that is gone leaves the pool, with all that builds on it.
    pub fn drop_impossible(&mut self) {
        loop {
            let before = self.pool.len();
            let known: HashSet<TxHash> = self.pool.iter().map(|one| one.hash).collect();
            let coins = &self.coins;
            let possible = |one: &Waiting| {
                inputs_of(&one.meaning).iter().all(|input| coins.contains_key(input) || known.contains(&input.0))
            };
            let (stay, gone): (Vec<Waiting>, Vec<Waiting>) =
                std::mem::take(&mut self.pool).into_iter().partition(possible);
            self.pool = stay;
            self.dropped(gone);
            if self.pool.len() == before {
                return;
            }
        }
    }

    pub fn move_coins(&mut self, one: &Mined, forward: bool) {
        for (outpoint, owned) in &one.spent {
            if forward {
                self.coins.remove(outpoint);
            } else {
                self.coins.insert(*outpoint, owned.clone());
            }
        }
        // Nobody but our wallets spends what there is: the rest is not kept.
        let wallets = &self.wallets;
        let ours = (0_u32..).zip(&one.meaning.payments).filter(|(_, payment)| wallets.contains(&payment.to));
        for (index, payment) in ours {
            if forward {
                self.coins.insert((one.hash, index), (payment.to.clone(), units(payment.amount)));
            } else {
                self.coins.remove(&(one.hash, index));
            }
        }
    }

    /// A stranger pays wallets of ours. Each has a coin of its own to pay with.
    pub fn give(&mut self, number: u64, outputs: &[(Address, u64)]) {
        let mut made_of = [0xab; 32];
        made_of[..8].copy_from_slice(&number.to_be_bytes());
        let input = TxIn {
            previous_output: OutPoint { txid: <Txid as bitcoin::hashes::Hash>::from_byte_array(made_of), vout: 0 },
            sequence: Sequence::MAX,
            witness: Witness::from_slice(&[vec![1; 71], vec![2; 33]]),
            ..TxIn::default()
        };
        let output = |(to, amount): &(Address, u64)| {
            Some(TxOut { value: Amount::from_sat(*amount), script_pubkey: to.script_bytes()?.into() })
        };
        let made = Transaction {
            version: transaction::Version::TWO,
            lock_time: absolute::LockTime::ZERO,
            input: vec![input],
            output: outputs.iter().filter_map(output).collect(),
        };
        let bytes: Arc<[u8]> = serialize(&made).into();
        let Ok(read) = tx_of_bytes(&bytes) else { return };
        let hash = TxHash(read.hash.0);
        let spent: Vec<Outpoint> = read.inputs.iter().map(|input| (TxHash(input.hash.0), input.index)).collect();
        let payment = |(to, amount): &(Address, u64)| Payment {
            to: to.clone(),
            coin: Coin::Native,
            amount: raw(u128::from(*amount)),
        };
        let stranger = stranger(number);
        // It pays what miners want, whatever that is.
        let sum: u128 = outputs.iter().map(|(_, amount)| u128::from(*amount)).sum();
        self.coins.extend(spent.iter().map(|coin| (*coin, (stranger.clone(), sum + 10_000_000))));
        let meaning = Meaning {
            hash: Some(hash),
            from: None,
            payments: outputs.iter().map(payment).collect(),
            most_fee: None,
            fee: Fee::PerKvb(0),
            slot: Slot::Inputs(spent),
            chain_id: None,
        };
        self.pool.push(Waiting { hash, from: stranger, meaning, bytes });
    }
}

fn stranger(number: u64) -> Address {
    let mut program = [0xcc; 20];
    program[..8].copy_from_slice(&number.to_be_bytes());
    paid_to(program)
}

/// The address of a key's hash.
pub(crate) fn paid_to(program: [u8; 20]) -> Address {
    let mut script = vec![0, 20];
    script.extend_from_slice(&program);
    let script = bitcoin::ScriptBuf::from_bytes(script);
    Address::Bitcoin(bitcoin::Address::from_script(&script, NETWORK).expect("a program of twenty bytes is an address"))
}
