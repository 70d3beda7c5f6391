//! What happens around the workers: blocks come and go, nodes fail and lie, users come, spend and are frozen, clocks jump.

use custody::wallet::{WalletError, deposit_wallet};
use domain::ledger::{Movement, OpKey, Operation, Reference};
use domain::random::Random;
use domain::{AccountId, AccountKind, AccountStatus, Amount, Approval, AssetId, UserId};
use store::deposit::{Assigned, Assignment};
use store::ledger::{NewAccount, Opened, StatusChange};
use store::wallet::NewUserWallet;
use tx::{Address, BlockHash, TxHash};

use super::judge::{is_dead, unread};
use super::model::{Block, Money, Move, Transaction, bytes};
use super::net::{DEEPEST, Lie, NODES, Net};
use super::owner::Owner;
use super::run::{SECOND, Simulation};
use super::world::World;

impl Simulation {
    // ---- the chains --------------------------------------------------------------------------------------------

    pub(super) fn mine(&self, at: usize) {
        let mut world = self.world.lock();
        let count = 1 + world.random.below(6);
        for _ in 0..count {
            if world.random.below(2) == 0 {
                world.pay(at);
            }
            world.mine(at);
        }
        world.spread(at);
    }

    pub(super) fn spread(&self, at: usize) {
        self.world.lock().spread(at);
    }

    /// The newest blocks are replaced by others: what was in them is mined again, replaced, or gone.
    pub(super) fn reorganise(&self, at: usize) {
        let mut world = self.world.lock();
        let world = &mut *world;
        let most = match world.random.below(10) {
            0..5 => 3,
            5..9 => 12,
            _ => DEEPEST,
        };
        // The first block of all stays.
        let depth = (1 + world.random.below(most)).min(world.nets[at].height() - 100);
        if depth == 0 {
            return;
        }
        let spec = &world.nets[at].spec;
        world.report.reorganisations += 1;
        world.report.deeper_than_confirmations += u64::from(depth >= spec.confirmations);
        world.report.deeper_than_final += u64::from(depth >= spec.final_confirmations);
        for transaction in world.nets[at].leave(depth) {
            match world.random.below(10) {
                0..6 => {
                    world.report.mined_again += 1;
                    world.nets[at].waiting.push(transaction);
                }
                6..8 => {
                    world.report.replaced += 1;
                    world.replace(at, &transaction);
                }
                _ => world.report.dropped += 1,
            }
        }
        for _ in 0..depth + 1 + world.random.below(3) {
            world.mine(at);
        }
        world.spread(at);
    }

    /// A node goes down, gets stuck, lies or starts again from an older state; or it is well again.
    pub(super) fn change_node(&self, at: usize) {
        let mut world = self.world.lock();
        let World { nets, random, report, turn, .. } = &mut *world;
        let net = &mut nets[at];
        let chosen = random.index(NODES);
        let others_lie = net.nodes.iter().enumerate().any(|(other, node)| other != chosen && node.lie != Lie::Truth);
        match random.below(12) {
            0 => {
                net.nodes[chosen].down = true;
                report.nodes_down += 1;
            }
            1 => {
                net.nodes[chosen].stuck = true;
                report.nodes_stuck += 1;
            }
            2 => {
                let height = net.nodes[chosen].view.tip().height;
                let older = height.saturating_sub(random.below(50)).max(100);
                // All in one house: two of them were restored from the same backup.
                let two = random.below(2) == 0;
                for step in 0..=usize::from(two) {
                    net.nodes[(chosen + step) % NODES].view.cut(older);
                }
                report.nodes_from_an_older_state += 1;
            }
            // One at a time: two that lie alike are a quorum.
            3..8 if !others_lie => {
                let lie = Lie::LIES[random.index(Lie::LIES.len())];
                net.nodes[chosen].lie = lie;
                if lie == Lie::Forks {
                    report.lies_forked += 1;
                    fork(net, chosen, random);
                }
            }
            _ => {
                let node = &mut net.nodes[chosen];
                (node.lie, node.down, node.stuck) = (Lie::Truth, false, false);
                node.view.follow(&net.truth, net.truth.tip().height);
            }
        }
        net.agree(*turn);
    }

    // ---- users -------------------------------------------------------------------------------------------------

