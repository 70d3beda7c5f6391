//! Tables for people, and printing that does not panic when the reader is gone (`bursar journal | head`), and that a terminal cannot obey.

use std::fmt::Write as _;
use std::io::Write;

/// Prints text or JSON to standard output. When that is closed the program ends: its work has no reader.
pub fn say(text: impl std::fmt::Display) {
    if writeln!(std::io::stdout(), "{}", escaped(&text.to_string())).is_err() {
        std::process::exit(crate::exit::Exit::Outside as i32);
    }
}

/// Prints text or JSON to standard error. When that is closed the exit code still tells.
pub fn warn(text: impl std::fmt::Display) {
    writeln!(std::io::stderr(), "{}", escaped(&text.to_string())).ok();
}

/// Moves the cursor, turns the letters round, or is not to be seen. A terminal, or whoever reads it, would be told something else than what is written.
fn deceives(letter: char) -> bool {
    letter.is_control()
        || matches!(
            letter,
            '\u{061c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        )
}

/// With JSON's escapes for all that deceives but the ends of lines and tabs. In JSON such letters stand only in strings, so it says the same as before; in
/// other text they are seen.
fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        if deceives(letter) && !matches!(letter, '\n' | '\t') {
            write!(shown, "\\u{:04x}", u32::from(letter)).ok();
        } else {
            shown.push(letter);
        }
    }
    shown
}

/// What others have written, on one line, and without what would move the cursor or turn the letters round.
pub fn plain(text: &str) -> String {
    text.chars().map(|letter| if deceives(letter) { '\u{fffd}' } else { letter }).collect()
}

/// A table with a header; columns named in `right` are aligned right, as numbers are. Each row is one line, whoever wrote what is in it.
pub fn table(header: &[&str], right: &[usize], rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(|cell| plain(cell)).collect()).collect();
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
    let head: Vec<String> = header.iter().map(|cell| plain(cell)).collect();
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
        for hidden in
            ['\u{7f}', '\u{9b}', '\u{61c}', '\u{200b}', '\u{2028}', '\u{2029}', '\u{2066}', '\u{2069}', '\u{feff}']
        {
            assert_eq!(plain(&format!("a{hidden}b")), "a\u{fffd}b", "{hidden:?}");
        }
    }

    #[test]
    fn a_row_of_a_table_is_one_line_whoever_wrote_it() {
        let rows = [vec!["pays".into(), "1\r20\u{1b}[1A\nto\u{202e}".into()]];
        expect_test::expect![[r#"
            a     b
            ────  ────────────
            pays  1�20�[1A�to�"#]]
        .assert_eq(&table(&["a", "b"], &[], &rows));
    }

    #[test]
    fn json_says_the_same_in_letters_that_no_terminal_obeys() {
        let body = serde_json::json!({ "text": "a\u{1b}\u{7f}\u{9b}\u{61c}\u{200b}\u{2028}\u{202e}\u{2069}\r\n東" });
        let shown = escaped(&body.to_string());
        assert_eq!(shown, r#"{"text":"a\u001b\u007f\u009b\u061c\u200b\u2028\u202e\u2069\r\n東"}"#);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).expect("JSON"), body);
        assert_eq!(escaped("two\nlines\tand\u{1b}[2J"), "two\nlines\tand\\u001b[2J");
    }

    #[test]
    fn thousands_are_grouped() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(thousands), ["0", "999", "1,000", "1,234,567"]);
    }
}
