//! Yesterday's copy of one side is put back in the middle of a run, as an operator might after a failed disk. Database and
//! spot engine then disagree on what has happened. Nothing may run on that: the server must refuse, with a code that says
//! what to do. The way out is taken here too: the side that is behind gets its newest state back.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use domain::UserId;
use terminal::clock::Stopwatch;
use terminal::failure::{CommandResult, Failure};

use super::Victims;
use crate::rig::client::Client;
use crate::rig::trouble;

/// How codes of a pair that does not fit begin.
const PAIR: &str = concat!("SPOT", "_PAIR_");

/// How long a server may take to notice.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Database,
    Spot,
}

/// What became of the restores.
#[derive(Debug, Default)]
pub(super) struct Restores {
    pub database: u32,
    pub spot: u32,
    /// Servers that would not run on the pair, by the code that they gave.
    pub refused: Vec<String>,
    /// Servers that took it for granted.
    pub unnoticed: u32,
}

impl Victims {
    /// Nothing runs from here on, as if the power had gone.
    async fn stop_all(&mut self) -> CommandResult {
        for server in self.servers.iter_mut().filter_map(Option::take) {
            server.kill().await?;
        }
        if let Some(spot) = self.spot.take() {
            spot.kill().await?;
        }
        if let Some(postgres) = &mut self.postgres {
            postgres.kill();
        }
        Ok(())
    }

    /// Database and engine run; servers do not yet.
    async fn start_sides(&mut self) -> CommandResult {
        if let Some(postgres) = &mut self.postgres {
            postgres.restart()?;
        }
        let address = self.spot_address.to_string();
        self.spot = Some(self.rig.start_spot(&address).await?);
        Ok(())
    }

    async fn start_servers(&mut self) -> CommandResult {
        for number in 0..self.servers.len() {
            if self.servers[number].is_none() {
                self.servers[number] = Some(self.start_server(number, 0).await?);
            }
        }
        Ok(())
    }

    /// The folder that has all of a side.
    fn place(&self, side: Side) -> PathBuf {
        match (side, &self.postgres) {
            (Side::Spot, _) => self.rig.spot_folder(),
            (Side::Database, Some(postgres)) => postgres.data(),
            (Side::Database, None) => self.rig.database_folder(),
        }
    }

    fn copy_of(&self, side: Side, name: &str) -> PathBuf {
        // Beside the place itself, so that both are on one file system and belong to the same user.
        self.place(side).with_extension(name)
    }

    /// A copy of both sides, of one moment.
    pub(super) async fn back_up(&mut self) -> CommandResult {
        self.stop_all().await?;
        for side in [Side::Database, Side::Spot] {
            copy(&self.place(side), &self.copy_of(side, "backup"))?;
        }
        self.start_sides().await?;
        self.start_servers().await
    }

    /// Puts the backup of one side back, sees what a server says to that, and mends it if the server has refused. A pair
    /// that nobody objects to is left as it is: the clients' records will tell.
    pub(super) async fn restore(&mut self, side: Side) -> CommandResult {
        match side {
            Side::Database => self.restores.database += 1,
            Side::Spot => self.restores.spot += 1,
        }
        self.stop_all().await?;
        copy(&self.place(side), &self.copy_of(side, "newest"))?;
        copy(&self.copy_of(side, "backup"), &self.place(side))?;
        self.start_sides().await?;
        match self.objection().await? {
            Some(code) => {
                self.restores.refused.push(code);
                self.stop_all().await?;
                copy(&self.copy_of(side, "newest"), &self.place(side))?;
                self.start_sides().await?;
            }
            None => self.restores.unnoticed += 1,
        }
        self.start_servers().await
    }

    /// The code with which a server refuses to start or to be ready on this pair.
    async fn objection(&mut self) -> Result<Option<String>, Failure> {
        let server = match self.rig.start_server(0).await {
            Ok(server) => server,
            Err(failure) => {
                let said = format!("{} {}", failure.code, failure.messages.join(" "));
                return code_in(&said).map(Some).ok_or(failure);
            }
        };
        let mut client = Client::new(vec![server.address], 0, self.rig.secret.clone());
        let watch = Stopwatch::start();
        let mut objection = None;
        while watch.elapsed() < PATIENCE && objection.is_none() {
            if let Some(user) = UserId::new(1)
                && let Ok((status, answer)) = client.ask(user, "GET", "/health/ready", None).await
            {
                // A server that has not asked the engine yet does not know.
                objection = code_in(&answer.to_string()).filter(|code| code != "SPOT_PAIR_UNCHECKED");
                if status == 200 && objection.is_none() {
                    break;
                }
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        server.kill().await?;
        Ok(objection)
    }
}

fn code_in(text: &str) -> Option<String> {
    let rest = &text[text.find(PAIR)?..];
    Some(rest.chars().take_while(|letter| letter.is_ascii_uppercase() || *letter == '_').collect())
}

/// The folder `to` becomes what `from` is, with owners and modes.
fn copy(from: &Path, to: &Path) -> CommandResult {
    let copy = || -> io::Result<()> {
        if to.exists() {
            std::fs::remove_dir_all(to)?;
        }
        let done = Command::new("cp").arg("-a").arg(from).arg(to).output()?;
        if done.status.success() {
            Ok(())
        } else {
            Err(io::Error::other(String::from_utf8_lossy(&done.stderr).into_owned()))
        }
    };
    copy().map_err(|error| trouble("a copy could not be made", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_found_wherever_it_stands() {
        let ready = r#"{"ready":false,"troubles":[{"code":"SPOT_PAIR_BEHIND","words":"…"}]}"#;
        assert_eq!(code_in(ready).as_deref(), Some("SPOT_PAIR_BEHIND"));
        assert_eq!(code_in("SPOT_UNREACHABLE: nobody"), None);
    }
}
