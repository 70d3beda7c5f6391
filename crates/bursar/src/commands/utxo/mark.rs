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
    /// The highest number that was written down.
    known: i64,
}

impl Mark {
    /// The mark of this database, as far as this machine has written one down. Nothing is made yet.
    pub async fn of(context: &Context, db: &Db) -> Result<Self, Failure> {
        let database = db.marked().await?.database;
        let file = Path::new(&context.config.database.mark_folder).join(format!("utxo-{database}.mark"));
        let known = match fs::read_to_string(&file) {
            Ok(text) => text.trim().parse().map_err(|_| not_readable(&file, "there is no number in it"))?,
            Err(error) if error.kind() == ErrorKind::NotFound => 0,
            Err(error) => return Err(not_readable(&file, &error.to_string())),
        };
        Ok(Self { file, known })
    }

    /// Whether the database is older than what was written down. Then all its wallets are closed, in the same stroke.
    pub async fn notice_backup(&self, db: &Db) -> Result<bool, Failure> {
        Ok(db.notice_backup(self.known, SystemClock.now()).await?)
    }

    /// Something has changed: the database's mark is raised and written down. False: the database is behind by now.
    pub async fn raise(&mut self, db: &Db) -> Result<bool, Failure> {
        let Some(mark) = db.raise_mark(self.known).await? else { return Ok(false) };
        write(&self.file, mark).map_err(|error| Failure {
            code: "FILE_NOT_WRITABLE".into(),
            messages: vec![format!("{} cannot be written: {error}", self.file.display())],
            hint: "make room, or name another folder: database.mark_folder".to_owned(),
            exit: Exit::Outside,
        })?;
        self.known = mark;
        Ok(true)
    }
}

/// Written aside, synced and renamed: whatever crashes, there is a number in the file.
fn write(file: &Path, mark: i64) -> std::io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    // Two followers may write at once.
    let aside = file.with_extension(format!("{}.new", std::process::id()));
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
