//! The line between a process and the engine: at random it loses, repeats, delays and garbles what it carries.
//!
//! The real [`SpotLeg`] makes the submissions and reads their answers.

use domain::id::{self, Id};
use domain::{Amount, AssetId, UserId};
use spot::{Answer as Told, Operation, Request};
use transfer::leg::spot::{SpotLeg, Submit};
use transfer::leg::{Answer, Answered, Call, Holding, Leg, Reason, Record, Verb};

use super::engine::Mishap;
use super::turn::{die, park};
use super::world::{Shared, World};

/// What becomes of a submission on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Carried,
    Twice,
    Lost,
    AnswerLost,
    /// Carried out after its caller has given up.
    Late,
    /// An answer that decides nothing, whether it was carried out or not.
    Undecided {
        carried: bool,
    },
}

impl Fate {
    const fn number(self) -> i64 {
        match self {
            Self::Carried => 0,
            Self::Twice => 1,
            Self::Lost => 2,
            Self::AnswerLost => 3,
            Self::Late => 4,
            Self::Undecided { carried: false } => 5,
            Self::Undecided { carried: true } => 6,
        }
    }
}

/// What happens to one submission on its way, and to the process that sent it.
struct Way {
    fate: Fate,
    dies_before: bool,
    dies_after: bool,
    waits_before: bool,
    waits_after: bool,
}

impl World {
    fn way(&mut self, requests: &[Request]) -> Way {
        // Rollbacks are rare. They fail ten times as often as other calls, so that a run meets enough of it.
        let goes_back = |request: &Request| matches!(request, Request::Run(Operation::Rollback(_)));
        let of = if requests.iter().any(goes_back) { 100 } else { 1_000 };
        let fate = match self.random.below(of) {
            _ if self.calm => Fate::Carried,
            _ if self.turn < self.outage_until => {
                self.report.calls_in_outage += 1;
                Fate::Lost
            }
            0..15 => Fate::Lost,
            15..30 => Fate::AnswerLost,
            30..45 => Fate::Twice,
            45..60 => Fate::Late,
            60..75 => Fate::Undecided { carried: self.random.below(2) == 0 },
            _ => Fate::Carried,
        };
        let (dies_before, dies_after) = (self.chance(600), self.chance(600));
        let waits = |world: &mut Self, in_four| !world.calm && world.random.below(4) < in_four;
        Way { fate, dies_before, dies_after, waits_before: waits(self, 3), waits_after: waits(self, 1) }
    }

    /// Carries a submission out at the engine.
    pub fn ask_engine(&mut self, requests: &[Request]) -> Option<Vec<Told>> {
        if self.engine.behind_until <= self.turn {
            self.engine.behind_micros = 0;
        }
        let mishap = self.chance(1_000).then(|| match self.random.below(3) {
            0 => Mishap::PowerAfter(self.random.below(4)),
            1 => Mishap::NoSync,
            _ => Mishap::Silent,
        });
        let up = self.engine.is_up();
        let told = self.engine.submit(self.now(), requests, mishap);
        if up && told.is_none() {
            self.report.engine_crashes += 1;
        }
        for answer in told.iter().flatten() {
            self.report.answers_too_early += u64::from(*answer == Told::TooEarly);
            let number = match answer {
                Told::First(outcome) => 1 + 8 * i64::from(*outcome == spot::Decision::Applied),
                Told::Replay(outcome) => 2 + 8 * i64::from(*outcome == spot::Decision::Applied),
                Told::Balance(Some(balance)) => 3 + 8 * balance.available.units(),
                Told::Total(total) => 4 + 8 * total.units(),
                Told::Conflict | Told::Expired | Told::TooEarly | Told::NoRoom => 5,
                Told::Balance(None) | Told::Standing(_) | Told::Pair(_) => 6,
            };
            self.note(20, &[number]);
        }
        told
    }

    /// Replaces one answer, or all, by an answer that decides nothing.
    fn garble(&mut self, told: &mut [Told]) {
        let nothing = [Told::Conflict, Told::Expired, Told::TooEarly, Told::NoRoom, Told::Standing(None)];
        let instead = nothing[self.random.index(nothing.len())];
        if told.is_empty() || self.random.below(2) == 0 {
            told.fill(instead);
        } else {
            let at = self.random.index(told.len());
            told[at] = instead;
        }
    }
}

/// A submission on its way. When its process dies, it may still arrive.
struct Submission<'a> {
    world: &'a Shared,
    requests: &'a [Request],
    arrived: bool,
}

fn id_of(request: &Request) -> Option<i64> {
    match request {
        Request::Run(operation) => Some(operation.id().number()),
        Request::Query(_) | Request::Balance { .. } | Request::Total(_) | Request::Pair => None,
    }
}

