//! Customers withdraw: most by themselves, some when people have agreed, one changes its mind, one pays another customer. A worker is killed in the
//! middle, and fees rise while payments wait for their block.

use std::path::Path;
use std::time::Duration;

use domain::{Amount, RawAmount, UserId};
use serde_json::{Value, json};
use terminal::clock::Stopwatch;
use terminal::failure::{CommandResult, Failure};

use super::Stage;
use super::chains::Net;
use super::ground::{APPROVERS, Worker};
use super::people::{raw, shown};
use super::records::Records;
use super::screen::Line;
use super::wrong;
use crate::rig::{program, write_private};

const PATH: &str = "/api/v1/withdrawals";
/// Addresses out there that nothing else pays.
const FIRST_OUTSIDE: u32 = 70_000;
/// So many times what they usually are. A payment that was offered before is mined no more, and one at the chain's cap is.
const SPIKE: u32 = 15;
const PATIENCE: Duration = Duration::from_secs(180);

/// What a customer means to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    /// So little that nobody has to agree.
    Small,
    /// So much that so many people have to.
    Large(usize),
    /// Asked for, and called off before anybody agrees.
    CalledOff,
    /// To the deposit address of the next customer: no coin moves.
    Inside,
}

fn plan(user: i64) -> Plan {
    match user {
        8 => Plan::Large(1),
        12 => Plan::Large(2),
        15 => Plan::CalledOff,
        16 => Plan::Inside,
        _ => Plan::Small,
    }
}

/// Who sends the same request twice, as one does who got no answer.
const IMPATIENT: i64 = 7;

/// A withdrawal as its customer knows it.
#[derive(Clone, Debug)]
pub struct DemoWithdrawal {
    pub user: UserId,
    pub net: Net,
    to: String,
    amount: Amount,
    fee: Amount,
    plan: Plan,
    id: String,
    state: String,
}

impl DemoWithdrawal {
    /// What has left the customer for good, by what it was told.
    pub fn gone(&self) -> i64 {
        if self.state == "completed" { self.amount.units() + self.fee.units() } else { 0 }
    }

    /// What another customer got of it.
    pub fn given_to(&self, user: UserId) -> i64 {
        let next = self.plan == Plan::Inside && user.get() == self.user.get() + 1;
        if next && self.state == "completed" { self.amount.units() } else { 0 }
    }

    fn is_over(&self) -> bool {
        ["completed", "failed", "rejected", "cancelled"].contains(&self.state.as_str())
    }
}

/// What it came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Withdrawals {
    pub asked: usize,
    pub completed: usize,
    pub called_off: usize,
    pub inside: usize,
    pub approvals: usize,
    pub replaced: usize,
}

/// In ledger units: what a withdrawal of this size is here, and what the policy takes for it.
fn amounts(net: Net, plan: Plan, user: i64) -> (Amount, Amount) {
    let of = |small: i64, one: i64, two: i64, step: i64| match plan {
        Plan::Small | Plan::Inside => small + step * user,
        Plan::Large(1) | Plan::CalledOff => one + step * user,
        Plan::Large(_) => two + step * user,
    };
    let (amount, fee) = match net {
        Net::Bitcoin => (of(2_000_000, 30_000_000, 60_000_000, 10_000), 20_000),
        Net::Bsc | Net::Tron => (of(100_000_000, 1_000_000_000, 2_000_000_000, 1_000_000), 1_000_000),
    };
    (Amount::from_units(amount), Amount::from_units(fee))
}

