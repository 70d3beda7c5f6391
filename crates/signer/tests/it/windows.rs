//! What goes out without approvals, against a plain model; roles and destinations; clocks that lie.

use domain::random::Random;
use signer::log::LogError;
use signer::{Authorizer, Moment, SignerRefusal, Verdict};
use tx::Coin;

use crate::world::*;

#[test]
fn each_role_sends_what_and_where_its_line_of_the_table_says() {
    let (mut signer, _) = signer();
    let mut number = 0;
    let mut next = |evm: Evm| {
        number += 1;
        Evm { job: job(number), nonce: u64::try_from(number).unwrap(), ..evm }.request(&format!("r-{number}"))
    };
    let to_user = || evm(0, 0, 50).from("gas-bsc", 0).owned("deposit-bsc", 4_000_000_000);
    let forbidden = SignerRefusal::DestinationForbidden;
    // Gas: the chain's own coin, to a user's address that the signer derives.
    assert_eq!(approved(&mut signer, &next(to_user()), 0), "gas-bsc/native/free");
    assert_eq!(refusal(&mut signer, &next(Evm { owner: None, ..to_user() }), 0), forbidden);
    assert_eq!(refusal(&mut signer, &next(to_user().owned("hot-bsc", 0)), 0), forbidden);
    assert_eq!(
        refusal(&mut signer, &next(to_user().coin(Coin::Token(token()))), 0),
        SignerRefusal::RoleForbids("a gas wallet sends the chain's own coin only")
    );
    let too_much = evm(0, 0, 100_001).from("gas-bsc", 0).owned("deposit-bsc", 1);
    assert_eq!(refusal(&mut signer, &next(too_much), 0), SignerRefusal::CapReached("payment"));
    // A user's wallet: to treasury or hot, as much as there is.
    let sweep = || evm(0, 0, 10_u128.pow(20)).from("deposit-bsc", 77);
    assert_eq!(approved(&mut signer, &next(sweep().owned("treasury-bsc", 0)), 0), "deposit-bsc/native/ours");
    approved(&mut signer, &next(sweep().owned("hot-bsc", 3).coin(Coin::Token(token()))), 0);
    assert_eq!(refusal(&mut signer, &next(sweep()), 0), forbidden);
    assert_eq!(refusal(&mut signer, &next(sweep().owned("gas-bsc", 0)), 0), forbidden);
    assert_eq!(refusal(&mut signer, &next(sweep().owned("deposit-bsc", 78)), 0), forbidden);
    let other = Coin::Token(stranger(9).evm());
    assert_eq!(refusal(&mut signer, &next(sweep().owned("hot-bsc", 3).coin(other)), 0), SignerRefusal::CoinNotListed);
    // Treasury: to hot, or to an address of the policy; always approved.
    let refill = |evm: Evm| {
        let mut request = next(evm.from("treasury-bsc", 0));
        let digest = request.intents[0].digest();
        request.approvals = ["bob", "dave"].map(|name| approve(name, digest)).to_vec();
        request
    };
    let mut refill = refill;
    let mut bare = refill(evm(0, 0, 1).owned("hot-bsc", 0));
    bare.approvals.clear();
    assert_eq!(refusal(&mut signer, &bare, 0), SignerRefusal::ApprovalsMissing { given: 0, needed: 2 });
    approved(&mut signer, &refill(evm(0, 0, 800_000_000).owned("hot-bsc", 0)), 0);
    approved(&mut signer, &refill(evm(0, 0, 800_000_000).to(stranger(7).evm())), 0);
    assert_eq!(refusal(&mut signer, &refill(evm(0, 0, 1).to(stranger(8).evm())), 0), forbidden);
    assert_eq!(refusal(&mut signer, &refill(evm(0, 0, 1).owned("deposit-bsc", 8)), 0), forbidden);
    assert_eq!(
        refusal(&mut signer, &refill(evm(0, 0, 900_000_001).owned("hot-bsc", 0)), 0),
        SignerRefusal::AboveAllSteps
    );
}

