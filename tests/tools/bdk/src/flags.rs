//! The command line: `--name value`, and `--export`, which has no value.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::Error;

/// The command line is wrong.
#[derive(Debug)]
pub struct Wrong(pub String);

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Wrong {}

/// Flags that nobody has asked for yet. A command takes its own, then says `end`.
pub struct Flags(BTreeMap<String, String>);

impl Flags {
    pub fn read(mut words: impl Iterator<Item = String>) -> Result<Self, Wrong> {
        let mut flags = BTreeMap::new();
        while let Some(word) = words.next() {
            let name = word.strip_prefix("--").ok_or_else(|| Wrong(format!("{word} is no flag")))?.to_owned();
            let value = if name == "export" {
                String::new()
            } else {
                words.next().ok_or_else(|| Wrong(format!("{word} needs a value")))?
            };
            if flags.insert(name, value).is_some() {
                return Err(Wrong(format!("{word} is given twice")));
            }
        }
        Ok(Self(flags))
    }

    pub fn given(&mut self, name: &str) -> bool {
        self.0.remove(name).is_some()
    }

    /// The value of `--name`, read as a `T`; without the flag, `otherwise` is read.
    pub fn value<T: FromStr>(&mut self, name: &str, otherwise: Option<&str>) -> Result<T, Wrong> {
        let text = self.0.remove(name).or_else(|| otherwise.map(str::to_owned));
        let text = text.ok_or_else(|| Wrong(format!("--{name} is missing")))?;
        text.parse().map_err(|_| Wrong(format!("--{name} cannot be {text}")))
    }

    /// Numbers with commas between them.
    pub fn list(&mut self, name: &str, otherwise: &str) -> Result<Vec<u64>, Wrong> {
        let text: String = self.value(name, Some(otherwise))?;
        text.split(',').map(|n| n.parse().map_err(|_| Wrong(format!("--{name} cannot be {text}")))).collect()
    }

    /// The file of `--file`, which must not be there yet: SQLite would add to what it finds.
    pub fn new_file(&mut self) -> Result<PathBuf, Error> {
        let file: PathBuf = self.value("file", None)?;
        if file.exists() { Err(format!("{} exists already", file.display()).into()) } else { Ok(file) }
    }

    /// The file of `--file`, which must be there: SQLite would make an empty one.
    pub fn old_file(&mut self) -> Result<PathBuf, Error> {
        let file: PathBuf = self.value("file", None)?;
        if file.is_file() { Ok(file) } else { Err(format!("there is no file {}", file.display()).into()) }
    }

    pub fn end(&mut self) -> Result<(), Wrong> {
        match self.0.keys().next() {
            Some(name) => Err(Wrong(format!("this command has no --{name}"))),
            None => Ok(()),
        }
    }
}