    /// A user is shown an address, and is paid in the next block. Or a thief has written the address into a row before.
    pub(super) async fn issue(&mut self) -> Result<(), String> {
        let (at, user, spoilt, now) = {
            let mut world = self.world.lock();
            let nets = world.nets.len();
            let at = world.random.index(nets);
            // New users come more and more seldom.
            let many = u64::try_from(self.users / 40).unwrap_or(0);
            let new = self.users < 2 || world.random.below(1 + many) == 0;
            let known = u64::try_from(self.users).unwrap_or(0);
            let user = if new { self.users + 1 } else { 1 + i64::try_from(world.random.below(known)).unwrap_or(0) };
            (at, user, new && world.chance(8_000), world.now())
        };
        self.users = self.users.max(user);
        let number = UserId::new(user).ok_or("a user's number")?;
        if spoilt {
            return self.spoil(at, user).await;
        }
        let family = self.world.lock().nets[at].spec.family;
        let address = match deposit_wallet(&self.ground.db, &self.ground.pinned, family, number, now).await {
            Ok(wallet) => wallet.address,
            Err(WalletError::Differs(_)) => {
                self.world.lock().report.addresses_refused += 1;
                return Ok(());
            }
            Err(error) => return Err(format!("no address was shown: {error}")),
        };
        let mut world = self.world.lock();
        match world.nets[at].owners.of(&address) {
            None => {
                world.nets[at].owners.add(address.clone(), Owner::User(user));
                world.report.addresses += 1;
            }
            Some(Owner::User(other)) if other == user => {}
            Some(other) => return Err(format!("user {user} was shown {address}, which is {other:?}'s")),
        }
        world.pay_to(at, &address);
        if world.random.below(2) == 0 {
            world.report.addresses_paid_at_once += 1;
            world.mine(at);
            world.spread(at);
        }
        Ok(())
    }

    /// A row says that another user has the address of this one.
    async fn spoil(&mut self, at: usize, user: i64) -> Result<(), String> {
        let group = self.ground.users[at].clone();
        let pinned = self.ground.pinned.group(&group).ok_or("a group")?;
        let address = pinned.group.address(user.unsigned_abs()).map_err(|error| error.to_string())?;
        let thief = 1_000_000 + user;
        let row = NewUserWallet { user: UserId::new(thief).ok_or("a thief")?, address: address.to_string() };
        let now = self.world.lock().now();
        self.ground.db.assign_user_wallets(&group, &[row], now).await.map_err(|error| unread(&error))?;
        let family = self.world.lock().nets[at].spec.family;
        let victim = UserId::new(user).ok_or("a user's number")?;
        let shown = deposit_wallet(&self.ground.db, &self.ground.pinned, family, victim, now).await;
        if !matches!(shown, Err(WalletError::Differs(_))) {
            return Err(format!("a thief's row has the address of user {user}, who was told {shown:?}"));
        }
        let mut world = self.world.lock();
        world.report.addresses_refused += 1;
        world.nets[at].owners.add(address.clone(), Owner::Spoilt);
        world.report.rows_spoilt += 1;
        world.pay_to(at, &address);
        Ok(())
    }

    fn pick_account(&self, random: &mut Random, wanted: impl Fn(AccountStatus, i64) -> bool) -> Option<(i64, AssetId)> {
        let accounts = &self.judge.accounts;
        let start = random.index(accounts.len());
        let mut found = accounts.iter().skip(start).take(200).filter(|(_, one)| wanted(one.status, one.available));
        found.next().map(|(key, _)| *key)
    }

    async fn account_id(&self, user: i64, asset: AssetId) -> Result<AccountId, String> {
        let number = UserId::new(user).ok_or("a user's number")?;
        let now = self.world.lock().now();
        let opened = self.ground.db.open(&[NewAccount::funding(number, asset)], now).await;
        match opened.map_err(|error| unread(&error))?.first() {
            Some(Opened::Account(id)) => Ok(*id),
            _ => Err("an account could not be opened".to_owned()),
        }
    }

    fn next_key(&mut self) -> Result<OpKey, String> {
        self.operations += 1;
        OpKey::new(format!("simulation-{}", self.operations)).map_err(|error| error.to_string())
    }

