//! Coins that contracts move. Only a trace shows them, as geth's `callTracer` writes it.
//!
//! A trace nests as deep as the calls did, up to 1,024 calls, and anybody may pay for a transaction that does. A reader
//! that calls itself would refuse it (serde_json stops at 128 levels) and with it the whole block, so this one does not:
//! it walks the text once, with a stack of its own.

use alloy_primitives::{Address as Account, B256, U256};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::wire::{FromHex, Hex};

/// One transaction of a block's trace. Old nodes do not say which.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Traced {
    pub tx_hash: Option<Hex<B256>>,
    pub result: Box<RawValue>,
}

/// A coin that moved below the top of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moved {
    /// Counted from 1 among what moved, parents before children. Frames that moved nothing do not count: nodes differ in
    /// whether they show precompiles and failed calls, and the same payment must have the same place for all of them.
    pub position: u32,
    pub from: Account,
    pub to: Account,
    pub amount: U256,
}

#[derive(Clone, Copy, Debug, Default)]
struct Frame {
    parent: Option<usize>,
    /// It carries coin: `CALL`, `CREATE`, `CREATE2`, `SELFDESTRUCT`.
    carries: bool,
    /// geth gives a `DELEGATECALL` its caller's value, and `CALLCODE` pays the caller itself.
    typed: bool,
    from: Option<Account>,
    to: Option<Account>,
    value: Option<U256>,
    failed: bool,
}

enum Level {
    Frame(usize),
    Calls(usize),
    Other,
}

/// What moved below the top frame, without anything in or below a frame that failed. `None`: not a trace.
pub(super) fn moved(text: &str) -> Option<Vec<Moved>> {
    let frames = frames(text)?;
    let mut undone: Vec<bool> = Vec::with_capacity(frames.len());
    let mut moved = Vec::new();
    for frame in &frames {
        let failed = frame.failed || frame.parent.is_some_and(|parent| undone[parent]);
        undone.push(failed);
        if !frame.typed {
            return None;
        }
        if failed || !frame.carries || frame.parent.is_none() {
            continue;
        }
        let amount = frame.value.unwrap_or_default();
        if let Some(to) = frame.to.filter(|_| !amount.is_zero()) {
            let position = u32::try_from(moved.len()).ok()?.checked_add(1)?;
            // All tracers say who pays. Without it a spend would be lost, so it is no trace.
            moved.push(Moved { position, from: frame.from?, to, amount });
        }
    }
    Some(moved)
}

/// The frames, parents before children. The text is JSON already: whoever read the answer has checked that.
fn frames(text: &str) -> Option<Vec<Frame>> {
    let bytes = text.as_bytes();
    let mut frames: Vec<Frame> = Vec::new();
    let mut levels: Vec<Level> = Vec::new();
    let mut key: &str = "";
    let mut after_colon = false;
    let mut at = 0;
    // A list of `{}` or a tower of brackets would take thirty times its own length. A frame has its type at least, and
    // calls are 1,024 deep at most.
    let (most_frames, most_levels) = (bytes.len() / 12 + 1, 16_384);
    while let Some(byte) = bytes.get(at) {
        at += 1;
        if frames.len() > most_frames || levels.len() > most_levels {
            return None;
        }
        match byte {
            b'{' => {
                let parent = match levels.last() {
                    None if frames.is_empty() => Some(None),
                    Some(Level::Calls(parent)) => Some(Some(*parent)),
                    None | Some(Level::Frame(_) | Level::Other) => None,
                };
                levels.push(match parent {
                    Some(parent) => {
                        frames.push(Frame { parent, ..Frame::default() });
                        Level::Frame(frames.len() - 1)
                    }
                    None => Level::Other,
                });
                after_colon = false;
            }
            b'[' => {
                levels.push(match levels.last() {
                    Some(Level::Frame(frame)) if key == "calls" => Level::Calls(*frame),
                    _ => Level::Other,
                });
                after_colon = false;
            }
            b'}' | b']' => {
                levels.pop()?;
                after_colon = false;
            }
            b':' => after_colon = true,
            b',' => after_colon = false,
            b'"' => {
                let end = closing_quote(bytes, at)?;
                let string = text.get(at..end)?;
                at = end + 1;
                match levels.last() {
                    Some(Level::Frame(frame)) if after_colon => frames.get_mut(*frame)?.set(key, string)?,
                    Some(Level::Frame(_)) => key = string,
                    _ => {}
                }
            }
            _ => {}
        }
    }
    (levels.is_empty() && !frames.is_empty()).then_some(frames)
}

