//! One worker of a chain's lanes that sends.
//!
//! A round takes lanes, and for all of them together: writes slots and attempts down, has everything signed in one call, keeps the bytes,
//! tells the nodes, and keeps that they were told. Each step commits before the next begins.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex};

use chain::{Broadcast, Chain};
use domain::{ChainKind, Clock, GroupId, Timestamp};
use signer::client::SignAnswer;
use signer::names::SignerName;
use signer::wire::MOST_REQUESTS;
use signer::{BitcoinTerms, Intent, SignRequest, SignerChain};
use store::Db;
use store::entry::ChainRow;
use store::outbound::send::{FormerSlot, SignedAnswer};
use store::outbound::{
    AttemptKind, AttemptRow, Duty, HeldLane, JobId, JobRow, LaneId, LaneRow, LaneWork, NewSlot, OpenSlot, OpenedSlots,
    Share, SignedAs, SignedAttempt, SlotId, SlotsRead, Spend, ToldAttempt,
};
use tx::{Address, Fee};

use super::approve;
use super::ask::{APPROVAL_BAD, Move, Wanted, judge};
use super::draft;
use super::plan::Plan;
use super::purse::Ground;
use super::till::{Till, input_numbers, terms_of};
use super::{MOST_LANES, MakeId, OutboundError, Signs, lease};
use crate::wallet::Pinned;

/// What one round has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SentRound {
    /// Slots that were taken.
    pub slots: usize,
    /// Of those: to pay nobody, so that what is behind a gap can be mined.
    pub gaps: usize,
    /// Attempts that offer more, or cancel.
    pub replaced: usize,
    pub signed: usize,
    pub refused: usize,
    /// Transactions that nodes were told of.
    pub told: usize,
    /// Jobs that were put off.
    pub put_off: usize,
    /// What kept it from going on.
    pub waits: Option<String>,
}

impl SentRound {
    pub const fn is_busy(&self) -> bool {
        self.slots + self.replaced + self.signed + self.refused + self.told + self.put_off > 0
    }
}

pub struct SendWorker<'a> {
    pub(super) db: &'a Db,
    pub(super) chain: &'a dyn Chain,
    signer: &'a dyn Signs,
    signer_name: SignerName,
    pub(super) ids: MakeId<'a>,
    pub(super) ground: Ground,
    worker: String,
    share: Share,
    /// Lanes whose gaps are not filled before a time: the signer refused it.
    pub(super) fillers: HashMap<LaneId, Timestamp>,
    /// Slots that nothing is asked for before a time: the signer has not let their jobs go from where they were.
    rests: HashMap<SlotId, Timestamp>,
    /// When jobs whose time is over were last looked for.
    looked: Option<Timestamp>,
    /// Bitcoin: when more was last to be offered for a slot.
    pub(super) tried: Mutex<HashMap<SlotId, Timestamp>>,
}

/// A slot that waits for a cancel of another is asked for after so long.
const MOVE_PAUSE_MICROS: i64 = 30_000_000;

/// Withdrawals' jobs that wait for a slot and whose time is over are looked for this often, and so many are ended in one transaction.
const OVERDUE_MICROS: i64 = 60_000_000;
const MOST_OVERDUE: i64 = 200;

/// The cancels that must be signed first.
#[derive(Default)]
struct Moves {
    /// Each with the slots that wait for it.
    requests: Vec<(BTreeSet<SlotId>, SignRequest)>,
    /// Slots of jobs that cannot leave where they were, and why, by their lanes: nobody must wait behind them without knowing.
    stuck: BTreeMap<SlotId, (LaneId, String)>,
}

impl<'a> SendWorker<'a> {
    #[expect(clippy::too_many_arguments, reason = "each is another neighbour")]
    pub fn new(
        db: &'a Db,
        chain: &'a dyn Chain,
        signer: &'a dyn Signs,
        signer_name: SignerName,
        ids: MakeId<'a>,
        row: ChainRow,
        pinned: Arc<Pinned>,
        worker: String,
    ) -> Result<Self, OutboundError> {
        let ground = Ground::of(row, pinned)?;
        let (fillers, rests, tried) = (HashMap::new(), HashMap::new(), Mutex::new(HashMap::new()));
        let share = Share::ALL;
        Ok(Self { db, chain, signer, signer_name, ids, ground, worker, share, fillers, rests, looked: None, tried })
    }

