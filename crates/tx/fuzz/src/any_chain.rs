//! What every chain's readers must bear: any text as an address, any bytes as a transaction.

use tx::{Address, BadAddress, DecodeError, Meaning};

/// An address is shown as one text, which is that address.
pub fn address(bytes: &[u8], parse: impl Fn(&str) -> Result<Address, BadAddress>) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    if let Ok(address) = parse(text) {
        let shown = address.to_string();
        assert_eq!(parse(&shown).as_ref(), Ok(&address), "{text} is shown as {shown}");
        drop(address.script_bytes());
    }
}

pub fn unsigned(read: Result<Meaning, DecodeError>) {
    if let Ok(meaning) = read {
        assert!(!meaning.payments.is_empty(), "it pays nobody");
    }
}

pub fn signed(read: Result<Meaning, DecodeError>) {
    if let Ok(meaning) = read {
        assert!(!meaning.payments.is_empty(), "it pays nobody");
        assert!(meaning.hash.is_some(), "it is signed, so its hash is known");
    }
}
