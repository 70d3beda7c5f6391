//! The demo, the benches and the drills make money out of nothing. They do so only in a database and a folder of their own.

use std::path::Path;

use store::Db;
use store::catalog::{read_authors, read_catalog};
use terminal::failure::Failure;

/// Refuses a database in which another author has changed settings. Ask before the first change.
pub async fn check(db: &Db, author: &str) -> Result<(), Failure> {
    let mut tx = db.read().await?;
    let authors = read_authors(&mut tx).await?;
    let stranger = authors.iter().find(|one| *one != author);
    let unexplained = authors.is_empty() && !read_catalog(&mut tx).await?.assets.is_empty();
    match stranger {
        None if !unexplained => Ok(()),
        _ => {
            let whose = stranger.map_or_else(|| "somebody".to_owned(), |name| format!("{name:?}"));
            let message = format!("this database was set up by {whose}, not by the {author}, which makes up money");
            Err(Failure::bad_input("NOT_A_SCRATCH_DATABASE", message, "use an empty database, or another --data-dir"))
        }
    }
}

/// Refuses a folder with files in it, unless its configuration file begins like those that are made here: what is in it would be
/// written over, and a spot engine in it would be given made-up money. Ask before the first change.
pub fn check_folder(folder: &Path, made_by_us: &str) -> Result<(), Failure> {
    let empty = match std::fs::read_dir(folder) {
        Ok(mut entries) => entries.next().is_none(),
        // It is made, or the attempt says why not.
        Err(_) => true,
    };
    let ours = std::fs::read_to_string(folder.join("bursar.toml")).is_ok_and(|text| text.starts_with(made_by_us));
    if empty || ours {
        return Ok(());
    }
    let message = format!("the folder {} has files in it that were not made for a scratch treasury", folder.display());
    Err(Failure::bad_input("NOT_A_SCRATCH_DATABASE", message, "use an empty folder, or another --data-dir"))
}
