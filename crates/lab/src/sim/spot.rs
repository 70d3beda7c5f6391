//! The spot engine under simulation: random operations in random batches on a disk that lies, with crashes at any
//! moment. The answers of every batch, and the whole state after every recovery, must agree with the model. The same
//! seed gives the same run.

use std::sync::Arc;

use domain::random::Random;
use domain::{AccountStatus, Amount, AssetId, Timestamp, UserId, id};
use spot::sim::model::Model;
use spot::sim::{Faults, FaultyDisk, SegmentHeader, Window, prepare};
use spot::{Answer, Core, Decision, Mark, Move, OpId, Operation, Request, Settings, Settle, SpotError, snapshot};

/// What happened in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub requests: u64,
    pub applied: u64,
    pub refused: u64,
    pub replays: u64,
    /// Conflicts, expired ids, ids from the future, and rollbacks that had no room.
    pub undecided: u64,
    pub batches: u64,
    /// Batches whose write or sync failed.
    pub failed_batches: u64,
    pub recoveries: u64,
    /// Recoveries that were themselves interrupted.
    pub interrupted_recoveries: u64,
    pub torn_tails: u64,
    /// Batches that failed and were on the disk all the same.
    pub unacknowledged_kept: u64,
    pub snapshots: u64,
    pub clean_restarts: u64,
}

/// Makes up requests: new operations, the same ones again, the same id with other content, late ids, expired ids.
struct Generator {
    random: Random,
    /// Operations to send again, some of them changed.
    recent: Vec<Operation>,
    /// Makes the ids differ.
    sequence: u64,
}

/// How many operations the generator may send again.
const RECENT: usize = 400;

impl Generator {
    const fn new(seed: u64) -> Self {
        Self { random: Random::from_seed(seed), recent: Vec::new(), sequence: 0 }
    }

    fn user(&mut self) -> UserId {
        let number = i64::try_from(1 + self.random.below(12)).unwrap_or(1);
        UserId::new(number).expect("positive")
    }

    /// Nearly always asset 3, so that users meet; sometimes 1 and 2, and 0, which is none.
    fn asset(&mut self) -> AssetId {
        AssetId(i64::try_from(self.random.below(40)).unwrap_or(0).clamp(0, 3))
    }

    /// Sometimes an amount that is invalid, or one that leaves hardly any room in the total.
    fn amount(&mut self) -> Amount {
        let units = match self.random.below(40) {
            0 => 0,
            1 => -5,
            2 => i64::MAX - 3,
            _ => i64::try_from(self.random.below(1_000)).unwrap_or(1) + 1,
        };
        Amount::from_units(units)
    }

    /// Most ids are a few seconds old; some are hours old and perhaps expired, some are from the future.
    fn id(&mut self, now: Timestamp) -> OpId {
        let shift = match self.random.below(60) {
            0 => -(i64::try_from(self.random.below(40)).unwrap_or(0)) * 3_600_000_000,
            1 => i64::try_from(self.random.below(3)).unwrap_or(0) * 3_600_000_000,
            _ => -i64::try_from(self.random.below(5_000_000)).unwrap_or(0),
        };
        self.sequence += 1;
        let number = id::first_at(now.plus_micros(shift)) + i64::try_from(self.sequence % (1 << 22)).unwrap_or(0);
        OpId::new(number).expect("positive")
    }

    fn fresh(&mut self, now: Timestamp) -> Operation {
        let of = Move { id: self.id(now), user: self.user(), asset: self.asset(), amount: self.amount() };
        match self.random.below(20) {
            0..=5 => Operation::Deposit(of),
            6..=9 => Operation::Withdraw(of),
            10 => Operation::Rollback(of),
            11..=14 => Operation::Reserve(of),
            15 => Operation::Release(of),
            16 | 17 => {
                let (base_amount, quote_amount) = (Amount::from_units(of.amount.units() % 50), self.amount());
                let fee = |random: &mut Random| Amount::from_units(i64::try_from(random.below(4)).unwrap_or(0));
                Operation::Settle(Settle {
                    id: of.id,
                    buyer: of.user,
                    seller: self.user(),
                    fees: self.user(),
                    base: of.asset,
                    quote: self.asset(),
                    base_amount,
                    quote_amount: Amount::from_units(quote_amount.units() % 50),
                    buyer_fee: fee(&mut self.random),
                    seller_fee: fee(&mut self.random),
                })
            }
            18 if self.random.below(3) == 0 => {
                // Nearly all marks are of one database.
                let database = 7 + u64::from(self.random.below(20) == 0);
                Operation::Mark(Mark { id: of.id, database, counter: self.random.below(1_000_000) })
            }
            _ => {
                let status = AccountStatus::ALL[self.random.index(6).saturating_sub(3)];
                Operation::SetStatus { id: of.id, user: of.user, asset: of.asset, status }
            }
        }
    }

