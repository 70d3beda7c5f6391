//! `bursar bench sign-build`: transactions made and read back, on each chain, beside the bare signature.

use chain::Chain;
use chain::bitcoin::{BitcoinChain, BitcoinSettings};
use chain::evm::{EvmChain, EvmSettings};
use chain::tron::{Network, TronChain, TronSettings};
use devnet::{Key, bitcoin as bitcoin_devnet, evm as evm_devnet, tron as tron_devnet};
use domain::{ChainKind, RawAmount};
use serde_json::{Value, json};
use terminal::clock::Stopwatch;
use terminal::failure::{CommandResult, Failure};
use terminal::output::{say, table};
use tx::Input;
use tx::{Address, BlockHash, BlockRef, Coin, Draft, Fee, Payment, TxHash};

use super::Samples;
use super::scan::{SOME_TIME, address, pool, sign};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// How many transactions each round makes
    #[arg(long, value_name = "N", default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    transactions: u32,
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
}

struct Row {
    name: &'static str,
    build: Samples,
    whole: Samples,
    signature: Samples,
}

pub fn run(arguments: &Arguments, as_json: bool) -> CommandResult {
    let mut rows = Vec::new();
    for (name, kind, token) in [
        ("bitcoin", ChainKind::Bitcoin, false),
        ("evm", ChainKind::Evm, false),
        ("evm token", ChainKind::Evm, true),
        ("tron", ChainKind::Tron, false),
        ("tron token", ChainKind::Tron, true),
    ] {
        rows.push(measure(name, kind, token, arguments)?);
    }
    print(&rows, as_json);
    Ok(())
}

fn client(kind: ChainKind) -> Result<Box<dyn Chain>, Failure> {
    // Building and reading back ask no node, so none has to be there.
    let pool = pool("http://127.0.0.1:1", None)?;
    Ok(match kind {
        ChainKind::Bitcoin => Box::new(BitcoinChain::new(BitcoinSettings::new(bitcoin_devnet::NETWORK), pool)),
        ChainKind::Evm => Box::new(EvmChain::new(EvmSettings::new(evm_devnet::CHAIN_ID, 12), pool)),
        ChainKind::Tron => Box::new(
            TronChain::new(TronSettings::new(Network::Devnet, Vec::new()), pool)
                .map_err(|error| super::scan::trouble("tron", error))?,
        ),
    })
}

fn draft(kind: ChainKind, token: bool, key: &Key, number: u32) -> Result<Draft, Failure> {
    let amount = |units: u32| RawAmount::from_u256(units.try_into().unwrap_or_default());
    let coin = match (token, kind) {
        (true, ChainKind::Evm) => Coin::Token(Address::Evm(evm_devnet::TETHER)),
        (true, ChainKind::Tron) => Coin::Token(Address::Tron(tron_devnet::TOKEN)),
        _ => Coin::Native,
    };
    let payment = Payment { to: address(kind, number % 100), coin, amount: amount(10_000 + number) };
    Ok(match kind {
        ChainKind::Evm => Draft::Evm {
            from: key.evm(),
            nonce: number.into(),
            payment,
            gas_limit: 100_000,
            fee: Fee::Eip1559 { max_fee: 5_000_000_000, max_priority: 1_000_000_000 },
        },
        ChainKind::Tron => Draft::Tron {
            from: key.tron(),
            payment,
            fee_limit: if token { 100_000_000 } else { 0 },
            reference: reference(number.into()),
            created: SOME_TIME,
            expires: SOME_TIME.plus_micros(60_000_000),
        },
        ChainKind::Bitcoin => {
            let own = key.bitcoin(bitcoin_devnet::NETWORK);
            let script = own.script_bytes().ok_or_else(|| super::scan::trouble("bitcoin", "no script"))?;
            let input = Input {
                transaction: TxHash([9; 32]),
                index: number,
                amount_sat: 100_000_000,
                script,
                sequence: 0xffff_fffd,
            };
            let change = Payment { to: own, coin: Coin::Native, amount: amount(99_000_000) };
            Draft::Bitcoin { inputs: vec![input], payments: vec![payment, change], lock_time: 0 }
        }
    })
}

/// A block of TRON has its height in the first eight bytes of its id.
fn reference(height: u64) -> BlockRef {
    let mut hash = [7; 32];
    hash[..8].copy_from_slice(&height.to_be_bytes());
    BlockRef { height, hash: BlockHash(hash) }
}

fn measure(name: &'static str, kind: ChainKind, token: bool, arguments: &Arguments) -> Result<Row, Failure> {
    let (chain, key) = (client(kind)?, Key::numbered(0));
    let count = arguments.transactions;
    let drafts: Vec<Draft> = (0..count).map(|number| draft(kind, token, &key, number)).collect::<Result<_, _>>()?;
    let (mut build, mut whole, mut signature) = (Samples::default(), Samples::default(), Samples::default());
    let refused = |error: &dyn std::fmt::Display| super::scan::trouble(name, error);
    for _ in 0..arguments.rounds {
        let watch = Stopwatch::start();
        for draft in &drafts {
            let unsigned = chain.build(draft).map_err(|error| refused(&error))?;
            let meaning = chain.decode_unsigned(&unsigned.bytes).map_err(|error| refused(&error))?;
            if meaning != unsigned.meaning {
                return Err(refused(&"what was built does not read back as what was meant"));
            }
        }
        build.push(f64::from(count) / watch.elapsed().as_secs_f64());
        let watch = Stopwatch::start();
        for draft in &drafts {
            let unsigned = chain.build(draft).map_err(|error| refused(&error))?;
            let signed = sign(kind, &key, &unsigned)?;
            let meaning = chain.decode_signed(&signed).map_err(|error| refused(&error))?;
            if meaning.payments != unsigned.meaning.payments {
                return Err(refused(&"what was signed does not read back as what was meant"));
            }
        }
        whole.push(f64::from(count) / watch.elapsed().as_secs_f64());
        let watch = Stopwatch::start();
        let mut digest = [1; 32];
        for _ in 0..count {
            let (bytes, _) = key.sign(digest);
            digest.copy_from_slice(&bytes[..32]);
        }
        signature.push(f64::from(count) / watch.elapsed().as_secs_f64());
    }
    Ok(Row { name, build, whole, signature })
}

fn print(rows: &[Row], as_json: bool) {
    if as_json {
        let rows = rows.iter().map(|row| {
            json!({
                "chain": row.name,
                "build_decode_per_s": row.build.median().round(),
                "build_sign_decode_per_s": row.whole.median().round(),
                "signature_per_s": row.signature.median().round(),
                "ratio_build_decode_to_signature": row.build.ratio_to(&row.signature).median(),
                "ratio_whole_to_signature": row.whole.ratio_to(&row.signature).median(),
            })
        });
        say(json!({ "bench": "sign-build", "chains": rows.collect::<Vec<Value>>() }));
        return;
    }
    let lines = rows.iter().map(|row| {
        vec![
            row.name.to_owned(),
            format!("{:.0}", row.build.median()),
            format!("{:.0}", row.whole.median()),
            format!("{:.0}", row.signature.median()),
            format!("{:.2}", row.build.ratio_to(&row.signature).median()),
        ]
    });
    let header =
        ["", "build + decode/s", "build + sign + decode/s", "bare signatures/s", "build + decode to signature"];
    say(table(&header, &[1, 2, 3, 4], &lines.collect::<Vec<_>>()));
}
