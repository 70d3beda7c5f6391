//! bdk_wallet as a program, so that `bursar bench utxo` and the import tests can use it without linking it.
//!
//! | file        | what it does                                                                         |
//! |-------------|--------------------------------------------------------------------------------------|
//! | `flags`     | reads the command line                                                               |
//! | `random`    | the seeded generator, also as bdk_wallet wants it                                    |
//! | `coins`     | the test descriptors, and transactions and blocks around them                        |
//! | `make`      | a wallet file with a given number of unspent and spent outputs                       |
//! | `sample`    | a small wallet file with everything in it that an import may meet                    |
//! | `measure`   | times what a user of bdk_wallet does with such a file                                |
//! | `dump`      | what bdk_wallet says is in a file                                                    |
//!
//! The answer is one JSON value on standard output. An error goes to standard error; the program then ends with 2 when
//! the command line was wrong, else with 1.

mod coins;
mod dump;
mod flags;
mod make;
mod measure;
mod random;
mod sample;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use bdk_wallet::rusqlite::Connection;
use bdk_wallet::{PersistedWallet, Wallet};
use serde_json::Value;

use crate::flags::{Flags, Wrong};

type Error = Box<dyn std::error::Error>;

const USAGE: &str = "\
usage:
  bdk-yardstick make --file F.sqlite --unspent N --spent M --seed S [--network regtest] [--per-block 50] [--export]
  bdk-yardstick sample --file F.sqlite
  bdk-yardstick measure --file F.sqlite [--recipients 1,100] [--amount-sat 1000000] [--fee-rate-sat-vb 5] [--rounds 5]
  bdk-yardstick dump --file F.sqlite";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<Wrong>() => {
            eprintln!("error: {error}\n{USAGE}");
            ExitCode::from(2)
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Error> {
    let mut words = std::env::args().skip(1);
    let command = words.next().ok_or(Wrong("no command".into()))?;
    let mut flags = Flags::read(words)?;
    let answer = match command.as_str() {
        "make" => make::run(&mut flags),
        "sample" => sample::run(&mut flags),
        "measure" => measure::run(&mut flags),
        "dump" => dump::run(&mut flags),
        other => Err(Wrong(format!("there is no command {other}")).into()),
    }?;
    print(&answer)
}

fn print(answer: &Value) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, answer)?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}

/// Opens a wallet as a user does who watches with it and signs elsewhere: the file has no keys.
fn load(connection: &mut Connection) -> Result<PersistedWallet<Connection>, Error> {
    Ok(Wallet::load().load_wallet(connection)?.ok_or("there is no wallet in this file")?)
}

/// Makes a file. Half a file is none: it goes away when `fill` fails.
fn fresh<T>(file: &Path, fill: impl FnOnce(&mut Connection) -> Result<T, Error>) -> Result<T, Error> {
    let mut connection = Connection::open(file)?;
    let made = fill(&mut connection);
    drop(connection);
    if made.is_err() {
        std::fs::remove_file(file)?;
    }
    made
}
