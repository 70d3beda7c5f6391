//! `bursar explain CODE`: the page of an error code, from the program itself.

use serde_json::json;
use terminal::failure::{CommandResult, Failure};
use terminal::output::say;

use crate::config::nearest;

/// Each code with its page. `build.rs` lists them.
const PAGES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/error_pages.rs"));

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The code, such as INSUFFICIENT_BALANCE; without it, all codes are listed
    code: Option<String>,
}

pub fn run(arguments: &Arguments, as_json: bool) -> CommandResult {
    let Some(code) = &arguments.code else {
        let codes: Vec<&str> = PAGES.iter().map(|(code, _)| *code).collect();
        if as_json {
            say(json!({ "codes": codes }));
        } else {
            say(codes.join("\n"));
        }
        return Ok(());
    };
    // Codes are copied from logs and messages, in any case and with what stood around them.
    let wanted = code.trim_matches(|sign: char| !sign.is_ascii_alphanumeric()).to_uppercase().replace('-', "_");
    match PAGES.iter().find(|(known, _)| *known == wanted) {
        Some((code, page)) if as_json => say(json!({ "code": code, "page": page })),
        Some((_, page)) => say(page.trim_end()),
        None => {
            let codes: Vec<&str> = PAGES.iter().map(|(code, _)| *code).collect();
            let hint = match nearest(&wanted, &codes) {
                Some(meant) => format!("did you mean {meant}? bursar explain lists all codes"),
                None => "bursar explain lists all codes".to_owned(),
            };
            return Err(Failure::bad_input("UNKNOWN_CODE", format!("there is no error code {code:?}"), hint));
        }
    }
    Ok(())
}
