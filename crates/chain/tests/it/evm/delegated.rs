//! An address of ours with code (EIP-7702), which only anvil takes.

use alloy_consensus::transaction::SignableTransaction;
use alloy_consensus::{EthereumTxEnvelope, TxEip4844, TxEip7702};
use alloy_eips::eip2718::Encodable2718;
use alloy_eips::eip7702::{Authorization, SignedAuthorization};
use alloy_primitives::{Signature, U256};
use chain::{Chain, Place};
use devnet::Key;
use tx::Coin;

use super::net::{CHAIN_ID, Net, account, call_of, evm, fresh, raw, watch, word};
use super::suite::{assert_books, balances};

fn parts(key: &Key, digest: [u8; 32]) -> (U256, U256, bool) {
    let (rs, odd) = key.sign(digest);
    (U256::from_be_slice(&rs[..32]), U256::from_be_slice(&rs[32..]), odd)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_anvil_what_the_code_of_our_address_pays_away_is_a_spend_of_ours() {
    let net = Net::anvil().await;
    let (caller, ours) = (Key::numbered(0), Key::numbered(1));
    let code = net.deploy(&caller, "Disperse", &[]).await;
    let chain = net.chain(|settings| settings.internal_transfers = true);
    let accounts = [account(&caller), account(&ours), fresh(1)];
    let coins = [Coin::Native];
    let (before, from) = (balances(&chain, &accounts, &coins).await, net.height().await + 1);
    let inner = Authorization { chain_id: U256::from(CHAIN_ID), address: code, nonce: net.nonce(accounts[1]).await };
    let (r, s, odd) = parts(&ours, inner.signature_hash().0);
    let transaction = TxEip7702 {
        chain_id: CHAIN_ID,
        nonce: net.nonce(accounts[0]).await,
        gas_limit: 1_000_000,
        max_fee_per_gas: 50_000_000_000,
        max_priority_fee_per_gas: 1_000_000_000,
        to: accounts[1],
        value: U256::from(3),
        authorization_list: vec![SignedAuthorization::new_unchecked(inner, u8::from(odd), r, s)],
        input: call_of("pretend(address,address,uint256)", &[word(fresh(1)), word(fresh(2)), U256::from(500)]).into(),
        ..TxEip7702::default()
    };
    let (r, s, odd) = parts(&caller, transaction.signature_hash().0);
    let signed: EthereumTxEnvelope<TxEip4844> = transaction.into_signed(Signature::new(r, s, odd)).into();
    net.send_raw(&signed.encoded_2718()).await;
    net.mine(1).await;
    let to = net.height().await;
    assert_books(&chain, from, to, (&accounts, &coins), &before).await;
    let scan = chain.scan(from, to, &watch(&accounts)).await.expect("a scan");
    let taken: Vec<_> = scan.spends.iter().filter(|one| one.watched == 1).collect();
    assert!(taken.iter().all(|one| matches!(one.place, Place::Internal(_))), "{taken:?}");
    let first = (taken[0].place, taken[0].to.clone(), taken[0].amount);
    assert_eq!(first, (Place::Internal(1), Some(evm(fresh(1))), raw(500)));
    assert_eq!(chain.prove_blocks(from, to, &watch(&accounts)).await, Ok(scan));
}
