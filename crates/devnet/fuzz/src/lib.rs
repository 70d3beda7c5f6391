//! The three models, asked anything.

use std::cell::RefCell;

use chain::devnet::{Model, View, Wire};
use domain::Timestamp;

use crate::node::SEPARATOR;

/// 2026-01-02.
const NOW: Timestamp = Timestamp::from_micros(1_767_312_000_000_000);

/// Requests with these words change a chain.
const CHANGES: [&[u8]; 8] = [b"send", b"submit", b"broadcast", b"generate", b"mine", b"set", b"abandon", b"priorit"];

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

#[cfg(feature = "evm")]
pub fn evm(bytes: &[u8]) {
    use chain::devnet::evm::EvmDevnet;

    fn new() -> EvmDevnet {
        let mut model = EvmDevnet::new(Default::default());
        model.mine(3, NOW);
        model
    }

    thread_local! {
        static KEPT: RefCell<EvmDevnet> = RefCell::new(new());
    }

    KEPT.with(|kept| answer(kept, new, bytes));
}

#[cfg(feature = "tron")]
pub fn tron(bytes: &[u8]) {
    use chain::devnet::tron::TronDevnet;

    fn new() -> TronDevnet {
        let mut model = TronDevnet::new(Default::default());
        model.mine(3, NOW);
        model
    }

    thread_local! {
        static KEPT: RefCell<TronDevnet> = RefCell::new(new());
    }

    KEPT.with(|kept| answer(kept, new, bytes));
}

#[cfg(feature = "bitcoin")]
pub fn bitcoin(bytes: &[u8]) {
    use chain::devnet::bitcoin::BitcoinDevnet;

    fn new() -> BitcoinDevnet {
        let mut model = BitcoinDevnet::new(Default::default());
        model.mine(3, NOW);
        model
    }

    thread_local! {
        static KEPT: RefCell<BitcoinDevnet> = RefCell::new(new());
    }

    KEPT.with(|kept| answer(kept, new, bytes));
}
