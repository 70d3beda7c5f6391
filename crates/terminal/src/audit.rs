//! How an audit is told. `bursar audit` prints it; other programs read the JSON back.

use serde::{Deserialize, Serialize};
use store::audit::Report;

use crate::failure::{CommandResult, Exit, Failure};
use crate::output::table;

/// What an audit found, in the form in which `bursar audit --json` prints it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AuditReport {
    pub clean: bool,
    pub movements: u64,
    checks: Vec<Check>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Check {
    check: String,
    ok: bool,
    #[serde(flatten)]
    broken: Option<BrokenRow>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct BrokenRow {
    row: String,
    problem: String,
}

impl From<&Report> for AuditReport {
    fn from(report: &Report) -> Self {
        let checks = report.findings.iter().map(|finding| {
            let broken = finding.violation.as_ref();
            let broken = broken.map(|one| BrokenRow { row: one.row.clone(), problem: one.problem.clone() });
            Check { check: finding.check.to_owned(), ok: broken.is_none(), broken }
        });
        Self { clean: report.clean(), movements: report.movements, checks: checks.collect() }
    }
}

impl AuditReport {
    /// A row for each check, and the verdict.
    pub fn text(&self) -> String {
        let result = |check: &Check| match &check.broken {
            None if check.ok => "ok".to_owned(),
            None => "BROKEN".to_owned(),
            Some(BrokenRow { row, problem }) => format!("BROKEN at {row}: {problem}"),
        };
        let rows: Vec<Vec<String>> = self.checks.iter().map(|check| vec![check.check.clone(), result(check)]).collect();
        let verdict = if self.clean { "audit: clean" } else { "audit: BROKEN" };
        format!("{}\n{verdict}", table(&["check", "result"], &[], &rows))
    }

    /// An error, with exit code 1, that names the first offending row.
    pub fn verdict(&self) -> CommandResult {
        let named = self.checks.iter().find_map(|check| check.broken.as_ref());
        let message = match named {
            Some(BrokenRow { row, problem }) => format!("{row}: {problem}"),
            None if self.clean && self.checks.iter().all(|check| check.ok) => return Ok(()),
            None => "a check failed and named no row".to_owned(),
        };
        Err(Failure {
            code: "BOOKS_BROKEN".into(),
            messages: vec![message],
            hint: "stop the writers, keep the database as it is, and compare the row with a backup".to_owned(),
            exit: Exit::Found,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The demo and the chaos run read what `bursar audit --json` prints.
    #[test]
    fn what_is_printed_can_be_read_back() {
        let printed = json!({
            "clean": false, "movements": 7, "elapsed_ms": 3,
            "checks": [
                { "check": "sums", "ok": true },
                { "check": "balances", "ok": false, "row": "accounts id=9", "problem": "1 too much" },
            ],
        });
        let read: AuditReport = serde_json::from_value(printed.clone()).expect("an audit");
        assert_eq!(json!(read)["checks"], printed["checks"]);
        let failure = read.verdict().expect_err("it is broken");
        assert_eq!((failure.code.as_ref(), failure.exit), ("BOOKS_BROKEN", Exit::Found));
        expect_test::expect![[r#"
            check     result
            ────────  ───────────────────────────────────
            sums      ok
            balances  BROKEN at accounts id=9: 1 too much
            audit: BROKEN"#]]
        .assert_eq(&read.text());
    }

    #[test]
    fn a_report_that_contradicts_itself_is_not_clean() {
        for (clean, ok) in [(false, true), (true, false), (false, false)] {
            let printed = json!({ "clean": clean, "movements": 1, "checks": [{ "check": "sums", "ok": ok }] });
            let read: AuditReport = serde_json::from_value(printed).expect("an audit");
            assert!(read.verdict().is_err(), "clean {clean}, ok {ok}");
        }
    }
}
