//! EVM.

use chain::endpoint::Pool;
use chain::evm::{EvmChain, EvmSettings};
use devnet::Key;
use devnet::evm::TETHER;
use tx::{Address, Coin, Fee};

use crate::client::{self, Subject};
use crate::node::{self, Envelope};

pub const ENVELOPE: Envelope = Envelope::JsonRpc;

/// Of the block that the recorded answers are about: the faucet's payment of tokens.
pub const HEIGHT: u64 = 2;

fn client(pool: Pool) -> EvmChain {
    let mut settings = EvmSettings::new(56, 2);
    settings.tokens = vec![TETHER];
    settings.internal_transfers = true;
    EvmChain::new(settings, pool)
}

pub fn ours() -> Address {
    Key::numbered(3).evm()
}

/// What the client makes of a node's answers. The first byte says what it asks.
pub fn node(bytes: &[u8]) {
    let Some((question, answers)) = bytes.split_first() else { return };
    node::ask(answers, ENVELOPE, async |pool| ask(pool, *question).await);
}

pub async fn ask(pool: Pool, question: u8) {
    let coins = vec![Coin::Native, Coin::Token(Address::Evm(TETHER))];
    let cap = Fee::Legacy { gas_price: 20_000_000_000 };
    let subject = Subject { ours: ours(), coins, cap, sent: include_bytes!("../sent/evm"), height: HEIGHT };
    client::ask(&client(pool), question, &subject).await;
}