    /// A user spends some of it, or all.
    pub(super) async fn spend(&mut self) -> Result<(), String> {
        let mut random = Random::from_seed(self.world.lock().random.next_u64());
        let active = |status, available| status == AccountStatus::Active && available > 0;
        // Mostly whoever was credited a moment ago, and may have to give it back.
        let young = self.judge.open.values().rev().filter(|seen| seen.given > 0 && !is_dead(seen.state));
        let young = young.skip(random.index(20)).find_map(|seen| Some((seen.user?, seen.asset)));
        let found = if random.below(3) == 0 { self.pick_account(&mut random, active) } else { young };
        let Some((user, asset)) = found else { return Ok(()) };
        let account = self.judge.accounts.get(&(user, asset)).copied().unwrap_or_default();
        let has = account.available;
        if !active(account.status, has) {
            return Ok(());
        }
        let some = 1 + i64::try_from(random.below(has.unsigned_abs())).unwrap_or(0);
        let units = if random.below(2) == 0 { has } else { some };
        let from = self.account_id(user, asset).await?;
        let external = AccountKind::External(self.ground.rows[0].name.clone());
        let now = self.world.lock().now();
        let wanted = NewAccount::system(&external, asset).ok_or("an account of the house")?;
        let opened = self.ground.db.open(&[wanted], now).await.map_err(|error| unread(&error))?;
        let Some(Opened::Account(to)) = opened.first() else { return Err("no account of the house".to_owned()) };
        let movement = Movement { from, to: *to, asset, amount: Amount::from_units(units) };
        let reference = Reference::new("spent").map_err(|error| error.to_string())?;
        let operation = Operation::move_available(self.next_key()?, vec![movement], reference);
        let operation = operation.map_err(|error| error.to_string())?;
        let replies = self.ground.db.post(&[operation], now).await.map_err(|error| unread(&error))?;
        if !replies.iter().all(|reply| reply.applied()) {
            return Err(format!("user {user} has {has}, and could not spend {units}: {replies:?}"));
        }
        self.judge.accounts.entry((user, asset)).or_default().available -= units;
        *self.judge.spent.entry(asset).or_default() += i128::from(units);
        self.world.lock().report.spent_by_users += 1;
        Ok(())
    }

    /// An account is disabled or frozen, or active again.
    pub(super) async fn change_status(&mut self) -> Result<(), String> {
        let mut random = Random::from_seed(self.world.lock().random.next_u64());
        let repairs = random.below(3) != 0;
        let wanted = |status, _| (status == AccountStatus::Active) != repairs;
        let Some((user, asset)) = self.pick_account(&mut random, wanted) else { return Ok(()) };
        let status = match (repairs, random.below(2)) {
            (true, _) => AccountStatus::Active,
            (false, 0) => AccountStatus::Disabled,
            (false, _) => AccountStatus::Frozen,
        };
        let account = self.account_id(user, asset).await?;
        let (actor, reason) = ("simulator".to_owned(), "simulation".to_owned());
        let change = StatusChange { key: self.next_key()?, account, status, actor, reason };
        let now = self.world.lock().now();
        let replies = self.ground.db.set_status(&[change], now).await.map_err(|error| unread(&error))?;
        if !replies.iter().all(|reply| reply.applied()) {
            return Err(format!("an account could not be made {status:?}: {replies:?}"));
        }
        self.judge.accounts.entry((user, asset)).or_default().status = status;
        self.world.lock().report.status_changes += 1;
        Ok(())
    }

    pub(super) async fn suspend(&mut self) -> Result<(), String> {
        let suspended = !self.judge.suspended;
        let now = self.world.lock().now();
        self.ground.suspend_token(suspended, now).await.map_err(|error| error.to_string())?;
        self.judge.suspended = suspended;
        self.world.lock().report.suspended += u64::from(suspended);
        Ok(())
    }

