//! Customers ask for addresses and pay in, on three chains, while nodes lie. Then a reorganisation takes a payment back that was credited.

use devnet::Lie;
use domain::random::Random;
use domain::{Amount, RawAmount, UserId};
use terminal::failure::{CommandResult, Failure};

use super::Stage;
use super::chains::Net;
use super::people::{Payment, shown};
use super::wrong;

/// Whose payment the reorganisation takes back: the last one on its chain.
const UNLUCKY: i64 = 4;
/// So many blocks above a payment make it credited. TRON's tokens wait until their block is solidified.
const ABOVE: [(Net, u64); 3] = [(Net::Bitcoin, 2), (Net::Bsc, 3), (Net::Tron, 20)];
/// What a reorganisation replaces: the block of the unlucky payment, and those above it.
const REPLACED: u64 = 4;

/// What it came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Deposits {
    pub paid: usize,
    pub credited: usize,
    pub made_up: usize,
    pub taken_back: usize,
    pub credited_again: usize,
}

/// What user `user` pays on this chain: whole dollars, or hundredths of a coin.
fn amount(net: Net, random: &mut Random) -> Amount {
    Amount::from_units(match net {
        Net::Bitcoin => 1_000_000 * (110 + i64::try_from(random.below(90)).unwrap_or(0)),
        Net::Bsc | Net::Tron => 1_000_000 * (3_000 + i64::try_from(random.below(900)).unwrap_or(0)),
    })
}

impl Stage<'_> {
    pub async fn deposits(&mut self, seed: u64) -> CommandResult {
        let mut random = Random::from_seed(seed);
        for user in self.people.users.clone() {
            let dollars = if user.get() % 2 == 0 { Net::Bsc } else { Net::Tron };
            for net in [Net::Bitcoin, dollars] {
                let address = self.people.address(user, net).await?;
                self.people.payments.push(Payment { user, net, address, amount: amount(net, &mut random) });
            }
        }
        self.watch
            .wait("the workers read", |state| {
                state.chains.len() == Net::ALL.len() && state.chains.iter().all(|one| !one["reading"].is_null())
            })
            .await?;
        self.fund_house()?;
        for net in Net::ALL {
            // A block that comes by itself would be in the way of the reorganisation.
            self.chains.hold(net, true)?;
        }
        self.chains.lie(Net::Bsc, Lie::LogLeftOut)?;
        self.chains.lie(Net::Tron, Lie::Inflated)?;
        self.chains.lie(Net::Bitcoin, Lie::TransactionLeftOut)?;
        let (last, payments): (Vec<Payment>, Vec<Payment>) = self.people.payments.iter().cloned().partition(is_unlucky);
        for payments in [payments, last] {
            for one in &payments {
                self.chains.pay(one.net, &one.address, true, &one.raw()?)?;
            }
            for net in Net::ALL {
                self.chains.mine(net, 1)?;
            }
        }
        for (net, blocks) in ABOVE {
            self.chains.mine(net, blocks)?;
        }
        let paid = self.people.payments.len();
        let all =
            self.watch.wait("every payment is credited", |state| state.deposits_in(&["credited", "final"]) == paid);
        let state = all.await?;
        // What a node has made up was seen, and never credited.
        let made_up = state.deposits_in(&["orphaned"]);
        self.found.deposits = Deposits { paid, credited: paid, made_up, ..Deposits::default() };
        for net in Net::ALL {
            self.chains.lie(net, Lie::Truth)?;
        }
        self.screen.tell(format!(
            "3. deposits: {} customers pay in {paid} times; each is proven and credited, though one node of each chain lies: nobody got \
             any of the {made_up} payments that it made up",
            self.people.users.len()
        ));
        Ok(())
    }

    /// What pays fees: gas for users' addresses and for the wallets that pay out. Everybody may pay a house.
    fn fund_house(&self) -> CommandResult {
        for (net, amount) in [(Net::Bsc, "5000000000000000000"), (Net::Tron, "20000000000")] {
            let amount: RawAmount = amount.parse().map_err(wrong)?;
            for role in ["gas", "hot", "treasury"] {
                self.chains.pay(net, self.wallet(net, role)?, false, &amount)?;
            }
        }
        Ok(())
    }

    /// The block of a payment that was credited leaves the chain; then its transaction is mined again.
    pub async fn reorganisation(&mut self) -> CommandResult {
        let unlucky = self.unlucky()?;
        let (user, had) = (unlucky.user, shown(unlucky.net.paid_in(), unlucky.amount)?);
        self.chains.reorganise(Net::Bsc, REPLACED)?;
        let number = user.get().to_string();
        let mine = |row: &serde_json::Value| row["user"] == number && row["chain"] == Net::Bsc.name();
        let gone = self.watch.wait("the credit is taken back", |state| {
            state.deposits.iter().any(|row| mine(row) && row["state"] == "reversed")
        });
        self.found.deposits.taken_back = gone.await?.deposits_in(&["reversed"]);
        let left = self.people.has(user).await?.get("USDT").map_or(0, |(funding, _)| *funding);
        if left != 0 {
            return Err(wrong(format!("user {} still has {left} units", user.get())));
        }
        for net in Net::ALL {
            self.chains.hold(net, false)?;
        }
        let again = self.watch.wait("it is credited again", |state| {
            state.deposits.iter().any(|row| mine(row) && (row["state"] == "credited" || row["state"] == "final"))
        });
        self.found.deposits.credited_again =
            again.await?.deposits.iter().filter(|row| mine(row) && row["state"] != "reversed").count();
        self.screen.tell(format!(
            "4. a reorganisation replaces {REPLACED} blocks of the EVM chain: the {had} USDT of customer {UNLUCKY} are taken back; \
             mined again, they are credited again"
        ));
        // Only what is final may leave.
        let paid = self.people.payments.len();
        self.watch.wait("every payment is final", |state| state.deposits_in(&["final"]) == paid).await?;
        Ok(())
    }

    fn unlucky(&self) -> Result<Payment, Failure> {
        let found = self.people.payments.iter().find(|one| is_unlucky(one)).cloned();
        found.ok_or_else(|| wrong("nobody is unlucky"))
    }

    /// What customers' own deposit addresses still have, on all chains.
    pub async fn still_at_users(&self) -> Result<usize, Failure> {
        let mut left = 0;
        for net in Net::ALL {
            let addresses: Vec<String> =
                self.people.payments.iter().filter(|one| one.net == net).map(|one| one.address.clone()).collect();
            let has = self.chains.balances(net, &addresses).await?;
            left += has.iter().filter(|has| **has != RawAmount::ZERO).count();
        }
        Ok(left)
    }
}

fn is_unlucky(payment: &Payment) -> bool {
    payment.net == Net::Bsc && UserId::new(UNLUCKY) == Some(payment.user)
}

/// For the tests of what customers hold: a payment is exact on its chain.
#[cfg(test)]
mod tests {
    use super::super::people::raw;
    use super::*;

    #[test]
    fn a_payment_is_exact_on_its_chain() {
        let units = Amount::from_units(1_500_000);
        let on = |net| raw(net, units).map(|raw| raw.to_string()).unwrap_or_default();
        assert_eq!(on(Net::Bsc), "1500000000000000000", "a dollar and a half, with eighteen decimals");
        assert_eq!(on(Net::Tron), "1500000");
        assert_eq!(on(Net::Bitcoin), "1500000");
    }
}
