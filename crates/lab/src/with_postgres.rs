//! `bursar with-postgres -- COMMAND`: runs a command beside a private PostgreSQL server, and stops the server after.

use std::process::{Command, ExitCode};

use rustix::process::{Pid, Signal, kill_process};
use terminal::failure::Failure;
use tokio::signal::unix::{SignalKind, signal};

use crate::postgres::{PrivatePostgres, descendants_of};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The command to run; it finds the server in BURSAR_DATABASE_URL and BURSAR_TEST_POSTGRES_URL
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

/// The command's own exit code is ours.
pub async fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    // Before the server starts: an interrupt from here on stops it in good order.
    let outside =
        |error: std::io::Error| Failure::outside("COMMAND_FAILED", &error, "check the command's name and path");
    let mut interrupt = signal(SignalKind::interrupt()).map_err(outside)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(outside)?;
    let server = PrivatePostgres::start()?;
    let [program, rest @ ..] = arguments.command.as_slice() else {
        return Err(Failure::bad_input("COMMAND_FAILED", "no command", "bursar with-postgres -- COMMAND"));
    };
    let mut command = Command::new(program);
    command.args(rest).env("BURSAR_DATABASE_URL", server.url()).env("BURSAR_TEST_POSTGRES_URL", server.url());
    let mut child = tokio::process::Command::from(command).kill_on_drop(true).spawn().map_err(outside)?;
    let status = tokio::select! {
        status = child.wait() => Some(status.map_err(outside)?),
        _ = interrupt.recv() => None,
        _ = terminate.recv() => None,
    };
    let Some(status) = status else {
        // All its descendants are stopped too: they would go on without it, and without a server.
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        for process in pid.map(descendants_of).unwrap_or_default() {
            // One that has ended meanwhile needs no signal.
            kill_process(process, Signal::TERM).ok();
        }
        child.kill().await.map_err(outside)?;
        drop(server);
        return Ok(ExitCode::from(130));
    };
    drop(server);
    let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
    Ok(ExitCode::from(code))
}
