//! What keeps a follower from going on, told once and then from time to time, not with every try.

use domain::{Clock, Timestamp};
use serde_json::json;
use terminal::clock::SystemClock;
use terminal::output::{say, warn};

/// The same trouble is told again after so long.
const AGAIN_MICROS: i64 = 60_000_000;

pub struct Trouble {
    json: bool,
    /// What was told last, and when.
    told: Option<(String, Timestamp)>,
}

impl Trouble {
    pub const fn new(json: bool) -> Self {
        Self { json, told: None }
    }

    /// A code that names a page, and what happened. With `--json` it is an event among the others.
    pub fn tell(&mut self, code: &str, message: &str) {
        let (line, now) = (format!("{code}: {message}"), SystemClock.now());
        if self.told.as_ref().is_some_and(|(last, at)| *last == line && now < at.plus_micros(AGAIN_MICROS)) {
            return;
        }
        if self.json {
            say(json!({ "event": "warning", "code": code, "message": message }));
        } else {
            warn(format!("{line}; asked again until it passes"));
        }
        self.told = Some((line, now));
    }

    /// It has passed.
    pub fn over(&mut self) {
        if self.told.take().is_none() {
            return;
        }
        if self.json {
            say(json!({ "event": "passed" }));
        } else {
            warn("it has passed");
        }
    }
}