impl<'a> Submission<'a> {
    fn new(world: &'a Shared, requests: &'a [Request]) -> Self {
        let mut locked = world.lock();
        let World { in_flight, report, .. } = &mut *locked;
        for id in requests.iter().filter_map(id_of) {
            let calling = in_flight.entry(id).or_default();
            report.competing_calls += u64::from(*calling > 0);
            *calling += 1;
        }
        Self { world, requests, arrived: false }
    }
}

impl Drop for Submission<'_> {
    fn drop(&mut self) {
        let mut world = self.world.lock();
        for id in self.requests.iter().filter_map(id_of) {
            match world.in_flight.get_mut(&id) {
                Some(calling) if *calling > 1 => *calling -= 1,
                _ => drop(world.in_flight.remove(&id)),
            }
        }
        if !self.arrived && world.random.below(2) == 0 && self.requests.iter().any(|one| id_of(one).is_some()) {
            world.send_late(self.requests.to_vec());
        }
    }
}

/// One process's line.
struct Line {
    world: Shared,
    /// Its coordinator gives up by the machine's clock. So that the run does not depend on when exactly, a call is then
    /// answered at once, or never.
    impatient: bool,
}

impl Line {
    async fn carry(&self, requests: &[Request]) -> Result<Vec<Told>, Reason> {
        let way = self.world.lock().way(requests);
        let mut submission = Submission::new(&self.world, requests);
        if way.dies_before {
            self.world.lock().report.killed_before_call += 1;
            die(&self.world).await;
        }
        if way.waits_before && !self.impatient {
            park(&self.world).await;
        }
        submission.arrived = true;
        let told = self.arrive(requests, way.fate);
        if way.dies_after {
            self.world.lock().report.killed_after_call += 1;
            die(&self.world).await;
        }
        if way.waits_after && !self.impatient {
            park(&self.world).await;
        }
        match told {
            Some(told) => Ok(told),
            None if self.impatient && matches!(way.fate, Fate::Lost | Fate::AnswerLost | Fate::Late) => {
                self.world.lock().report.call_timeouts += 1;
                std::future::pending().await
            }
            None => Err(Reason::new("LEG_TIMEOUT", "no answer")),
        }
    }

    /// The answers that find their way back.
    fn arrive(&self, requests: &[Request], fate: Fate) -> Option<Vec<Told>> {
        let mut world = self.world.lock();
        world.note(21, &[fate.number(), i64::try_from(requests.len()).unwrap_or(0)]);
        match fate {
            Fate::Carried => world.ask_engine(requests),
            Fate::Twice => {
                world.report.calls_twice += 1;
                world.ask_engine(requests)?;
                world.ask_engine(requests)
            }
            Fate::Lost => {
                world.report.calls_lost += 1;
                None
            }
            Fate::AnswerLost => {
                world.report.answers_lost += 1;
                world.ask_engine(requests);
                None
            }
            Fate::Late => {
                world.send_late(requests.to_vec());
                None
            }
            Fate::Undecided { carried } => {
                world.report.answers_undecided += 1;
                let mut told = if carried { world.ask_engine(requests)? } else { vec![Told::Conflict; requests.len()] };
                world.garble(&mut told);
                Some(told)
            }
        }
    }
}

impl Submit for Line {
    fn submit<'a>(&'a self, requests: &'a [Request]) -> Answered<'a, Result<Vec<Told>, Reason>> {
        Box::pin(self.carry(requests))
    }
}

/// The far end as a process sees it.
pub(crate) struct SimLeg {
    spot: SpotLeg,
    world: Shared,
    freezes: bool,
}

impl SimLeg {
    pub fn new(world: &Shared, impatient: bool, freezes: bool) -> Self {
        let line = Line { world: world.clone(), impatient };
        Self { spot: SpotLeg::other(Box::new(line)), world: world.clone(), freezes }
    }
}

impl Leg for SimLeg {
    fn call<'a>(&'a self, calls: &'a [Call]) -> Answered<'a, Vec<Answer>> {
        Box::pin(async move {
            let commits = calls.iter().filter(|call| call.verb == Verb::Commit).count();
            self.world.lock().report.commits_called += commits as u64;
            let mut answers = self.spot.call(calls).await;
            let mut world = self.world.lock();
            if world.chance(1_000) {
                world.report.answers_miscounted += 1;
                let at = world.random.index(answers.len());
                if world.random.below(2) == 0 {
                    answers.remove(at);
                } else {
                    answers.insert(at, Answer::Success);
                }
            }
            answers
        })
    }

    fn query<'a>(&'a self, ids: &'a [Id<id::Transfer>]) -> Answered<'a, Vec<Record>> {
        self.spot.query(ids)
    }

    fn holdings<'a>(&'a self, of: &'a [(UserId, AssetId)]) -> Answered<'a, Option<Vec<Option<Holding>>>> {
        self.spot.holdings(of)
    }

    fn totals<'a>(&'a self, of: &'a [AssetId]) -> Answered<'a, Option<Vec<Amount>>> {
        self.spot.totals(of)
    }

    fn freezes(&self) -> bool {
        self.freezes
    }
}
