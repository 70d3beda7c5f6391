//! Good and bad transactions: the devnet and a real node must think alike of each.
//!
//! Every case runs with a fresh sender who owns exactly one coin, on a node that mines only when told to. All that it
//! sends must be taken, except for the last, which the case is about.

#![allow(clippy::unwrap_used, reason = "in a test an unwrap is an assertion")]

use alloy_consensus::{EthereumTxEnvelope, SignableTransaction, TxEip1559, TxEip2930, TxEip4844, TxEip7702, TxLegacy};
use alloy_eips::eip2718::Encodable2718;
use alloy_eips::eip2930::{AccessList, AccessListItem};
use alloy_eips::eip7702::Authorization;
use alloy_primitives::{Address, B256, Bytes, Signature, TxKind, U256, keccak256};
use devnet::Key;
use devnet::evm::contract;
use serde_json::{Value, json};

pub const CHAIN_ID: u64 = 56;
pub const COIN: u128 = 1_000_000_000_000_000_000;
const GWEI: u128 = 1_000_000_000;

/// A node, ours or another's, that mines when `evm_mine` says so.
pub trait Node {
    /// The message of an error, if there is one.
    fn rpc(&mut self, method: &str, params: Value) -> Result<Value, String>;
    /// The account then owns exactly this.
    fn endow(&mut self, account: Address, wei: u128);
}

pub struct Setting {
    pub key: Key,
    /// A USDT-like token, of which the key has none and key 0 has all.
    pub token: Address,
    /// A price that is always enough.
    pub price: u128,
}

