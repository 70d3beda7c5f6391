//! `bursar openapi`: the description of the HTTP interface.

use terminal::failure::CommandResult;
use terminal::output::say;

pub fn run() -> CommandResult {
    // It ends with a newline already.
    say(server::api::openapi::text().trim_end());
    Ok(())
}
