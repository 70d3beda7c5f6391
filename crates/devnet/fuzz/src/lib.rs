//! What the fuzz targets of `devnet` run: one function for each of the three models, which asks it anything. `tx-fuzz`
//! says when a target fails.

use std::cell::RefCell;

use devnet::bitcoin::BitcoinDevnet;
use devnet::evm::EvmDevnet;
use devnet::tron::TronDevnet;
use devnet::{Model, View, Wire};
use domain::Timestamp;

/// 2026-01-02.
const NOW: Timestamp = Timestamp::from_micros(1_767_312_000_000_000);

/// Between two requests: no JSON text can hold it.
const SEPARATOR: u8 = 0x1e;

/// Requests with these words change a chain.
const CHANGES: [&[u8]; 8] = [b"send", b"submit", b"broadcast", b"generate", b"mine", b"set", b"abandon", b"priorit"];

thread_local! {
    static EVM: RefCell<EvmDevnet> = RefCell::new(new_evm());
    static TRON: RefCell<TronDevnet> = RefCell::new(new_tron());
    static BITCOIN: RefCell<BitcoinDevnet> = RefCell::new(new_bitcoin());
}

pub fn evm(bytes: &[u8]) {
    EVM.with(|kept| answer(kept, new_evm, bytes));
}

pub fn tron(bytes: &[u8]) {
    TRON.with(|kept| answer(kept, new_tron, bytes));
}

pub fn bitcoin(bytes: &[u8]) {
    BITCOIN.with(|kept| answer(kept, new_bitcoin, bytes));
}

fn new_evm() -> EvmDevnet {
    with_blocks(EvmDevnet::new(Default::default()))
}

fn new_tron() -> TronDevnet {
    with_blocks(TronDevnet::new(Default::default()))
}

fn new_bitcoin() -> BitcoinDevnet {
    with_blocks(BitcoinDevnet::new(Default::default()))
}

fn with_blocks<M: Model>(mut model: M) -> M {
    model.mine(3, NOW);
    model
}

/// Each request is a line with the method, the path and the query, and then the body.
///
/// To make a chain takes longer than to ask it much. So requests that only read go to one that is kept, and others to a
/// new one, which mines a block after each: either way the same input gives the same answers.
fn answer<M: Model>(kept: &RefCell<M>, new: impl FnOnce() -> M, bytes: &[u8]) {
    if CHANGES.iter().any(|word| bytes.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word))) {
        ask(&mut new(), bytes, 1);
    } else {
        ask(&mut *kept.borrow_mut(), bytes, 0);
    }
}

fn ask(model: &mut impl Model, bytes: &[u8], blocks: u64) {
    let view = View::default();
    for request in bytes.split(|byte| *byte == SEPARATOR) {
        let end = request.iter().position(|byte| *byte == b'\n').unwrap_or(request.len());
        let (line, body) = request.split_at(end);
        let Ok(line) = str::from_utf8(line) else { continue };
        let (method, target) = line.split_once(' ').unwrap_or(("", line));
        let method = if method == "GET" { "GET" } else { "POST" };
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let body = body.get(1..).unwrap_or_default();
        let reply = model.answer(&view, Wire { method, path, query, body }, NOW);
        assert!((200..600).contains(&reply.status));
        let is_json = serde_json::from_slice::<serde::de::IgnoredAny>(&reply.body).is_ok();
        assert!(reply.status != 200 || reply.body.is_empty() || is_json);
        model.mine(blocks, NOW);
    }
}
