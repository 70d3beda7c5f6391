//! Bitcoin: coins of users' addresses that go home together.
//!
//! Such a job names its coins, and pays all that they hold less the fee. It spends exactly these, and nothing comes back: the signer lets no
//! change go to users' addresses. So it is never replaced by one that offers more. While the network asks for twice what it offers it is not
//! sent; once sent it is told again and again, until prices fall.

use std::collections::{BTreeMap, HashMap};

use domain::Timestamp;
use store::outbound::{AttemptKind, JobId, LaneRow, NewSlot, PutOff, Reserved, SlotId};
use store::utxo::{Coin, OutPoint, UtxoError};

use super::OutboundError;
use super::gather::{Market, Payout};
use super::plan::{LEAST_RATE, Plan, later, over};
use super::send::SendWorker;
use super::till::Till;
use crate::bitcoin::{self, Costs, SpendError};

/// The row of the slot leases its coins without an end, a moment later. Whoever dies in between keeps nobody from trying again.
const LEASE_MICROS: i64 = 10_000_000;

/// The lane of a group, and what is known when it sends.
pub(super) struct Sweeper<'a> {
    pub lane: &'a LaneRow,
    pub till: Till,
    pub market: Market,
    /// So many transactions may be made.
    pub room: usize,
}

impl SendWorker<'_> {
    /// A transaction for each of these jobs.
    pub(super) async fn bundles(
        &self,
        sweeper: &Sweeper<'_>,
        payouts: &[Payout<'_>],
        now: Timestamp,
        plan: &mut Plan,
    ) -> Result<(), OutboundError> {
        let payouts = payouts.get(..sweeper.room.min(payouts.len())).unwrap_or_default();
        let jobs: Vec<JobId> = payouts.iter().map(|payout| payout.job.id).collect();
        let named = self.db.coins_of_jobs(&jobs).await?;
        let outpoints: Vec<OutPoint> = named.values().flatten().copied().collect();
        let coins = match self.db.coins_of(sweeper.till.wallet, &outpoints).await {
            Ok(coins) => coins,
            Err(UtxoError::Store(error)) => return Err(error.into()),
            Err(UtxoError::Refused(_)) => Vec::new(),
        };
        self.learn_numbers(coins.iter().map(|coin| coin.script.as_slice())).await?;
        let coins: HashMap<OutPoint, Coin> = coins.into_iter().map(|coin| (coin.outpoint, coin)).collect();
        for payout in payouts {
            let id = SlotId((self.ids)().ok_or(OutboundError::NoIds)?);
            let planned = match self.bundle(sweeper, payout, named.get(&payout.job.id), &coins, now) {
                Ok((payload, spent)) => self.hold(sweeper, payout, id, (payload, spent), now).await?,
                Err(put_off) => Err(put_off),
            };
            match planned {
                Ok(slot) => plan.slots.push(slot),
                Err(put_off) => plan.put_off.push(put_off),
            }
        }
        Ok(())
    }

    /// The transaction of a job, and what it spends. Why there is none now, or never.
    fn bundle(
        &self,
        sweeper: &Sweeper<'_>,
        payout: &Payout<'_>,
        named: Option<&Vec<OutPoint>>,
        known: &HashMap<OutPoint, Coin>,
        now: Timestamp,
    ) -> Result<(Vec<u8>, Vec<OutPoint>), PutOff> {
        let job = payout.job;
        let ended = |why: &str| over(job, why.to_owned(), now);
        let Some(named) = named.filter(|named| !named.is_empty()) else {
            return Err(ended("it names no coins, and of users' addresses only named coins are spent"));
        };
        // In their order: the same job is the same transaction.
        let spent: BTreeMap<OutPoint, Coin> =
            named.iter().filter_map(|one| Some((*one, known.get(one)?.clone()))).collect();
        if spent.len() != named.len() {
            return Err(ended("the wallet does not know one of its coins"));
        }
        let coins: Vec<Coin> = spent.into_values().collect();
        if !self.foreign(&sweeper.lane.group, &coins).is_empty() {
            let why =
                "an address that it spends from is not as its key says (WALLET_ROW_DIFFERS): bursar wallet verify";
            return Err(later(job, why.to_owned(), now, false));
        }
        // Prices move while a job waits for its turn. Half of what is asked is mined some day; less might not even be passed on.
        let rate = (sweeper.market.rate / 2).max(LEAST_RATE);
        let most_fee = u64::try_from(job.most_fee.to_u256()).unwrap_or(u64::MAX);
        let costs = Costs { rate, long_term_rate: rate, most_fee };
        let planned = bitcoin::plan_whole(&coins, &payout.output, costs)
            .and_then(|planned| bitcoin::unsigned(&planned, sweeper.till.network, 0));
        match planned {
            Ok(unsigned) => Ok((unsigned.bytes, named.clone())),
            Err(SpendError::InsufficientFunds { .. }) => {
                Err(later(job, "the network asks for twice what it offers, or more".to_owned(), now, false))
            }
            Err(error) => Err(over(job, error.to_string(), now)),
        }
    }

    /// Leases what it spends. Why it cannot: one of the coins is spent, or somebody else's by now.
    async fn hold(
        &self,
        sweeper: &Sweeper<'_>,
        payout: &Payout<'_>,
        id: SlotId,
        (payload, outpoints): (Vec<u8>, Vec<OutPoint>),
        now: Timestamp,
    ) -> Result<Result<NewSlot, PutOff>, OutboundError> {
        let (job, wallet, until) = (payout.job, sweeper.till.wallet, now.plus_micros(LEASE_MICROS));
        match self.db.lease(wallet, &outpoints, id.lock(), until, now).await {
            Ok(()) => {}
            Err(UtxoError::Store(error)) => return Err(error.into()),
            Err(UtxoError::Refused(refusal)) => return Ok(Err(later(job, refusal.to_string(), now, true))),
        }
        Ok(Ok(NewSlot {
            id,
            lane: sweeper.lane.id,
            nonce: None,
            // Whatever spent these coins was in no block that the wallet has read.
            since: sweeper.market.settled.min(sweeper.market.read),
            jobs: vec![(job.id, job.version)],
            kind: AttemptKind::Pay,
            payload,
            coins: Some(Reserved { wallet, outpoints }),
            instead: None,
        }))
    }
}
