//! Alerts to a command of the operator's: the message on its standard input, and taken when it exits with 0.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt;

/// How long it may take. After that it is killed.
const TIME: Duration = Duration::from_secs(10);
/// What the command gets of the server's environment, which may hold the password of a database.
const KEPT: [&str; 5] = ["PATH", "HOME", "LANG", "TZ", "TMPDIR"];

/// A program and its arguments. No shell reads them.
#[derive(Clone, Debug)]
pub struct Command {
    program: String,
    arguments: Vec<String>,
    time: Duration,
}

impl Command {
    /// `None` without a program.
    pub fn new(words: &[String]) -> Option<Self> {
        let (program, arguments) = words.split_first()?;
        Some(Self { program: program.clone(), arguments: arguments.to_vec(), time: TIME })
    }

    pub async fn run(&self, message: &str) -> Result<(), String> {
        let kept = KEPT.into_iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
        let mut child = tokio::process::Command::new(&self.program)
            .args(&self.arguments)
            .env_clear()
            .envs(kept)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("it could not be started: {error}"))?;
        let stdin = child.stdin.take();
        let work = async {
            if let Some(mut stdin) = stdin {
                // A command that does not read its input is judged by its exit alone.
                stdin.write_all(message.as_bytes()).await.ok();
            }
            child.wait().await
        };
        match tokio::time::timeout(self.time, work).await {
            Err(_) => Err(format!("it did not end within {} seconds", self.time.as_secs())),
            Ok(Err(error)) => Err(format!("it could not be waited for: {error}")),
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => Err(format!("it ended with {status}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(script: &str) -> Command {
        let words = ["/bin/sh", "-c", script].map(str::to_owned);
        Command { time: Duration::from_millis(500), ..Command::new(&words).expect("a program") }
    }

    #[tokio::test]
    async fn it_reads_the_message_and_its_exit_decides() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("told");
        let told = command(&format!("cat > {}", file.display())).run("{\"status\":\"alert\"}").await;
        assert_eq!(told, Ok(()));
        assert_eq!(std::fs::read_to_string(&file).expect("written"), "{\"status\":\"alert\"}");
        let refused = command("exit 3").run("x").await.expect_err("refused");
        assert!(refused.contains("exit status: 3"), "{refused}");
        assert_eq!(command("exec sleep 30").run("x").await, Err("it did not end within 0 seconds".to_owned()));
        let nobody = Command::new(&["/no/such/program".to_owned()]).expect("a name");
        assert!(nobody.run("x").await.expect_err("not there").starts_with("it could not be started"));
        assert!(Command::new(&[]).is_none());
    }

    #[tokio::test]
    async fn no_shell_reads_its_arguments_and_no_secret_is_in_its_environment() {
        let words = ["/usr/bin/test", "$(echo x)", "=", "$(echo x)"].map(str::to_owned);
        assert_eq!(Command::new(&words).expect("a program").run("").await, Ok(()));
        // Cargo sets variables for its tests; none of them is among the few that are passed on.
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
        assert_eq!(command("test -z \"$CARGO_MANIFEST_DIR\"").run("").await, Ok(()));
    }
}
