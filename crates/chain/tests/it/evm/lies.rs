//! Nodes that lie about one transaction, its price or an account. One of them alone proves nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use alloy_primitives::{Address as Account, B256};
use chain::client::Sent;
use chain::status::{Paid, Reason};
use chain::{Broadcast, Chain, ChainError, NodeRefusal, QuoteRequest, Status};
use devnet::Key;
use serde_json::{Value, json};
use tx::{Coin, Draft, Fee, FeeCap, Meaning, Payment, Slot, TxHash};

use super::fake::{PAID, PAYER, Said, TIP, TOKEN, block_hash, honest, native_hash, serve, token_hash};
use super::hostile::{Spoil, client, good, is_bad, put};
use super::net::{CHAIN_ID, CONFIRMATIONS, evm, fresh, raw, sign, watch};

/// A transaction of the payer, with the nonce that block `nonce` holds, made when the chain stood at `since`.
fn sent(hash: B256, nonce: u64, since: u64) -> Sent {
    let meaning = Meaning {
        hash: Some(TxHash(hash.0)),
        from: Some(evm(fresh(PAYER))),
        payments: Vec::new(),
        most_fee: None,
        fee: Fee::Legacy { gas_price: 1 },
        slot: Slot::Nonce(nonce),
        chain_id: Some(CHAIN_ID),
    };
    Sent { meaning, hash: TxHash(hash.0), since }
}

const NEVER: B256 = B256::repeat_byte(9);

#[tokio::test]
async fn only_a_settled_transaction_with_the_nonce_is_a_proof() {
    let chain = client(&[good().await], 1);
    let settled = TIP - CONFIRMATIONS;
    for nonce in [0, 1, 20, settled] {
        for since in [0, nonce.saturating_sub(1), nonce, nonce + 1, TIP, TIP + 1_000] {
            let status = chain.status(&sent(NEVER, nonce, since)).await.expect("an answer");
            let Status::Impossible(proof) = status else { panic!("{status:?}: nonce {nonce} since {since}") };
            let Reason::NonceTaken { by, block } = proof.reason() else { panic!("{proof:?}") };
            assert_eq!((by.0, block.height, block.hash.0), (native_hash(nonce).0, nonce, block_hash(0, nonce).0));
        }
    }
    assert_eq!(chain.status(&sent(NEVER, settled + 1, 0)).await, Ok(Status::Unknown));
    let mined = chain.status(&sent(native_hash(20), 20, 0)).await.expect("an answer");
    let Status::Mined(mined) = mined else { panic!("{mined:?}") };
    assert_eq!((mined.block.height, mined.paid, mined.fee), (20, Paid::InFull, Some(raw(42_000))));
}

#[tokio::test]
async fn what_a_node_does_not_keep_proves_nothing() {
    let spoilt: [(&str, Spoil); 5] = [
        ("no old state", |method, params, said| match method {
            "eth_getTransactionCount" if params[1] != "0x23" => {
                Err((-32_000, "missing trie node 12ab (path ) state 0x12 is not available".to_owned()))
            }
            _ => said,
        }),
        ("no state at all", |method, _, said| match method {
            "eth_getTransactionCount" => Err((-32_000, "header not found".to_owned())),
            _ => said,
        }),
        ("a nonce that no transaction of the block has", |method, params, said| match method {
            "eth_getBlockByNumber" if params[1] == true => said.map(|block| put(block, "/transactions", json!([]))),
            _ => said,
        }),
        ("a receipt that is lost, in a block that holds it", |method, params, said| match method {
            "eth_getTransactionReceipt" => Ok(Value::Null),
            "eth_getBlockByNumber" if params[1] == true => {
                said.map(|block| put(block, "/transactions/0/hash", json!(NEVER.to_string())))
            }
            _ => said,
        }),
        ("a young chain", |method, params, _| honest(0, 4, method, params)),
    ];
    for (name, spoil) in spoilt {
        let chain = client(&[serve(spoil).await], 1);
        let nonce = if name == "a young chain" { 2 } else { 20 };
        assert_eq!(chain.status(&sent(NEVER, nonce, 3)).await, Ok(Status::Unknown), "{name}");
    }
}