    /// The same id with other content.
    fn changed(&mut self, operation: &Operation) -> Operation {
        match *operation {
            Operation::Deposit(of) => Operation::Withdraw(of),
            Operation::Withdraw(of) => Operation::Withdraw(Move { amount: self.amount(), ..of }),
            Operation::Rollback(of) => Operation::Rollback(Move { user: self.user(), ..of }),
            Operation::Reserve(of) => Operation::Reserve(Move { asset: self.asset(), ..of }),
            Operation::Release(of) => Operation::Reserve(of),
            Operation::Settle(of) => Operation::Settle(Settle { seller: self.user(), ..of }),
            Operation::SetStatus { id, user, asset, .. } => {
                Operation::SetStatus { id, user, asset, status: AccountStatus::Disabled }
            }
            Operation::Mark(of) => Operation::Mark(Mark { counter: of.counter + 1, ..of }),
        }
    }

    fn request(&mut self, now: Timestamp) -> Request {
        let earlier =
            if self.recent.is_empty() { None } else { Some(self.recent[self.random.index(self.recent.len())]) };
        let operation = match (self.random.below(20), earlier) {
            (0 | 1, Some(earlier)) => earlier,
            (2, Some(earlier)) => self.changed(&earlier),
            // Most withdrawals stand; some are rolled back, sometimes before they come, sometimes twice.
            (3 | 4, Some(Operation::Withdraw(of) | Operation::Rollback(of))) => Operation::Rollback(of),
            (5, Some(Operation::Rollback(of))) => Operation::Withdraw(of),
            (6, Some(earlier)) => return Request::Query(earlier.id()),
            (7, _) => return Request::Balance { user: self.user(), asset: self.asset() },
            (8, _) => return Request::Total(self.asset()),
            _ => self.fresh(now),
        };
        if self.recent.len() < RECENT {
            self.recent.push(operation);
        } else {
            let at = self.random.index(RECENT);
            self.recent[at] = operation;
        }
        Request::Run(operation)
    }
}

pub struct Simulation {
    random: Random,
    generator: Generator,
    disk: FaultyDisk,
    settings: Settings,
    core: Core<FaultyDisk>,
    model: Model,
    now: Timestamp,
    /// The last batch that was acknowledged.
    acknowledged: u64,
    /// A batch that failed. Only the recovery can tell whether it is on the disk.
    in_flight: Option<(Timestamp, Vec<Request>)>,
    /// The window of the last batch that was acknowledged.
    durable_window: Window,
    report: Report,
}

/// January 2027, in microseconds. Any time after the epoch of the ids would do.
const START: i64 = 1_800_000_000_000_000;
/// Six hours, so that ids expire within a run.
const RETENTION_MICROS: i64 = 6 * 3_600 * 1_000_000;

impl Simulation {
    pub fn new(seed: u64) -> Result<Self, SpotError> {
        let mut random = Random::from_seed(seed);
        let disk = FaultyDisk::new(random.next_u64());
        let settings = Settings { segment_bytes: 1 << 20, retention_micros: RETENTION_MICROS, accept_clock: true };
        Core::create(&disk, random.next_u64(), &settings)?;
        let (core, _) = Core::open(Arc::new(disk.clone()), &settings, &mut |_| {})?;
        Ok(Self {
            generator: Generator::new(random.next_u64()),
            random,
            disk,
            settings,
            core,
            model: Model::new(RETENTION_MICROS),
            now: Timestamp::from_micros(START),
            acknowledged: 0,
            in_flight: None,
            durable_window: Window::default(),
            report: Report::default(),
        })
    }

    /// Runs until so many requests were made. `Err` says where the engine and the model disagree.
    pub fn run(mut self, requests: u64, progress: &mut dyn FnMut(&Report)) -> Result<Report, String> {
        while self.report.requests < requests {
            match self.random.below(1_000) {
                0..780 => self.batch()?,
                780..810 => self.snapshot()?,
                810..840 => self.recover()?,
                840..850 => self.restart()?,
                850..870 => self.prepare_segment(),
                _ => self.disk.set_faults(trouble(&mut self.random)),
            }
            progress(&self.report);
        }
        self.disk.set_faults(Faults::default());
        self.recover()?;
        Ok(self.report)
    }

    fn pass_time(&mut self) -> Timestamp {
        let step = match self.random.below(50) {
            // The clock steps back.
            0 => -i64::try_from(self.random.below(1_800_000_000)).unwrap_or(0),
            1 => i64::try_from(self.random.below(7_200_000_000)).unwrap_or(0),
            _ => i64::try_from(self.random.below(2_000_000)).unwrap_or(0),
        };
        self.now = self.now.plus_micros(step);
        self.now
    }

