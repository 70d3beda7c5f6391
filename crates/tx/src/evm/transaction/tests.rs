use proptest::prelude::*;
use secp256k1::SecretKey;

use super::*;

const CHAIN: u64 = 56;

fn key() -> SecretKey {
    SecretKey::from_slice(&[7; 32]).expect("a key")
}

fn sign(unsigned: &[u8]) -> ([u8; 64], bool) {
    let digest = Message::from_digest(keccak256(unsigned).0);
    let (point, bytes) = SECP256K1.sign_ecdsa_recoverable(&digest, &key()).serialize_compact();
    (bytes, point.to_i32() % 2 == 1)
}

fn evm(byte: u8) -> Address {
    Address::Evm(Account::repeat_byte(byte))
}

fn draft(coin: Coin, amount: u64, fee: Fee) -> Draft {
    let payment = Payment { to: evm(2), coin, amount: RawAmount::from_u256(U256::from(amount)) };
    Draft::Evm { from: evm(1), nonce: 3, payment, gas_limit: 60_000, fee }
}

const LEGACY: Fee = Fee::Legacy { gas_price: 5 };

fn any_draft() -> impl Strategy<Value = Draft> {
    let coin = prop_oneof![
        Just(Coin::Native),
        any::<[u8; 20]>().prop_map(|token| Coin::Token(Address::Evm(Account::from(token)))),
    ];
    let fee = prop_oneof![
        any::<u128>().prop_map(|gas_price| Fee::Legacy { gas_price }),
        any::<(u128, u128)>()
            .prop_map(|(one, other)| Fee::Eip1559 { max_fee: one.max(other), max_priority: one.min(other) }),
    ];
    let limbs = prop_oneof![any::<[u64; 4]>(), any::<u64>().prop_map(|low| [low, 0, 0, 0])];
    (any::<[u8; 20]>(), coin, limbs, fee, any::<u64>(), LEAST_GAS..).prop_map(|(to, coin, limbs, fee, nonce, gas)| {
        let amount = RawAmount::from_u256(U256::from_limbs(limbs));
        let payment = Payment { to: Address::Evm(Account::from(to)), coin, amount };
        Draft::Evm { from: evm(1), nonce, payment, gas_limit: gas, fee }
    })
}

/// Reads a text like `0x…` of the test.
fn bytes(text: &str) -> Vec<u8> {
    alloy_primitives::hex::decode(text).expect("hexadecimal")
}

proptest! {
    #[test]
    fn what_is_built_is_read_as_drafted(draft in any_draft()) {
        let Draft::Evm { nonce, ref payment, gas_limit, fee, .. } = draft else { unreachable!() };
        if let Ok(unsigned) = build(&draft, CHAIN) {
            let mut meaning = decode_unsigned(&unsigned.bytes, CHAIN).expect("we built it");
            prop_assert_eq!(&meaning, &unsigned.meaning);
            prop_assert_eq!(&meaning.payments, &vec![payment.clone()]);
            prop_assert_eq!(meaning.slot.clone(), Slot::Nonce(nonce));
            prop_assert_eq!(meaning.fee, fee);
            prop_assert_eq!(meaning.most_fee, most_fee(gas_limit, fee).map(RawAmount::from_u256));
            prop_assert_eq!(meaning.chain_id, Some(CHAIN));
            prop_assert_eq!(decode_unsigned(&unsigned.bytes, CHAIN + 1), Err(DecodeError::OtherNetwork));

            let (signature, odd) = sign(&unsigned.bytes);
            let signed = attach(&unsigned.bytes, &signature, odd).expect("a signature");
            meaning.from = Some(Address::Evm(Account::from(account_of(&key().public_key(SECP256K1)))));
            meaning.hash = Some(TxHash(keccak256(&signed).0));
            prop_assert_eq!(decode_signed(&signed, CHAIN), Ok(meaning));
            prop_assert!(decode_unsigned(&signed, CHAIN).is_err());
            prop_assert!(decode_signed(&unsigned.bytes, CHAIN).is_err());
        } else {
            let amount = payment.amount.to_u256();
            let most = most_fee(gas_limit, fee).expect("ours");
            let beyond = payment.coin == Coin::Native && amount.checked_add(most).is_none();
            prop_assert!(beyond || amount.is_zero() || nonce == u64::MAX, "{:?}", draft);
        }
    }

    /// Whatever is read is written again the same: there is one form for one meaning.
    #[test]
    fn no_bytes_panic_and_a_changed_byte_changes_what_is_read(draft in any_draft(), at: prop::sample::Index, to: u8) {
        let Ok(unsigned) = build(&draft, CHAIN) else { return Ok(()) };
        let mut bytes = unsigned.bytes.clone();
        let at = at.index(bytes.len());
        prop_assume!(bytes[at] != to);
        bytes[at] = to;
        if let Ok(meaning) = decode_unsigned(&bytes, CHAIN) {
            // Gas is seen only through the most that it can cost; at a price of nothing it cannot be seen.
            prop_assert!(meaning != unsigned.meaning || meaning.most_fee == Some(RawAmount::ZERO));
        }
        drop(decode_signed(&bytes, CHAIN));
    }

    #[test]
    fn no_random_bytes_panic(bytes: Vec<u8>, kind in prop::sample::select(vec![0x02_u8, 0xc9, 0xf8, 0xf9, 0xff])) {
        drop(decode_unsigned(&bytes, CHAIN));
        drop(decode_signed(&bytes, CHAIN));
        let bytes = [vec![kind], bytes].concat();
        drop(decode_unsigned(&bytes, CHAIN));
        drop(decode_signed(&bytes, CHAIN));
        drop(attach(&bytes, &[1; 64], true));
    }
}