#[test]
fn fees_have_a_cap_for_each_transaction_and_for_the_day() {
    let (mut signer, _) = signer();
    // 60,000 gas at 150 gwei are nine thousandths.
    assert_eq!(refusal(&mut signer, &evm(1, 1, 5).gas_price(151).request("a"), 0), SignerRefusal::FeeAboveCap);
    for number in 0..100_u64 {
        let request =
            evm(10 + i64::try_from(number).unwrap(), number, 5).gas_price(149).request(&format!("f-{number}"));
        approved(&mut signer, &request, 0);
        // A replacement counts what it adds: one gwei.
        if number < 60 {
            let replaced = evm(10 + i64::try_from(number).unwrap(), number, 5).gas_price(150);
            approved(&mut signer, &replaced.request(&format!("g-{number}")), 0);
        }
    }
    // 100 at 149 and 60 more: 14,960 of 15,000 gwei.
    assert_eq!(refusal(&mut signer, &evm(500, 200, 5).gas_price(41).request("b"), 0), SignerRefusal::FeesOfTheDay);
    approved(&mut signer, &evm(501, 200, 5).gas_price(40).request("c"), 0);
    approved(&mut signer, &evm(502, 201, 5).gas_price(41).at(DAY).request("d"), DAY + 2 * MINUTE);
}

/// All that went out free, with its second. Nothing here knows of minutes or of sums that are kept.
#[derive(Default)]
struct Model(Vec<(i64, u128)>);

impl Model {
    fn within(&self, now: i64, micros: i64) -> u128 {
        self.0.iter().filter(|(at, _)| now - at < micros).map(|(_, amount)| amount).sum()
    }
}

#[test]
fn no_window_is_exceeded_and_none_is_closed_before_its_time() {
    let (mut signer, folder) = signer();
    let mut random = Random::from_seed(11);
    let (mut model, mut now, mut free, mut closed) = (Model::default(), 0, 0, 0);
    for number in 0..3_000_i64 {
        now += i64::try_from(random.below(8 * 60)).unwrap() * 1_000_000 + 17;
        if random.below(100) == 0 {
            signer = reopen(&folder, Some(signer.head()), now);
        }
        if random.below(300) == 0 {
            signer.snapshot(20 * DAY, after(now)).unwrap();
        }
        let amount = 1 + u128::from(random.below(1_100_000));
        let request = evm(number, u64::try_from(number).unwrap(), amount).at(now).request(&format!("w-{number}"));
        match ask(&mut signer, &request, now) {
            Verdict::Approved { .. } => {
                model.0.push((now, amount));
                free += 1;
                assert!(amount <= 1_000_000);
                assert!(model.within(now, HOUR) <= 3_000_000, "the hour before {now}");
                assert!(model.within(now, DAY) <= 10_000_000, "the day before {now}");
            }
            Verdict::Refused { refusal, .. } => {
                assert!(matches!(refusal, SignerRefusal::ApprovalsMissing { .. }), "{refusal}");
                closed += 1;
                let open = amount <= 1_000_000
                    && model.within(now, HOUR + 2 * MINUTE) + amount <= 3_000_000
                    && model.within(now, DAY + 2 * MINUTE) + amount <= 10_000_000;
                assert!(!open, "refused at {now} though there was room for {amount}");
            }
        }
    }
    assert!(free > 300 && closed > 300, "{free} {closed}");
}

#[test]
fn a_clock_that_is_set_back_or_ahead_opens_no_window() {
    let (mut signer, folder) = signer();
    for number in 0..3 {
        let nonce = u64::try_from(number).unwrap();
        approved(&mut signer, &evm(number, nonce, 1_000_000).request(&format!("a-{number}")), 0);
    }
    let request = evm(9, 9, 1_000_000).request("next");
    let closed = SignerRefusal::ApprovalsMissing { given: 0, needed: 1 };
    assert_eq!(refusal(&mut signer, &request, MINUTE), closed);
    // The date jumps, and the uptime says that a minute went by.
    for jump in [-HOUR, DAY, 6 * MINUTE, -6 * MINUTE] {
        let moment = Moment { date: domain::Timestamp::from_micros(NOW + MINUTE + jump), uptime_us: 7 + MINUTE };
        let verdict = signer.decide(std::slice::from_ref(&request), moment, &Wallets).unwrap().verdicts;
        assert_eq!(verdict[0].refusal(), Some(&SignerRefusal::ClockDisagrees), "{jump}");
    }
    assert_eq!(refusal(&mut signer, &request, 2 * MINUTE), closed);
    // A start does not take a date from before the newest entry, nor does a small step back lengthen anything.
    assert!(matches!(Authorizer::open(folder.copy(), None, after(-HOUR)), Err(LogError::ClockBack)));
    let mut signer = reopen(&folder, None, -3 * MINUTE);
    assert_eq!(refusal(&mut signer, &request, -3 * MINUTE), closed);
    approved(&mut signer, &request, HOUR + 5 * MINUTE);
}
