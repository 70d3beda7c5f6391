//! The decision and the keys together: what is approved is signed by the wallet that was asked for, and by nothing else.

use signer::keys::{Family, GroupSecret, Keyring, Mnemonic, Purpose};
use signer::{Addresses, Authorizer, Verdict};
use tx::Address;

use crate::world::*;

#[test]
fn what_is_approved_is_signed_by_the_wallet_that_was_asked_for() {
    let words = "test test test test test test test test test test test junk";
    let secret = GroupSecret {
        id: group("hot-bsc"),
        purpose: Purpose::Hot,
        family: Family::Evm,
        account: 0,
        mnemonic: Mnemonic::parse(words).unwrap(),
    };
    let keys = Keyring::of(vec![secret]).unwrap();
    let first = Addresses::address(&keys, &group("hot-bsc"), 0).unwrap();
    assert_eq!(first.to_string(), "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266", "anvil's first account");
    assert_eq!(Addresses::address(&keys, &group("hot-tron"), 0), None);
    let folder = crate::faulty::FaultyFolder::new(1);
    let mut signer = Authorizer::open(folder, None, after(0)).unwrap();
    let text = policy(1);
    signer.apply_policy(text.as_bytes(), &signed(&text, &["ada", "ben"]), after(0)).unwrap();
    let request = evm(1, 4, 900).request("a");
    let mut signed = Vec::new();
    for _ in 0..2 {
        let verdicts = signer.decide(std::slice::from_ref(&request), after(0), &keys).unwrap().verdicts;
        let [Verdict::Approved { approved, .. }] = &verdicts[..] else { panic!("{verdicts:?}") };
        signed.push(keys.sign(approved).unwrap());
    }
    assert_eq!(signed[0], signed[1], "asked again, the same bytes");
    let meaning = tx::evm::decode_signed(&signed[0].bytes, CHAIN_ID).unwrap();
    assert_eq!(meaning.from, Some(first.clone()));
    assert_eq!(&meaning.payments[0], request.intents[0].payment().unwrap());
    assert!(matches!(first, Address::Evm(_)));
}