pub enum Step {
    Send(Vec<u8>),
    Mine,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// In the next block, successfully or not.
    Mined { ok: bool },
    /// Taken, and in no block yet.
    Waits,
    /// Taken, and dropped when it could not be mined.
    Forgotten,
    /// The devnet's message begins so, as geth's does.
    Refused(&'static str),
}
use Outcome::{Mined, Refused, Waits};

pub struct Case {
    pub name: &'static str,
    pub steps: fn(&Setting) -> Vec<Step>,
    pub outcome: Outcome,
    /// Why anvil is of another opinion. It is checked that it really is.
    pub except_anvil: Option<&'static str>,
}

const fn case(name: &'static str, outcome: Outcome, steps: fn(&Setting) -> Vec<Step>) -> Case {
    Case { name, steps, outcome, except_anvil: None }
}

impl Case {
    const fn except_anvil(mut self, reason: &'static str) -> Self {
        self.except_anvil = Some(reason);
        self
    }
}

/// For JSON.
pub fn text(value: impl ToString) -> String {
    value.to_string()
}

type Envelope = EthereumTxEnvelope<TxEip4844>;

fn signature(key: Key, digest: B256) -> Signature {
    let (bytes, odd) = key.sign(digest.0);
    Signature::from_bytes_and_parity(&bytes, odd)
}

pub fn signed<T>(key: Key, transaction: T) -> Vec<u8>
where
    T: SignableTransaction<Signature>,
    Envelope: From<alloy_consensus::Signed<T>>,
{
    let signature = signature(key, transaction.signature_hash());
    Envelope::from(transaction.into_signed(signature)).encoded_2718()
}

pub const RECEIVER: Address = Address::repeat_byte(0x77);

pub fn legacy(s: &Setting) -> TxLegacy {
    TxLegacy {
        chain_id: Some(CHAIN_ID),
        nonce: 0,
        gas_price: s.price,
        gas_limit: 21_000,
        to: TxKind::Call(RECEIVER),
        value: U256::from(1_000),
        input: Bytes::new(),
    }
}

pub fn dynamic(s: &Setting) -> TxEip1559 {
    TxEip1559 {
        chain_id: CHAIN_ID,
        nonce: 0,
        gas_limit: 21_000,
        max_fee_per_gas: s.price,
        max_priority_fee_per_gas: GWEI,
        to: TxKind::Call(RECEIVER),
        value: U256::from(1_000),
        access_list: AccessList::default(),
        input: Bytes::new(),
    }
}

fn token_call(s: &Setting, amount: U256, gas_limit: u64) -> TxLegacy {
    TxLegacy { to: TxKind::Call(s.token), value: U256::ZERO, input: transfer(RECEIVER, amount), gas_limit, ..legacy(s) }
}

pub fn transfer(to: Address, amount: U256) -> Bytes {
    let mut data = keccak256("transfer(address,uint256)")[..4].to_vec();
    data.extend_from_slice(to.into_word().as_slice());
    data.extend_from_slice(&amount.to_be_bytes::<32>());
    data.into()
}

/// The constructor's arguments are behind the code: symbol, decimals, supply.
pub fn token_code(supply: U256) -> Bytes {
    let mut data = contract("Tether").unwrap().to_vec();
    for word in [U256::from(0x60), U256::from(18), supply, U256::from(4)] {
        data.extend_from_slice(&word.to_be_bytes::<32>());
    }
    let mut symbol = [0; 32];
    symbol[..4].copy_from_slice(b"USDT");
    data.extend_from_slice(&symbol);
    data.into()
}

fn create(s: &Setting, code: Bytes, gas_limit: u64) -> TxLegacy {
    TxLegacy { to: TxKind::Create, value: U256::ZERO, input: code, gas_limit, ..legacy(s) }
}

fn send<T>(s: &Setting, transaction: T) -> Step
where
    T: SignableTransaction<Signature>,
    Envelope: From<alloy_consensus::Signed<T>>,
{
    Step::Send(signed(s.key, transaction))
}

/// The same transaction with its signature spoilt.
fn spoilt(s: &Setting, spoil: fn(Signature) -> Signature) -> Step {
    let transaction = dynamic(s);
    let good = signature(s.key, transaction.signature_hash());
    Step::Send(Envelope::from(transaction.into_signed(spoil(good))).encoded_2718())
}

fn order() -> U256 {
    "0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141".parse().unwrap()
}

pub fn cases() -> Vec<Case> {
    let mut cases = taken();
    cases.extend(refused());
    cases.extend(replacements());
    cases.extend(malformed());
    cases
}

fn taken() -> Vec<Case> {
    vec![
        case("a legacy transfer", Mined { ok: true }, |s| vec![send(s, legacy(s))]),
        case("a dynamic transfer", Mined { ok: true }, |s| vec![send(s, dynamic(s))]),
        case("a transfer with an access list", Mined { ok: true }, |s| {
            let item = AccessListItem { address: s.token, storage_keys: vec![B256::ZERO] };
            let transaction = TxEip2930 {
                chain_id: CHAIN_ID,
                nonce: 0,
                gas_price: s.price,
                gas_limit: 30_000,
                to: TxKind::Call(RECEIVER),
                value: U256::from(1),
                access_list: AccessList(vec![item]),
                input: Bytes::new(),
            };
            vec![send(s, transaction)]
        }),
        case("a token transfer of nothing", Mined { ok: true }, |s| vec![send(s, token_call(s, U256::ZERO, 100_000))]),
        case("a token transfer beyond the balance", Mined { ok: false }, |s| {
            vec![send(s, token_call(s, U256::from(1), 100_000))]
        }),
        case("a token transfer that runs out of gas", Mined { ok: false }, |s| {
            vec![send(s, token_call(s, U256::ZERO, 22_500))]
        }),
        case("coins sent to a token that takes none", Mined { ok: false }, |s| {
            vec![send(s, TxLegacy { to: TxKind::Call(s.token), gas_limit: 100_000, ..legacy(s) })]
        }),
        case("a contract", Mined { ok: true }, |s| vec![send(s, create(s, token_code(U256::from(9)), 3_000_000))]),
        case("a contract whose constructor gives up", Mined { ok: false }, |s| {
            vec![send(s, create(s, Bytes::from_static(&[0x60, 0, 0x60, 0, 0xfd]), 100_000))]
        }),
        case("a nonce that leaves a gap", Waits, |s| vec![send(s, TxLegacy { nonce: 1, ..legacy(s) })]),
        case("the nonce that fills a gap", Mined { ok: true }, |s| {
            vec![send(s, TxLegacy { nonce: 1, ..legacy(s) }), send(s, legacy(s))]
        }),
        case("all that one owns", Mined { ok: true }, |s| {
            let value = U256::from(COIN - 21_000 * s.price);
            vec![send(s, TxLegacy { value, ..legacy(s) })]
        }),
        case("data with just enough gas", Mined { ok: true }, |s| {
            // EIP-7623: 10 for each zero byte and 40 for each other one.
            let input = Bytes::from(vec![1; 100]);
            vec![send(s, TxLegacy { input, gas_limit: 21_000 + 4_000, ..legacy(s) })]
        }),
        case("a dynamic fee below the base fee", Waits, |s| {
            vec![send(s, TxEip1559 { max_fee_per_gas: 10, max_priority_fee_per_gas: 10, ..dynamic(s) })]
        })
        .except_anvil("it refuses what geth keeps until the base fee falls"),
        case("a legacy price below the base fee", Waits, |s| vec![send(s, TxLegacy { gas_price: 10, ..legacy(s) })])
            .except_anvil("it refuses what geth keeps until the base fee falls"),
    ]
}

fn refused() -> Vec<Case> {
    vec![
        case("a nonce that is used", Refused("nonce too low"), |s| {
            vec![send(s, legacy(s)), Step::Mine, send(s, TxLegacy { value: U256::from(5), ..legacy(s) })]
        }),
        case("what is mined already", Refused("nonce too low"), |s| {
            vec![send(s, legacy(s)), Step::Mine, send(s, legacy(s))]
        }),
        case("what waits already", Refused("already known"), |s| vec![send(s, legacy(s)), send(s, legacy(s))]),
        case("the last nonce of all", Refused("nonce has max value"), |s| {
            vec![send(s, TxLegacy { nonce: u64::MAX, ..legacy(s) })]
        })
        .except_anvil("it has no such check"),
        case("more than one owns", Refused("insufficient funds for gas * price + value"), |s| {
            vec![send(s, TxLegacy { value: U256::from(2 * COIN), ..legacy(s) })]
        }),
        case("one unit more than one owns", Refused("insufficient funds for gas * price + value"), |s| {
            let value = U256::from(COIN - 21_000 * s.price + 1);
            vec![send(s, TxLegacy { value, ..legacy(s) })]
        }),
        case("a fee cap that one could not pay", Refused("insufficient funds for gas * price + value"), |s| {
            vec![send(s, TxEip1559 { max_fee_per_gas: COIN, ..dynamic(s) })]
        }),
        case("two that together cost too much", Refused("insufficient funds for gas * price + value"), |s| {
            let value = U256::from(COIN / 10 * 6);
            vec![send(s, TxLegacy { value, ..legacy(s) }), send(s, TxLegacy { value, nonce: 1, ..legacy(s) })]
        })
        .except_anvil("it looks at each by itself"),
        case("less gas than a transfer takes", Refused("intrinsic gas too low"), |s| {
            vec![send(s, TxLegacy { gas_limit: 20_999, ..legacy(s) })]
        }),
        case("no gas for the data", Refused("intrinsic gas too low"), |s| {
            vec![send(s, TxLegacy { input: Bytes::from(vec![1; 100]), ..legacy(s) })]
        })
        .except_anvil("it takes it, and forgets it when it cannot be mined"),
        case("less gas than the floor for data", Refused("insufficient gas for floor data gas cost"), |s| {
            let input = Bytes::from(vec![1; 100]);
            vec![send(s, TxLegacy { input, gas_limit: 21_000 + 3_999, ..legacy(s) })]
        })
        .except_anvil("it takes it, and forgets it when it cannot be mined"),
        case("more gas than any transaction may have", Refused("transaction gas limit too high"), |s| {
            vec![send(s, TxLegacy { gas_limit: (1 << 24) + 1, gas_price: 2 * GWEI, ..legacy(s) })]
        }),
        case("a tip above the cap", Refused("max priority fee per gas higher than max fee per gas"), |s| {
            vec![send(s, TxEip1559 { max_priority_fee_per_gas: s.price + 1, ..dynamic(s) })]
        }),
        case("no tip", Refused("transaction underpriced"), |s| {
            vec![send(s, TxEip1559 { max_priority_fee_per_gas: 0, ..dynamic(s) })]
        })
        .except_anvil("its miner wants no tip"),
        case("code that is too long", Refused("max initcode size exceeded"), |s| {
            vec![send(s, create(s, Bytes::from(vec![0; 49_153]), 3_000_000))]
        }),
        case("a transaction that is too long", Refused("oversized data"), |s| {
            let input = Bytes::from(vec![0; 131_073]);
            vec![send(s, TxLegacy { input, gas_limit: 3_000_000, ..legacy(s) })]
        })
        .except_anvil("it has no such limit"),
        case("another chain's legacy transaction", Refused("invalid sender: invalid chain id for signer"), |s| {
            vec![send(s, TxLegacy { chain_id: Some(1), ..legacy(s) })]
        })
        .except_anvil("it pools it"),
        case("another chain's dynamic transaction", Refused("invalid sender: invalid chain id for signer"), |s| {
            vec![send(s, TxEip1559 { chain_id: 1, ..dynamic(s) })]
        }),
        case("a transaction for every chain", Refused("only replay-protected (EIP-155) transactions"), |s| {
            vec![send(s, TxLegacy { chain_id: None, ..legacy(s) })]
        })
        .except_anvil("it takes transactions from before EIP-155"),
    ]
}

fn replacements() -> Vec<Case> {
    fn after_first(s: &Setting, second: TxEip1559) -> Vec<Step> {
        vec![send(s, dynamic(s)), send(s, second)]
    }
    vec![
        case("a replacement for a tenth more", Mined { ok: true }, |s| {
            let (cap, tip) = (s.price / 10 * 11 + 1, GWEI / 10 * 11);
            after_first(s, TxEip1559 { max_fee_per_gas: cap, max_priority_fee_per_gas: tip, ..dynamic(s) })
        }),
        case("a replacement for a little more", Refused("replacement transaction underpriced"), |s| {
            let (cap, tip) = (s.price / 100 * 103, GWEI / 100 * 103);
            after_first(s, TxEip1559 { max_fee_per_gas: cap, max_priority_fee_per_gas: tip, ..dynamic(s) })
        })
        .except_anvil("any higher price will do"),
        case("a replacement for not quite a tenth more", Refused("replacement transaction underpriced"), |s| {
            let (cap, tip) = (s.price / 1_000 * 1_099, GWEI / 1_000 * 1_099);
            after_first(s, TxEip1559 { max_fee_per_gas: cap, max_priority_fee_per_gas: tip, ..dynamic(s) })
        })
        .except_anvil("any higher price will do"),
        case("a replacement with more than half of what one owns", Mined { ok: true }, |s| {
            let value = U256::from(COIN / 10 * 6);
            let second = TxLegacy { value, gas_price: s.price * 2, ..legacy(s) };
            vec![send(s, TxLegacy { value, ..legacy(s) }), send(s, second)]
        }),
        case("a replacement for the same price", Refused("replacement transaction underpriced"), |s| {
            after_first(s, TxEip1559 { value: U256::from(2), ..dynamic(s) })
        }),
        case("a replacement with a higher cap but the same tip", Refused("replacement transaction underpriced"), |s| {
            after_first(s, TxEip1559 { max_fee_per_gas: s.price * 2, ..dynamic(s) })
        })
        .except_anvil("it compares one price only"),
        case("a replacement with a higher tip but the same cap", Refused("replacement transaction underpriced"), |s| {
            after_first(s, TxEip1559 { max_priority_fee_per_gas: GWEI * 2, ..dynamic(s) })
        }),
        case("a replacement of a legacy transaction by a dynamic one", Mined { ok: true }, |s| {
            let price = s.price * 2;
            let second = TxEip1559 { max_fee_per_gas: price, max_priority_fee_per_gas: price, ..dynamic(s) };
            vec![send(s, legacy(s)), send(s, second)]
        }),
    ]
}

fn malformed() -> Vec<Case> {
    vec![
        case("a signature with a high s", Refused("invalid sender: invalid transaction v, r, s values"), |s| {
            vec![spoilt(s, |good| Signature::new(good.r(), order() - good.s(), !good.v()))]
        })
        .except_anvil("it does not hold to EIP-2"),
        case("a signature with no r", Refused("invalid sender: invalid transaction v, r, s values"), |s| {
            vec![spoilt(s, |good| Signature::new(U256::ZERO, good.s(), good.v()))]
        }),
        case("a signature of the other parity is another sender's", Refused("insufficient funds"), |s| {
            vec![spoilt(s, |good| Signature::new(good.r(), good.s(), !good.v()))]
        }),
        case("a byte too many", Refused("rlp: "), |s| {
            let mut raw = signed(s.key, dynamic(s));
            raw.push(0);
            vec![Step::Send(raw)]
        })
        .except_anvil("it overlooks what comes after"),
        case("a byte too few", Refused("rlp: "), |s| {
            let mut raw = signed(s.key, dynamic(s));
            raw.pop();
            vec![Step::Send(raw)]
        }),
        case("no bytes", Refused("typed transaction too short"), |_| vec![Step::Send(Vec::new())]),
        case("an unknown type", Refused("transaction type not supported"), |s| {
            let mut raw = signed(s.key, dynamic(s));
            raw[0] = 0x7e;
            vec![Step::Send(raw)]
        }),
        case("a blob transaction without blobs", Refused("transaction type not supported"), |s| {
            let transaction = TxEip4844 {
                chain_id: CHAIN_ID,
                gas_limit: 21_000,
                max_fee_per_gas: s.price,
                max_priority_fee_per_gas: GWEI,
                to: RECEIVER,
                max_fee_per_blob_gas: GWEI,
                blob_versioned_hashes: vec![B256::with_last_byte(1)],
                ..TxEip4844::default()
            };
            vec![send(s, transaction)]
        }),
        case("a delegation", Refused("transaction type not supported"), |s| {
            let authorization = Authorization { chain_id: U256::from(CHAIN_ID), address: s.token, nonce: 1 };
            let signature = signature(s.key, authorization.signature_hash());
            let transaction = TxEip7702 {
                chain_id: CHAIN_ID,
                gas_limit: 100_000,
                max_fee_per_gas: s.price,
                max_priority_fee_per_gas: GWEI,
                to: RECEIVER,
                authorization_list: vec![authorization.into_signed(signature)],
                ..TxEip7702::default()
            };
            vec![send(s, transaction)]
        })
        .except_anvil("it knows EIP-7702, and the devnet leaves it out"),
    ]
}

/// Runs one case and says what became of the last transaction.
pub fn run(node: &mut dyn Node, case: &Case, number: u32, token: Address) -> Result<Outcome, String> {
    let key = Key::numbered(1_000 + number);
    let account = Address::from(key.account());
    node.endow(account, COIN);
    let block = node.rpc("eth_getBlockByNumber", json!(["latest", false]))?;
    let base_fee = u128::from_str_radix(&block["baseFeePerGas"].as_str().unwrap()[2..], 16).unwrap();
    let setting = Setting { key, token, price: base_fee * 2 + 2 * GWEI };
    let mut last = Err("no step".to_owned());
    for step in (case.steps)(&setting) {
        match step {
            Step::Mine => {
                node.rpc("evm_mine", json!([]))?;
            }
            Step::Send(raw) => last = node.rpc("eth_sendRawTransaction", json!([text(Bytes::from(raw))])),
        }
    }
    let hash = match last {
        Ok(hash) => hash,
        // Leaked, so that the outcome stays a plain value: there are a few dozen cases.
        Err(message) => return Ok(Refused(Box::leak(message.into_boxed_str()))),
    };
    node.rpc("evm_mine", json!([]))?;
    let receipt = node.rpc("eth_getTransactionReceipt", json!([hash]))?;
    if receipt.is_null() {
        let transaction = node.rpc("eth_getTransactionByHash", json!([hash]))?;
        return Ok(if transaction.is_object() { Waits } else { Outcome::Forgotten });
    }
    Ok(Mined { ok: receipt["status"] == "0x1" })
}
