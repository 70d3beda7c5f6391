//! The live cases on the devnet.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use devnet::tron::{Settings, TOKEN, TronDevnet};
use devnet::{Fate, Model, Served};
use domain::ManualClock;
use tx::{Address, Coin};

use super::live::{self, Net};

struct Devnet {
    served: Served<TronDevnet>,
    clock: Arc<ManualClock>,
}

impl Devnet {
    async fn start() -> Self {
        let settings = Settings { solid_depth: 21, ..Settings::default() };
        let clock = Arc::new(ManualClock::at(settings.genesis));
        let free: SocketAddr = ([127, 0, 0, 1], 0).into();
        let served = Served::start(TronDevnet::new(settings), &[free, free], clock.clone()).await.expect("free ports");
        Self { served, clock }
    }

    fn model<T>(&self, act: impl FnOnce(&mut TronDevnet, domain::Timestamp) -> T) -> T {
        let model: &Mutex<TronDevnet> = &self.served.model;
        act(&mut model.lock().unwrap_or_else(PoisonError::into_inner), domain::Clock::now(&*self.clock))
    }
}

impl Net for Devnet {
    fn urls(&self) -> Vec<String> {
        self.served.endpoints.iter().map(|endpoint| format!("http://{}", endpoint.address)).collect()
    }

    fn token(&self) -> Address {
        Address::Tron(TOKEN)
    }

    fn mine(&self, blocks: u64) {
        self.model(|model, now| model.mine(blocks, now));
    }

    fn fund(&self, to: &Address, coin: &Coin, amount: u64) {
        let token = match coin {
            Coin::Native => None,
            Coin::Token(token) => Some(token.to_string()),
        };
        let amount = amount.to_string().parse().expect("digits");
        self.model(|model, now| model.fund(&to.to_string(), token.as_deref(), amount, now))
            .expect("the faucet is rich");
    }

    fn reorg(&self, depth: u64, fate: Fate) {
        self.model(|model, now| model.reorg(depth, fate, &[], now)).expect("not solidified");
    }
}

macro_rules! on_the_devnet {
    ($($case:ident)*) => {$(
        #[tokio::test]
        async fn $case() {
            live::$case(&Devnet::start().await).await;
        }
    )*};
}

on_the_devnet! {
    case_the_network_is_the_one_that_was_meant
    case_deposits_are_found_and_proven
    case_a_payout_is_followed_through_its_life
    case_a_call_that_fails_pays_nothing
    case_every_balance_is_what_came_less_what_left
    case_only_expired_and_solidified_is_impossible
    case_a_reorganisation_of_depth_20_is_seen
    case_what_is_wrong_is_refused_by_its_name
    case_balances_of_many_come_at_once
}
