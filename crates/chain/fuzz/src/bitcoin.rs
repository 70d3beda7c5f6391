//! Bitcoin.

use ::bitcoin::Network;
use chain::bitcoin::{BitcoinChain, BitcoinSettings};
use chain::endpoint::Pool;
use devnet::Key;
use tx::{Address, Coin, Fee};

use crate::client::{self, Subject};
use crate::node::{self, Envelope};

pub const ENVELOPE: Envelope = Envelope::JsonRpc;

/// Of the block that the recorded answers are about: the faucet's payment.
pub const HEIGHT: u64 = 148;

fn client(pool: Pool) -> BitcoinChain {
    BitcoinChain::new(BitcoinSettings::new(Network::Regtest), pool)
}

pub fn ours() -> Address {
    Key::numbered(3).bitcoin(Network::Regtest)
}

/// What the client makes of a node's answers. The first byte says what it asks.
pub fn node(bytes: &[u8]) {
    let Some((question, answers)) = bytes.split_first() else { return };
    node::ask(answers, ENVELOPE, async |pool| ask(pool, *question).await);
}

pub async fn ask(pool: Pool, question: u8) {
    let coins = vec![Coin::Native];
    let cap = Fee::PerKvb(100_000);
    let subject = Subject { ours: ours(), coins, cap, sent: include_bytes!("../sent/bitcoin"), height: HEIGHT };
    client::ask(&client(pool), question, &subject).await;
}