    /// Two people give a deposit that is nobody's to a user.
    pub(super) async fn assign(&mut self) -> Result<(), String> {
        let mut random = Random::from_seed(self.world.lock().random.next_u64());
        let left = |one: &(&i64, &super::judge::Seen)| {
            one.1.state == domain::deposit::DepositState::Unattributed && (1..1_000_000_000).contains(&one.1.left_over)
        };
        let all: Vec<(&i64, &super::judge::Seen)> = self.judge.open.iter().filter(left).collect();
        let Some((id, seen)) = all.get(random.index(all.len())).map(|(id, seen)| (**id, (*seen).clone())) else {
            return Ok(());
        };
        let small = |status, available| status == AccountStatus::Active && available < 1_000_000_000_000;
        let Some((user, asset)) = self.pick_account(&mut random, small) else { return Ok(()) };
        if asset != seen.asset {
            return Ok(());
        }
        let people = Approval::new("ann", "bob", "the customer wrote").map_err(|error| error.to_string())?;
        let wanted = Assignment { deposit: id, user: UserId::new(user).ok_or("a user")?, people };
        let now = self.world.lock().now();
        let assigned = self.ground.db.assign_deposit(&wanted, now).await.map_err(|error| unread(&error))?;
        match assigned {
            Assigned::Done { amount } => {
                let given = self.judge.assigns(id, user);
                if given != Some(amount.units()) {
                    return Err(format!("dp-{id} gave {} to user {user}, not {given:?}", amount.units()));
                }
                self.world.lock().report.assigned += 1;
                Ok(())
            }
            // Its block has left the chain, and the books have yet to follow.
            Assigned::Nothing => {
                let world = self.world.lock();
                let record = world.nets[seen.key.0].records.get(&seen.block.hash);
                let gone = record.is_none_or(|one| !one.agreed || one.left.is_some_and(|turn| turn >= seen.since));
                if gone { Ok(()) } else { Err(format!("dp-{id} could not be assigned, and is in the chain")) }
            }
            other => Err(format!("dp-{id} could not be assigned: {other:?}")),
        }
    }

    // ---- time and reach ----------------------------------------------------------------------------------------

    pub(super) fn jump(&self) {
        let mut world = self.world.lock();
        if world.random.below(4) == 0 {
            world.report.clock_set_back += 1;
            world.pass(-60 * SECOND);
        } else {
            world.report.clock_jumps += 1;
            let seconds = i64::try_from(world.random.below(400)).unwrap_or(0);
            world.pass(seconds * SECOND);
        }
    }

    pub(super) fn lose_database(&self) {
        let mut world = self.world.lock();
        world.report.database_cut_off += 1;
        let processes = world.cut_off_until.len();
        let process = world.random.index(processes);
        world.cut_off_until[process] = world.turn + world.random.below(60);
    }
}

impl World {
    pub fn mine(&mut self, at: usize) {
        let now = self.now();
        self.report.blocks += 1;
        let Self { nets, random, .. } = self;
        nets[at].mine(random, now);
    }

    pub fn spread(&mut self, at: usize) {
        let Self { nets, random, turn, .. } = self;
        nets[at].spread(random, *turn);
    }
}

/// Blocks of a node's own, on top of what it has: with payments that wait, and with some that nobody made.
fn fork(net: &mut Net, chosen: usize, random: &mut Random) {
    let users = net.owners.users.clone();
    for _ in 0..1 + random.below(6) {
        let tip = net.nodes[chosen].view.tip();
        let (height, parent, time) = (tip.height + 1, tip.hash, tip.time);
        let mut transactions: Vec<_> = net.waiting.iter().filter(|_| random.below(2) == 0).cloned().collect();
        if let Some(to) = users.get(random.index(users.len())) {
            transactions.push(std::sync::Arc::new(invented(net, to, random)));
        }
        let block = Block { height, hash: BlockHash(bytes(random)), parent, time, transactions };
        net.nodes[chosen].lied_at.insert(height);
        net.nodes[chosen].view.push(std::sync::Arc::new(block));
    }
}

fn invented(net: &Net, to: &Address, random: &mut Random) -> Transaction {
    let unit = net.spec.unit.get(&Money::Native).copied().unwrap_or(1);
    let raw = (unit * u128::from(10 + random.below(90))).to_string().parse().unwrap_or_default();
    let (from, to, money) = (net.spec.stranger.clone(), to.clone(), Money::Native);
    let moves = vec![Move { place: chain::Place::Value, from: from.clone(), to, money, raw }];
    Transaction { hash: TxHash(bytes(random)), ok: true, sender: from, fee: domain::RawAmount::ZERO, moves }
}