    fn batch(&mut self) -> Result<(), String> {
        let now = self.pass_time();
        let largest = if self.random.below(30) == 0 { 600 } else { 30 };
        let count = 1 + self.random.index(largest);
        let requests: Vec<Request> = (0..count).map(|_| self.generator.request(now)).collect();
        self.report.requests += count as u64;
        self.report.batches += 1;
        self.core.begin(now);
        let answers: Vec<_> = requests.iter().map(|request| self.core.answer(request)).collect();
        if self.core.commit().is_err() {
            self.in_flight = Some((now, requests));
            self.report.failed_batches += 1;
            return self.recover();
        }
        self.model.begin(now);
        for (request, answer) in requests.iter().zip(answers) {
            let expected = self.model.answer(request);
            if expected != answer {
                return Err(format!("{request:?} was answered {answer:?}, expected {expected:?}"));
            }
            match answer {
                Answer::First(Decision::Applied) => self.report.applied += 1,
                Answer::First(Decision::Refused(_)) => self.report.refused += 1,
                Answer::Replay(_) => self.report.replays += 1,
                Answer::Conflict | Answer::Expired | Answer::TooEarly | Answer::NoRoom => self.report.undecided += 1,
                Answer::Standing(_) | Answer::Balance(_) | Answer::Total(_) | Answer::Pair(_) => {}
            }
        }
        if self.core.log().sequence() > self.acknowledged {
            self.acknowledged += 1;
            self.durable_window = self.model.window();
        }
        self.model.forget(self.durable_window.horizon);
        Ok(())
    }

    fn snapshot(&mut self) -> Result<(), String> {
        let Ok(sealed) = self.core.seal() else { return self.recover() };
        if snapshot::take(&self.disk, sealed).is_ok_and(|made| made.is_some()) {
            self.report.snapshots += 1;
        }
        Ok(())
    }

    /// If this fails, the writer makes the segment itself when it needs it.
    fn prepare_segment(&self) {
        let current = self.core.log().segment();
        let header = SegmentHeader { number: current.number + 1, ..current };
        prepare(&self.disk, &self.core.spare(), &header).ok();
    }

    fn restart(&mut self) -> Result<(), String> {
        if self.core.close().is_ok() {
            self.acknowledged += 1;
            self.durable_window = self.model.window();
            self.report.clean_restarts += 1;
        } else {
            self.in_flight = Some((self.now, Vec::new()));
        }
        self.recover()
    }

    /// Crashes, starts again, and compares. Either the power goes, or only the process is killed: then everything that
    /// it wrote can still be read, but a power cut after the restart may yet take what was not synced.
    fn recover(&mut self) -> Result<(), String> {
        let started = loop {
            if self.random.below(3) == 0 {
                self.disk.kill();
            } else {
                self.disk.crash();
            }
            let interrupted = self.random.below(4) == 0;
            if interrupted {
                self.disk.set_faults(Faults { power_after: Some(self.random.below(30)), ..Faults::default() });
            }
            match Core::open(Arc::new(self.disk.clone()), &self.settings, &mut |_| {}) {
                Ok((core, started)) => {
                    self.core = core;
                    break started;
                }
                Err(SpotError::Storage { .. }) if interrupted => self.report.interrupted_recoveries += 1,
                Err(error) => return Err(format!("the start was refused: {error} ({})", error.code())),
            }
        };
        self.report.recoveries += 1;
        self.report.torn_tails += u64::from(started.torn.is_some());
        match (started.sequence.checked_sub(self.acknowledged), self.in_flight.take()) {
            (Some(0), _) => {}
            (Some(1), Some((now, requests))) => {
                self.report.unacknowledged_kept += 1;
                self.model.set_window(self.durable_window);
                self.model.begin(now);
                for request in &requests {
                    self.model.answer(request);
                }
                self.durable_window = self.model.window();
            }
            _ => return Err(format!("batch {} is the last, {} was acknowledged", started.sequence, self.acknowledged)),
        }
        self.acknowledged = started.sequence;
        self.model.set_window(self.durable_window);
        match self.model.difference(self.core.state()) {
            Some(difference) => Err(format!("after a recovery: {difference}")),
            None => Ok(()),
        }
    }
}

/// The faults from now on.
fn trouble(random: &mut Random) -> Faults {
    let power_after = (random.below(2) == 0).then(|| random.below(15));
    let mut rare = || if random.below(3) == 0 { random.below(60) } else { 0 };
    let (short_write, write_error, sync_error) = (rare() * 5, rare(), rare());
    let capacity = (random.below(6) == 0).then_some(3 << 20);
    Faults { short_write, write_error, sync_error, capacity, power_after }
}