#[tokio::test]
async fn who_keeps_no_old_state_leaves_the_proof_to_those_who_do() {
    let pruned: Spoil = |method, params, said| match method {
        "eth_getTransactionCount" if params[1] != "0x23" => {
            Err((-32_000, "missing trie node 12ab (path ) state 0x12 is not available".to_owned()))
        }
        _ => said,
    };
    let (bare, bare_too) = (serve(pruned).await, serve(pruned).await);
    let (one, other) = (good().await, good().await);
    for _ in 0..5 {
        let chain = client(&[bare.clone(), one.clone(), other.clone()], 2);
        for _ in 0..3 {
            let status = chain.status(&sent(NEVER, 20, 3)).await;
            assert!(matches!(status, Ok(Status::Impossible(_))), "{status:?}");
        }
    }
    // One alone proves nothing, and is not taken for a liar by those that cannot tell.
    let pool = super::net::pool(&[bare, bare_too, one], 2);
    let mut events = pool.events();
    let chain = chain::evm::EvmChain::new(chain::evm::EvmSettings::new(CHAIN_ID, CONFIRMATIONS), pool);
    for _ in 0..5 {
        assert_eq!(chain.status(&sent(NEVER, 20, 3)).await, Ok(Status::Unknown));
    }
    assert!(events.try_recv().is_err());
}

#[tokio::test]
async fn one_liar_proves_nothing() {
    let liar: Spoil = |method, params, said| match method {
        "eth_getTransactionReceipt" => Ok(Value::Null),
        "eth_getTransactionByHash" => Ok(Value::Null),
        "eth_getBlockByNumber" if params[1] == true => {
            said.map(|block| put(block, "/transactions/0/hash", json!(NEVER.to_string())))
        }
        _ => said,
    };
    let (liar, one, other) = (serve(liar).await, good().await, good().await);
    let mined = sent(native_hash(20), 20, 3);
    let alone = client(std::slice::from_ref(&liar), 1).status(&mined).await;
    assert!(matches!(alone, Ok(Status::Impossible(_))), "it does lie: {alone:?}");
    let pair = client(&[liar.clone(), one.clone()], 2);
    assert!(matches!(pair.status(&mined).await, Err(ChainError::NoQuorum { .. })));
    assert!(matches!(pair.prove(mined.hash, &watch(&[])).await, Err(ChainError::NoQuorum { .. })));
    let three = client(&[liar, one, other], 2);
    assert!(matches!(three.status(&mined).await, Ok(Status::Mined(_))));
    assert!(matches!(three.prove(mined.hash, &watch(&[])).await, Ok(Some(_))));
}

#[tokio::test]
async fn a_receipt_outside_the_chain_is_no_proof() {
    let spoilt: [(&str, Spoil); 4] = [
        ("another block", |method, _, said| match method {
            "eth_getTransactionReceipt" => said.map(|one| put(one, "/blockHash", json!(B256::ZERO.to_string()))),
            _ => said,
        }),
        ("a block that is not there", |method, params, said| match method {
            "eth_getBlockByNumber" if params[0] == "0x14" => Ok(Value::Null),
            _ => said,
        }),
        ("another transaction's receipt", |method, _, said| match method {
            "eth_getTransactionReceipt" => honest(0, TIP, method, &json!([native_hash(21).to_string()])),
            _ => said,
        }),
        ("logs of something that reverted", |method, params, said| match method {
            "eth_getTransactionReceipt" if params[0] == json!(token_hash(20).to_string()) => {
                said.map(|one| put(one, "/status", json!("0x0")))
            }
            _ => said,
        }),
    ];
    for (name, spoil) in spoilt {
        let chain = client(&[serve(spoil).await], 1);
        for hash in [token_hash(20), native_hash(20)] {
            if name == "logs of something that reverted" && hash == native_hash(20) {
                continue;
            }
            let status = chain.status(&sent(hash, 20, 0)).await;
            assert!(matches!(status, Err(ChainError::NoQuorum { agreed: 0, .. })), "{name}: {status:?}");
            let proven = chain.prove(TxHash(hash.0), &watch(&[fresh(PAID)])).await;
            assert!(matches!(proven, Err(ChainError::NoQuorum { agreed: 0, .. })), "{name}: {proven:?}");
        }
    }
}