impl Stage<'_> {
    pub async fn withdrawals(&mut self) -> CommandResult {
        self.parts.start_worker(Worker::Withdrawals, self.files, self.chains).await?;
        // What is sent on the EVM chain waits for a block that has become too dear.
        self.chains.hold(Net::Bsc, true)?;
        for user in self.people.users.clone() {
            self.ask_for(user).await?;
        }
        self.call_off().await?;
        self.agree().await?;
        // Wherever it is with a payment: the next one finds it in the database.
        self.parts.kill_worker(Worker::Outbound).await?;
        self.parts.start_worker(Worker::Outbound, self.files, self.chains).await?;
        self.found.trading.worker_killed += 1;
        self.show_trouble();
        self.watch.wait("payments wait for a block", |state| waits_on_bsc(&state.jobs)).await?;
        self.chains.fees(Net::Bsc, SPIKE)?;
        self.chains.hold(Net::Bsc, false)?;
        self.follow_to_end().await?;
        self.chains.fees(Net::Bsc, 1)?;
        let replaced = self.replaced().await?;
        let count = |is: &dyn Fn(&DemoWithdrawal) -> bool| self.asked.iter().filter(|one| is(one)).count();
        self.found.withdrawals = Withdrawals {
            asked: self.asked.len(),
            completed: count(&|one| one.state == "completed"),
            called_off: count(&|one| one.state == "cancelled"),
            inside: count(&|one| one.plan == Plan::Inside),
            approvals: self.found.withdrawals.approvals,
            replaced,
        };
        let found = &self.found.withdrawals;
        self.screen.tell(format!(
            "7. withdrawals: {} asked for, {} paid, {} of them inside, {} called off; bob and carol signed {} approvals; fees rose {SPIKE} \
             times, and {replaced} payments were replaced by dearer ones",
            found.asked, found.completed, found.inside, found.called_off, found.approvals
        ));
        Ok(())
    }

    async fn ask_for(&mut self, user: UserId) -> CommandResult {
        let plan = plan(user.get());
        let chosen = Net::ALL.get(usize::try_from(user.get()).unwrap_or(0) % Net::ALL.len()).copied();
        // Whose deposit address it is, is what the next customer has asked for.
        let net = match plan {
            Plan::Inside | Plan::Large(1) => Net::Bsc,
            Plan::Large(_) => Net::Tron,
            Plan::Small | Plan::CalledOff => chosen.unwrap_or(Net::Bsc),
        };
        let to = match plan {
            Plan::Inside => {
                let next = UserId::new(user.get() + 1).ok_or_else(|| wrong("a user"))?;
                self.people.address(next, net).await?
            }
            Plan::Small | Plan::Large(_) | Plan::CalledOff => {
                net.outside(FIRST_OUTSIDE + u32::try_from(user.get()).map_err(wrong)?)
            }
        };
        let (amount, fee) = amounts(net, plan, user.get());
        self.move_back(user, net, amount.units() + fee.units()).await?;
        let body = json!({
            "client_order_id": format!("payout-{}", user.get()), "asset": net.paid_in(), "chain": net.name(), "address": to,
            "amount": shown(net.paid_in(), amount)?, "max_fee": shown(net.paid_in(), fee)?,
        });
        let (status, answer) = self.people.ask(user, "POST", PATH, Some(&body)).await?;
        let id = answer["withdrawal_id"].as_str().filter(|_| status == 200 || status == 202);
        let id = id.ok_or_else(|| wrong(format!("a withdrawal was not taken: {status} {answer}")))?.to_owned();
        if user.get() == IMPATIENT {
            let (_, again) = self.people.ask(user, "POST", PATH, Some(&body)).await?;
            if again["withdrawal_id"] != id.as_str() {
                return Err(wrong(format!("the same request again is another withdrawal: {again}")));
            }
        }
        let state = answer["state"].as_str().unwrap_or_default().to_owned();
        self.asked.push(DemoWithdrawal { user, net, to, amount, fee, plan, id, state });
        Ok(())
    }

    /// What the customer lacks in the funding account comes from the spot account.
    async fn move_back(&mut self, user: UserId, net: Net, wanted: i64) -> CommandResult {
        let asset = net.paid_in();
        let (funding, _) = self.people.has(user).await?.get(asset).copied().unwrap_or_default();
        if funding >= wanted {
            return Ok(());
        }
        let smallest = super::people::coins()?.into_iter().find(|coin| coin.symbol.as_str() == asset);
        let least = smallest.map_or(1, |coin| coin.smallest.units());
        let lacks = Amount::from_units((wanted - funding).max(least));
        let body = json!({
            "from": "SPOT", "to": "FUNDING", "asset": asset, "amount": shown(asset, lacks)?,
            "client_order_id": format!("back-{}", user.get()),
        });
        let watch = Stopwatch::start();
        loop {
            // The same name makes sending it again harmless.
            match self.people.ask(user, "POST", "/api/v1/internal_transfer", Some(&body)).await? {
                (200, _) => return Ok(()),
                (202, _) if watch.elapsed() < PATIENCE => tokio::time::sleep(Duration::from_millis(100)).await,
                (status, answer) => return Err(wrong(format!("no way back from spot: {status} {answer}"))),
            }
        }
    }

    /// Who changes its mind does so before anybody has agreed.
    async fn call_off(&mut self) -> CommandResult {
        let chosen: Vec<(UserId, String)> =
            self.asked.iter().filter(|one| one.plan == Plan::CalledOff).map(|one| (one.user, one.id.clone())).collect();
        for (user, id) in chosen {
            let (status, answer) = self.people.ask(user, "POST", &format!("{PATH}/{id}/cancel"), None).await?;
            if status != 200 || answer["state"] != "cancelled" {
                return Err(wrong(format!("a withdrawal was not called off: {status} {answer}")));
            }
        }
        Ok(())
    }

    /// People read what is to be paid, and sign that.
    async fn agree(&mut self) -> CommandResult {
        let large: Vec<(usize, String)> = self
            .asked
            .iter()
            .filter_map(|one| match one.plan {
                Plan::Large(people) => Some((people, one.id.clone())),
                Plan::Small | Plan::CalledOff | Plan::Inside => None,
            })
            .collect();
        for (people, id) in large {
            for (person, key) in APPROVERS.into_iter().take(people) {
                self.approve(&id, person, key).await?;
                self.found.withdrawals.approvals += 1;
            }
        }
        Ok(())
    }

    /// As a person does it at a terminal of its own: with a token, a key, and nothing else of the treasury's.
    async fn approve(&self, id: &str, person: &str, key: &str) -> CommandResult {
        let token = program::told(&self.files.config, &["token", "--operator", person]).await?;
        let token = token["token"].as_str().ok_or_else(|| wrong("no token for an operator"))?;
        let (token_file, file) = (self.files.at(&format!("{person}.token")), self.files.at(&format!("{person}.key")));
        write_private(Path::new(&token_file), token)?;
        let server = format!("http://{}", self.parts.address);
        let words = ["approve", id, "--as", key, "--key", &file, "--server", &server, "--token", &token_file, "--yes"];
        program::told(&self.files.config, &words).await.map(drop)
    }

    /// Each customer asks after its own until it is over.
    async fn follow_to_end(&mut self) -> CommandResult {
        let watch = Stopwatch::start();
        loop {
            for at in 0..self.asked.len() {
                let one = &self.asked[at];
                if one.is_over() {
                    continue;
                }
                let (user, path) = (one.user, format!("{PATH}/{}", one.id));
                let (status, answer) = self.people.ask(user, "GET", &path, None).await?;
                let state = answer["state"].as_str().filter(|_| status == 200);
                let state = state.ok_or_else(|| wrong(format!("a withdrawal is gone: {status} {answer}")))?;
                state.clone_into(&mut self.asked[at].state);
            }
            let over = self.asked.iter().filter(|one| one.is_over()).count();
            self.screen.show(Line::Withdrawals, format!("{over} of {} have ended", self.asked.len()));
            if over == self.asked.len() {
                return Ok(());
            }
            if watch.elapsed() > PATIENCE {
                let open: Vec<&DemoWithdrawal> = self.asked.iter().filter(|one| !one.is_over()).collect();
                return Err(wrong(format!("waited in vain for withdrawals: {open:?}")));
            }
            tokio::time::sleep(Duration::from_millis(150)).await;
        }
    }

    /// How many payments on the EVM chain were signed more than once in their slot.
    async fn replaced(&self) -> Result<usize, Failure> {
        let listed = program::told(&self.files.workers, &["job", "list", "--chain", "bsc", "--limit", "1000"]).await?;
        let mut replaced = 0;
        for job in listed["jobs"].as_array().into_iter().flatten().filter(|job| job["kind"] == "withdrawal") {
            let id = job["job_id"].as_str().unwrap_or_default();
            let shown = program::told(&self.files.workers, &["job", "show", id]).await?;
            let slots = shown["attempts"].as_array().map_or(&[][..], Vec::as_slice);
            let signed = slots.iter().filter_map(|slot| slot["attempts"].as_array().map(Vec::len)).max();
            replaced += usize::from(signed > Some(1));
        }
        Ok(replaced)
    }

    /// What each destination has, as its chain says it: what it was promised if that was paid, and else nothing.
    pub async fn check_destinations(&self, records: &mut Records) -> CommandResult {
        for net in Net::ALL {
            let mine: Vec<&DemoWithdrawal> =
                self.asked.iter().filter(|one| one.net == net && one.plan != Plan::Inside).collect();
            let places: Vec<String> = mine.iter().map(|one| one.to.clone()).collect();
            for (one, has) in mine.into_iter().zip(self.chains.balances(net, &places).await?) {
                let must = if one.state == "completed" { raw(net, one.amount)? } else { RawAmount::ZERO };
                records.hold_raw(|| format!("{} ({}) on {}", one.id, one.state, net.name()), must, has);
            }
        }
        // What everybody was told must be what was planned.
        for one in &self.asked {
            let planned = if one.plan == Plan::CalledOff { "cancelled" } else { "completed" };
            if one.state != planned {
                return Err(wrong(format!("{} is {}, not {planned}", one.id, one.state)));
            }
        }
        Ok(())
    }
}

/// Something of a customer's is sent on the EVM chain, and all that is to be sent there.
fn waits_on_bsc(jobs: &[Value]) -> bool {
    let mut mine = jobs.iter().filter(|job| job["chain"] == "bsc" && job["kind"] == "withdrawal").peekable();
    mine.peek().is_some() && mine.all(|job| job["state"] == "broadcasted")
}
