//! This program again, as a child: started, waited for, stopped or killed.

use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use terminal::failure::{CommandResult, Failure};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;

use super::trouble;
use crate::postgres::end_with_parent;

/// One that says where it listens.
pub struct Process {
    running: Running,
    pub address: SocketAddr,
    /// All that it said when it listened.
    pub said: Value,
}

/// One that has said that it works.
pub struct Running {
    child: Child,
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

fn failed(error: std::io::Error) -> Failure {
    trouble("a process could not be started", error)
}

impl Process {
    /// Starts it, and waits until it says where it listens: a JSON line with the event `listening` and the address under
    /// this name. What it has to say on standard error comes only if it does not start.
    pub async fn start(arguments: &[&str], name: &str) -> Result<Self, Failure> {
        Self::start_with(arguments, name, &[]).await
    }

    /// The same with variables of the environment.
    pub async fn start_with(arguments: &[&str], name: &str, variables: &[(&str, &str)]) -> Result<Self, Failure> {
        Self::launch(arguments, name, (variables, None)).await
    }

    /// The same; what it has to say on standard error goes to the end of a file.
    pub async fn start_logged(arguments: &[&str], name: &str, log: &Path) -> Result<Self, Failure> {
        Self::launch(arguments, name, (&[], Some(log))).await
    }

    async fn launch(
        arguments: &[&str],
        name: &str,
        (variables, log): (&[(&str, &str)], Option<&Path>),
    ) -> Result<Self, Failure> {
        let listens = |event: &Value| {
            let address = event[name].as_str().and_then(|text| text.parse().ok());
            address.filter(|_| event["event"] == "listening")
        };
        let (running, address, said) = Running::launch(arguments, variables, log, listens).await?;
        Ok(Self { running, address, said })
    }

    /// SIGKILL: it has no chance to put anything away.
    pub async fn kill(self) -> CommandResult {
        self.running.kill().await
    }

    /// SIGTERM, and a good end.
    pub async fn stop(self) -> CommandResult {
        self.running.stop().await
    }
}

impl Running {
    /// Starts it, and waits until it tells this event. What it has to say on standard error goes to the end of a file.
    pub async fn start(arguments: &[&str], event: &str, log: &Path) -> Result<Self, Failure> {
        let told = |said: &Value| (said["event"] == event).then_some(());
        Self::launch(arguments, &[], Some(log), told).await.map(|(running, ..)| running)
    }

    async fn launch<T>(
        arguments: &[&str],
        variables: &[(&str, &str)],
        log: Option<&Path>,
        is_ready: impl Fn(&Value) -> Option<T>,
    ) -> Result<(Self, T, Value), Failure> {
        let mut command = itself()?;
        command.args(arguments).envs(variables.iter().copied()).stdin(Stdio::null()).stdout(Stdio::piped());
        let logged = match log {
            None => {
                command.stderr(Stdio::piped());
                None
            }
            Some(log) => {
                let opened = std::fs::OpenOptions::new().create(true).append(true).open(log).map_err(failed)?;
                let before = opened.metadata().map_err(failed)?.len();
                command.stderr(opened);
                Some((log.to_owned(), before))
            }
        };
        end_with_parent(&mut command, Signal::KILL);
        let mut child = tokio::process::Command::from(command).kill_on_drop(true).spawn().map_err(failed)?;
        let stdout = child.stdout.take().ok_or_else(|| failed(std::io::Error::other("it has no output")))?;
        let complaints = match (child.stderr.take(), logged) {
            (Some(stderr), _) => Complaints::Heard(BufReader::new(stderr).lines()),
            (None, Some((log, before))) => Complaints::Written(log, before),
            (None, None) => return Err(failed(std::io::Error::other("it has no output"))),
        };
        let mut lines = BufReader::new(stdout).lines();
        let ready = async {
            while let Some(line) = lines.next_line().await? {
                let event: Value = serde_json::from_str(&line).unwrap_or_default();
                if let Some(found) = is_ready(&event) {
                    return Ok((found, event));
                }
            }
            Err(std::io::Error::other("it ended before it listened"))
        };
        let listening = tokio::time::timeout(PATIENCE, ready).await.map_err(std::io::Error::from).flatten();
        let (found, said) = match listening {
            Ok(listening) => listening,
            Err(error) => {
                if error.kind() == std::io::ErrorKind::TimedOut {
                    child.start_kill().map_err(failed)?;
                }
                let status = child.wait().await.map_err(failed)?;
                let last = complaints.last().await?.unwrap_or_else(|| error.to_string());
                // What the child says about itself, with its own code and hint, says more than that it did not start.
                let said = Failure::reported(&last, status.code());
                return Err(said.unwrap_or_else(|| failed(std::io::Error::other(last))));
            }
        };
        // The rest of its output must be read, or it would wait for room in the pipe.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        complaints.let_go();
        Ok((Self { child }, found, said))
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

/// What a child says on standard error.
enum Complaints {
    Heard(tokio::io::Lines<BufReader<tokio::process::ChildStderr>>),
    /// In this file, behind so many bytes of earlier ones.
    Written(PathBuf, u64),
}

impl Complaints {
    async fn last(self) -> Result<Option<String>, Failure> {
        match self {
            Self::Heard(mut lines) => {
                let mut last = None;
                while let Some(line) = lines.next_line().await.map_err(failed)? {
                    last = Some(line);
                }
                Ok(last)
            }
            Self::Written(log, before) => {
                let mut file = std::fs::File::open(&log).map_err(failed)?;
                std::io::Seek::seek(&mut file, std::io::SeekFrom::Start(before)).map_err(failed)?;
                let mut text = String::new();
                file.read_to_string(&mut text).map_err(failed)?;
                Ok(text.lines().last().map(str::to_owned))
            }
        }
    }

    fn let_go(self) {
        match self {
            Self::Heard(mut lines) => {
                tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
            }
            Self::Written(..) => {}
        }
    }
}