fn signed() -> Vec<u8> {
    let key = Key::numbered(0);
    let payment = Payment { to: evm(fresh(1)), coin: Coin::Native, amount: raw(1) };
    let fee = Fee::Legacy { gas_price: 5 };
    let draft = Draft::Evm { from: key.evm(), nonce: 0, payment, gas_limit: 21_000, fee };
    let built = client(&["http://127.0.0.1:1".to_owned()], 1).build(&draft).expect("good");
    sign(&key, &built.bytes)
}

#[tokio::test]
async fn a_broadcast_is_refused_only_when_somebody_refused_and_nobody_took_it() {
    let signed = signed();
    let hash = alloy_primitives::keccak256(&signed).to_string();
    let answering = |answer: Said| {
        serve(move |method, _, said| if method == "eth_sendRawTransaction" { answer.clone() } else { said })
    };
    let takes = answering(Ok(json!(hash))).await;
    let refuses = answering(Err((-32_000, "insufficient funds for gas * price + value".to_owned()))).await;
    let low = answering(Err((-32_000, "nonce too low".to_owned()))).await;
    let knows = answering(Err((-32_000, "already known".to_owned()))).await;
    let other = answering(Ok(json!(B256::ZERO.to_string()))).await;
    let nobody = "http://127.0.0.1:1".to_owned();
    let holds = hash.clone();
    let had = serve(move |method, _, said| match method {
        "eth_sendRawTransaction" => Err((-32_000, "nonce too low".to_owned())),
        "eth_getTransactionByHash" => Ok(
            json!({ "hash": holds, "from": Account::ZERO.to_string(), "to": null, "value": "0x0", "blockHash": null }),
        ),
        _ => said,
    });
    let had = had.await;
    for taken in [&takes, &knows, &had] {
        assert_eq!(client(std::slice::from_ref(taken), 1).broadcast(&signed).await, Ok(Broadcast::Taken));
        let urls = [nobody.clone(), refuses.clone(), taken.clone()];
        assert_eq!(client(&urls, 1).broadcast(&signed).await, Ok(Broadcast::Taken));
    }
    for (urls, expected) in [
        (vec![refuses.clone()], NodeRefusal::InsufficientFunds),
        (vec![nobody.clone(), low.clone()], NodeRefusal::NonceTooLow),
        (vec![other.clone(), low], NodeRefusal::NonceTooLow),
    ] {
        let said = client(&urls, 1).broadcast(&signed).await;
        assert!(matches!(&said, Ok(Broadcast::Refused(refusal, _)) if *refusal == expected), "{said:?}");
    }
    for urls in [vec![nobody.clone()], vec![other], vec![nobody, "http://127.0.0.1:2".to_owned()]] {
        let said = client(&urls, 1).broadcast(&signed).await;
        assert!(matches!(said, Err(ChainError::Unreachable(_))), "{said:?}");
    }
}

