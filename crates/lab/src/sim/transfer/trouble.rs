//! What goes wrong around the processes: accounts are frozen, calls arrive late, engine, line and database are gone for
//! a while, and the clock jumps.

use domain::id::{self, Id, made_at};
use domain::ledger::OpKey;
use domain::transfer::Direction;
use domain::{AccountStatus, AssetId, UserId};
use spot::{Operation, Request};
use store::ledger::StatusChange;

use super::laws::unread;
use super::run::{MINUTE, PROCESSES, Simulation};
use super::world::World;

/// The clock does not jump while a transfer is open that is older than this: the engine forgets ids after 12 hours.
const OLDEST_MICROS: i64 = 4 * 60 * MINUTE;

/// A user's account in an asset at one of the two ends.
#[derive(Clone, Copy)]
pub(super) struct Side {
    user: UserId,
    asset: AssetId,
    engine: bool,
}

impl Simulation {
    /// Freezes or disables an account of an open transfer, at either end; activates one that was frozen or disabled.
    pub(super) async fn change_status(&mut self) -> Result<(), String> {
        self.world.lock().report.status_changes += 1;
        let (one, status) = {
            let mut world = self.world.lock();
            let World { clients, in_flight, random, .. } = &mut *world;
            // A transfer that the engine is being called for at this moment, or else a recent one.
            let start = random.index(in_flight.len());
            let mut called = in_flight.keys().skip(start).filter_map(|id| clients.open.get(id));
            let to_funding = random.below(2) == 0;
            let called = called.find(|known| !to_funding || known.order.direction == Direction::ToFunding);
            let recent = clients.open.len().min(30);
            let recent = clients.open.values().nth_back(random.index(recent));
            let known = called.or(recent);
            let full = self.troubled.len() > 9 || random.below(3) == 0;
            match known.filter(|_| !full) {
                None => match self.troubled.pop_front() {
                    None => return Ok(()),
                    Some(one) => (one, AccountStatus::Active),
                },
                Some(known) => {
                    let status = if random.below(4) == 0 { AccountStatus::Frozen } else { AccountStatus::Disabled };
                    // Mostly at the target: then the money must go back.
                    let at_target = random.below(4) != 0;
                    let engine = at_target == (known.order.direction == Direction::ToSpot);
                    (Side { user: known.order.user, asset: known.order.asset, engine }, status)
                }
            }
        };
        let done = self.set_status(one, status).await?;
        // An account that could not be activated is activated later.
        if status != AccountStatus::Active || !done {
            self.troubled.push_back(one);
        }
        Ok(())
    }

    /// False: the engine did not take it.
    async fn set_status(&mut self, of: Side, status: AccountStatus) -> Result<bool, String> {
        let Side { user, asset, engine } = of;
        if engine {
            let id: Id<id::Job> = self.admin.next().map_err(|error| error.to_string())?;
            let operation = Operation::SetStatus { id: id.into(), user, asset, status };
            let told = self.world.lock().ask_engine(&[operation.into()]);
            return Ok(told.is_some_and(|told| matches!(told[..], [spot::Answer::First(_)])));
        }
        let Some(account) = self.ground.accounts.get(&(user, asset)).copied() else { return Ok(true) };
        self.status_changes += 1;
        let key = OpKey::new(format!("status-{}", self.status_changes)).map_err(|error| error.to_string())?;
        let (actor, reason) = ("simulator".to_owned(), "simulation".to_owned());
        let change = StatusChange { key, account, status, actor, reason };
        let now = self.world.lock().now();
        let replies = self.db.set_status(&[change], now).await.map_err(|error| unread(&error))?;
        let applied = replies.iter().all(|reply| reply.applied());
        if applied { Ok(true) } else { Err(format!("an account could not be made {status:?}")) }
    }

    /// A call arrives after its caller has given up.
    pub(super) fn deliver(&self, at: usize) {
        let mut world = self.world.lock();
        let late = world.late.swap_remove(at);
        world.report.calls_late += 1;
        let ids = late.requests.iter().filter_map(|request| match request {
            Request::Run(operation) => Some(operation.id().number()),
            _ => None,
        });
        let after = ids.filter(|id| !world.clients.open.contains_key(id)).count();
        world.report.late_after_the_end += after as u64;
        world.ask_engine(&late.requests);
    }

    pub(super) fn stop_engine(&self) {
        let mut world = self.world.lock();
        world.report.engine_crashes += u64::from(world.engine.is_up());
        world.engine.stop();
    }

    pub(super) async fn recover_engine(&mut self) -> Result<(), String> {
        {
            let mut world = self.world.lock();
            if world.engine.is_up() {
                return Ok(());
            }
            let World { engine, random, report, .. } = &mut *world;
            engine.recover(random, report)?;
        }
        self.check().await
    }

    pub(super) fn snapshot(&self) {
        let mut world = self.world.lock();
        let World { engine, report, .. } = &mut *world;
        engine.snapshot(report);
    }

    pub(super) fn lose_line(&self) {
        let mut world = self.world.lock();
        world.report.leg_outages += 1;
        world.outage_until = world.turn + world.random.below(100);
    }

    pub(super) fn lose_database(&self) {
        let mut world = self.world.lock();
        world.report.database_cut_off += 1;
        let process = world.random.index(PROCESSES);
        world.lives[process].cut_off_until = world.turn + world.random.below(60);
    }

    /// Time passes at once, up to two hours; the engine's clock may take a while to follow.
    pub(super) async fn jump(&mut self) -> Result<(), String> {
        self.check().await?;
        let mut world = self.world.lock();
        let oldest = world.clients.open.keys().next().map(|id| made_at(*id).micros());
        if oldest.is_some_and(|oldest| world.now().micros() - oldest > OLDEST_MICROS) {
            return Ok(());
        }
        let micros = MINUTE * (1 + i64::try_from(world.random.below(120)).unwrap_or(0));
        world.report.clock_jumps += 1;
        world.pass(micros);
        if world.random.below(2) == 0 {
            world.engine.behind_micros = micros;
            world.engine.behind_until = world.turn + world.random.below(60);
        }
        Ok(())
    }
}
