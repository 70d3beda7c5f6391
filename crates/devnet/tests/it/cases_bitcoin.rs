//! Good and bad Bitcoin transactions, and what a node says of each. The devnet and a real bitcoind run the same table:
//! same verdict, same reason, same error of `sendrawtransaction`, except where a row says why not.
#![allow(clippy::unwrap_used, reason = "in a test an unwrap is an assertion")]

mod coins;

use bitcoin::absolute::LockTime;
use bitcoin::consensus::serialize;
use bitcoin::opcodes::all::{OP_DROP, OP_RETURN};
use bitcoin::script::{Builder, PushBytesBuf};
use bitcoin::{
    Address, Amount, EcdsaSighashType, Network, OutPoint, PublicKey, ScriptBuf, Sequence, Transaction, TxIn, TxOut,
    Witness, transaction,
};
use devnet::Key;
use serde_json::json;

use coins::{COIN, FEE, hex, sign, sign_as};
pub use coins::{Coin, Context, Kind, Node};

fn bare(coins: &[Coin], output: Vec<TxOut>) -> Transaction {
    let input = |coin: &Coin| TxIn {
        previous_output: coin.at,
        script_sig: ScriptBuf::new(),
        sequence: Sequence::ENABLE_LOCKTIME_NO_RBF,
        witness: Witness::new(),
    };
    Transaction {
        version: transaction::Version::TWO,
        lock_time: LockTime::ZERO,
        input: coins.iter().map(input).collect(),
        output,
    }
}

pub fn spend(coins: &[Coin], output: Vec<TxOut>) -> Transaction {
    let mut transaction = bare(coins, output);
    sign(&mut transaction, coins);
    transaction
}

fn to(value: Amount, script_pubkey: ScriptBuf) -> Vec<TxOut> {
    vec![TxOut { value, script_pubkey }]
}

/// Back to the key, less this fee.
pub fn pays(coin: Coin, fee: u64) -> Transaction {
    spend(&[coin], to(coin.value - Amount::from_sat(fee), Kind::P2wpkh.script()))
}

/// Changed after it was built, and signed after that.
fn changed(coin: Coin, change: impl FnOnce(&mut Transaction)) -> Transaction {
    let mut transaction = bare(&[coin], to(coin.value - FEE, Kind::P2wpkh.script()));
    change(&mut transaction);
    sign(&mut transaction, &[coin]);
    transaction
}

/// Changed after it was signed.
fn broken(coin: Coin, change: impl FnOnce(&mut Transaction)) -> Transaction {
    let mut transaction = spend(&[coin], to(coin.value - FEE, Kind::P2wpkh.script()));
    change(&mut transaction);
    transaction
}

fn output_of(transaction: &Transaction, vout: u32) -> Coin {
    let out = &transaction.output[usize::try_from(vout).unwrap()];
    Coin { kind: Kind::P2wpkh, at: OutPoint { txid: transaction.compute_txid(), vout }, value: out.value }
}

fn first_witness(transaction: &Transaction) -> Vec<Vec<u8>> {
    transaction.input[0].witness.to_vec()
}

fn signature_changed(coin: Coin, change: impl FnOnce(&mut Vec<u8>)) -> Transaction {
    broken(coin, |tx| {
        let mut items = first_witness(tx);
        change(&mut items[0]);
        tx.input[0].witness = Witness::from_slice(&items);
    })
}

pub struct Built {
    /// Taken by the node first, one after the other.
    before: Vec<Transaction>,
    /// Then a block, before the transaction itself comes.
    mined: bool,
    raw: Vec<u8>,
}

impl From<Transaction> for Built {
    fn from(transaction: Transaction) -> Self {
        Self { before: Vec::new(), mined: false, raw: serialize(&transaction) }
    }
}

fn after(before: Vec<Transaction>, transaction: &Transaction) -> Built {
    Built { before, mined: false, raw: serialize(transaction) }
}

pub struct Case {
    pub name: &'static str,
    pub build: fn(&mut Context) -> Built,
    /// The reason that `testmempoolaccept` gives; nothing if it is allowed.
    pub reason: Option<&'static str>,
    /// What the devnet says instead, and why that may be.
    pub except: Option<(&'static str, &'static str)>,
}