#[tokio::test]
async fn nodes_that_differ_in_one_of_many_agree_on_the_others() {
    let hides = |hidden: u64| {
        serve(move |method, params, said| match method {
            "eth_getTransactionReceipt" if params[0] == json!(native_hash(hidden).to_string()) => Ok(Value::Null),
            "eth_getTransactionCount" => Err((-32_000, "missing trie node".to_owned())),
            _ => said,
        })
    };
    let all: Vec<Sent> = (20..25).map(|nonce| sent(native_hash(nonce), nonce, 0)).collect();
    let chain = client(&[good().await, hides(22).await], 2);
    let statuses = chain.statuses(&all).await;
    for (status, one) in statuses.iter().zip(&all) {
        let Slot::Nonce(nonce) = one.meaning.slot else { panic!("{one:?}") };
        // Of the hidden one there is only one node's word.
        assert_eq!(matches!(status, Ok(Status::Mined(_))), nonce != 22, "{nonce}: {status:?}");
    }
    // A third that has it outvotes the one that hides it.
    let chain = client(&[hides(23).await, good().await, good().await], 2);
    let statuses = chain.statuses(&all).await;
    assert!(statuses.iter().all(|status| matches!(status, Ok(Status::Mined(_)))), "{statuses:?}");
}

#[tokio::test]
async fn one_absurd_estimate_of_many_is_asked_of_another_node() {
    let absurd = serve(|method, params, said| match method {
        "eth_estimateGas" if params[0]["data"].as_str().is_some_and(|data| data.ends_with("07")) => Ok(json!("0x1")),
        _ => said,
    });
    let (absurd, from) = (absurd.await, evm(fresh(PAYER)));
    let payments: Vec<Payment> = [5, 7, 9]
        .map(|amount| Payment { to: evm(fresh(1)), coin: Coin::Token(evm(fresh(TOKEN))), amount: raw(amount) })
        .into();
    let cap = FeeCap(Fee::Eip1559 { max_fee: 1_000, max_priority: 1_000 });
    let requests: Vec<QuoteRequest<'_>> =
        payments.iter().map(|payment| QuoteRequest { from: &from, payment, cap }).collect();
    let alone = client(std::slice::from_ref(&absurd), 1).quotes(&requests).await;
    let good_ones: Vec<bool> = alone.iter().map(Result::is_ok).collect();
    assert_eq!(good_ones, [true, false, true], "{alone:?}");
    let both = client(&[absurd, good().await], 1).quotes(&requests).await;
    assert!(both.iter().all(|quote| quote.as_ref().is_ok_and(|quote| quote.gas == 62_500)), "{both:?}");
}

#[tokio::test]
async fn absurd_prices_are_not_offered() {
    const HUGE: &str = "0x10000000000000000000000000000000000000000000000000000000000000000";
    let cap = FeeCap(Fee::Eip1559 { max_fee: 1_000, max_priority: 1_000 });
    let legacy = FeeCap(Fee::Legacy { gas_price: 1_000 });
    let cases: [(&str, &str, Value, FeeCap); 11] = [
        ("a price of 2^256", "eth_gasPrice", json!(HUGE), legacy),
        ("a price of nothing", "eth_gasPrice", json!("0x0"), legacy),
        ("a price in words", "eth_gasPrice", json!("cheap"), legacy),
        ("no base fee", "eth_feeHistory", json!({ "baseFeePerGas": [], "reward": [["0x5"]] }), cap),
        ("a base fee of 2^256", "eth_feeHistory", json!({ "baseFeePerGas": [HUGE], "reward": [["0x5"]] }), cap),
        ("null", "eth_feeHistory", Value::Null, cap),
        (
            "a base fee that cannot be doubled",
            "eth_feeHistory",
            json!({ "baseFeePerGas": [format!("0x{}", "f".repeat(32))] }),
            cap,
        ),
        ("no gas at all", "eth_estimateGas", json!("0x0"), cap),
        ("less gas than there is", "eth_estimateGas", json!("0x5207"), cap),
        ("more gas than there is", "eth_estimateGas", json!("0xffffffffffffffff"), cap),
        ("gas of 2^256", "eth_estimateGas", json!(HUGE), cap),
    ];
    let honest = good().await;
    let payment = Payment { to: evm(fresh(1)), coin: Coin::Token(evm(fresh(TOKEN))), amount: raw(1) };
    for (name, spoilt, answer, cap) in cases {
        let absurd = serve(move |method, _, said| if method == spoilt { Ok(answer.clone()) } else { said }).await;
        is_bad(client(std::slice::from_ref(&absurd), 1).quote(&evm(fresh(PAYER)), &payment, cap).await, name);
        let quote = client(&[absurd, honest.clone()], 1).quote(&evm(fresh(PAYER)), &payment, cap).await;
        assert_eq!(quote.expect("the other node's").gas, 62_500, "{name}");
    }
    // A chain without base fees: the call is not known, or nobody paid anything.
    let old = serve(|method, _, said| match method {
        "eth_feeHistory" => Err((-32_601, "the method eth_feeHistory does not exist".to_owned())),
        _ => said,
    });
    let quote = client(&[old.await], 1).quote(&evm(fresh(PAYER)), &payment, cap).await.expect("a quote");
    assert_eq!(quote.fee, Fee::Legacy { gas_price: 100 });
    let empty = serve(|method, _, said| match method {
        "eth_feeHistory" => Ok(json!({ "baseFeePerGas": ["0x0", "0x0"], "reward": [["0x0"]] })),
        _ => said,
    });
    let quote = client(&[empty.await], 1).quote(&evm(fresh(PAYER)), &payment, cap).await.expect("a quote");
    assert_eq!(quote.fee, Fee::Eip1559 { max_fee: 100, max_priority: 100 });
}