    /// One of several in a process, each with a share of the lanes.
    pub fn with_share(mut self, share: Share) -> Self {
        self.share = share;
        self
    }

    /// As much of everything as one commit each takes. When it fails nothing is half done, and the next round begins at the rows.
    pub async fn round(&mut self, clock: &dyn Clock) -> Result<SentRound, OutboundError> {
        let now = clock.now();
        let place = (self.ground.row.id, Duty::Send);
        self.end_overdue(now).await;
        let held = self.db.take_share(place, &self.worker, (self.share, MOST_LANES), now, lease(now)).await?;
        let mut sent = SentRound::default();
        if held.is_empty() {
            return Ok(sent);
        }
        let lanes: Vec<LaneId> = held.iter().map(|one| one.lane).collect();
        let limits = &self.ground.row.outbound;
        // What is in a block waits for its depth, which is the watcher's. On Bitcoin it says what is built on what.
        let which = if self.ground.row.kind == ChainKind::Bitcoin { SlotsRead::All } else { SlotsRead::Unmined };
        let most = limits.in_flight.max(limits.gather_most).into();
        let work = self.db.lane_work(&lanes, most, which, now).await?;
        let (own, strangers) = self.ground.addresses(&work.lanes);
        for (lane, why) in strangers {
            self.db.stop_lane(lane, &why, now).await?;
        }
        // What was signed and not told comes first: it needs nobody but the nodes.
        let halted = self.halted(&work.slots).await?;
        let untold = untold(&work.slots).filter(|(slot, attempt)| !halted.contains(&(slot.id, attempt.number)));
        let untold = untold.filter_map(|(slot, attempt)| self.told_again(slot, attempt));
        self.tell(&held, untold.collect(), clock, &mut sent).await?;
        let tills = self.tills(&work.lanes).await?;
        let planned = if self.signer.is_ready() {
            self.plan(&work, &own, &tills, now).await
        } else {
            // A slot that nobody signs for only waits, and on TRON it ends.
            sent.waits = Some("the signer has not said that it has the keys of the treasury file".to_owned());
            Ok(Plan::default())
        };
        let plan = match planned {
            Ok(plan) => plan,
            // What is written down goes on, whatever keeps new ones from being written.
            Err(error @ (OutboundError::Chain(_) | OutboundError::BooksBehind { .. })) => {
                sent.waits = Some(error.to_string());
                Plan::default()
            }
            Err(error) => return Err(error),
        };
        let at = clock.now();
        let opened = self.db.open_slots(&held, &plan.slots, &plan.attempts, &plan.put_off, &plan.known, at).await?;
        self.db.drop_bumps(&held, &plan.at_most, at).await?;
        sent.slots = opened.slots.len();
        let gaps = plan.slots.iter().filter(|slot| slot.jobs.is_empty() && opened.slots.contains(&slot.id));
        sent.gaps = gaps.count();
        sent.replaced = opened.attempts.len();
        sent.put_off = plan.put_off.len();
        self.let_unopened_go(&plan, &opened, &work, &tills).await?;
        let left = work.slots.iter().any(|slot| slot.unsigned().next().is_some());
        // What has just been written need not be read again. What was left by a round that did not end is.
        let open = if left || !opened.attempts.is_empty() {
            self.unhalted(self.db.open_slots_of(&lanes, SlotsRead::Unsigned).await?).await?
        } else {
            written(&plan, &opened, &work, at)
        };
        let signed = self.sign(&held, &work, &open, (&own, &tills), clock, &mut sent).await?;
        let by_id: HashMap<SlotId, &OpenSlot> = open.iter().map(|slot| (slot.id, slot)).collect();
        let fresh = signed.iter().filter_map(|one| {
            let slot = by_id.get(&one.slot)?;
            let attempt = slot.attempts.iter().find(|attempt| attempt.number == one.number)?;
            self.telling(slot, attempt, bytes_of(one)?)
        });
        // What may not offer more now goes on being told as it is.
        let more = |slot: SlotId| plan.attempts.iter().any(|one| one.slot == slot && one.kind == AttemptKind::Pay);
        let kept = |slot: SlotId| more(slot) && !opened.attempts.contains(&slot);
        let again = work.slots.iter().filter(|slot| plan.again.contains(&slot.id) || kept(slot.id));
        // The newest that nodes may be told of.
        let again = again.filter_map(|slot| slot.attempts.iter().rev().find_map(|one| self.told_again(slot, one)));
        self.tell(&held, fresh.chain(again).collect(), clock, &mut sent).await?;
        Ok(sent)
    }

