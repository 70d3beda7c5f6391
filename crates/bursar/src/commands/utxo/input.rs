//! Text to hashes, outpoints, scripts and addresses. What is wrong is said in the words of the command line.

use std::time::Duration;

use custody::bitcoin::network_of;
use domain::Timestamp;
use store::utxo::{Hash, LockId, Network, OutPoint};
use terminal::failure::Failure;
use tx::bitcoin::address;

pub fn hash(text: &str) -> Result<Hash, String> {
    text.parse().map_err(|_| format!("a hash is 64 hexadecimal digits, as a node prints it; this has {}", digits(text)))
}

pub fn outpoint(text: &str) -> Result<OutPoint, String> {
    let form = "an outpoint is the transaction's hash, a colon and the output's number, such as 9f64…22:0";
    let (made_by, index) = text.rsplit_once(':').ok_or(form)?;
    let index = index.parse().map_err(|_| form)?;
    Ok(OutPoint { hash: hash(made_by)?, index })
}

pub fn lock(text: &str) -> Result<LockId, String> {
    let parsed: Result<Hash, _> = text.parse();
    parsed.map(|hash| LockId(hash.0)).map_err(|_| {
        format!("a lock is 64 hexadecimal digits, as `lease take` has printed it; this has {}", digits(text))
    })
}

fn digits(text: &str) -> String {
    match text.chars().find(|letter| !letter.is_ascii_hexdigit()) {
        Some(odd) => format!("a {odd:?} in it"),
        None => text.chars().count().to_string(),
    }
}

/// The longest that the database takes.
const LONGEST_SCRIPT: usize = 520;

pub fn script(text: &str) -> Result<Vec<u8>, String> {
    let form = "an output script is an even number of hexadecimal digits, 2 to 1040 of them";
    let fits = text.len().is_multiple_of(2) && (2..=2 * LONGEST_SCRIPT).contains(&text.len());
    if !fits || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(form.to_owned());
    }
    let pairs = (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16));
    let bytes: Vec<u8> = pairs.collect::<Result<_, _>>().map_err(|_| form.to_owned())?;
    let script = bitcoin::Script::from_bytes(&bytes);
    if script.instructions().any(|one| one.is_err()) {
        return Err("it ends in the middle of something; copy all of it".to_owned());
    }
    if script.is_op_return() {
        return Err("nobody can spend what pays it".to_owned());
    }
    Ok(bytes)
}

/// A name or a label: something that can be read, and that does nothing to a terminal.
pub fn readable(text: &str) -> Result<String, String> {
    // Some are no controls by their class, and turn text round all the same.
    let turns =
        |letter: char| matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if text.chars().any(|letter| letter.is_control() || turns(letter)) {
        Err("write it without control characters".to_owned())
    } else if text.chars().all(char::is_whitespace) && !text.is_empty() {
        Err("write something that can be seen".to_owned())
    } else {
        Ok(text.to_owned())
    }
}

pub fn name(text: &str) -> Result<String, String> {
    let fits = (1..=64).contains(&text.chars().count()) && text.trim() == text;
    let readable = readable(text)?;
    if fits { Ok(readable) } else { Err("a name has 1 to 64 characters, with no space at its ends".to_owned()) }
}

pub fn network(text: &str) -> Result<Network, String> {
    let known = || Network::ALL.iter().map(|network| network.name()).collect::<Vec<_>>().join(", ");
    Network::of_name(text).ok_or_else(|| format!("the networks are {}", known()))
}

/// The script that pays an address of the network.
pub fn script_of(text: &str, on: Network) -> Result<Vec<u8>, Failure> {
    let parsed = address::parse(text, network_of(on)).map_err(|error| {
        let hint = format!("copy it again from its owner; the wallet is on {}", on.name());
        Failure::bad_input(error.code(), format!("{text:?}: {error}"), hint)
    })?;
    Ok(parsed.script_pubkey().into_bytes())
}

pub fn end_of(now: Timestamp, time: Duration) -> Timestamp {
    now.plus_micros(i64::try_from(time.as_micros()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_what_was_written() {
        let text = "9f".repeat(32);
        assert_eq!(hash(&text).unwrap().to_string(), text);
        assert_eq!(outpoint(&format!("{text}:4294967295")).unwrap().to_string(), format!("{text}:4294967295"));
        assert_eq!(lock(&text).unwrap().0, [0x9f; 32]);
        assert_eq!(script("0001fF").unwrap(), [0, 1, 0xff]);
    }

    #[test]
    fn what_is_wrong_is_said() {
        for bad in ["", "9f", &"9g".repeat(32), &"9f".repeat(33), &"é".repeat(64)] {
            assert!(hash(bad).is_err() && lock(bad).is_err(), "{bad:?}");
        }
        let text = "9f".repeat(32);
        for bad in ["", ":", &text, &format!("{text}:"), &format!("{text}:-1"), &format!("{text}:4294967296"), "9f:0"] {
            assert!(outpoint(bad).is_err(), "{bad:?}");
        }
        for bad in ["", "0", "0g", "+1", "é", &"00".repeat(521), "001428b120f4", "6a00"] {
            assert!(script(bad).is_err(), "{bad:?}");
        }
        for bad in ["", " hot", "a\nb", "\u{1b}[31m", "a\u{202e}b", &"x".repeat(65)] {
            assert!(name(bad).is_err(), "{bad:?}");
        }
        assert!(network("main").unwrap_err().starts_with("the networks are mainnet, "));
        assert_eq!([network("mainnet"), network("bitcoin")], [Ok(Network::Bitcoin), Ok(Network::Bitcoin)]);
    }
}
