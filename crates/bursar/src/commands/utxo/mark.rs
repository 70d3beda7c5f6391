//! A number outside of the database by which a backup is noticed that was put back.
//!
//! A follower raises the mark of the database, and then writes the same number into a file. So the file is never ahead of the
//! database, unless the database is an older one.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use domain::Clock;
use store::Db;
use terminal::clock::SystemClock;
use terminal::failure::{Exit, Failure};

use super::super::Context;

pub struct Mark {
    file: PathBuf,
    /// The highest number that was written down. `None`: none was, on this machine.
    known: Option<i64>,
}

impl Mark {
    /// The mark of this database, as far as this machine has written one down. Nothing is made yet.
    pub async fn of(context: &Context, db: &Db) -> Result<Self, Failure> {
        let database = db.marked().await?.database;
        let file = Path::new(&context.config.database.mark_folder).join(format!("utxo-{database}.mark"));
        let known = read(&file)?;
        Ok(Self { file, known })
    }

    /// Whether the database is older than what was written down. Then all its wallets are closed, in the same stroke.
    pub async fn notice_backup(&self, db: &Db) -> Result<bool, Failure> {
        match self.known {
            Some(known) => Ok(db.notice_backup(known, SystemClock.now()).await?),
            None => Ok(false),
        }
    }

    /// Whether others have followed for this database and this machine never has. It may be a backup that was put back on
    /// another machine, and nothing here could tell: all its wallets are closed.
    pub async fn notice_stranger(&mut self, db: &Db) -> Result<bool, Failure> {
        let mark = db.marked().await?.mark;
        if self.known.is_some() || mark == 0 {
            return Ok(false);
        }
        Ok(db.notice_backup(mark.saturating_add(1), SystemClock.now()).await?)
    }

    /// Something has changed: the database's mark is raised and written down. False: the database is behind by now.
    pub async fn raise(&mut self, db: &Db) -> Result<bool, Failure> {
        // Another follower on this machine may have written a higher one.
        self.known = self.known.max(read(&self.file)?);
        let Some(mark) = db.raise_mark(self.known.unwrap_or(0)).await? else { return Ok(false) };
        write(&self.file, mark).map_err(|error| Failure {
            code: "FILE_NOT_WRITABLE".into(),
            messages: vec![format!("{} cannot be written: {error}", self.file.display())],
            hint: "make room, or name another folder: database.mark_folder".to_owned(),
            exit: Exit::Outside,
        })?;
        self.known = self.known.max(Some(mark));
        Ok(true)
    }
}

/// What was written down on this machine.
fn read(file: &Path) -> Result<Option<i64>, Failure> {
    match fs::read_to_string(file) {
        Ok(text) => text.trim().parse().map(Some).map_err(|_| not_readable(file, "there is no number in it")),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(not_readable(file, &error.to_string())),
    }
}

/// Written aside, synced and renamed: whatever crashes, there is a number in the file. It only ever grows.
fn write(file: &Path, mark: i64) -> std::io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    // Two followers may write at once: the one with the lower number must not be the last.
    let turn = fs::File::create(file.with_extension("lock"))?;
    turn.lock()?;
    if read(file).is_ok_and(|written| written.is_some_and(|written| written >= mark)) {
        return Ok(());
    }
    let aside = file.with_extension("new");
    let mut new = fs::File::create(&aside)?;
    writeln!(new, "{mark}")?;
    new.sync_all()?;
    fs::rename(&aside, file)?;
    fs::File::open(folder)?.sync_all()
}

fn not_readable(file: &Path, why: &str) -> Failure {
    let message = format!("{} cannot be read: {why}", file.display());
    let hint = "it says how far the database had come; if it is lost, remove it and run bursar utxo follow --restore";
    Failure::bad_input("FILE_NOT_READABLE", message, hint)
}
