//! A process of the run. It is killed and paused at any moment, and started again whenever it has ended, as an init system would.

use std::fs::OpenOptions;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use terminal::clock::Stopwatch;
use terminal::failure::CommandResult;

use crate::postgres::end_with_parent;
use crate::rig::process::itself;
use crate::rig::trouble;

/// One that ends by itself, because its database or its signer is away, is not started again sooner.
const REST: Duration = Duration::from_millis(700);

/// What a process is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    Signer,
    Outbound,
    Confirm,
    Deposits,
    /// Gas for users' addresses, and their coins brought home.
    Rules,
    /// What customers want paid out gets jobs, and what became of them is settled.
    Withdrawals,
    /// Reads the blocks of Bitcoin, for the books and for the coins that pay.
    Follow,
}

impl Part {
    pub const ALL: [Self; 7] =
        [Self::Signer, Self::Outbound, Self::Confirm, Self::Deposits, Self::Rules, Self::Withdrawals, Self::Follow];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Signer => "signer",
            Self::Outbound => "outbound",
            Self::Confirm => "confirm",
            Self::Deposits => "deposits",
            Self::Rules => "rules",
            Self::Withdrawals => "withdrawals",
            Self::Follow => "follow",
        }
    }
}

pub(super) struct Actor {
    pub part: Part,
    arguments: Vec<String>,
    /// All that it says, one start after the other.
    log: PathBuf,
    child: Option<Child>,
    started: Stopwatch,
    paused: bool,
}

impl Actor {
    pub fn new(part: Part, arguments: Vec<String>, log: PathBuf) -> Self {
        Self { part, arguments, log, child: None, started: Stopwatch::start(), paused: false }
    }

    pub fn start(&mut self) -> CommandResult {
        let failed = |error| trouble("a process could not be started", error);
        let log = OpenOptions::new().create(true).append(true).open(&self.log).map_err(failed)?;
        let mut command = itself()?;
        command.args(&self.arguments).stdin(Stdio::null());
        command.stdout(log.try_clone().map_err(failed)?).stderr(log);
        end_with_parent(&mut command, Signal::KILL);
        self.child = Some(command.spawn().map_err(failed)?);
        (self.started, self.paused) = (Stopwatch::start(), false);
        Ok(())
    }

    /// SIGKILL: it has no chance to put anything away.
    pub fn kill(&mut self) -> CommandResult {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        let failed = |error| trouble("a process could not be killed", error);
        child.kill().map_err(failed)?;
        child.wait().map_err(failed)?;
        Ok(())
    }

    /// It stands still where it is, or goes on.
    pub fn pause(&mut self, paused: bool) {
        self.paused = paused;
        let signal = if paused { Signal::STOP } else { Signal::CONT };
        if let Some(child) = &self.child {
            // One that has ended by itself is started again soon.
            kill_process(Pid::from_child(child), signal).ok();
        }
    }

    pub const fn is_paused(&self) -> bool {
        self.paused
    }

    /// Starts it again if it has ended.
    pub fn keep_up(&mut self) -> CommandResult {
        if let Some(child) = &mut self.child
            && child.try_wait().map_err(|error| trouble("a process could not be looked at", error))?.is_none()
        {
            return Ok(());
        }
        self.child = None;
        if self.started.elapsed() >= REST { self.start() } else { Ok(()) }
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        if let Err(failure) = self.kill() {
            terminal::output::warn(failure.messages.join("; "));
        }
    }
}
