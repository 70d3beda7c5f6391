//! `bursar signer export-xpub`: what the server's configuration pins.

use signer::keys::KeyError;
use terminal::failure::CommandResult;
use terminal::output::say;

use super::{Folder, failed, listed, name, shown};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The group's name
    id: String,
    #[command(flatten)]
    folder: Folder,
}

pub fn run(arguments: &Arguments, json: bool) -> CommandResult {
    let id = name(&arguments.id)?;
    let groups = listed(arguments.folder.path())?;
    let group = groups.iter().find(|group| group.id == id).ok_or_else(|| failed(KeyError::GroupUnknown(id)))?;
    if json {
        say(shown(group).map_err(failed)?);
    } else {
        say(&group.key);
    }
    Ok(())
}
