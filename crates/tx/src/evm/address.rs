//! Addresses as people type them, and as keys have them.

use alloy_primitives::{Address as Account, hex};

use crate::address::BadAddress;

/// `0x` and 40 digits: all small or all capital, which says nothing, or mixed as EIP-55 wants it, which is a checksum.
pub fn parse(text: &str) -> Result<Account, BadAddress> {
    let digits = text.strip_prefix("0x").ok_or(BadAddress::Malformed)?;
    if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(BadAddress::Malformed);
    }
    let mut account = [0; 20];
    if digits.len() != 2 * account.len() {
        return Err(BadAddress::Length);
    }
    hex::decode_to_slice(digits, &mut account).map_err(|_| BadAddress::Malformed)?;
    let account = Account::from(account);
    let small = digits.bytes().any(|byte| byte.is_ascii_lowercase());
    let capital = digits.bytes().any(|byte| byte.is_ascii_uppercase());
    if small && capital && account.to_checksum(None) != text {
        return Err(BadAddress::Checksum);
    }
    if account.is_zero() {
        return Err(BadAddress::Unspendable);
    }
    Ok(account)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GOOD: &str = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed";

    #[test]
    fn a_text_is_an_address_or_says_why_not() {
        let capitals = format!("0x{}", GOOD[2..].to_uppercase());
        for good in [GOOD, &GOOD.to_lowercase(), &capitals] {
            assert_eq!(parse(good).expect(good).to_checksum(None), GOOD);
        }
        for (bad, why) in [
            ("", BadAddress::Malformed),
            ("0x", BadAddress::Length),
            (&GOOD[2..], BadAddress::Malformed),
            (&format!("0X{}", &GOOD[2..]), BadAddress::Malformed),
            (&GOOD[..41], BadAddress::Length),
            (&format!("{GOOD}0"), BadAddress::Length),
            (&format!("{}g", &GOOD[..41]), BadAddress::Malformed),
            (&format!(" {GOOD}"), BadAddress::Malformed),
            (&format!("{GOOD}\n"), BadAddress::Malformed),
            ("0x5AAeb6053F3E94C9b9A09f33669435E7Ef1BeAed", BadAddress::Checksum),
            ("0x5aAeb6053F3E94C9b9A09f33669435E7Ef2BeAed", BadAddress::Checksum),
            ("0x0000000000000000000000000000000000000000", BadAddress::Unspendable),
            ("TR7NHqjeKQxGTCi8q8ZY4pL8otSzgjLj6t", BadAddress::Malformed),
            (&format!("0x{}", "é".repeat(20)), BadAddress::Malformed),
        ] {
            assert_eq!(parse(bad), Err(why), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_can_be_read_and_a_changed_case_cannot(bytes: [u8; 20], at in 2_usize..42) {
            let account = Account::from(bytes);
            prop_assume!(!account.is_zero());
            let shown = account.to_checksum(None);
            prop_assert_eq!(parse(&shown), Ok(account));
            let mut flipped = shown.clone().into_bytes();
            flipped[at] ^= if flipped[at].is_ascii_alphabetic() { 0x20 } else { 0 };
            let flipped = String::from_utf8(flipped).expect("ASCII");
            let mixed = flipped[2..].bytes().any(|b| b.is_ascii_lowercase())
                && flipped[2..].bytes().any(|b| b.is_ascii_uppercase());
            if mixed && flipped != shown {
                prop_assert_eq!(parse(&flipped), Err(BadAddress::Checksum));
            }
        }

        #[test]
        fn no_text_panics(text in ".*") {
            if let Ok(account) = parse(&text) {
                prop_assert!(text.eq_ignore_ascii_case(&account.to_checksum(None)));
            }
        }
    }
}
