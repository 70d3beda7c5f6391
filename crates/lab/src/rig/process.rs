//! This program again, as a child: started, waited for, stopped or killed.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use terminal::failure::{CommandResult, Failure};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;

use super::trouble;
use crate::postgres::end_with_parent;

pub struct Process {
    child: Child,
    pub address: SocketAddr,
    /// All that it said when it listened.
    pub said: Value,
}

/// How long a process may take to listen, and to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// This program, without the `BURSAR_…` settings of the user who runs it.
pub fn itself() -> Result<std::process::Command, Failure> {
    let program = std::env::current_exe().map_err(|error| trouble("this program cannot be found", error))?;
    let mut command = std::process::Command::new(program);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("BURSAR_")) {
        command.env_remove(name);
    }
    Ok(command)
}

impl Process {
    /// Starts it, and waits until it says where it listens: a JSON line with the event `listening` and the address under
    /// this name. What it has to say on standard error comes only if it does not start.
    pub async fn start(arguments: &[&str], name: &str) -> Result<Self, Failure> {
        Self::start_with(arguments, name, &[]).await
    }

    /// The same with variables of the environment.
    pub async fn start_with(arguments: &[&str], name: &str, variables: &[(&str, &str)]) -> Result<Self, Failure> {
        let failed = |error| trouble("a process could not be started", error);
        let mut command = itself()?;
        command
            .args(arguments)
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        end_with_parent(&mut command);
        let mut child = tokio::process::Command::from(command).kill_on_drop(true).spawn().map_err(failed)?;
        let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(failed(std::io::Error::other("it has no output")));
        };
        let mut lines = BufReader::new(stdout).lines();
        let mut complaints = BufReader::new(stderr).lines();
        let ready = async {
            while let Some(line) = lines.next_line().await? {
                let event: Value = serde_json::from_str(&line).unwrap_or_default();
                let address = event[name].as_str().and_then(|text| text.parse().ok());
                if let (Some("listening"), Some(address)) = (event["event"].as_str(), address) {
                    return Ok((address, event));
                }
            }
            let mut last = String::from("it ended before it listened");
            while let Some(line) = complaints.next_line().await? {
                last = line;
            }
            Err(std::io::Error::other(last))
        };
        let address = tokio::time::timeout(PATIENCE, ready).await.map_err(std::io::Error::from).flatten();
        let (address, said) = address.map_err(failed)?;
        // The rest of its output must be read, or it would wait for room in the pipe.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        tokio::spawn(async move { while let Ok(Some(_)) = complaints.next_line().await {} });
        Ok(Self { child, address, said })
    }

    fn pid(&self) -> Option<Pid> {
        self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw)
    }

    /// SIGKILL: it has no chance to put anything away.
    pub async fn kill(mut self) -> CommandResult {
        self.child.kill().await.map_err(|error| trouble("a process could not be killed", error))
    }

    /// SIGTERM, and a good end.
    pub async fn stop(mut self) -> CommandResult {
        let failed = |error| trouble("a process did not stop in good order", error);
        if let Some(pid) = self.pid() {
            kill_process(pid, Signal::TERM).map_err(|error| failed(error.into()))?;
        }
        let ended = tokio::time::timeout(PATIENCE, self.child.wait()).await.map_err(std::io::Error::from).flatten();
        match ended.map_err(failed)? {
            status if status.success() => Ok(()),
            status => Err(failed(std::io::Error::other(format!("it ended with {status}")))),
        }
    }
}