const fn good(name: &'static str, build: fn(&mut Context) -> Built) -> Case {
    Case { name, build, reason: None, except: None }
}

const fn bad(name: &'static str, reason: &'static str, build: fn(&mut Context) -> Built) -> Case {
    Case { name, build, reason: Some(reason), except: None }
}

const fn differs(
    name: &'static str,
    reason: Option<&'static str>,
    except: (&'static str, &'static str),
    build: fn(&mut Context) -> Built,
) -> Case {
    Case { name, build, reason, except: Some(except) }
}

/// What a call that cannot be read gives in place of a reason.
pub const UNDECODABLE: &str = "TX decode failed";

const NULL_FAIL: &str =
    "mempool-script-verify-flag-failed (Signature must be zero for failed CHECK(MULTI)SIG operation)";

fn op_return(length: usize) -> ScriptBuf {
    ScriptBuf::new_op_return(PushBytesBuf::try_from(vec![1; length]).unwrap())
}

fn multisig(keys: u32, needed: i64) -> ScriptBuf {
    let mut builder = Builder::new().push_int(needed);
    for number in 0..keys {
        builder = builder.push_key(&PublicKey::new(Key::numbered(number).public()));
    }
    builder.push_int(i64::from(keys)).push_opcode(bitcoin::opcodes::all::OP_CHECKMULTISIG).into_script()
}

fn exact_fee(coin: Coin, shy: u64) -> Transaction {
    let vsize = u64::try_from(pays(coin, 1_000).vsize()).unwrap();
    // 100 satoshi for a thousand virtual bytes, rounded up.
    pays(coin, vsize.div_ceil(10) - shy)
}

fn with_dust(coin: Coin, script: ScriptBuf, value: u64, fee: u64) -> Transaction {
    let left = coin.value - Amount::from_sat(value + fee);
    let dust = TxOut { value: Amount::from_sat(value), script_pubkey: script };
    spend(&[coin], vec![TxOut { value: left, script_pubkey: Kind::P2wpkh.script() }, dust])
}