fn closing_quote(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match bytes.get(at)? {
            b'"' => return Some(at),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

impl Frame {
    fn set(&mut self, key: &str, text: &str) -> Option<()> {
        match key {
            "type" => {
                self.typed = true;
                self.carries = matches!(text, "CALL" | "CREATE" | "CREATE2" | "SELFDESTRUCT");
            }
            "from" => self.from = Some(Account::from_hex(text)?),
            "to" => self.to = Some(Account::from_hex(text)?),
            "value" => self.value = Some(U256::from_hex(text)?),
            // geth leaves it out when there is none.
            "error" => self.failed = !text.is_empty(),
            _ => {}
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAYER: u8 = 0xaa;

    fn account(number: u8) -> String {
        format!("0x{}", format!("{number:02x}").repeat(20))
    }

    fn frame(kind: &str, to: u8, value: u64, more: &str) -> String {
        let (from, to) = (account(PAYER), account(to));
        format!(
            r#"{{"from":"{from}","type":"{kind}","to":"{to}","value":"{value:#x}","input":"0xab","gas":"0x1"{more}}}"#
        )
    }

    fn check(text: &str, expected: &[(u32, u8, u64)]) {
        let expected: Vec<Moved> = expected
            .iter()
            .map(|(position, to, value)| Moved {
                position: *position,
                from: Account::from([PAYER; 20]),
                to: Account::from([*to; 20]),
                amount: U256::from(*value),
            })
            .collect();
        assert_eq!(moved(text), Some(expected), "{text}");
    }

    #[test]
    fn the_top_is_not_told_twice() {
        check(&frame("CALL", 1, 5, ""), &[]);
    }

    #[test]
    fn only_frames_that_carry_coin_count_but_all_are_numbered() {
        let kinds = ["STATICCALL", "DELEGATECALL", "CALLCODE", "CALL", "CREATE2", "SELFDESTRUCT"];
        let calls: Vec<String> = kinds.iter().map(|kind| frame(kind, 2, 7, "")).collect();
        let text = frame("CALL", 1, 5, &format!(r#","calls":[{}]"#, calls.join(",")));
        check(&text, &[(1, 2, 7), (2, 2, 7), (3, 2, 7)]);
    }

    #[test]
    fn nothing_below_a_failed_frame_has_happened() {
        let inner = frame("CALL", 3, 7, "");
        let undone = frame("CALL", 2, 7, &format!(r#","calls":[{inner}],"error":"execution reverted""#));
        let kept = frame("CALL", 4, 9, "");
        let text = frame("CALL", 1, 5, &format!(r#","calls":[{undone},{kept}]"#));
        check(&text, &[(1, 4, 9)]);
        let reverted = frame("CALL", 1, 5, &format!(r#","error":"out of gas","calls":[{kept}]"#));
        check(&reverted, &[]);
    }

    #[test]
    fn a_caught_failure_does_not_undo_its_parent() {
        let undone = frame("CALL", 3, 7, r#","error":"execution reverted""#);
        let text =
            frame("CALL", 1, 5, &format!(r#","calls":[{}]"#, frame("CALL", 2, 6, &format!(r#","calls":[{undone}]"#))));
        check(&text, &[(1, 2, 6)]);
    }

    #[test]
    fn text_that_looks_like_a_frame_is_none() {
        let words = r#","revertReason":"},{\"type\":\"CALL\",\\","logs":[{"to":"0x1","value":"x","topics":["calls"]}]"#;
        check(&frame("CALL", 1, 5, &format!(r#"{words},"calls":[{}]"#, frame("CALL", 2, 6, words))), &[(1, 2, 6)]);
    }

    #[test]
    fn a_trace_of_1024_calls_is_read() {
        let mut text = frame("CALL", 9, 3, "");
        for _ in 0..100_000 {
            text = frame("CALL", 1, 0, &format!(r#","calls":[{text}]"#));
            if text.len() > 300_000 {
                break;
            }
        }
        let moved = moved(&text).expect("a trace");
        assert_eq!(moved.len(), 1);
        assert_eq!((moved[0].position, moved[0].amount), (1, U256::from(3)));
    }

    #[test]
    fn what_is_no_trace_is_refused() {
        let bad_value = frame("CALL", 1, 5, &format!(r#","calls":[{}]"#, frame("CALL", 2, 6, "").replace("0x6", "6")));
        let nobody_pays =
            frame("CALL", 1, 5, &format!(r#","calls":[{}]"#, frame("CALL", 2, 6, "").replace("from", "by")));
        assert_eq!(moved(&nobody_pays), None);
        for bad in ["null", "[]", "{}", "", "{", r#"{"type":"CALL""#, "\"", "\"\\", &bad_value] {
            assert_eq!(moved(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in r#"[\[\]{}:,"\\a-z0 ]*"#) {
            drop(moved(&text));
        }
    }
}
