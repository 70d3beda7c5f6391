//! bdk_wallet as a program of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use terminal::failure::Failure;

pub struct Yardstick(PathBuf);

/// Where the script is in the sources that this program was built from.
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/tools/bdk.sh");

impl Yardstick {
    /// The program given, or the one that the script builds.
    pub fn find(given: Option<&Path>) -> Result<Self, Failure> {
        if let Some(given) = given {
            return Ok(Self(given.to_owned()));
        }
        let output = Command::new(SCRIPT).stderr(Stdio::inherit()).output().map_err(failed)?;
        let path = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if !output.status.success() || path.is_empty() {
            return Err(failed(std::io::Error::other(format!("{SCRIPT} did not build it"))));
        }
        Ok(Self(path.into()))
    }

    fn run(&self, arguments: &[&str]) -> Result<Value, Failure> {
        let output = Command::new(&self.0).args(arguments).stderr(Stdio::inherit()).output().map_err(failed)?;
        if !output.status.success() {
            return Err(failed(std::io::Error::other(format!(
                "{} {}: {}",
                self.0.display(),
                arguments[0],
                output.status
            ))));
        }
        serde_json::from_slice(&output.stdout).map_err(|error| failed(error.into()))
    }

    /// A wallet's file with so many unspent outputs and three times as many spent ones.
    pub fn make(&self, file: &Path, unspent: u32) -> Result<Value, Failure> {
        let (unspent, spent) = (u64::from(unspent).to_string(), (u64::from(unspent) * 3).to_string());
        let file = file.to_string_lossy();
        self.run(&["make", "--file", &file, "--unspent", &unspent, "--spent", &spent, "--seed", "1"])
    }

    pub fn measure(&self, file: &Path, rounds: u32) -> Result<Value, Failure> {
        let (file, rounds) = (file.to_string_lossy(), rounds.to_string());
        self.run(&["measure", "--file", &file, "--recipients", "1,100", "--rounds", &rounds])
    }
}

fn failed(error: std::io::Error) -> Failure {
    Failure::outside("COMMAND_FAILED", &error, "build the yardstick: tests/tools/bdk.sh; or name it: --yardstick FILE")
}
