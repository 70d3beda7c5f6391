//! Where the chain ends, when one of three nodes lags, hangs or claims what is not there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use chain::endpoint::{Event, Why};
use chain::evm::{EvmChain, EvmSettings};
use chain::{Chain, ChainError};
use devnet::{Connection, View, WireFaults};
use serde_json::{Value, json};

use super::fake::{PAID, Said, TIP, honest, serve};
use super::hostile::{client, good, put};
use super::net::{CHAIN_ID, CONFIRMATIONS, devnet, fresh, pool, watch};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_lags_does_not_pull_the_head_back() {
    for quorum in [1, 2] {
        let served = devnet(3).await;
        let urls: Vec<String> = served.endpoints.iter().map(devnet::Endpoint::url).collect();
        let pool = pool(&urls, quorum);
        let mut events = pool.events();
        let chain = EvmChain::new(EvmSettings::new(CHAIN_ID, CONFIRMATIONS), pool);
        served.mine(50);
        *served.endpoints[0].view.lock().unwrap() = View { lag: 20, ..View::default() };
        for height in 50..80 {
            let head = chain.head().await.expect("a head");
            assert_eq!((head.tip.height, head.settled), (height, Some(height - CONFIRMATIONS)));
            let scan = chain.scan(height - 30, height, &watch(&[])).await.expect("not from the one that lags");
            assert_eq!(scan.headers.last(), Some(&head.tip));
            served.mine(1);
        }
        let seen: Vec<Event> = std::iter::from_fn(|| events.try_recv().ok()).collect();
        let lags = Event::Lags { endpoint: "node 0".to_owned(), height: 30, confirmed: 50 };
        assert_eq!(seen[0], lags, "at the very first look");
        assert!(matches!(&seen[1], Event::SetAside { why: Why::Lags { behind: 20 }, .. }), "{seen:?}");
        assert_eq!(seen.len(), 2);
        *served.endpoints[0].view.lock().unwrap() = View::default();
        chain.head().await.expect("a head");
        assert_eq!(events.try_recv().ok(), Some(Event::Back { endpoint: "node 0".to_owned() }));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_hangs_does_not_hold_the_head_up() {
    let served = devnet(3).await;
    let urls: Vec<String> = served.endpoints.iter().map(devnet::Endpoint::url).collect();
    let chain = EvmChain::new(EvmSettings::new(CHAIN_ID, CONFIRMATIONS), pool(&urls, 2));
    served.mine(7);
    *served.endpoints[1].wire.lock().unwrap() = WireFaults { connection: Connection::Silent, ..WireFaults::default() };
    // Three times the hedge of a second, and then no more.
    let heads = async {
        for _ in 0..50 {
            assert_eq!(chain.head().await.expect("a head").tip.height, 7);
        }
    };
    tokio::time::timeout(Duration::from_secs(8), heads).await.expect("not for long");
}

/// Says that the newest block is another million blocks away.
fn boast(method: &str, params: &Value, said: Said) -> Said {
    match method {
        "eth_getBlockByNumber" if params[0] == "latest" => {
            said.map(|block| put(block, "/number", json!(format!("{:#x}", TIP + 1_000_000))))
        }
        _ => said,
    }
}

#[tokio::test]
async fn one_that_boasts_does_not_push_the_head_to_where_nothing_is() {
    let (liar, one, other) = (serve(boast).await, good().await, good().await);
    for quorum in [1, 2, 3] {
        let chain = client(&[liar.clone(), one.clone(), other.clone()], quorum);
        for _ in 0..20 {
            let head = chain.head().await.expect("a head");
            assert_eq!((head.tip.height, head.settled), (TIP, Some(TIP - CONFIRMATIONS)), "quorum {quorum}");
            assert!(chain.scan(0, head.tip.height, &watch(&[fresh(PAID)])).await.is_ok());
        }
    }
}

#[tokio::test]
async fn what_one_boasts_while_it_is_alone_is_forgotten_when_the_others_are_back() {
    let well = Arc::new(AtomicBool::new(false));
    let other = || {
        let well = Arc::clone(&well);
        serve(move |_, _, said| if well.load(Ordering::SeqCst) { said } else { Err((-32_000, "busy".to_owned())) })
    };
    let chain = client(&[serve(boast).await, other().await, other().await], 2);
    let boasted = chain.head().await.expect("all that there is");
    assert_eq!(boasted.tip.height, TIP + 1_000_000);
    assert_eq!(boasted.settled, None, "what is settled is credited, and that takes a quorum");
    well.store(true, Ordering::SeqCst);
    assert_eq!(chain.head().await.expect("a head").tip.height, TIP);
}

#[tokio::test]
async fn at_one_height_most_nodes_say_which_block_it_is() {
    let branch = |branch: u8| serve(move |method, params, _| honest(branch, TIP, method, params));
    let (fork, one, other) = (branch(1).await, branch(0).await, branch(0).await);
    for urls in [[&fork, &one, &other], [&one, &fork, &other], [&one, &other, &fork]] {
        let chain = client(&urls.map(String::clone), 2);
        for _ in 0..5 {
            let head = chain.head().await.expect("a head");
            assert_eq!(head.tip.hash.0, super::fake::block_hash(0, TIP).0);
        }
    }
}

#[tokio::test]
async fn one_that_lags_does_not_count_even_when_another_is_gone() {
    let gone = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&gone);
    let leaves =
        serve(move |_, _, said| if told.load(Ordering::SeqCst) { Err((-32_000, String::new())) } else { said });
    let behind = serve(|method, params, _| honest(0, TIP - 20, method, params)).await;
    // So many confirmations that its tip is above what is settled: else it would not be believed for that.
    let chain = EvmChain::new(EvmSettings::new(CHAIN_ID, 30), pool(&[behind, good().await, leaves.await], 2));
    for _ in 0..3 {
        assert_eq!(chain.head().await.expect("a head").tip.height, TIP);
        gone.store(true, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn heads_grow_with_the_second_of_three() {
    let tips = Arc::new([TIP; 3].map(AtomicU64::new));
    let node = |number: usize| {
        let tips = Arc::clone(&tips);
        serve(move |method, params, _| honest(0, tips[number].load(Ordering::SeqCst), method, params))
    };
    let chain = client(&[node(0).await, node(1).await, node(2).await], 2);
    for (heights, expected) in [([40, 41, 42], 41), ([43, 41, 42], 42), ([43, 43, 42], 43), ([43, 44, 50], 44)] {
        for (tip, height) in tips.iter().zip(heights) {
            tip.store(height, Ordering::SeqCst);
        }
        assert_eq!(chain.head().await.expect("a head").tip.height, expected, "{heights:?}");
    }
    let nobody = client(&["http://127.0.0.1:9".to_owned()], 1).head().await;
    assert!(matches!(nobody, Err(ChainError::Unreachable(_))), "{nobody:?}");
    let refused = serve(|_, _, _| Err((-32_000, "no".to_owned()))).await;
    assert!(matches!(client(&[refused], 1).head().await, Err(ChainError::Refused(_))));
}
