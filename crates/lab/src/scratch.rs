//! The demo, the benches and the drills make money out of nothing. They do so only in a database of their own.

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
