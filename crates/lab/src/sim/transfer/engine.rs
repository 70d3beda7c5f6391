//! The real spot engine, without threads, on a disk that lies.

use std::sync::Arc;

use domain::random::Random;
use domain::{Amount, AssetId, Timestamp, UserId};
use spot::sim::{Faults, FaultyDisk};
use spot::{Answer, Core, OpId, Request, Settings, SpotError, Standing, snapshot};

use super::report::Report;

/// How long the engine remembers ids. No transfer is open for so long, but a call may be under way for longer.
const RETENTION_MICROS: i64 = 12 * 3_600 * 1_000_000;

pub(crate) struct SimEngine {
    disk: FaultyDisk,
    settings: Settings,
    /// `None` while the engine is down.
    core: Option<Core<FaultyDisk>>,
    acknowledged: u64,
    /// Whether a batch may be on the disk whose callers were not answered.
    in_doubt: bool,
    /// By so much its clock is behind the clock of the processes, until that turn.
    pub behind_micros: i64,
    pub behind_until: u64,
}

/// What goes wrong with a submission inside the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mishap {
    /// The power goes after so many operations of the disk.
    PowerAfter(u64),
    /// The disk cannot sync.
    NoSync,
    /// The batch is on the disk, and the engine dies before it can answer.
    Silent,
}

/// What the engine knows of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    /// The engine is down.
    Down,
    /// The id is so old that the engine has forgotten it.
    Forgotten,
    /// What stands under the id; `None` if the operation never arrived.
    Remembered(Option<Standing>),
}

impl SimEngine {
    pub fn new(random: &mut Random) -> Result<Self, SpotError> {
        let disk = FaultyDisk::new(random.next_u64());
        let settings = Settings { segment_bytes: 1 << 20, retention_micros: RETENTION_MICROS, ..Settings::default() };
        Core::create(&disk, random.next_u64(), &settings)?;
        let (core, _) = Core::open(Arc::new(disk.clone()), &settings, &mut |_| {})?;
        let (behind_micros, behind_until) = (0, 0);
        Ok(Self { disk, settings, core: Some(core), acknowledged: 0, in_doubt: false, behind_micros, behind_until })
    }

    pub const fn is_up(&self) -> bool {
        self.core.is_some()
    }

    /// All answers, or `None`: then the engine is down, and may or may not have done it.
    pub fn submit(&mut self, now: Timestamp, requests: &[Request], mishap: Option<Mishap>) -> Option<Vec<Answer>> {
        let core = self.core.as_mut()?;
        core.begin(now.plus_micros(-self.behind_micros));
        let answers: Vec<Answer> = requests.iter().map(|request| core.answer(request)).collect();
        match mishap {
            Some(Mishap::PowerAfter(operations)) => {
                self.disk.set_faults(Faults { power_after: Some(operations), ..Faults::default() });
            }
            Some(Mishap::NoSync) => self.disk.set_faults(Faults { sync_error: 1_000, ..Faults::default() }),
            Some(Mishap::Silent) | None => {}
        }
        let committed = core.commit();
        self.disk.set_faults(Faults::default());
        if committed.is_err() || mishap == Some(Mishap::Silent) {
            self.in_doubt = true;
            self.core = None;
            return None;
        }
        self.acknowledged = core.log().sequence();
        Some(answers)
    }

    /// The engine dies between two submissions.
    pub fn stop(&mut self) {
        self.core = None;
    }

    /// Starts again from what is on the disk.
    pub fn recover(&mut self, random: &mut Random, report: &mut Report) -> Result<(), String> {
        let started = loop {
            if random.below(3) == 0 {
                self.disk.kill();
            } else {
                self.disk.crash();
            }
            let interrupted = random.below(4) == 0;
            if interrupted {
                self.disk.set_faults(Faults { power_after: Some(random.below(30)), ..Faults::default() });
            }
            match Core::open(Arc::new(self.disk.clone()), &self.settings, &mut |_| {}) {
                Ok((core, started)) => {
                    self.core = Some(core);
                    self.disk.set_faults(Faults::default());
                    break started;
                }
                Err(SpotError::Storage { .. }) if interrupted => report.engine_interrupted_recoveries += 1,
                Err(error) => return Err(format!("the engine refused to start: {error} ({})", error.code())),
            }
        };
        if started.sequence < self.acknowledged {
            let acknowledged = self.acknowledged;
            return Err(format!("the engine acknowledged batch {acknowledged}, and has {}", started.sequence));
        }
        if self.in_doubt && started.sequence > self.acknowledged {
            report.engine_batches_kept += 1;
        } else if self.in_doubt {
            report.engine_batches_lost += 1;
        }
        self.in_doubt = false;
        self.acknowledged = started.sequence;
        Ok(())
    }

    pub fn snapshot(&mut self, report: &mut Report) {
        let Some(core) = &mut self.core else { return };
        let Ok(sealed) = core.seal() else {
            self.core = None;
            return;
        };
        if snapshot::take(&self.disk, sealed).is_ok_and(|made| made.is_some()) {
            report.engine_snapshots += 1;
        }
    }

    // What the laws look at. All of these give nothing while the engine is down.

    pub fn memory(&mut self, id: i64) -> Memory {
        let (Some(core), Some(id)) = (self.core.as_mut(), OpId::new(id)) else { return Memory::Down };
        match core.answer(&Request::Query(id)) {
            Answer::Standing(standing) => Memory::Remembered(standing),
            _ => Memory::Forgotten,
        }
    }

    pub fn balances(&self) -> impl Iterator<Item = (UserId, AssetId, spot::Balance)> {
        self.core.iter().flat_map(|core| core.state().balances())
    }

    pub fn totals(&self) -> impl Iterator<Item = (AssetId, Amount)> {
        self.core.iter().flat_map(|core| core.state().totals())
    }
}
