//! What any client must bear: any answer of a node.

use std::time::Duration;

use chain::client::Sent;
use chain::{Chain, WatchKey, Watched};
use domain::RawAmount;
use tx::{Address, BlockHash, BlockRef, Coin, Fee, FeeCap, Payment};

/// No target waits longer for a client: it may ask an only node again and again.
const PATIENCE: Duration = Duration::from_secs(3);

/// How many kinds of questions there are. All above 11 are for a proof, which reads the most; the number keeps the meaning of
/// corpora that were recorded when there were ten.
pub const QUESTIONS: u8 = 25;

/// What the questions are about.
pub struct Subject {
    pub ours: Address,
    pub coins: Vec<Coin>,
    pub cap: Fee,
    /// A signed transaction of the chain.
    pub sent: &'static [u8],
    /// Of a block that is not the first.
    pub height: u64,
}

/// Asks the nodes one thing. The answer is dropped: whatever a node says, the client must come back.
pub async fn ask(chain: &dyn Chain, question: u8, subject: &Subject) {
    let Subject { ours, coins, cap, sent, height } = subject;
    let mut watched = Watched::default();
    watched.insert(WatchKey::of(ours));
    let meaning = chain.decode_signed(sent).expect("a good transaction");
    let hash = meaning.hash.expect("it is signed");
    let asked = async {
        match question % QUESTIONS {
            0 => drop(chain.check_network().await),
            1 => drop(chain.head().await),
            2 => drop(chain.headers(&[height - 1, *height]).await),
            3 => drop(chain.scan(height - 1, *height, &watched).await),
            4 => drop(chain.prove(hash, &watched).await),
            5 => {
                let wanted: Vec<_> = coins.iter().map(|coin| (ours.clone(), coin.clone())).collect();
                drop(chain.balances(&wanted).await);
            }
            6 => drop(chain.nonces(std::slice::from_ref(ours)).await),
            7 => {
                for coin in coins {
                    let payment = Payment { to: ours.clone(), coin: coin.clone(), amount: some() };
                    drop(chain.quote(ours, &payment, FeeCap(*cap)).await);
                }
            }
            8 => drop(chain.broadcast(sent).await),
            9 => drop(chain.status(&Sent { meaning, hash, since: *height }).await),
            10 => {
                let wanted: Vec<_> = coins.iter().map(|coin| (ours.clone(), coin.clone())).collect();
                let near = BlockRef { height: *height, hash: BlockHash([7; 32]) };
                drop(chain.balances_at(&wanted, near).await);
            }
            11 => drop(chain.survey().await),
            _ => drop(chain.prove_blocks(height - 1, *height, &watched).await),
        }
    };
    drop(tokio::time::timeout(PATIENCE, asked).await);
}

pub fn some() -> RawAmount {
    "1000000".parse().expect("an amount")
}
