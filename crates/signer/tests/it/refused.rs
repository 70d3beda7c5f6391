//! What is not signed, whoever approved it.

use domain::RawAmount;
use signer::keys::{AddressPath, Keyring, Purpose};
use signer::{Approved, SignerChain};
use tx::{Address, Coin, Draft, Fee, Payment};

use crate::made::{ABANDON, JUNK, id, keyring, secret, some_chain};

const BSC: SignerChain = SignerChain::Evm { chain_id: 56 };

fn here() -> Keyring {
    keyring(vec![
        secret("hot-evm", Purpose::Hot, "evm", 0, JUNK),
        secret("hot-tron", Purpose::Hot, "tron", 0, JUNK),
        secret("hot-btc", Purpose::Hot, "bitcoin-regtest", 0, JUNK),
        secret("other", Purpose::Hot, "evm", 0, ABANDON),
    ])
}

fn index(number: u32) -> AddressPath {
    AddressPath::of_number(number.into()).expect("a small index")
}

fn payment(to: Address, amount: u64) -> Payment {
    Payment { to, coin: Coin::Native, amount: RawAmount::from_u256(ruint::aliases::U256::from(amount)) }
}

fn evm(keyring: &Keyring) -> Vec<u8> {
    let from = keyring.address(&id("hot-evm"), index(0)).expect("one");
    let to = keyring.address(&id("other"), index(0)).expect("one");
    let fee = Fee::Legacy { gas_price: 5 };
    let draft = Draft::Evm { from, nonce: 3, payment: payment(to, 10), gas_limit: 21_000, fee };
    tx::evm::build(&draft, 56).expect("a draft").bytes
}

fn bitcoin(keyring: &Keyring, inputs: &[u32]) -> Vec<u8> {
    let group = id("hot-btc");
    let script = |number: u32| keyring.address(&group, index(number)).expect("one").script_bytes().expect("Bitcoin");
    let input = |number: &u32| tx::Input {
        transaction: tx::TxHash([7; 32]),
        index: *number,
        amount_sat: 50_000,
        script: script(*number),
        sequence: 0xffff_fffd,
    };
    let payments = vec![payment(keyring.address(&group, index(9)).expect("one"), 40_000)];
    let draft = Draft::Bitcoin { inputs: inputs.iter().map(input).collect(), payments, lock_time: 0 };
    tx::bitcoin::build(&draft, bitcoin::Network::Regtest).expect("a draft").bytes
}

fn code(keyring: &Keyring, chain: SignerChain, group: &str, paths: &[u32], payload: &[u8]) -> Result<(), &'static str> {
    let indexes = paths.iter().map(|number| u64::from(*number)).collect();
    let approved = Approved::for_tests(some_chain(), chain, id(group), indexes, payload.to_vec());
    keyring.sign(&approved).map(|_| ()).map_err(|error| error.code())
}

#[test]
fn only_the_right_group_path_and_chain_sign() {
    let keyring = here();
    let payload = evm(&keyring);
    assert_eq!(code(&keyring, BSC, "hot-evm", &[0], &payload), Ok(()));
    for (chain, group, paths, why) in [
        (BSC, "nobody", &[0][..], "SIGNER_GROUP_UNKNOWN"),
        (BSC, "hot-tron", &[0], "SIGNER_KEY_MISMATCH"),
        (BSC, "hot-btc", &[0], "SIGNER_KEY_MISMATCH"),
        (BSC, "hot-evm", &[], "SIGNER_KEY_MISMATCH"),
        (BSC, "hot-evm", &[0, 1], "SIGNER_KEY_MISMATCH"),
        (SignerChain::Evm { chain_id: 1 }, "hot-evm", &[0], "SIGNER_PAYLOAD_REFUSED"),
        (SignerChain::Tron, "hot-evm", &[0], "SIGNER_KEY_MISMATCH"),
        (SignerChain::Tron, "hot-tron", &[0], "SIGNER_PAYLOAD_REFUSED"),
        (SignerChain::Bitcoin(bitcoin::Network::Regtest), "hot-btc", &[0], "SIGNER_PAYLOAD_REFUSED"),
        (SignerChain::Bitcoin(bitcoin::Network::Bitcoin), "hot-btc", &[0], "SIGNER_KEY_MISMATCH"),
    ] {
        assert_eq!(code(&keyring, chain, group, paths, &payload), Err(why), "{chain:?} {group} {paths:?}");
    }
}

/// An EVM payload does not say who pays, so any key could sign it. TRON's and Bitcoin's do.
#[test]
fn another_key_than_the_payer_s_does_not_sign() {
    let keyring = here();
    let regtest = SignerChain::Bitcoin(bitcoin::Network::Regtest);
    let two = bitcoin(&keyring, &[0, 1]);
    assert_eq!(code(&keyring, regtest, "hot-btc", &[0, 1], &two), Ok(()));
    for paths in [&[1, 0][..], &[0, 2], &[0], &[0, 1, 2], &[]] {
        assert_eq!(code(&keyring, regtest, "hot-btc", paths, &two), Err("SIGNER_KEY_MISMATCH"), "{paths:?}");
    }
    let from = keyring.address(&id("hot-tron"), index(0)).expect("one");
    let to = keyring.address(&id("hot-tron"), index(5)).expect("one");
    let mut hash = [9; 32];
    hash[..8].copy_from_slice(&1_234_u64.to_be_bytes());
    let draft = Draft::Tron {
        from,
        payment: payment(to, 10),
        fee_limit: 0,
        reference: tx::BlockRef { height: 1_234, hash: tx::BlockHash(hash) },
        created: domain::Timestamp::from_micros(1_700_000_000_000_000),
        expires: domain::Timestamp::from_micros(1_700_000_060_000_000),
    };
    let payload = tx::tron::transaction::build(&draft).expect("a draft").bytes;
    assert_eq!(code(&keyring, SignerChain::Tron, "hot-tron", &[0], &payload), Ok(()));
    assert_eq!(code(&keyring, SignerChain::Tron, "hot-tron", &[1], &payload), Err("SIGNER_KEY_MISMATCH"));
}

/// Every byte of a payload, changed in turn: it is refused, or it is another payment that policy would have to allow; never is
/// something signed that `tx` does not read.
#[test]
fn bytes_that_are_not_understood_are_not_signed() {
    let keyring = here();
    let payload = evm(&keyring);
    let mut refused = 0;
    for at in 0..payload.len() {
        let mut changed = payload.clone();
        changed[at] ^= 0x81;
        let understood = tx::evm::decode_unsigned(&changed, 56).is_ok();
        assert_eq!(code(&keyring, BSC, "hot-evm", &[0], &changed).is_ok(), understood, "byte {at}");
        refused += u32::from(!understood);
    }
    assert!(refused > 5, "{refused}");
    for bytes in [&[][..], &[0; 32], &payload[1..], &[&payload[..], &[0]].concat()] {
        assert_eq!(code(&keyring, BSC, "hot-evm", &[0], bytes), Err("SIGNER_PAYLOAD_REFUSED"));
    }
}
