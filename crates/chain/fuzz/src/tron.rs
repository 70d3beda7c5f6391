//! TRON.

use chain::endpoint::Pool;
use chain::tron::{Network, TronChain, TronSettings};
use devnet::Key;
use devnet::tron::TOKEN;
use tx::{Address, Coin, Fee};

use crate::client::{self, Subject};
use crate::node::{self, Envelope};

pub const ENVELOPE: Envelope = Envelope::None;

/// Of the block that the recorded answers are about: the faucet's payment of tokens.
pub const HEIGHT: u64 = 3;

fn client(pool: Pool) -> TronChain {
    let settings = TronSettings::new(Network::Devnet, vec![Address::Tron(TOKEN)]);
    TronChain::new(settings, pool).expect("good settings")
}

pub fn ours() -> Address {
    Key::numbered(3).tron()
}

/// What the client makes of a node's answers. The first byte says what it asks.
pub fn node(bytes: &[u8]) {
    let Some((question, answers)) = bytes.split_first() else { return };
    node::ask(answers, ENVELOPE, async |pool| ask(pool, *question).await);
}

pub async fn ask(pool: Pool, question: u8) {
    let coins = vec![Coin::Native, Coin::Token(Address::Tron(TOKEN))];
    let cap = Fee::FeeLimit(100_000_000);
    let subject = Subject { ours: ours(), coins, cap, sent: include_bytes!("../sent/tron"), height: HEIGHT };
    client::ask(&client(pool), question, &subject).await;
}