    /// A plan ends what it finds, and finds nothing of a lane that is stopped or of a coin that is suspended. What no slot was ever left open for needs
    /// no lease: the lane's row is locked, and whoever holds the lane sees that the job has changed.
    async fn end_overdue(&mut self, now: Timestamp) {
        if self.looked.is_some_and(|looked| looked.plus_micros(OVERDUE_MICROS) > now && looked <= now) {
            return;
        }
        self.looked = Some(now);
        match self.db.end_overdue_jobs(self.ground.row.id, now, MOST_OVERDUE).await {
            // There may be more.
            Ok(ended) if i64::try_from(ended).unwrap_or(MOST_OVERDUE) >= MOST_OVERDUE => self.looked = None,
            Ok(_) => {}
            // It keeps nobody from being paid, and is tried again.
            Err(error) => tracing::warn!(code = error.code(), %error, "jobs whose time is over were not ended"),
        }
    }

    // ---- halts -----------------------------------------------------------------------------------------------

    /// Signed attempts of which no node has heard, and of which people let none hear now. What nodes had already is theirs whatever is halted.
    async fn halted(&self, slots: &[OpenSlot]) -> Result<HashSet<(SlotId, u32)>, OutboundError> {
        let unheard: Vec<(&OpenSlot, &AttemptRow)> =
            untold(slots).filter(|(_, attempt)| attempt.said.is_none()).collect();
        let sendable = self.db.sendable(&unheard.iter().map(|(slot, _)| slot.id).collect::<Vec<_>>()).await?;
        let halted = unheard.into_iter().filter(|(slot, attempt)| !sendable.lets(slot.id, attempt.kind));
        Ok(halted.map(|(slot, attempt)| (slot.id, attempt.number)).collect())
    }

    /// Those of these slots of which people let something be signed. The others stay as they are written down until the halt is over.
    async fn unhalted(&self, slots: Vec<OpenSlot>) -> Result<Vec<OpenSlot>, OutboundError> {
        let sendable = self.db.sendable(&slots.iter().map(|slot| slot.id).collect::<Vec<_>>()).await?;
        let lets = |slot: &OpenSlot| slot.unsigned().all(|attempt| sendable.lets(slot.id, attempt.kind));
        Ok(slots.into_iter().filter(lets).collect())
    }

    // ---- signatures ------------------------------------------------------------------------------------------

