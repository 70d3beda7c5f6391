//! Records what clients and devnets say to each other, as a corpus for both: requests for the devnets' targets, answers
//! for the clients'.

use std::io::Result;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use ::bitcoin::hashes::{Hash, sha256};
use chain::endpoint::Pool;
use devnet::bitcoin::BitcoinDevnet;
use devnet::evm::EvmDevnet;
use devnet::tron::TronDevnet;
use devnet::{BroadcastFault, Fate, Model, Served, View, Wire, WireReply};
use domain::{ManualClock, RawAmount, Timestamp};
use serde_json::Value;
use tx::Address;

use crate::node::{Envelope, SEPARATOR, pool};
use crate::{bitcoin, client, evm, tron};

/// 2026-01-02.
const NOW: Timestamp = Timestamp::from_micros(1_767_312_000_000_000);

#[derive(Clone, Default)]
struct Tape(Arc<Mutex<Vec<(Vec<u8>, Vec<u8>)>>>);

struct Recorded<M> {
    model: M,
    tape: Tape,
}

impl<M: Model> Model for Recorded<M> {
    fn answer(&mut self, view: &View, wire: Wire<'_>, now: Timestamp) -> WireReply {
        let reply = self.model.answer(view, wire, now);
        let question = if wire.query.is_empty() { "" } else { "?" };
        let line = format!("{} {}{question}{}\n", wire.method, wire.path, wire.query);
        let request = [line.as_bytes(), wire.body].concat();
        self.tape.0.lock().unwrap_or_else(PoisonError::into_inner).push((request, reply.body.clone()));
        reply
    }

    fn height(&self) -> u64 {
        self.model.height()
    }

    fn mine(&mut self, blocks: u64, now: Timestamp) {
        self.model.mine(blocks, now);
    }

    fn reorg(&mut self, depth: u64, fate: Fate, with: &[Vec<u8>], now: Timestamp) -> std::result::Result<(), String> {
        self.model.reorg(depth, fate, with, now)
    }

    fn fund(
        &mut self,
        address: &str,
        token: Option<&str>,
        amount: RawAmount,
        now: Timestamp,
    ) -> std::result::Result<(), String> {
        self.model.fund(address, token, amount, now)
    }

    fn broadcasts(&mut self, fault: BroadcastFault) {
        self.model.broadcasts(fault);
    }

    fn fee_factor(&mut self, times: u32) {
        self.model.fee_factor(times);
    }
}

/// The answers as the node of the targets gives them: without the envelope that it puts round them.
fn unwrapped(reply: &[u8], envelope: Envelope) -> Vec<Vec<u8>> {
    let result = |answer: &Value| answer["result"].to_string().into_bytes();
    match (envelope, serde_json::from_slice(reply)) {
        (Envelope::JsonRpc, Ok(Value::Array(answers))) => answers.iter().map(result).collect(),
        (Envelope::JsonRpc, Ok(answer)) if answer["error"].is_null() => vec![result(&answer)],
        (Envelope::JsonRpc, _) => vec![[b"!", reply].concat()],
        (Envelope::None, _) => vec![reply.to_vec()],
    }
}

/// Into the corpus of a target, which lies in `crates/<its crate>/fuzz`.
fn keep(crates: &Path, of: &str, target: &str, bytes: &[u8]) -> Result<()> {
    let folder = crates.join(of).join("fuzz/corpus").join(target);
    std::fs::create_dir_all(&folder)?;
    let name = sha256::Hash::hash(bytes).to_string();
    std::fs::write(folder.join(&name[..16]), bytes)
}

async fn record<M: Model>(
    crates: &Path,
    name: &str,
    mut model: M,
    (ours, token, height): (Address, Option<&str>, u64),
    envelope: Envelope,
    ask: impl AsyncFn(Pool, u8),
) -> Result<()> {
    let address = ours.to_string();
    for token in [None, token] {
        model.fund(&address, token, client::some(), NOW).map_err(std::io::Error::other)?;
        model.mine(1, NOW);
    }
    // Otherwise the targets would ask for other blocks than those that the answers are about, and refuse them at once.
    assert_eq!(model.height(), height, "HEIGHT of {name}");
    model.mine(3, NOW);
    let tape = Tape::default();
    let model = Recorded { model, tape: tape.clone() };
    let clock = Arc::new(ManualClock::default());
    let served = Served::start(model, &[([127, 0, 0, 1], 0).into()], clock).await?;
    let url = format!("http://{}", served.endpoints[0].address);
    for question in 0..client::QUESTIONS {
        ask(pool(&url), question).await;
        let tape = std::mem::take(&mut *tape.0.lock().unwrap_or_else(PoisonError::into_inner));
        for (request, _) in &tape {
            keep(crates, "devnet", &format!("devnet_{name}"), request)?;
        }
        let answers: Vec<_> = tape.iter().flat_map(|(_, reply)| unwrapped(reply, envelope)).collect();
        // The digit is that question, modulo their number.
        let answers = [&[b'0' + 2 + question], answers.join(&SEPARATOR).as_slice()].concat();
        keep(crates, "chain", &format!("{name}_node"), &answers)?;
    }
    Ok(())
}

/// `CRATES` names the folder with the crates whose corpora are written.
pub fn all() {
    let crates = std::env::var_os("CRATES").expect("CRATES names a folder");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(record_all(Path::new(&crates))).expect("a corpus");
}

async fn record_all(crates: &Path) -> Result<()> {
    let model = EvmDevnet::new(Default::default());
    record(crates, "evm", model, (evm::ours(), Some("USDT"), evm::HEIGHT), evm::ENVELOPE, evm::ask).await?;
    let model = TronDevnet::new(Default::default());
    record(crates, "tron", model, (tron::ours(), Some("USDT"), tron::HEIGHT), tron::ENVELOPE, tron::ask).await?;
    let model = BitcoinDevnet::new(Default::default());
    record(crates, "bitcoin", model, (bitcoin::ours(), None, bitcoin::HEIGHT), bitcoin::ENVELOPE, bitcoin::ask).await
}