#[test]
fn a_draft_that_cannot_be_is_refused() {
    type Spoil = fn(&mut Draft);
    fn fields(draft: &mut Draft) -> (&mut Address, &mut u64, &mut Payment, &mut u64, &mut Fee) {
        let Draft::Evm { from, nonce, payment, gas_limit, fee } = draft else { unreachable!() };
        (from, nonce, payment, gas_limit, fee)
    }
    let tron = Address::Tron(crate::tron::TronAddress([1; 20]));
    let native = draft(Coin::Native, 1, LEGACY);
    assert!(build(&native, CHAIN).is_ok());
    let spoil: [(Spoil, BuildError); 10] = [
        (|draft| fields(draft).2.amount = RawAmount::ZERO, BuildError::NothingToPay),
        (|draft| fields(draft).2.amount = RawAmount::MAX, BuildError::AmountTooLarge),
        (|draft| fields(draft).2.to = evm(0), BuildError::Inconsistent("the zero address")),
        (
            |draft| *fields(draft).1 = u64::MAX,
            BuildError::Inconsistent("no account can use the highest nonce (EIP-2681)"),
        ),
        (|draft| *fields(draft).3 = 20_999, BuildError::Inconsistent("less gas than any transaction needs")),
        (
            |draft| *fields(draft).4 = Fee::Eip1559 { max_fee: 1, max_priority: 2 },
            BuildError::Inconsistent("a priority fee above the whole fee"),
        ),
        (|draft| *fields(draft).4 = Fee::PerKvb(1), BuildError::OtherChain),
        (|draft| *fields(draft).4 = Fee::FeeLimit(1), BuildError::OtherChain),
        (
            |draft| fields(draft).2.coin = Coin::Token(evm(2)),
            BuildError::Inconsistent("a token paid to its own contract is lost"),
        ),
        (
            |draft| fields(draft).2.coin = Coin::Token(evm(0)),
            BuildError::Inconsistent("a token paid to its own contract is lost"),
        ),
    ];
    for (spoil, why) in spoil {
        let mut bad = native.clone();
        spoil(&mut bad);
        assert_eq!(build(&bad, CHAIN).map(|_| ()), Err(why));
    }
    for place in 0..3 {
        let mut bad = native.clone();
        let (from, _, payment, _, _) = fields(&mut bad);
        match place {
            0 => *from = tron.clone(),
            1 => payment.to = tron.clone(),
            _ => payment.coin = Coin::Token(tron.clone()),
        }
        assert_eq!(build(&bad, CHAIN).map(|_| ()), Err(BuildError::OtherChain), "{place}");
    }
}

#[test]
fn what_does_more_than_pay_is_not_understood() {
    let call = |input: &[u8], value: u64| {
        let (to, value, input) =
            (TxKind::Call(Account::repeat_byte(7)), U256::from(value), Bytes::copy_from_slice(input));
        TxLegacy { chain_id: Some(CHAIN), nonce: 0, gas_price: 1, gas_limit: 60_000, to, value, input }
    };
    let good = call_data(Account::repeat_byte(2), U256::from(5));
    assert!(decode_unsigned(&call(&good, 0).encoded_for_signing(), CHAIN).is_ok());
    let mut dirty = good.clone();
    dirty[4] = 1;
    let mut approve = good.clone();
    approve[..4].copy_from_slice(&[0x09, 0x5e, 0xa7, 0xb3]);
    let creation = TxLegacy { to: TxKind::Create, ..call(&[], 1) };
    let everywhere = TxLegacy { chain_id: None, ..call(&[], 1) };
    for (name, bad) in [
        ("coin with a call", call(&good, 1)),
        ("a byte too many", call(&[&good[..], &[0]].concat(), 0)),
        ("a byte too few", call(&good[..67], 0)),
        ("a dirty address", call(&dirty, 0)),
        ("approve", call(&approve, 0)),
        ("data on a payment", call(&[1], 1)),
        ("creation", creation),
        ("no chain id", everywhere),
    ] {
        let read = decode_unsigned(&bad.encoded_for_signing(), CHAIN);
        assert!(matches!(read, Err(DecodeError::NotUnderstood(_))), "{name}: {read:?}");
    }
    for kind in [3, 4] {
        assert!(matches!(decode_unsigned(&[kind, 0xc0], CHAIN), Err(DecodeError::NotUnderstood(_))));
    }
    for bad in [&[][..], &[0], &[1], &[1, 0xc0], &[5, 0xc0], &[0x7f], &[0x80], &[0xc0], &[2], &[2, 0xc0], &[0xff; 9]] {
        assert!(matches!(decode_unsigned(bad, CHAIN), Err(DecodeError::Malformed(_))), "{bad:?}");
    }
}

