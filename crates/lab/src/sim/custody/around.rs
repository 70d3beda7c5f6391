//! What happens around the processes: blocks, branches, nodes, prices, thieves and strangers.

use domain::random::Random;
use domain::{Clock, Timestamp};
use tx::{Address, Coin, Draft, Fee, Payment, Slot};

use super::client::CHAIN_ID;
use super::coins::inputs_of;
use super::ground::{BITCOIN, DOLLAR, PLANS, broken};
use super::model::{Net, Waiting, raw};
use super::run::{SECOND, SimError, Simulation};
use super::world::World;

impl Simulation {
    pub(super) fn mine(&self, net: usize) {
        let mut world = self.world.lock();
        let World { nets, random, report, clock, .. } = &mut *world;
        let (paid, reverted) = nets[net].mine(random, clock.now());
        report.blocks += 1;
        report.paid += paid;
        report.reverted += reverted;
        if random.below(3) != 0 {
            nets[net].spread(random);
        }
    }

    pub(super) fn spread(&self, net: usize) {
        let mut world = self.world.lock();
        let World { nets, random, .. } = &mut *world;
        nets[net].spread(random);
    }

    /// A branch is left that is not final; what was in it waits again, or is forgotten.
    pub(super) fn reorganise(&self, net: usize) {
        let mut world = self.world.lock();
        let World { nets, random, report, clock, .. } = &mut *world;
        let any = 1 + random.below(PLANS[net].deepest);
        // Often where it hurts.
        let aimed = nets[net].depth_of_cancel().filter(|depth| *depth <= PLANS[net].deepest);
        let depth = aimed.filter(|_| random.below(2) == 0).unwrap_or(any);
        report.reorganisations += 1;
        report.deeper_than_confirmations += u64::from(depth >= u64::from(PLANS[net].confirmations));
        let keep = random.below(3) != 0;
        nets[net].leave(depth, keep, random);
        // Those whose branch wins may have another pool than those who lose theirs.
        while random.below(3) != 0 {
            report.came_back += u64::from(nets[net].come_back(random));
        }
        for _ in 0..=depth {
            let (paid, reverted) = nets[net].mine(random, clock.now());
            report.blocks += 1;
            report.paid += paid;
            report.reverted += reverted;
        }
    }

    pub(super) fn change_node(&self, net: usize) {
        let mut world = self.world.lock();
        let World { nets, random, report, .. } = &mut *world;
        let nodes = &mut nets[net].nodes;
        let at = random.index(nodes.len());
        match random.below(4) {
            0 => {
                nodes[at].down = true;
                report.nodes_down += 1;
            }
            1 => {
                nodes[at].stuck = true;
                report.nodes_stuck += 1;
            }
            _ => (nodes[at].down, nodes[at].stuck) = (false, false),
        }
    }

    pub(super) fn change_price(&self, net: usize) {
        let mut world = self.world.lock();
        let World { nets, random, report, .. } = &mut *world;
        // Often where it hurts: what spends several coins must be replaced by what spends all of them.
        let aimed = nets[BITCOIN].pool.iter().any(|one| inputs_of(&one.meaning).len() > 1) && random.below(2) == 0;
        let net = if aimed { BITCOIN } else { net };
        let spike = aimed || random.below(3) != 0;
        nets[net].price = if spike { 1_000_000_000 * u128::from(1 + random.below(40)) } else { 1_000_000_000 };
        report.price_spikes += u64::from(spike);
    }

    pub(super) fn pause(&self, net: usize) {
        let mut world = self.world.lock();
        let paused = !world.nets[net].paused;
        world.nets[net].paused = paused;
        world.report.contracts_paused += u64::from(paused);
    }

    pub(super) fn empty_pool(&self, net: usize) {
        let mut world = self.world.lock();
        let all = std::mem::take(&mut world.nets[net].pool);
        world.nets[net].dropped(all);
        world.report.pools_emptied += 1;
    }

    /// Miners have something that was replaced or forgotten, and never heard of what took its place.
    pub(super) fn come_back(&self, net: usize) {
        let mut world = self.world.lock();
        let World { nets, random, report, .. } = &mut *world;
        report.came_back += u64::from(nets[net].come_back(random));
    }

    pub(super) fn leave_signer(&self) {
        let mut world = self.world.lock();
        world.away_until = world.turn + 20 + world.random.below(150);
    }

    pub(super) fn jump(&self) {
        let mut world = self.world.lock();
        match world.random.below(6) {
            0 => {
                world.report.clock_set_back += 1;
                world.pass(-2 * SECOND);
            }
            1 => {
                world.report.clock_jumps += 1;
                world.pass(26 * 60 * SECOND);
            }
            _ => {
                world.report.clock_jumps += 1;
                let seconds = i64::try_from(world.random.below(70)).unwrap_or(0);
                world.pass(seconds * SECOND);
            }
        }
    }

    /// The contract of a chain's token keeps what our hot wallets have, or gives it back.
    pub(super) fn shorten(&self, net: usize) {
        let mut world = self.world.lock();
        let kept = !world.nets[net].kept;
        world.nets[net].kept = kept;
        world.report.token_shortages += u64::from(kept);
    }