    /// Has everything signed that is written down and is not, in one call. What was signed and is kept now.
    async fn sign(
        &mut self,
        held: &[HeldLane],
        work: &LaneWork,
        open: &[OpenSlot],
        (own, tills): (&HashMap<LaneId, Address>, &HashMap<GroupId, Till>),
        clock: &dyn Clock,
        sent: &mut SentRound,
    ) -> Result<Vec<SignedAttempt>, OutboundError> {
        let lanes: HashMap<LaneId, &LaneRow> = work.lanes.iter().map(|lane| (lane.id, lane)).collect();
        self.learn_unsigned(&lanes, open).await?;
        let mut wanted: Vec<(Wanted<'_>, SignRequest)> = Vec::new();
        for slot in open {
            let Some(lane) = lanes.get(&slot.lane).filter(|lane| lane.stopped.is_none() && own.contains_key(&lane.id))
            else {
                continue;
            };
            if self.rests.get(&slot.id).is_some_and(|until| *until > clock.now()) {
                continue;
            }
            // Its nonce is another job's by the signer's log: it goes to a slot that cancels that one.
            if slot.holder.is_some() && !slot.jobs.is_empty() {
                continue;
            }
            for attempt in slot.unsigned() {
                let one = Wanted { lane, slot, attempt };
                match one.request(&self.ground, &self.signer_name)? {
                    Some(request) => wanted.push((one, request)),
                    // On Bitcoin its coins are held by it: nobody must wait for that without knowing.
                    None if self.ground.row.kind == ChainKind::Bitcoin => {
                        let why =
                            format!("what slot {} is to sign makes no sense with these wallets and coins", slot.id.0);
                        self.db.stop_lane(slot.lane, &why, clock.now()).await?;
                    }
                    None => {}
                }
            }
        }
        if wanted.is_empty() || !self.signer.is_ready() {
            return Ok(Vec::new());
        }
        // At most one cancel goes before each.
        wanted.truncate(MOST_REQUESTS / 2);
        let asked: BTreeSet<SlotId> = wanted.iter().map(|(one, _)| one.slot.id).collect();
        let Moves { requests: mut moves, stuck } = self.moves(open, &asked, clock.now()).await?;
        for (lane, why) in stuck.values() {
            self.db.stop_lane(*lane, why, clock.now()).await?;
        }
        let stopped: BTreeSet<LaneId> = stuck.values().map(|(lane, _)| *lane).collect();
        // A slot whose cancels do not all fit is asked for in the next round.
        let beyond: BTreeSet<SlotId> =
            moves.iter().skip(MOST_REQUESTS / 2).flat_map(|(slots, _)| slots.clone()).collect();
        moves.truncate(MOST_REQUESTS / 2);
        wanted.retain(|(one, _)| !beyond.contains(&one.slot.id) && !stopped.contains(&one.slot.lane));
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        self.name_former(&mut wanted).await?;
        self.bring_approvals(&mut wanted).await?;
        let leading = moves.len();
        let mut first: Vec<SignRequest> = moves.iter().map(|(_, request)| request.clone()).collect();
        first.extend(wanted.iter().map(|(_, request)| request.clone()));
        let answers = match self.signer.sign(&first).await {
            Ok(answers) => answers,
            // What may have been signed is asked for again, by the same names.
            Err(error) => {
                sent.waits = Some(error.to_string());
                return Ok(Vec::new());
            }
        };
        let now = clock.now();
        // A job whose move was refused stays where it is; what its payment was told follows from that.
        let stays: BTreeSet<SlotId> = moves
            .iter()
            .zip(&answers)
            .filter(
                |(_, answer)| matches!(answer, SignAnswer::Refused { code, .. } if code != "SIGNER_NOTHING_TO_CANCEL"),
            )
            .flat_map(|((slots, _), _)| slots.iter().copied())
            .collect();
        let later = now.plus_micros(MOVE_PAUSE_MICROS);
        self.rests.retain(|_, until| *until > now);
        self.rests.extend(stays.iter().map(|slot| (*slot, later)));
        self.void_approvals(&wanted, answers.get(leading..).unwrap_or_default()).await?;
        let answers = answers.into_iter().skip(leading);
        let mut kept: Vec<SignedAttempt> = wanted
            .iter()
            .zip(answers)
            .filter_map(|((one, _), answer)| {
                let answer = if stays.contains(&one.slot.id) {
                    SignedAnswer::Later
                } else {
                    judge(answer, &self.ground, own.get(&one.slot.lane)?, (one.lane, one.slot, one.attempt))
                };
                let spend = tills.get(&one.lane.group).and_then(|till| spend_of(*till, &answer));
                Some(SignedAttempt {
                    lane: one.slot.lane,
                    slot: one.slot.id,
                    number: one.attempt.number,
                    answer,
                    spend,
                })
            })
            .collect();
        let head = self.signer.head();
        let head = head.as_ref().map(|(name, head)| (name.as_str(), head));
        let open = self.db.keep_signed(held, &kept, head, now).await?;
        let after = now.plus_micros(i64::from(self.ground.row.outbound.stuck_after_s) * 1_000_000);
        for (one, _) in wanted.iter().filter(|(one, _)| one.slot.jobs.is_empty()) {
            self.fillers.insert(one.slot.lane, after);
        }
        sent.signed = kept.iter().filter(|one| matches!(one.answer, SignedAnswer::Signed { .. })).count();
        sent.refused = kept.iter().filter(|one| matches!(one.answer, SignedAnswer::Refused { .. })).count();
        kept.retain(|one| open.contains(&one.slot));
        Ok(kept)
    }

    /// What people have signed for what is asked goes along.
    async fn bring_approvals(&self, wanted: &mut [(Wanted<'_>, SignRequest)]) -> Result<(), OutboundError> {
        let jobs: Vec<JobId> = wanted.iter().flat_map(|(one, _)| one.slot.jobs.iter().map(|(job, _)| job.id)).collect();
        let given = self.db.approvals_of(&jobs).await?;
        for (_, request) in wanted.iter_mut().filter(|_| !given.is_empty()) {
            let asked: HashSet<signer::digest::Digest32> = request.intents.iter().map(Intent::digest).collect();
            let given = given.iter().filter(|one| asked.contains(&one.digest));
            request.approvals = given.map(approve::given).collect::<Result<_, _>>()?;
        }
        Ok(())
    }

    /// One of those that went along is no good: none of them goes along again, or the job would be refused for ever.
    async fn void_approvals(
        &self,
        wanted: &[(Wanted<'_>, SignRequest)],
        answers: &[SignAnswer],
    ) -> Result<(), OutboundError> {
        for ((one, _), answer) in wanted.iter().zip(answers) {
            if let SignAnswer::Refused { code, message, .. } = answer
                && code == APPROVAL_BAD
            {
                let jobs: Vec<JobId> = one.slot.jobs.iter().map(|(job, _)| job.id).collect();
                self.db.refuse_approvals(&jobs, message).await?;
            }
        }
        Ok(())
    }

    /// TRON has no slots that the signer could compare. So a job that is built again names its transaction before, which only rows can know that
    /// are as new as the signer's log.
    async fn name_former(&self, wanted: &mut [(Wanted<'_>, SignRequest)]) -> Result<(), OutboundError> {
        if self.ground.row.kind != ChainKind::Tron {
            return Ok(());
        }
        fn built<'s>(one: &Wanted<'s>) -> Option<&'s JobRow> {
            one.slot.jobs.iter().find(|(_, round)| *round > 0).map(|(job, _)| job)
        }
        let jobs: Vec<JobId> = wanted.iter().filter_map(|(one, _)| built(one)).map(|job| job.id).collect();
        let former = self.db.former_slots(&jobs).await?;
        let ids = former.iter().flat_map(|before| before.jobs.iter().map(|job| (*job, &before.payload)));
        let ids: HashMap<SignedAs, &Vec<u8>> = ids.collect();
        for (one, request) in wanted {
            let before = built(one).and_then(|job| ids.get(&job.signed_as()));
            request.replaces = before.map(|payload| signer::digest::sha256(payload));
        }
        Ok(())
    }

    /// The cancels that let jobs go to another slot: of the slot before, which is used up.
    async fn moves(&self, open: &[OpenSlot], asked: &BTreeSet<SlotId>, now: Timestamp) -> Result<Moves, OutboundError> {
        let mut moves = Moves::default();
        if self.ground.row.kind == ChainKind::Tron {
            return Ok(moves);
        }
        let fresh = open.iter().filter(|slot| asked.contains(&slot.id) && slot.newest().is_none());
        let moving: Vec<(&OpenSlot, &JobRow)> = fresh
            .flat_map(|slot| slot.jobs.iter().filter(|(_, round)| *round > 0).map(move |(job, _)| (slot, job)))
            .collect();
        let former = self.db.former_slots(&moving.iter().map(|(_, job)| job.id).collect::<Vec<_>>()).await?;
        let mut moved: HashSet<(SlotId, JobId)> = HashSet::new();
        let mut whys: HashMap<(SlotId, JobId), String> = HashMap::new();
        // One cancel is enough for all that were in a slot, wherever they go.
        for before in &former {
            let mine = || moving.iter().filter(|(_, job)| before.jobs.contains(&job.signed_as()));
            let Some((_, job)) = mine().next() else { continue };
            // The wallet that the slot was taken from, which is not always the one that pays now.
            let lane = &before.lane;
            let own = match self.ground.address(lane) {
                Some(own) => own,
                None => Err(format!("the treasury file has no wallet group {}", lane.group)),
            };
            let used_up = own.and_then(|own| {
                let none = || "what was signed there makes no sense with these wallets and coins".to_owned();
                self.used_up(before, lane, &own).ok_or_else(none)
            });
            let (payload, bitcoin) = match used_up {
                Ok(used_up) => used_up,
                Err(why) => {
                    whys.extend(mine().map(|(slot, job)| ((slot.id, job.id), why.clone())));
                    continue;
                }
            };
            let number = (self.ids)().ok_or(OutboundError::NoIds)?;
            let (requester, jobs) = (job.requester.as_str(), before.jobs.clone());
            let request = Move { lane, requester, jobs, number, payload, bitcoin, now };
            moved.extend(mine().map(|(slot, job)| (slot.id, job.id)));
            let slots = mine().map(|(slot, _)| slot.id).collect();
            moves.requests.push((slots, request.request(&self.ground, &self.signer_name)?));
        }
        let is_moved = |slot: SlotId, job: JobId| moved.contains(&(slot, job));
        for (slot, job) in moving.iter().filter(|(slot, job)| !is_moved(slot.id, job.id)) {
            let why = whys.get(&(slot.id, job.id)).map_or("no row has it", String::as_str);
            let why = format!("{} cannot be signed here, because its slot before cannot be cancelled: {why}", job.id);
            moves.stuck.insert(slot.id, (slot.lane, why));
        }
        Ok(moves)
    }

    /// A cancel of a slot that is used up.
    fn used_up(&self, former: &FormerSlot, lane: &LaneRow, own: &Address) -> Option<(Vec<u8>, Option<BitcoinTerms>)> {
        let SignerChain::Bitcoin(network) = self.ground.network else {
            let payload = draft::cancel(self.chain, own, former.nonce?, Fee::Legacy { gas_price: 1 }).ok()?;
            return Some((payload, None));
        };
        let spending = tx::bitcoin::transaction::read_unsigned(&former.payload, network).ok()?;
        let inputs = input_numbers(&spending, &self.ground, &lane.group)?;
        let payload = draft::all_back(self.chain, network, &spending)?;
        let back = vec![*inputs.first()?];
        let terms = terms_of(&tx::bitcoin::transaction::read_unsigned(&payload, network).ok()?, inputs, back);
        Some((payload, Some(terms)))
    }

    /// Coins that were leased for slots and attempts that were not written after all.
    async fn let_unopened_go(
        &self,
        plan: &Plan,
        opened: &OpenedSlots,
        work: &LaneWork,
        tills: &HashMap<GroupId, Till>,
    ) -> Result<(), OutboundError> {
        for slot in plan.slots.iter().filter(|slot| slot.coins.is_some() && !opened.slots.contains(&slot.id)) {
            let lane = work.lanes.iter().find(|lane| lane.id == slot.lane);
            if let Some(till) = lane.and_then(|lane| tills.get(&lane.group)) {
                self.let_go(*till, slot.id).await?;
            }
        }
        for one in plan.attempts.iter().filter(|one| !opened.attempts.contains(&one.slot)) {
            if let Some(coins) = one.coins.as_ref().filter(|coins| !coins.outpoints.is_empty()) {
                self.db.release_further(coins.wallet, one.slot).await?;
            }
        }
        Ok(())
    }

    // ---- nodes -----------------------------------------------------------------------------------------------

    /// `None`: nodes are not told of what is in a block, nor of what people gave up and something else ends: on TRON its time; on EVM a cancel, which
    /// takes the place of a payment that was never told. Where a cancel comes too late for the nodes it is still the chain that says which was mined.
    fn telling<'b>(&self, slot: &OpenSlot, attempt: &AttemptRow, bytes: &'b [u8]) -> Option<Telling<'b>> {
        let ends = match self.ground.row.kind {
            ChainKind::Tron => true,
            ChainKind::Evm => attempt.kind == AttemptKind::Pay && attempt.told.is_none(),
            // Nothing cancels what is signed there, and others share it.
            ChainKind::Bitcoin => false,
        };
        let is_over = ends && slot.jobs.iter().any(|(job, _)| job.give_up);
        let told = slot.mined().is_none() && !is_over;
        let number = attempt.number;
        told.then_some(Telling { lane: slot.lane, slot: slot.id, nonce: slot.nonce, number, bytes })
    }

    fn told_again<'b>(&self, slot: &'b OpenSlot, attempt: &'b AttemptRow) -> Option<Telling<'b>> {
        self.telling(slot, attempt, attempt.signed.as_ref()?.0.as_slice())
    }

    /// Tells the nodes of attempts that are signed, and keeps that they were told.
    async fn tell(
        &self,
        held: &[HeldLane],
        mut wanted: Vec<Telling<'_>>,
        clock: &dyn Clock,
        sent: &mut SentRound,
    ) -> Result<(), OutboundError> {
        if wanted.is_empty() {
            return Ok(());
        }
        // In the order of their nonces, as far as nodes take them in order.
        wanted.sort_by_key(|one| (one.nonce, one.slot, one.number));
        let bytes: Vec<&[u8]> = wanted.iter().map(|one| one.bytes).collect();
        let said = self.chain.broadcast_all(&bytes).await;
        let mut told: Vec<ToldAttempt> = Vec::new();
        for (one, answer) in wanted.into_iter().zip(said) {
            let said = match answer {
                Ok(Broadcast::Taken) => "nodes have it".to_owned(),
                Ok(Broadcast::Refused(_, words)) => format!("nodes say: {words}"),
                // Nobody may have heard of it.
                Err(error) => {
                    sent.waits = Some(error.to_string());
                    continue;
                }
            };
            told.push(ToldAttempt { lane: one.lane, slot: one.slot, number: one.number, said });
        }
        sent.told += told.len();
        Ok(self.db.keep_told(held, &told, clock.now()).await?)
    }
}

/// Signed bytes that nodes are to be told of.
struct Telling<'b> {
    lane: LaneId,
    slot: SlotId,
    nonce: Option<u64>,
    number: u32,
    bytes: &'b [u8],
}

/// What is signed and was not told.
fn untold(slots: &[OpenSlot]) -> impl Iterator<Item = (&OpenSlot, &AttemptRow)> {
    let attempts = slots.iter().flat_map(|slot| slot.attempts.iter().map(move |attempt| (slot, attempt)));
    attempts.filter(|(_, attempt)| attempt.told.is_none() && attempt.signed.is_some())
}

/// The slots that have just been written, with all that a signer must know of them.
fn written(plan: &Plan, opened: &OpenedSlots, work: &LaneWork, at: Timestamp) -> Vec<OpenSlot> {
    let due: HashMap<JobId, &JobRow> = work.due.iter().map(|job| (job.id, job)).collect();
    let slot = |slot: &NewSlot| {
        let slotted = |job: &JobRow| JobRow { slot: Some(slot.id), ..job.clone() };
        let jobs = slot.jobs.iter().filter_map(|(id, _)| due.get(id).map(|job| (slotted(job), job.rounds)));
        let mut jobs: Vec<(JobRow, u32)> = jobs.collect();
        jobs.sort_by_key(|(job, _)| job.id);
        let (kind, payload) = (slot.kind, slot.payload.clone());
        let first = AttemptRow {
            number: 1,
            kind,
            payload,
            signed: None,
            refused: None,
            told: None,
            said: None,
            mined: None,
            created: at,
        };
        let holder = slot.instead.map(|(_, by)| by);
        let (id, lane, nonce, since) = (slot.id, slot.lane, slot.nonce, slot.since);
        OpenSlot { id, lane, nonce, holder, since, jobs, attempts: vec![first] }
    };
    plan.slots.iter().filter(|new| opened.slots.contains(&new.id)).map(slot).collect()
}

fn bytes_of(one: &SignedAttempt) -> Option<&[u8]> {
    match &one.answer {
        SignedAnswer::Signed { bytes, .. } => Some(bytes),
        SignedAnswer::Refused { .. }
        | SignedAnswer::SignedBefore { .. }
        | SignedAnswer::Held { .. }
        | SignedAnswer::Later => None,
    }
}

/// What was signed, for the Bitcoin wallet.
fn spend_of(till: Till, answer: &SignedAnswer) -> Option<Spend> {
    let SignedAnswer::Signed { bytes, .. } = answer else { return None };
    let tx = crate::bitcoin::tx_of_bytes(bytes).ok()?;
    Some(Spend { wallet: till.wallet, tx })
}