#[tokio::test]
async fn a_tip_below_what_was_settled_is_not_believed() {
    let tip = Arc::new(AtomicU64::new(TIP));
    let seen = Arc::clone(&tip);
    let falls = serve(move |method, params, _| honest(0, seen.load(Ordering::SeqCst), method, params)).await;
    let chain = client(&[falls.clone(), falls.replace("127.0.0.1", "localhost")], 2);
    assert_eq!(chain.head().await.expect("a head").settled, Some(TIP - CONFIRMATIONS));
    tip.store(TIP - CONFIRMATIONS, Ordering::SeqCst);
    assert_eq!(chain.head().await.expect("a reorganisation may be so deep").tip.height, TIP - CONFIRMATIONS);
    tip.store(TIP - CONFIRMATIONS - 1, Ordering::SeqCst);
    is_bad(chain.head().await, "a fallen tip");
}

/// With nobody to agree with, one huge claim would silence the node for good.
#[tokio::test]
async fn where_one_is_enough_its_own_claim_binds_nobody() {
    let tip = Arc::new(AtomicU64::new(1_000_000_000));
    let seen = Arc::clone(&tip);
    let boasts = serve(move |method, params, _| honest(0, seen.load(Ordering::SeqCst), method, params)).await;
    let chain = client(std::slice::from_ref(&boasts), 1);
    chain.head().await.expect("its word is all there is");
    tip.store(TIP, Ordering::SeqCst);
    assert_eq!(chain.head().await.expect("a head").tip.height, TIP);
}

#[tokio::test]
async fn one_node_that_claims_a_height_does_not_silence_the_others() {
    let tip = Arc::new(AtomicU64::new(1_000_000_000));
    let seen = Arc::clone(&tip);
    let boasts = serve(move |method, params, _| honest(0, seen.load(Ordering::SeqCst), method, params)).await;
    let chain = client(&[boasts, good().await, good().await], 2);
    for _ in 0..100 {
        chain.head().await.expect("a head, whoever's word it is");
    }
    tip.store(TIP, Ordering::SeqCst);
    for _ in 0..100 {
        assert_eq!(chain.head().await.expect("the others were right").tip.height, TIP);
    }
}