pub const CASES: &[Case] = &[
    good("P2WPKH", |c| pays(c.take(Kind::P2wpkh), 1_000).into()),
    good("P2TR by its key", |c| pays(c.take(Kind::P2tr), 1_000).into()),
    good("P2TR by a script", |c| pays(c.take(Kind::Leaf), 1_000).into()),
    good("P2PKH", |c| pays(c.take(Kind::P2pkh), 1_000).into()),
    good("P2SH-P2WPKH", |c| pays(c.take(Kind::P2shP2wpkh), 1_000).into()),
    good("P2WSH", |c| pays(c.take(Kind::P2wsh), 1_000).into()),
    good("inputs of all kinds", |c| {
        let kinds = [Kind::P2wpkh, Kind::P2tr, Kind::P2pkh, Kind::P2shP2wpkh, Kind::P2wsh, Kind::Leaf];
        let coins: Vec<Coin> = kinds.into_iter().map(|kind| c.take(kind)).collect();
        spend(&coins, to(Amount::from_sat(59_990_000), Kind::P2tr.script())).into()
    }),
    good("a child of what waits", |c| {
        let parent = pays(c.take(Kind::P2wpkh), 1_000);
        let child = pays(output_of(&parent, 0), 1_000);
        after(vec![parent], &child)
    }),
    good("a replacement that signals nothing", |c| {
        let coin = c.take(Kind::P2wpkh);
        after(vec![pays(coin, 1_000)], &pays(coin, 2_000))
    }),
    good("a replacement of a parent and its child", |c| {
        let coin = c.take(Kind::P2wpkh);
        let parent = pays(coin, 1_000);
        let child = pays(output_of(&parent, 0), 1_000);
        after(vec![parent, child], &pays(coin, 3_000))
    }),
    bad("a replacement that pays less", "insufficient fee", |c| {
        let coin = c.take(Kind::P2wpkh);
        after(vec![pays(coin, 2_000)], &pays(coin, 1_999))
    }),
    bad("a replacement that pays hardly more", "insufficient fee", |c| {
        let coin = c.take(Kind::P2wpkh);
        after(vec![pays(coin, 2_000)], &pays(coin, 2_010))
    }),
    good("a replacement that pays just enough more", |c| {
        let coin = c.take(Kind::P2wpkh);
        after(vec![pays(coin, 2_000)], &pays(coin, 2_011))
    }),
    bad("a replacement that pays less than parent and child", "insufficient fee", |c| {
        let coin = c.take(Kind::P2wpkh);
        let parent = pays(coin, 1_000);
        let child = pays(output_of(&parent, 0), 5_000);
        after(vec![parent, child], &pays(coin, 3_000))
    }),
    bad("a replacement with more fee and a lower rate", "replacement-failed", |c| {
        let coin = c.take(Kind::P2wpkh);
        let mut output = to(coin.value - Amount::from_sat(9_000), Kind::P2wpkh.script());
        output.push(TxOut { value: Amount::ZERO, script_pubkey: op_return(4_000) });
        after(vec![pays(coin, 2_000)], &spend(&[coin], output))
    }),
    bad("a replacement that spends what it replaces", "bad-txns-spends-conflicting-tx", |c| {
        let coin = c.take(Kind::P2wpkh);
        let old = pays(coin, 1_000);
        let both = [coin, output_of(&old, 0)];
        let new = spend(&both, to(Amount::from_sat(15_000_000), Kind::P2wpkh.script()));
        after(vec![old], &new)
    }),
    bad("what waits already", "txn-already-in-mempool", |c| {
        let once = pays(c.take(Kind::P2wpkh), 1_000);
        after(vec![once.clone()], &once)
    }),
    bad("what waits, signed otherwise", "txn-same-nonwitness-data-in-mempool", |c| {
        let coin = c.take(Kind::P2wpkh);
        let once = pays(coin, 1_000);
        let mut other = once.clone();
        sign_as(&mut other, &[coin], EcdsaSighashType::None);
        after(vec![once], &other)
    }),
    bad("what is mined already", "txn-already-known", |c| {
        let once = pays(c.take(Kind::P2wpkh), 1_000);
        Built { mined: true, ..after(vec![once.clone()], &once) }
    }),
    bad("a coin that a block has spent", "missing-inputs", |c| {
        let coin = c.take(Kind::P2wpkh);
        Built { mined: true, ..after(vec![pays(coin, 1_000)], &pays(coin, 2_000)) }
    }),
    bad("a coin that never was", "missing-inputs", |c| {
        let mut coin = c.take(Kind::P2wpkh);
        coin.at.vout = 4_000;
        pays(coin, 1_000).into()
    }),
    bad("the same coin twice", "bad-txns-inputs-duplicate", |c| {
        let coin = c.take(Kind::P2wpkh);
        spend(&[coin, coin], to(coin.value, Kind::P2wpkh.script())).into()
    }),
    bad("more out than in", "bad-txns-in-belowout", |c| {
        let coin = c.take(Kind::P2wpkh);
        spend(&[coin], to(coin.value + Amount::from_sat(1), Kind::P2wpkh.script())).into()
    }),
    bad("a negative output", "bad-txns-vout-negative", |c| {
        spend(&[c.take(Kind::P2wpkh)], to(Amount::from_sat(u64::MAX), Kind::P2wpkh.script())).into()
    }),
    bad("an output beyond all coins", "bad-txns-vout-toolarge", |c| {
        let value = Amount::MAX_MONEY + Amount::from_sat(1);
        spend(&[c.take(Kind::P2wpkh)], to(value, Kind::P2wpkh.script())).into()
    }),
    bad("outputs that are together beyond all coins", "bad-txns-txouttotal-toolarge", |c| {
        let out = TxOut { value: Amount::MAX_MONEY, script_pubkey: Kind::P2wpkh.script() };
        spend(&[c.take(Kind::P2wpkh)], vec![out.clone(), out]).into()
    }),
    bad("no outputs", "bad-txns-vout-empty", |c| spend(&[c.take(Kind::P2wpkh)], Vec::new()).into()),
    bad("a coinbase", "coinbase", |c| {
        let mut transaction = broken(c.take(Kind::P2wpkh), |_| {});
        transaction.input[0].previous_output = OutPoint::null();
        transaction.input[0].script_sig = ScriptBuf::from_bytes(vec![0x51, 0x51]);
        transaction.into()
    }),
    bad("a null input beside another", "bad-txns-prevout-null", |c| {
        let coins = [c.take(Kind::P2wpkh), c.take(Kind::P2wpkh)];
        let mut transaction = spend(&coins, to(COIN, Kind::P2wpkh.script()));
        transaction.input[1].previous_output = OutPoint::null();
        transaction.into()
    }),
    bad("version 0", "version", |c| changed(c.take(Kind::P2wpkh), |tx| tx.version = transaction::Version(0)).into()),
    bad("version 4", "version", |c| changed(c.take(Kind::P2wpkh), |tx| tx.version = transaction::Version(4)).into()),
    good("version 1", |c| changed(c.take(Kind::P2wpkh), |tx| tx.version = transaction::Version(1)).into()),
    good("version 3", |c| changed(c.take(Kind::P2wpkh), |tx| tx.version = transaction::Version(3)).into()),
    bad("version 2 that spends from waiting version 3", "TRUC-violation", |c| {
        let parent = changed(c.take(Kind::P2wpkh), |tx| tx.version = transaction::Version(3));
        let child = pays(output_of(&parent, 0), 1_000);
        after(vec![parent], &child)
    }),
    bad("too heavy", "tx-size", |c| {
        let coin = c.take(Kind::P2wpkh);
        let mut output = to(coin.value - Amount::from_sat(200_000), Kind::P2wpkh.script());
        output.push(TxOut { value: Amount::ZERO, script_pubkey: op_return(100_000) });
        spend(&[coin], output).into()
    }),
    bad("too small", "tx-size-small", |c| {
        let coin = c.take(Kind::P2wpkh);
        spend(&[coin], to(Amount::ZERO, ScriptBuf::from_bytes(vec![OP_RETURN.to_u8()]))).into()
    }),
    bad("a long script in an input", "scriptsig-size", |c| {
        broken(c.take(Kind::P2wpkh), |tx| {
            let push = PushBytesBuf::try_from(vec![1; 1_700]).unwrap();
            tx.input[0].script_sig = Builder::new().push_slice(push).into_script();
        })
        .into()
    }),
    bad("a script in an input that does something", "scriptsig-not-pushonly", |c| {
        broken(c.take(Kind::P2wpkh), |tx| {
            tx.input[0].script_sig = Builder::new().push_int(1).push_opcode(OP_DROP).into_script();
        })
        .into()
    }),
    bad("an output of no standard form", "scriptpubkey", |c| {
        let coin = c.take(Kind::P2wpkh);
        spend(&[coin], to(coin.value - FEE, Kind::Anybody.script())).into()
    }),
    good("a bare multisig of three keys", |c| {
        let coin = c.take(Kind::P2wpkh);
        spend(&[coin], to(coin.value - FEE, multisig(3, 2))).into()
    }),
    bad("a bare multisig of four keys", "scriptpubkey", |c| {
        let coin = c.take(Kind::P2wpkh);
        spend(&[coin], to(coin.value - FEE, multisig(4, 1))).into()
    }),
    good("an output for a witness version to come", |c| {
        let coin = c.take(Kind::P2wpkh);
        spend(&[coin], to(coin.value - FEE, Kind::Future.script())).into()
    }),
    good("two outputs of data", |c| {
        let coin = c.take(Kind::P2wpkh);
        let data = TxOut { value: Amount::ZERO, script_pubkey: op_return(1_000) };
        let change = TxOut { value: coin.value - FEE, script_pubkey: Kind::P2wpkh.script() };
        spend(&[coin], vec![data.clone(), change, data]).into()
    }),
    bad("P2WPKH dust", "dust", |c| with_dust(c.take(Kind::P2wpkh), Kind::P2wpkh.script(), 293, 1_000).into()),
    good("P2WPKH just no dust", |c| with_dust(c.take(Kind::P2wpkh), Kind::P2wpkh.script(), 294, 1_000).into()),
    bad("P2TR dust", "dust", |c| with_dust(c.take(Kind::P2wpkh), Kind::P2tr.script(), 329, 1_000).into()),
    good("P2TR just no dust", |c| with_dust(c.take(Kind::P2wpkh), Kind::P2tr.script(), 330, 1_000).into()),
    bad("P2PKH dust", "dust", |c| with_dust(c.take(Kind::P2wpkh), Kind::P2pkh.script(), 545, 1_000).into()),
    good("P2PKH just no dust", |c| with_dust(c.take(Kind::P2wpkh), Kind::P2pkh.script(), 546, 1_000).into()),
    bad("P2SH dust", "dust", |c| with_dust(c.take(Kind::P2wpkh), Kind::P2shP2wpkh.script(), 539, 1_000).into()),
    bad("dust from who pays nothing", "min relay fee not met", |c| {
        with_dust(c.take(Kind::P2wpkh), Kind::P2wpkh.script(), 100, 0).into()
    }),
    bad("two outputs of dust", "dust", |c| {
        let dust = TxOut { value: Amount::from_sat(1), script_pubkey: Kind::P2wpkh.script() };
        spend(&[c.take(Kind::P2wpkh)], vec![dust.clone(), dust]).into()
    }),
    bad("no fee", "min relay fee not met", |c| pays(c.take(Kind::P2wpkh), 0).into()),
    bad("a satoshi less than the least fee", "min relay fee not met", |c| exact_fee(c.take(Kind::P2wpkh), 1).into()),
    good("the least fee", |c| exact_fee(c.take(Kind::P2wpkh), 0).into()),
    good("the least fee, rounded up", |c| {
        // 99 virtual bytes.
        pays(c.take(Kind::P2tr), 10).into()
    }),
    bad("the least fee, rounded down", "min relay fee not met", |c| pays(c.take(Kind::P2tr), 9).into()),
    bad("a fee that must be a mistake", "max-fee-exceeded", |c| pays(c.take(Kind::P2wpkh), 5_000_000).into()),
    bad("locked until a later height", "non-final", |c| {
        let height = c.height + 5;
        changed(c.take(Kind::P2wpkh), |tx| tx.lock_time = LockTime::from_height(height).unwrap()).into()
    }),
    bad("locked until the next block", "non-final", |c| {
        let height = c.height + 1;
        changed(c.take(Kind::P2wpkh), |tx| tx.lock_time = LockTime::from_height(height).unwrap()).into()
    }),
    bad("locked until the very time", "non-final", |c| {
        let time = c.median_time;
        changed(c.take(Kind::P2wpkh), |tx| tx.lock_time = LockTime::from_time(time).unwrap()).into()
    }),
    good("locked until the tip", |c| {
        let height = c.height;
        changed(c.take(Kind::P2wpkh), |tx| tx.lock_time = LockTime::from_height(height).unwrap()).into()
    }),
    good("locked, but its sequence says that it does not matter", |c| {
        let height = c.height + 50;
        changed(c.take(Kind::P2wpkh), |tx| {
            tx.lock_time = LockTime::from_height(height).unwrap();
            tx.input[0].sequence = Sequence::MAX;
        })
        .into()
    }),
    bad("locked until a later time", "non-final", |c| {
        let time = c.median_time + 100_000;
        changed(c.take(Kind::P2wpkh), |tx| tx.lock_time = LockTime::from_time(time).unwrap()).into()
    }),
    good("locked until a time that was", |c| {
        let time = c.median_time - 1;
        changed(c.take(Kind::P2wpkh), |tx| tx.lock_time = LockTime::from_time(time).unwrap()).into()
    }),
    bad("a coin too young for its blocks", "non-BIP68-final", |c| {
        changed(c.take(Kind::P2wpkh), |tx| tx.input[0].sequence = Sequence::from_height(40)).into()
    }),
    good("a coin just old enough for its blocks", |c| {
        let age = u16::try_from(c.height + 1 - c.split_at).unwrap();
        changed(c.take(Kind::P2wpkh), |tx| tx.input[0].sequence = Sequence::from_height(age)).into()
    }),
    bad("a coin one block too young", "non-BIP68-final", |c| {
        let age = u16::try_from(c.height + 2 - c.split_at).unwrap();
        changed(c.take(Kind::P2wpkh), |tx| tx.input[0].sequence = Sequence::from_height(age)).into()
    }),
    bad("a coin too young for its time", "non-BIP68-final", |c| {
        changed(c.take(Kind::P2wpkh), |tx| tx.input[0].sequence = Sequence::from_512_second_intervals(30)).into()
    }),
    bad("a waiting coin that must be one block old", "non-BIP68-final", |c| {
        let parent = pays(c.take(Kind::P2wpkh), 1_000);
        let child = changed(output_of(&parent, 0), |tx| tx.input[0].sequence = Sequence::from_height(1));
        after(vec![parent], &child)
    }),
    bad("a fresh coinbase", "bad-txns-premature-spend-of-coinbase", |c| pays(c.fresh, 1_000).into()),
    bad("P2WPKH with another's signature", NULL_FAIL, |c| {
        broken(c.take(Kind::P2wpkh), |tx| tx.output[0].value = COIN - Amount::from_sat(30_000)).into()
    }),
    bad(
        "P2WPKH with another's key",
        "mempool-script-verify-flag-failed (Script failed an OP_EQUALVERIFY operation)",
        |c| {
            broken(c.take(Kind::P2wpkh), |tx| {
                let mut items = first_witness(tx);
                items[1] = Key::numbered(3).public().serialize().to_vec();
                tx.input[0].witness = Witness::from_slice(&items);
            })
            .into()
        },
    ),
    bad("P2WPKH without a witness", "mempool-script-verify-flag-failed (Witness program hash mismatch)", |c| {
        broken(c.take(Kind::P2wpkh), |tx| tx.input[0].witness = Witness::new()).into()
    }),
    bad(
        "P2WSH without a witness",
        "mempool-script-verify-flag-failed (Witness program was passed an empty witness)",
        |c| broken(c.take(Kind::P2wsh), |tx| tx.input[0].witness = Witness::new()).into(),
    ),
    bad(
        "P2TR without a witness",
        "mempool-script-verify-flag-failed (Witness program was passed an empty witness)",
        |c| broken(c.take(Kind::P2tr), |tx| tx.input[0].witness = Witness::new()).into(),
    ),
    bad("P2WPKH with a witness too long", "mempool-script-verify-flag-failed (Witness program hash mismatch)", |c| {
        broken(c.take(Kind::P2wpkh), |tx| tx.input[0].witness.push([1])).into()
    }),
    bad(
        "P2WPKH with an empty signature",
        "mempool-script-verify-flag-failed (Script evaluated without error but finished with a false/empty top stack element)",
        |c| signature_changed(c.take(Kind::P2wpkh), Vec::clear).into(),
    ),
    bad(
        "P2WPKH with a high s",
        "mempool-script-verify-flag-failed (Non-canonical signature: S value is unnecessarily high)",
        |c| {
            signature_changed(c.take(Kind::P2wpkh), |signature| {
                let (kind, der) = signature.split_last().unwrap();
                let compact = secp256k1::ecdsa::Signature::from_der(der).unwrap().serialize_compact();
                let low = secp256k1::SecretKey::from_slice(&compact[32..]).unwrap();
                let high = low.negate().secret_bytes();
                let whole = [&compact[..32], &high].concat();
                let high = secp256k1::ecdsa::Signature::from_compact(&whole).unwrap();
                *signature = [&high.serialize_der()[..], &[*kind]].concat();
            })
            .into()
        },
    ),
    bad(
        "P2WPKH with an unknown kind of signature",
        "mempool-script-verify-flag-failed (Signature hash type missing or not understood)",
        |c| signature_changed(c.take(Kind::P2wpkh), |signature| *signature.last_mut().unwrap() = 5).into(),
    ),
    bad("P2WPKH with a broken signature", "mempool-script-verify-flag-failed (Non-canonical DER signature)", |c| {
        signature_changed(c.take(Kind::P2wpkh), |signature| signature[0] = 0x31).into()
    }),
    bad(
        "P2WPKH with a script in the input",
        "mempool-script-verify-flag-failed (Witness requires empty scriptSig)",
        |c| broken(c.take(Kind::P2wpkh), |tx| tx.input[0].script_sig = Builder::new().push_int(1).into_script()).into(),
    ),
    bad(
        "P2WPKH of an uncompressed key",
        "mempool-script-verify-flag-failed (Using non-compressed keys in segwit)",
        |c| pays(c.take(Kind::Uncompressed), 1_000).into(),
    ),
    bad("P2PKH with another's signature", NULL_FAIL, |c| {
        broken(c.take(Kind::P2pkh), |tx| tx.output[0].value = COIN - Amount::from_sat(30_000)).into()
    }),
    bad(
        "P2PKH with a push too many",
        "mempool-script-verify-flag-failed (Stack size must be exactly one after execution)",
        |c| {
            broken(c.take(Kind::P2pkh), |tx| {
                let old = tx.input[0].script_sig.to_bytes();
                tx.input[0].script_sig = ScriptBuf::from_bytes([&[0x51][..], &old].concat());
            })
            .into()
        },
    ),
    bad(
        "P2PKH with nothing",
        "mempool-script-verify-flag-failed (Operation not valid with the current stack size)",
        |c| broken(c.take(Kind::P2pkh), |tx| tx.input[0].script_sig = ScriptBuf::new()).into(),
    ),
    bad("P2PKH with a witness", "bad-witness-nonstandard", |c| {
        broken(c.take(Kind::P2pkh), |tx| tx.input[0].witness = Witness::from_slice(&[[1]])).into()
    }),
    bad("P2SH without its script", "bad-txns-nonstandard-inputs", |c| {
        broken(c.take(Kind::P2shP2wpkh), |tx| tx.input[0].script_sig = ScriptBuf::new()).into()
    }),
    bad("P2WSH with another's signature", NULL_FAIL, |c| {
        broken(c.take(Kind::P2wsh), |tx| tx.output[0].value = COIN - Amount::from_sat(30_000)).into()
    }),
    bad("P2WSH with another script", "mempool-script-verify-flag-failed (Witness program hash mismatch)", |c| {
        broken(c.take(Kind::P2wsh), |tx| {
            let mut items = first_witness(tx);
            items[1] = multisig(1, 1).to_bytes();
            tx.input[0].witness = Witness::from_slice(&items);
        })
        .into()
    }),
    bad("P2TR with another's signature", "mempool-script-verify-flag-failed (Invalid Schnorr signature)", |c| {
        broken(c.take(Kind::P2tr), |tx| tx.output[0].value = COIN - Amount::from_sat(30_000)).into()
    }),
    bad("P2TR with a short signature", "mempool-script-verify-flag-failed (Invalid Schnorr signature size)", |c| {
        signature_changed(c.take(Kind::P2tr), |signature| signature.truncate(63)).into()
    }),
    bad(
        "P2TR with an unknown kind of signature",
        "mempool-script-verify-flag-failed (Invalid Schnorr signature hash type)",
        |c| signature_changed(c.take(Kind::P2tr), |signature| signature.push(0)).into(),
    ),
    bad("P2TR with an annex", "bad-witness-nonstandard", |c| {
        broken(c.take(Kind::P2tr), |tx| tx.input[0].witness.push([0x50, 1])).into()
    }),
    bad(
        "P2TR script with another control block",
        "mempool-script-verify-flag-failed (Witness program hash mismatch)",
        |c| {
            broken(c.take(Kind::Leaf), |tx| {
                let mut items = first_witness(tx);
                items[2][1] ^= 1;
                tx.input[0].witness = Witness::from_slice(&items);
            })
            .into()
        },
    ),
    bad(
        "P2TR script with a short control block",
        "mempool-script-verify-flag-failed (Invalid Taproot control block size)",
        |c| {
            broken(c.take(Kind::Leaf), |tx| {
                let mut items = first_witness(tx);
                items[2].pop();
                tx.input[0].witness = Witness::from_slice(&items);
            })
            .into()
        },
    ),
    bad("P2TR script with another's signature", "mempool-script-verify-flag-failed (Invalid Schnorr signature)", |c| {
        broken(c.take(Kind::Leaf), |tx| tx.output[0].value = COIN - Amount::from_sat(30_000)).into()
    }),
    differs(
        "P2WSH with a script that refuses",
        Some("mempool-script-verify-flag-failed (OP_RETURN was encountered)"),
        (
            "mempool-script-verify-flag-failed (Script evaluated without error but finished with a false/empty top stack element)",
            "libbitcoinconsensus gives no reason, and the devnet does not run scripts itself to find one",
        ),
        |c| {
            let script = Builder::new().push_opcode(OP_RETURN).into_script();
            let parent = spend(&[c.take(Kind::P2wpkh)], to(COIN - FEE, script.to_p2wsh()));
            let mut child = bare(&[output_of(&parent, 0)], to(COIN - FEE - FEE, Kind::P2wpkh.script()));
            child.input[0].witness = Witness::from_slice(&[vec![1], script.to_bytes()]);
            after(vec![parent], &child)
        },
    ),
    bad("a coin of a witness version to come", "bad-txns-nonstandard-inputs", |c| {
        pays(c.take(Kind::Future), 1_000).into()
    }),
    bad("a coin of no standard form", "bad-txns-nonstandard-inputs", |c| pays(c.take(Kind::Anybody), 1_000).into()),
    bad("one more than a cluster holds", "too-large-cluster", |c| {
        let mut chain = vec![pays(c.take(Kind::P2wpkh), 1_000)];
        while chain.len() < 64 {
            chain.push(pays(output_of(chain.last().unwrap(), 0), 1_000));
        }
        let last = pays(output_of(chain.last().unwrap(), 0), 1_000);
        after(chain, &last)
    }),
    good("coins burnt", |c| {
        // Nothing but `sendrawtransaction` minds.
        let coin = c.take(Kind::P2wpkh);
        let mut output = to(coin.value - FEE, Kind::P2wpkh.script());
        output.push(TxOut { value: Amount::from_sat(1_000), script_pubkey: op_return(20) });
        spend(&[coin], output).into()
    }),
    bad("half a transaction", UNDECODABLE, |c| {
        let mut built: Built = pays(c.take(Kind::P2wpkh), 1_000).into();
        built.raw.truncate(50);
        built
    }),
    bad("a byte too many", UNDECODABLE, |c| {
        let mut built: Built = pays(c.take(Kind::P2wpkh), 1_000).into();
        built.raw.push(0);
        built
    }),
    bad("nothing", UNDECODABLE, |_| Built { before: Vec::new(), mined: false, raw: Vec::new() }),
    differs(
        "no inputs and no outputs",
        Some("bad-txns-vin-empty"),
        (UNDECODABLE, "rust-bitcoin reads no inputs as the mark of a witness"),
        |_| Built { before: Vec::new(), mined: false, raw: vec![2, 0, 0, 0, 0, 0, 0, 0, 0, 0] },
    ),
];

