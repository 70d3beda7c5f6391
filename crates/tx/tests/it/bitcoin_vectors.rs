//! What bitcoinjs-lib makes of the same transactions and addresses: `tests/vectors/bitcoin`.

use std::collections::BTreeMap;

use ::bitcoin::Network;
use base64::Engine as _;
use serde::Deserialize;
use tx::bitcoin::address::parse;
use tx::bitcoin::{decode_signed, decode_unsigned, finalize};

fn vectors<T: for<'a> Deserialize<'a>>(name: &str) -> T {
    let path = format!("{}/tests/vectors/bitcoin/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).expect("the vectors are in the tree");
    serde_json::from_str(&text).expect("JSON")
}

#[derive(Deserialize)]
struct AddressVectors {
    good: Vec<GoodAddress>,
    bad: Vec<BadAddress>,
}

#[derive(Deserialize)]
struct GoodAddress {
    input: String,
    networks: Vec<String>,
    script: String,
}

#[derive(Deserialize)]
struct BadAddress {
    input: String,
    why: String,
}

#[test]
fn addresses_are_read_as_others_read_them() {
    let vectors: AddressVectors = vectors("addresses");
    assert!(vectors.good.len() > 40 && vectors.bad.len() > 80);
    let networks = [("mainnet", Network::Bitcoin), ("testnet", Network::Testnet), ("regtest", Network::Regtest)];
    for (name, network) in networks {
        for good in &vectors.good {
            let parsed = parse(&good.input, network);
            if good.networks.iter().any(|one| one == name) {
                let Ok(address) = parsed else { panic!("{}: {parsed:?}", good.input) };
                assert_eq!(alloy_primitives::hex::encode(address.script_pubkey().as_bytes()), good.script);
            } else {
                assert_eq!(parsed, Err(tx::BadAddress::WrongNetwork), "{} on {name}", good.input);
            }
        }
        for bad in &vectors.bad {
            assert!(parse(&bad.input, network).is_err(), "{}: {}", bad.input, bad.why);
        }
    }
}

#[derive(Deserialize)]
struct TransactionVector {
    name: String,
    #[serde(default)]
    refuse: Option<String>,
    #[serde(default)]
    fee: Option<String>,
    txid: String,
    outputs: Vec<VectorOutput>,
    unsigned_psbt: String,
    #[serde(default)]
    signed_psbt: Option<String>,
    #[serde(default)]
    final_psbt: Option<String>,
    #[serde(default)]
    signed: Option<String>,
}

#[derive(Deserialize)]
struct VectorOutput {
    #[serde(default)]
    address: Option<String>,
    amount: String,
}

#[test]
fn transactions_are_read_and_finalised_as_others_do() {
    let decode = |text: &str| base64::engine::general_purpose::STANDARD.decode(text).expect("base64");
    let vectors: Vec<TransactionVector> = vectors("transactions");
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for vector in &vectors {
        let name = &vector.name;
        let meaning = decode_unsigned(&decode(&vector.unsigned_psbt), Network::Regtest);
        // How much a fee may be is for whoever builds and for the signer's policy: reading shows it as it is.
        let understood = vector.outputs.iter().all(|output| output.address.is_some())
            && (vector.refuse.is_none() || name == "most of it is fee");
        if !understood {
            assert!(meaning.is_err(), "{name}");
            *seen.entry("refused").or_default() += 1;
            continue;
        }
        let meaning = meaning.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(meaning.hash.map(|hash| hash.to_string()).as_ref(), Some(&vector.txid), "{name}");
        if let Some(fee) = &vector.fee {
            assert_eq!(meaning.most_fee.map(|fee| fee.to_string()).as_ref(), Some(fee), "{name}");
        }
        let paid: Vec<_> =
            meaning.payments.iter().map(|one| (Some(one.to.to_string()), one.amount.to_string())).collect();
        let expected: Vec<_> = vector.outputs.iter().map(|one| (one.address.clone(), one.amount.clone())).collect();
        assert_eq!(paid, expected, "{name}");
        for psbt in [&vector.signed_psbt, &vector.final_psbt].into_iter().flatten() {
            let bytes = finalize(&decode(psbt)).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(Some(alloy_primitives::hex::encode(&bytes)).as_ref(), vector.signed.as_ref(), "{name}");
            let signed = decode_signed(&bytes, Network::Regtest).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!((signed.hash, signed.payments), (meaning.hash, meaning.payments.clone()), "{name}");
            assert!(decode_unsigned(&decode(psbt), Network::Regtest).is_err(), "{name}: it is signed already");
            *seen.entry("finalised").or_default() += 1;
        }
    }
    assert!(seen["refused"] >= 7 && seen["finalised"] >= 20, "{seen:?}");
}