#[tokio::test]
async fn balances_and_nonces_that_cannot_be_are_refused() {
    let spoilt: [(&str, Spoil); 5] = [
        ("nothing", |method, _, said| if method == "eth_call" { Ok(json!("0x")) } else { said }),
        (
            "two words",
            |method, _, said| if method == "eth_call" { Ok(json!(format!("0x{}", "0".repeat(128)))) } else { said },
        ),
        ("null", |method, _, said| if method == "eth_call" { Ok(Value::Null) } else { said }),
        ("more than there can be", |method, _, said| {
            if method == "eth_getBalance" { Ok(json!(format!("0x1{}", "0".repeat(64)))) } else { said }
        }),
        ("another type", |method, _, said| if method == "eth_getBalance" { Ok(json!(5)) } else { said }),
    ];
    let accounts: Vec<Account> = (0..50).map(fresh).collect();
    let both = |account: &Account| [Coin::Native, Coin::Token(evm(fresh(TOKEN)))].map(|coin| (evm(*account), coin));
    let wanted: Vec<_> = accounts.iter().flat_map(both).collect();
    let honest = good().await;
    for (name, spoil) in spoilt {
        let bad = serve(spoil).await;
        is_bad(client(std::slice::from_ref(&bad), 1).balances(&wanted).await, name);
        let balances = client(&[bad, honest.clone()], 1).balances(&wanted).await.expect("the other node's");
        assert!(balances.chunks(2).all(|pair| pair == [raw(5), raw(6)]));
    }
    let backwards = serve(|method, params, said| match method {
        "eth_getTransactionCount" if params[1] == "pending" => Ok(json!("0x1")),
        _ => said,
    });
    is_bad(client(&[backwards.await], 1).nonces(&[evm(fresh(PAYER))]).await, "backwards");
}

#[tokio::test]
async fn a_nonce_is_told_from_its_neighbours_in_the_same_block() {
    let busy = serve(|method, params, said| match method {
        "eth_getBlockByNumber" if params[1] == true => said.map(|mut block| {
            let mut other = block["transactions"][0].clone();
            other["nonce"] = json!("0x63");
            other["hash"] = json!(B256::repeat_byte(3).to_string());
            block["transactions"].as_array_mut().expect("a list").insert(0, other);
            block
        }),
        _ => said,
    });
    let status = client(&[busy.await], 1).status(&sent(NEVER, 20, 3)).await.expect("an answer");
    let Status::Impossible(proof) = status else { panic!("{status:?}") };
    assert!(matches!(proof.reason(), Reason::NonceTaken { by, .. } if by.0 == native_hash(20).0), "{proof:?}");
}

#[tokio::test]
async fn what_a_transaction_pays_is_read_from_that_transaction() {
    let spoilt: [(&str, Spoil); 3] = [
        ("another transaction", |method, _, said| match method {
            "eth_getTransactionByHash" => said.map(|one| put(one, "/hash", json!(NEVER.to_string()))),
            _ => said,
        }),
        ("not in the block", |method, _, said| match method {
            "eth_getTransactionByHash" => said.map(|one| put(one, "/blockHash", Value::Null)),
            _ => said,
        }),
        ("nowhere", |method, _, said| if method == "eth_getTransactionByHash" { Ok(Value::Null) } else { said }),
    ];
    for (name, spoil) in spoilt {
        let proven = client(&[serve(spoil).await], 1).prove(TxHash(native_hash(20).0), &watch(&[fresh(PAID)])).await;
        assert!(matches!(proven, Err(ChainError::NoQuorum { agreed: 0, .. })), "{name}: {proven:?}");
    }
}

#[tokio::test]
async fn only_what_waits_is_in_the_mempool() {
    let answering = |block: Value| {
        serve(move |method, _, said| match method {
            "eth_getTransactionByHash" => Ok(
                json!({ "hash": NEVER.to_string(), "from": Account::ZERO.to_string(), "to": null, "value": "0x0", "blockHash": block }),
            ),
            _ => said,
        })
    };
    // In a block of which the same node has no receipt: neither mined nor waiting.
    let contradicts = answering(json!(B256::ZERO.to_string())).await;
    let holds = answering(Value::Null).await;
    let never = sent(NEVER, TIP + 5, 0);
    assert_eq!(client(&[contradicts], 1).status(&never).await, Ok(Status::Unknown));
    assert_eq!(client(&[good().await, good().await, holds], 2).status(&never).await, Ok(Status::Mempool));
}
