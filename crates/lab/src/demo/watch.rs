//! What the treasury says of itself, by the commands that any operator has, asked again and again: for the board, and for whoever waits.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use terminal::failure::Failure;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::screen::{Line, Screen};
use super::wrong;
use crate::rig::program;

/// Between two rounds.
const PAUSE: Duration = Duration::from_millis(150);
/// So long anything may take. A machine that builds something else at the same time is slow.
const PATIENCE: Duration = Duration::from_secs(180);

/// How it was when it was last asked.
#[derive(Clone, Debug, Default)]
pub struct State {
    pub chains: Vec<Value>,
    /// Of users.
    pub deposits: Vec<Value>,
    pub jobs: Vec<Value>,
}

impl State {
    /// How many deposits are in one of these states.
    pub fn deposits_in(&self, states: &[&str]) -> usize {
        self.deposits.iter().filter(|row| states.iter().any(|state| row["state"] == *state)).count()
    }

    /// The jobs of a kind, and how many of them have ended well.
    pub fn jobs_of(&self, kind: &str) -> (usize, usize) {
        let mine = || self.jobs.iter().filter(|job| job["kind"] == kind);
        (mine().filter(|job| job["state"] == "confirmed").count(), mine().count())
    }

    /// What there is, counted, and why the newest jobs are where they are.
    fn in_words(&self) -> String {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for row in &self.deposits {
            *counts.entry(format!("deposits {} on {}", row["state"], row["chain"])).or_default() += 1;
        }
        for job in &self.jobs {
            *counts.entry(format!("{} {} on {}: {}", job["kind"], job["state"], job["chain"], job["why"])).or_default() += 1;
        }
        counts.iter().map(|(what, count)| format!("{count} {what}")).collect::<Vec<_>>().join("; ")
    }

    fn show(&self, screen: &Screen) {
        let mut states: BTreeMap<&str, usize> = BTreeMap::new();
        for row in &self.deposits {
            *states.entry(row["state"].as_str().unwrap_or_default()).or_default() += 1;
        }
        let words: Vec<String> = states.iter().map(|(state, count)| format!("{count} {state}")).collect();
        screen.show(Line::Deposits, words.join(", "));
        let [(gas, of_gas), (sweeps, of_sweeps), (paid, of_paid)] =
            ["gas_topup", "consolidation", "withdrawal"].map(|kind| self.jobs_of(kind));
        if of_gas + of_sweeps + of_paid > 0 {
            let words = format!(
                "gas {gas} of {of_gas}, brought home {sweeps} of {of_sweeps}, payouts {paid} of {of_paid} confirmed"
            );
            screen.show(Line::Treasury, words);
        }
        let heights = self.chains.iter().map(|chain| {
            let reading = &chain["reading"];
            format!(
                "{} {} (proven {})",
                chain["chain"].as_str().unwrap_or_default(),
                reading["read"],
                reading["proven"]
            )
        });
        screen.show(Line::Chains, heights.collect::<Vec<_>>().join("  "));
    }
}

/// Asks until it is dropped.
pub struct Watch {
    state: watch::Receiver<(State, Option<String>)>,
    task: AbortHandle,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn rows(mut body: Value, name: &str) -> Vec<Value> {
    match body[name].take() {
        Value::Array(rows) => rows,
        _ => Vec::new(),
    }
}

impl Watch {
    pub fn start(config: PathBuf, screen: Arc<Screen>) -> Self {
        let (sender, state) = watch::channel((State::default(), None));
        let task = tokio::spawn(async move {
            loop {
                match look(&config).await {
                    Ok(state) => {
                        state.show(&screen);
                        sender.send_replace((state, None));
                    }
                    // It is said only to whoever waits in vain.
                    Err(failure) => {
                        sender.send_modify(|(_, trouble)| *trouble = Some(failure.messages.join("; ")));
                    }
                }
                tokio::time::sleep(PAUSE).await;
            }
        });
        Self { state, task: task.abort_handle() }
    }

    /// The state, as soon as it is so.
    pub async fn wait(&self, until: &str, is_so: impl Fn(&State) -> bool) -> Result<State, Failure> {
        let mut state = self.state.clone();
        let found = tokio::time::timeout(PATIENCE, state.wait_for(|(state, _)| is_so(state))).await;
        match found {
            Ok(Ok(found)) => Ok(found.0.clone()),
            Ok(Err(_)) => Err(wrong("nobody looks at the treasury any more")),
            Err(_) => {
                let (last, trouble) = self.state.borrow().clone();
                Err(wrong(format!("waited in vain until {until}; {}; {}", last.in_words(), trouble.unwrap_or_default())))
            }
        }
    }
}

async fn look(config: &std::path::Path) -> Result<State, Failure> {
    let chains = rows(program::told(config, &["chain", "status"]).await?, "chains");
    let deposits = rows(program::told(config, &["deposit", "list", "--limit", "1000"]).await?, "deposits");
    let jobs = rows(program::told(config, &["job", "list", "--limit", "1000"]).await?, "jobs");
    let deposits = deposits.into_iter().filter(|row| !row["user"].is_null()).collect();
    Ok(State { chains, deposits, jobs })
}
