//! What keeps this process from taking new transfers, part by part.
//!
//! Whoever watches a part (its engine, its clock, a task) says when it is in trouble and when it is well again. The
//! gateway refuses new transfers meanwhile, `/health/ready` and `/metrics` show the parts, and the log has one line for
//! each change, however often the same thing is said.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Why a part is in trouble: a code with a page, and words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    pub code: &'static str,
    pub words: String,
}

#[derive(Debug, Default)]
pub struct Readiness {
    /// Every part that was ever spoken of, and its trouble if it has one.
    parts: Mutex<BTreeMap<&'static str, Option<Trouble>>>,
}

impl Readiness {
    fn parts(&self) -> MutexGuard<'_, BTreeMap<&'static str, Option<Trouble>>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The part cannot work. A different code is a change of state; different words alone are not.
    pub fn trouble(&self, part: &'static str, code: &'static str, words: impl Into<String>) {
        let words = words.into();
        let before = self.parts().insert(part, Some(Trouble { code, words: words.clone() }));
        if before.flatten().is_none_or(|before| before.code != code) {
            tracing::error!(part, code, words, "not ready");
        }
    }

    /// The part has not been looked at since the start. That is no event.
    pub fn not_yet(&self, part: &'static str, code: &'static str, words: impl Into<String>) {
        self.parts().insert(part, Some(Trouble { code, words: words.into() }));
    }

    /// The part works.
    pub fn well(&self, part: &'static str) {
        let before = self.parts().insert(part, None);
        if let Some(Some(before)) = before {
            tracing::info!(part, code = before.code, "well again");
        }
    }

    /// The first part in trouble.
    pub fn first_trouble(&self) -> Option<(&'static str, Trouble)> {
        self.parts().iter().find_map(|(part, trouble)| Some((*part, trouble.clone()?)))
    }

    /// Every part that was spoken of, in order.
    pub fn read(&self) -> Vec<(&'static str, Option<Trouble>)> {
        self.parts().iter().map(|(part, trouble)| (*part, trouble.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_in_trouble_until_it_is_well() {
        let readiness = Readiness::default();
        assert_eq!(readiness.first_trouble(), None);
        readiness.well("clock");
        readiness.trouble("engine", "LEG_UNREACHABLE", "gone");
        readiness.trouble("engine", "LEG_UNREACHABLE", "still gone");
        let trouble = Trouble { code: "LEG_UNREACHABLE", words: "still gone".to_owned() };
        assert_eq!(readiness.first_trouble(), Some(("engine", trouble.clone())));
        assert_eq!(readiness.read(), [("clock", None), ("engine", Some(trouble))]);
        readiness.well("engine");
        assert_eq!(readiness.first_trouble(), None);
    }
}
