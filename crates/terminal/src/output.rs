//! Tables for people, and printing that does not panic when the reader is gone (`bursar journal | head`).

use std::io::Write;

/// Prints a line to standard output. When that is closed the program ends: its work has no reader.
pub fn say(text: impl std::fmt::Display) {
    if writeln!(std::io::stdout(), "{text}").is_err() {
        std::process::exit(crate::exit::Exit::Outside as i32);
    }
}

/// Prints a line to standard error. When that is closed the exit code still tells.
pub fn warn(text: impl std::fmt::Display) {
    writeln!(std::io::stderr(), "{text}").ok();
}

/// What others have written, without what would move the cursor or turn the letters round.
pub fn plain(text: &str) -> String {
    let turns = |letter| matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().map(|letter| if letter.is_control() || turns(letter) { '\u{fffd}' } else { letter }).collect()
}

/// A table with a header; columns named in `right` are aligned right, as numbers are.
pub fn table(header: &[&str], right: &[usize], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain(header.get(column).map(|cell| cell.chars().count())).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let line = |cells: &[String]| {
        let padded: Vec<String> = cells
            .iter()
            .zip(&widths)
            .enumerate()
            .map(
                |(column, (cell, width))| {
                    if right.contains(&column) { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
                },
            )
            .collect();
        padded.join("  ").trim_end().to_owned()
    };
    let head: Vec<String> = header.iter().map(|cell| (*cell).to_owned()).collect();
    let rule: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
    let mut lines = vec![line(&head), line(&rule)];
    lines.extend(rows.iter().map(|row| line(row)));
    lines.join("\n")
}

/// `1234567` as `1,234,567`.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [vec!["fees".into(), "1.50".into()], vec!["clearing:spot".into(), "10.00".into()]];
        expect_test::expect![[r#"
            account         USDT
            ─────────────  ─────
            fees            1.50
            clearing:spot  10.00"#]]
        .assert_eq(&table(&["account", "USDT"], &[1], &rows));
    }

    #[test]
    fn text_of_others_cannot_move_the_cursor() {
        assert_eq!(plain("a\u{1b}[2Jb\n"), "a\u{fffd}[2Jb\u{fffd}");
        assert_eq!(plain("pays\u{202e}1 BTC"), "pays\u{fffd}1 BTC");
        assert_eq!(plain("Zürich, 東京"), "Zürich, 東京");
    }

    #[test]
    fn thousands_are_grouped() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(thousands), ["0", "999", "1,000", "1,234,567"]);
    }
}