    /// Somebody else uses the next nonce of a wallet of ours.
    pub(super) fn steal(&self) {
        let mut world = self.world.lock();
        let number = world.next_id();
        let World { nets, random, report, clock, .. } = &mut *world;
        let net = &mut nets[0];
        let index = random.index(net.wallets.len());
        let from = net.wallets[index].clone();
        let nonce = net.truth.tip().nonces.get(&from).copied().unwrap_or(0);
        let mut account = [0xee; 20];
        account[..8].copy_from_slice(&random.next_u64().to_be_bytes());
        let payment = Payment { to: (PLANS[0].account)(account), coin: Coin::Native, amount: raw(5) };
        let fee = Fee::Eip1559 { max_fee: 900_000_000_000, max_priority: 900_000_000_000 };
        let draft = Draft::Evm { from: from.clone(), nonce, payment: payment.clone(), gas_limit: 21_000, fee };
        let Ok(unsigned) = tx::evm::build(&draft, CHAIN_ID) else { return };
        let Ok(request) = theft(&unsigned.bytes, payment, number, u64::try_from(index).unwrap_or(0), clock.now())
        else {
            return;
        };
        let Ok(answers) = self.ground.thief.sign(&[request]) else { return };
        let Some(signer::client::SignAnswer::Signed { signed, .. }) = answers.into_iter().next() else { return };
        let Ok(meaning) = tx::evm::decode_signed(&signed.bytes, CHAIN_ID) else { return };
        report.stolen_keys += 1;
        net.foreign.insert(signed.hash);
        let same = |one: &Waiting| one.from == from && one.meaning.slot == Slot::Nonce(nonce);
        let (gone, stay): (Vec<Waiting>, Vec<Waiting>) = std::mem::take(&mut net.pool).into_iter().partition(same);
        net.pool = stay;
        net.dropped(gone);
        net.pool.push(Waiting { hash: signed.hash, from, meaning, bytes: signed.bytes.into() });
    }

    /// A stranger pays a user's address, and now and then a wallet of the house.
    pub(super) fn pay(&self, net: usize) {
        let net = if net == BITCOIN { 0 } else { net };
        let mut world = self.world.lock();
        let World { nets, random, report, .. } = &mut *world;
        let Some(terms) = &PLANS[net].terms else { return };
        let users = &nets[net].users;
        let hot = random.below(40) == 0;
        // Mostly one of a few: two deposits are swept together.
        let among = if random.below(2) == 0 { users.len().min(6) } else { users.len() };
        let to = if hot { &nets[net].wallets } else { users };
        let Some(to) = to.get(random.index(if hot { to.len() } else { among })).cloned() else { return };
        let native = !hot && random.below(4) == 0;
        let amount = match (hot, native) {
            (true, _) => terms.ceiling - u128::from(random.below(1_000)) * DOLLAR,
            (_, true) => terms.gas + u128::from(random.below(1_000)) * terms.gas / 500,
            // Some are too little to be swept alone.
            (false, false) => u128::from(1 + random.below(3_000_000)) * 100,
        };
        report.deposits += u64::from(!hot);
        self.pays(&mut nets[net], net, random, (to, native, amount));
    }

    /// A stranger's transaction waits for its block.
    pub(super) fn pays(
        &self,
        chain: &mut Net,
        net: usize,
        random: &mut Random,
        (to, native, amount): (Address, bool, u128),
    ) {
        let plan = &PLANS[net];
        let coin = if native { Coin::Native } else { Coin::Token(plan.token()) };
        chain.pay(random, (plan.account)([0x57; 20]), Payment { to, coin, amount: raw(amount) });
    }

    /// A stranger pays small coins to wallets of Bitcoin.
    pub(super) fn give(&self) {
        let mut world = self.world.lock();
        world.report.small_coins += 3;
        let number = world.turn;
        let World { nets, random, .. } = &mut *world;
        let net = &mut nets[BITCOIN];
        let outputs: Vec<(Address, u64)> =
            (0..3).map(|_| (net.wallets[random.index(net.wallets.len())].clone(), 600 + random.below(3_000))).collect();
        net.give(number, &outputs);
    }
}

/// What a thief asks of a signer that knows nothing of ours.
fn theft(
    payload: &[u8],
    payment: Payment,
    number: i64,
    index: u64,
    now: Timestamp,
) -> Result<signer::SignRequest, SimError> {
    let (chain, group) = (
        PLANS[0].name.parse::<domain::ChainName>().map_err(broken)?,
        "hot-eve".parse::<domain::GroupId>().map_err(broken)?,
    );
    let intent = signer::Intent {
        signer: "sim".parse().map_err(broken)?,
        network: signer::SignerChain::Evm { chain_id: CHAIN_ID },
        job: signer::names::JobId::Job(number),
        round: 0,
        chain: chain.clone(),
        group: group.clone(),
        kind: signer::IntentKind::Pay { payment, owner: None },
        most_fee: raw(10_u128.pow(29)),
        expires: now.plus_micros(3_600 * SECOND),
        builds: 1,
        requester: "mallory".parse().map_err(broken)?,
    };
    Ok(signer::SignRequest {
        id: format!("theft-{number}").parse().map_err(broken)?,
        chain,
        group,
        index,
        payload: payload.to_vec(),
        intents: vec![intent],
        bitcoin: None,
        replaces: None,
        approvals: Vec::new(),
    })
}
