//! What ethers makes of the same transactions and addresses: `tests/vectors/evm`.

use serde_json::Value;
use tx::evm::address::parse;
use tx::evm::{attach, build, decode_signed, decode_unsigned};
use tx::{Address, BadAddress, BuildError, Coin, DecodeError, Draft, Fee, Payment, Slot};

fn read(name: &str) -> Value {
    let path = format!("{}/tests/vectors/evm/{name}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_slice(&std::fs::read(path).expect("the vectors")).expect("JSON")
}

fn text<'a>(case: &'a Value, field: &str) -> &'a str {
    case[field].as_str().unwrap_or_else(|| panic!("no {field} in {case}"))
}

fn number<T: std::str::FromStr>(case: &Value, field: &str) -> T {
    text(case, field).parse().unwrap_or_else(|_| panic!("no number {field} in {case}"))
}

fn bytes(case: &Value, field: &str) -> Vec<u8> {
    alloy_primitives::hex::decode(text(case, field)).expect("hexadecimal")
}

fn address(case: &Value, field: &str) -> Address {
    Address::Evm(text(case, field).parse().expect("an address"))
}

#[test]
fn we_make_and_read_the_same_bytes_as_ethers() {
    let cases = read("vectors");
    let cases = cases.as_array().expect("a list");
    assert!(cases.len() > 90);
    let (mut built, mut listed) = (0, 0);
    for case in cases {
        let name = text(case, "name");
        let chain_id = number(case, "chain_id");
        let fee = match case["type"].as_u64() {
            Some(0 | 1) => Fee::Legacy { gas_price: number(case, "gas_price") },
            _ => Fee::Eip1559 {
                max_fee: number(case, "max_fee_per_gas"),
                max_priority: number(case, "max_priority_fee_per_gas"),
            },
        };
        let coin = match text(case, "kind") {
            "native" => Coin::Native,
            _ => Coin::Token(address(case, "token")),
        };
        let payment = Payment { to: address(case, "recipient"), coin, amount: number(case, "amount") };
        let draft = Draft::Evm {
            from: address(case, "from"),
            nonce: number(case, "nonce"),
            payment: payment.clone(),
            gas_limit: number(case, "gas_limit"),
            fee,
        };
        let (unsigned, signed) = (bytes(case, "unsigned"), bytes(case, "signed"));
        match build(&draft, chain_id) {
            // We never build EIP-2930's form. It is read all the same, and means what the older form means.
            Ok(ours) if case["type"] == 1 => {
                assert_eq!(ours.meaning, decode_unsigned(&unsigned, chain_id).expect(name), "{name}");
                listed += 1;
            }
            Ok(ours) => {
                assert_eq!(ours.bytes, unsigned, "{name}");
                built += 1;
            }
            Err(why) => {
                let nothing = text(case, "amount") == "0" && why == BuildError::NothingToPay;
                assert!(nothing || why == BuildError::AmountTooLarge, "{name}: {why}");
            }
        }
        let meaning = decode_unsigned(&unsigned, chain_id).expect(name);
        assert_eq!((&meaning.payments[..], meaning.fee), (&[payment][..], fee), "{name}");
        assert_eq!(meaning.slot, Slot::Nonce(number(case, "nonce")), "{name}");
        assert_eq!(alloy_primitives::keccak256(&unsigned).to_string(), text(case, "sighash"), "{name}");

        let signature = [bytes(case, "r"), bytes(case, "s")].concat().try_into().expect("64 bytes");
        let odd = case["y_parity"].as_u64() == Some(1);
        assert_eq!(attach(&unsigned, &signature, odd).expect(name), signed, "{name}");
        let meaning = decode_signed(&signed, chain_id).expect(name);
        assert_eq!(meaning.from, Some(address(case, "from")), "{name}");
        assert_eq!(meaning.hash.map(|hash| format!("0x{hash}")).as_deref(), Some(text(case, "hash")), "{name}");
        assert_eq!(decode_signed(&signed, chain_id + 1), Err(DecodeError::OtherNetwork), "{name}");
    }
    assert!(built > 80 && listed > 30, "{built} {listed}");
}

#[test]
fn what_is_no_plain_transfer_is_refused() {
    let cases = read("refused");
    for case in cases["transactions"].as_array().expect("a list") {
        let name = text(case, "name");
        let chain_id = number(case, "chain_id");
        // A client for chain 0 is no client: the case is read by one of another chain.
        let ours = if chain_id == 0 { 56 } else { chain_id };
        for read in [decode_unsigned(&bytes(case, "unsigned"), ours), decode_signed(&bytes(case, "signed"), ours)] {
            assert!(matches!(read, Err(DecodeError::NotUnderstood(_) | DecodeError::OtherNetwork)), "{name}: {read:?}");
        }
    }
    for case in cases["broken"].as_array().expect("a list") {
        let read = decode_signed(&bytes(case, "signed"), 56);
        let expected = matches!(read, Err(DecodeError::Malformed(_) | DecodeError::BadSignature));
        assert!(expected, "{}: {read:?}", text(case, "name"));
    }
}

#[test]
fn addresses_are_judged_as_the_vectors_say() {
    for case in read("addresses").as_array().expect("a list") {
        let input = text(case, "input");
        let parsed = parse(input).map(Address::Evm);
        if case["valid"] == true && !input.trim_start_matches("0x").bytes().all(|byte| byte == b'0') {
            assert_eq!(parsed.expect(input).to_string(), text(case, "address"));
        } else if case["valid"] == true {
            assert_eq!(parsed, Err(BadAddress::Unspendable));
        } else {
            assert!(parsed.is_err(), "{input}");
        }
    }
}
