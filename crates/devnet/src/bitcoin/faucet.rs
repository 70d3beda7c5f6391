//! Where coins come from: the first blocks pay a faucet, which pays the ten keys, and later whom `fund` names.

use ::bitcoin::absolute::LockTime;
use ::bitcoin::sighash::{EcdsaSighashType, SighashCache};
use ::bitcoin::{
    Amount, CompressedPublicKey, Network, OutPoint, ScriptBuf, Sequence, Transaction, TxIn, TxOut, Witness, ecdsa,
    transaction,
};
use domain::{RawAmount, Timestamp};
use secp256k1::{Message, SECP256K1};

use super::super::{Key, PREFUNDED};
use super::accept::{self, Mode};
use super::chain::{Chain, subsidy};
use super::consensus::MATURITY;
use super::{BitcoinDevnet, Settings, policy, seconds};
use tx::Address;

/// Nobody's number but the faucet's.
const FAUCET: u32 = 1_000_000;
/// Blocks on top of the prefunded coins, so that a reorganisation has something to remove.
const BURIED: u32 = 25;
/// No prefunding needs more coinbases than there are before the first halving.
const MOST_COINBASES: u32 = 48;
const INPUTS: usize = 50;
/// What the faucet pays at least, in satoshi for a thousand virtual bytes.
const FEE_RATE: u64 = 20_000;

fn script(address: &Address) -> ScriptBuf {
    match address {
        Address::Bitcoin(address) => address.script_pubkey(),
        Address::Evm(_) | Address::Tron(_) => ScriptBuf::new(),
    }
}

pub(super) fn begin(settings: Settings) -> BitcoinDevnet {
    let faucet = Key::numbered(FAUCET);
    let home = script(&faucet.bitcoin(Network::Regtest));
    let mut net = BitcoinDevnet {
        chain: Chain::new(home.clone()),
        pool: super::Pool::default(),
        faucet,
        made: 0,
        floor: 0,
        broadcasts: super::BroadcastFault::None,
        fee_times: 1,
        paid: std::collections::VecDeque::new(),
        since: None,
        shadows: std::collections::BTreeMap::new(),
    };
    let value = Amount::from_sat(settings.coin_sat);
    let keys = (0..PREFUNDED).map(Key::numbered);
    let homes = keys.flat_map(|key| [key.bitcoin(Network::Regtest), key.taproot(Network::Regtest)]);
    let once: Vec<TxOut> = homes.map(|address| TxOut { value, script_pubkey: script(&address) }).collect();
    let most = Amount::from_sat(subsidy(1).to_sat().saturating_mul(u64::from(MOST_COINBASES)));
    let (mut output, mut total) = (Vec::new(), Amount::ZERO);
    for _ in 0..settings.coins {
        for coin in &once {
            match total.checked_add(value).filter(|sum| *sum < most && value > Amount::ZERO) {
                Some(sum) => total = sum,
                None => break,
            }
            output.push(coin.clone());
        }
    }
    let coinbases = u32::try_from(total.to_sat() / subsidy(1).to_sat()).unwrap_or(0).saturating_add(1);
    let fan_out = MATURITY.saturating_add(coinbases);
    let last = fan_out.saturating_add(BURIED);
    let time = |height: u32| settings.start.plus_micros(-600_000_000 * i64::from(last.saturating_sub(height)));
    while net.chain.height() < fan_out.saturating_sub(1) {
        let now = time(net.chain.height().saturating_add(1));
        net.mine_one(home.clone(), now);
    }
    let mature = net.chain.faucet_coins().filter(|(_, coin)| coin.height <= coinbases);
    let coins: Vec<(OutPoint, TxOut)> = mature.map(|(outpoint, coin)| (outpoint, coin.out.clone())).collect();
    let transaction = signed(&net, &coins, output, FEE_RATE);
    if let Ok(accepted) = accept::check(&net.chain, &net.pool, &transaction, Mode::Alone, seconds(time(fan_out))) {
        net.admit(accepted);
    }
    net.mine_one(home.clone(), time(fan_out));
    net.floor = net.chain.height();
    while net.chain.height() < last {
        let now = time(net.chain.height().saturating_add(1));
        net.mine_one(home.clone(), now);
    }
    // Nobody has paid a fee yet that an estimate could be made from.
    net.paid.clear();
    net
}