#[test]
fn eip_155s_zeros_must_be_zeros() {
    let unsigned = build(&draft(Coin::Native, 1, LEGACY), CHAIN).expect("good").bytes;
    assert_eq!(unsigned[unsigned.len() - 2..], [0x80, 0x80]);
    for at in [1, 2] {
        let mut bad = unsigned.clone();
        let place = bad.len() - at;
        bad[place] = 1;
        assert!(matches!(decode_unsigned(&bad, CHAIN), Err(DecodeError::Malformed(_))));
    }
    let behind = [&unsigned[..], &[0]].concat();
    assert!(matches!(decode_unsigned(&behind, CHAIN), Err(DecodeError::Malformed(_))));
}

#[test]
fn only_the_low_form_of_a_signature_is_one() {
    for fee in [LEGACY, Fee::Eip1559 { max_fee: 9, max_priority: 1 }] {
        let unsigned = build(&draft(Coin::Native, 1, fee), CHAIN).expect("good").bytes;
        let (good, odd) = sign(&unsigned);
        let order = U256::from_be_slice(&secp256k1::constants::CURVE_ORDER);
        let mut high = good;
        let s = order - U256::from_be_slice(&good[32..]);
        high[32..].copy_from_slice(&s.to_be_bytes::<32>());
        let (mut no_r, mut no_s, mut big) = (good, good, good);
        no_r[..32].fill(0);
        no_s[32..].fill(0);
        big[..32].fill(0xff);
        for (name, bad, odd) in
            [("high s", high, !odd), ("r zero", no_r, odd), ("s zero", no_s, odd), ("r too large", big, odd)]
        {
            assert_eq!(attach(&unsigned, &bad, odd), Err(DecodeError::BadSignature), "{name}");
            let signature = Signature::new(U256::from_be_slice(&bad[..32]), U256::from_be_slice(&bad[32..]), odd);
            let signed = Body::read(&unsigned).expect("good").signed(&signature);
            assert_eq!(decode_signed(&signed, CHAIN), Err(DecodeError::BadSignature), "{name}");
        }
        let signed = attach(&unsigned, &good, odd).expect("good");
        let owner = decode_signed(&signed, CHAIN).expect("good").from;
        let other = attach(&unsigned, &good, !odd).expect("a signature of somebody");
        assert_ne!(decode_signed(&other, CHAIN).expect("good").from, owner);
        assert!(decode_signed(&[&signed[..], &[0]].concat(), CHAIN).is_err());
    }
}

/// EIP-155's own example.
#[test]
fn the_example_of_eip_155_is_reproduced() {
    let payment =
        Payment { to: evm(0x35), coin: Coin::Native, amount: RawAmount::from_u256(U256::from(10_u64.pow(18))) };
    let fee = Fee::Legacy { gas_price: 20_000_000_000 };
    let draft = Draft::Evm { from: evm(1), nonce: 9, payment, gas_limit: 21_000, fee };
    let unsigned = build(&draft, 1).expect("good").bytes;
    let expected = "0xec098504a817c800825208943535353535353535353535353535353535353535880de0b6b3a764000080018080";
    assert_eq!(unsigned, bytes(expected));
    let secret = SecretKey::from_slice(&[0x46; 32]).expect("a key");
    let digest = Message::from_digest(keccak256(&unsigned).0);
    let (point, signature) = SECP256K1.sign_ecdsa_recoverable(&digest, &secret).serialize_compact();
    let signed = attach(&unsigned, &signature, point.to_i32() % 2 == 1).expect("good");
    let expected = "0xf86c098504a817c800825208943535353535353535353535353535353535353535880de0b6b3a76400008025a028ef61340bd939bc2195fe537567866003e1a15d3c71ff63e1590620aa636276a067cbe9d8997f761aecb703304b3800ccf555c9f3dc64214b297fb1966a3b6d83";
    assert_eq!(signed, bytes(expected));
    let from = decode_signed(&signed, 1).expect("good").from.expect("signed");
    assert_eq!(from.to_string(), "0x9d8A62f656a8d1615C1294fd71e9CFb3E4855A4F");
}