/// What a node said: the reason of `testmempoolaccept`, and code and words of `sendrawtransaction`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub reason: Option<String>,
    pub sent: Result<(), (i64, String)>,
}

/// Hashes differ from chain to chain.
fn without_hashes(text: &str) -> String {
    let mut out = String::new();
    let mut digits = String::new();
    for letter in text.chars().chain(['\n']) {
        if letter.is_ascii_hexdigit() {
            digits.push(letter);
            continue;
        }
        out.push_str(if digits.len() == 64 { "#" } else { &digits });
        digits.clear();
        out.push(letter);
    }
    out.trim_end().to_owned()
}

pub fn judge(node: &mut dyn Node, context: &mut Context, case: &Case) -> Verdict {
    context.look(node);
    let built = (case.build)(context);
    for transaction in &built.before {
        node.must("sendrawtransaction", json!([hex(transaction)]));
    }
    if built.mined {
        let home = Address::from_script(&Kind::Leaf.script(), Network::Regtest).unwrap().to_string();
        node.must("generatetoaddress", json!([1, home]));
    }
    let raw: String = built.raw.iter().map(|byte| format!("{byte:02x}")).collect();
    let reason = match node.call("testmempoolaccept", json!([[raw]])) {
        Ok(answer) if answer[0]["allowed"] == true => None,
        Ok(answer) => Some(answer[0]["reject-reason"].as_str().unwrap().to_owned()),
        Err((_, message)) => Some(message.split(':').next().unwrap().to_owned()),
    };
    let sent = node.call("sendrawtransaction", json!([raw]));
    Verdict { reason, sent: sent.map(|_| ()).map_err(|(code, message)| (code, without_hashes(&message))) }
}