/// Spends the faucet's coins; what is left goes back to it, if it is more than dust.
fn signed(net: &BitcoinDevnet, coins: &[(OutPoint, TxOut)], mut output: Vec<TxOut>, rate: u64) -> Transaction {
    let home = net.chain.faucet_script().clone();
    let input = |outpoint: &OutPoint| TxIn {
        previous_output: *outpoint,
        script_sig: ScriptBuf::new(),
        sequence: Sequence::ENABLE_RBF_NO_LOCKTIME,
        witness: Witness::new(),
    };
    let available: Amount = coins.iter().map(|(_, out)| out.value).sum();
    let paid: Amount = output.iter().map(|out| out.value).sum();
    let sizes = output.iter().map(TxOut::size).fold(31, usize::saturating_add);
    let vsize = sizes.saturating_add(12).saturating_add(coins.len().saturating_mul(69));
    let fee = policy::fee_at(rate, u64::try_from(vsize).unwrap_or(u64::MAX));
    let left = available.checked_sub(paid).and_then(|left| left.checked_sub(Amount::from_sat(fee)));
    let change = TxOut { value: left.unwrap_or(Amount::ZERO), script_pubkey: home };
    if change.value > policy::dust_limit(&change) {
        output.push(change);
    }
    let mut transaction = Transaction {
        version: transaction::Version::TWO,
        lock_time: LockTime::ZERO,
        input: coins.iter().map(|(outpoint, _)| input(outpoint)).collect(),
        output,
    };
    let (secret, public) = (net.faucet.secret(), net.faucet.public());
    let mut cache = SighashCache::new(&mut transaction);
    for (at, (_, out)) in coins.iter().enumerate() {
        let Ok(hash) = cache.p2wpkh_signature_hash(at, &out.script_pubkey, out.value, EcdsaSighashType::All) else {
            continue;
        };
        let signature = SECP256K1.sign_ecdsa(&Message::from(hash), secret);
        let witness = Witness::p2wpkh(&ecdsa::Signature::sighash_all(signature), &CompressedPublicKey(public).0);
        if let Some(place) = cache.witness_mut(at) {
            *place = witness;
        }
    }
    transaction
}

/// A text that can be paid on regtest.
pub(super) fn parse(address: &str) -> Option<::bitcoin::Address> {
    address.parse::<::bitcoin::Address<_>>().ok()?.require_network(Network::Regtest).ok()
}

/// A payment from the faucet waits in the pool, and pays more than all the others there.
pub(super) fn pay(net: &mut BitcoinDevnet, address: &str, amount: RawAmount, now: Timestamp) -> Result<(), String> {
    let address = parse(address).ok_or("this is no address of regtest")?;
    let value = amount.to_string().parse().map(Amount::from_sat).map_err(|_| "more than there are coins")?;
    if value > Amount::MAX_MONEY {
        return Err("more than there are coins".to_owned());
    }
    let rate = |entry: &super::Entry| entry.fee.saturating_mul(1_000) / entry.vsize().max(1);
    let top = net.pool.entries().map(rate).max().unwrap_or(0).saturating_add(1_000).max(FEE_RATE);
    let height = net.chain.height().saturating_add(1);
    let mature = |coin: &super::chain::Coin| !coin.coinbase || height.saturating_sub(coin.height) >= MATURITY;
    let confirmed = net.chain.faucet_coins().filter(|(_, coin)| mature(coin));
    let mut coins: Vec<(OutPoint, TxOut)> = confirmed.map(|(outpoint, coin)| (outpoint, coin.out.clone())).collect();
    coins.sort_by_key(|(_, out)| std::cmp::Reverse(out.value));
    // Change that waits itself comes last, for chains of it are soon too long.
    for entry in net.pool.entries() {
        let outputs = (0_u32..).zip(&entry.transaction.output);
        let ours = outputs.filter(|(_, out)| out.script_pubkey == *net.chain.faucet_script());
        coins.extend(ours.map(|(vout, out)| (OutPoint { txid: entry.txid, vout }, out.clone())));
    }
    coins.retain(|(outpoint, _)| net.pool.spender(outpoint).is_none());
    let (mut chosen, mut sum) = (Vec::new(), Amount::ZERO);
    let mut why = "the faucet is empty until more blocks are mined".to_owned();
    for (outpoint, out) in coins {
        if chosen.len() == INPUTS {
            chosen.clear();
            sum = Amount::ZERO;
        }
        let fee = policy::fee_at(top, u64::try_from(chosen.len()).unwrap_or(0).saturating_add(3).saturating_mul(100));
        sum = sum.checked_add(out.value).unwrap_or(Amount::MAX_MONEY);
        chosen.push((outpoint, out));
        if value.checked_add(Amount::from_sat(fee)).is_none_or(|needed| sum < needed) {
            continue;
        }
        let output = vec![TxOut { value, script_pubkey: address.script_pubkey() }];
        let transaction = signed(net, &chosen, output, top);
        match accept::check(&net.chain, &net.pool, &transaction, Mode::Alone, seconds(now)) {
            Ok(accepted) => {
                net.admit(accepted);
                return Ok(());
            }
            Err(reject) => why = reject.to_string(),
        }
        chosen.clear();
        sum = Amount::ZERO;
    }
    Err(why)
}
