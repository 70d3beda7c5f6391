//! The placeholders of a statement. What both engines say alike is written once; where they differ stands one of these:
//!
//! | placeholder | PostgreSQL | SQLite |
//! |---|---|---|
//! | `{in $2}` | `= ANY($2)` | `IN (SELECT value FROM json_each($2))` |
//! | `{join}` | `JOIN` | `CROSS JOIN`, which keeps the order of the tables |
//! | `{FOR UPDATE}`, any `{FOR …}` | itself | nothing: it has one writer, so what it has read stays as it is |
//! | `{INDEXED BY idx}` | nothing | itself |
//! | `{columns}`, `{columns t}` | the statement's list of columns, as it is or each with `t.` before it | the same |
//! | `{rows}` | left as it is, for a [`RowsSql`](crate::rows::RowsSql) | the same |
//!
//! A constant is rendered when the code is compiled, and an unknown placeholder does not compile.

use crate::db::Engine;
use crate::dialect;

/// The rendered text while it grows. A buffer that is too small takes what fits, so that an empty one only counts.
struct Out<'a> {
    buffer: &'a mut [u8],
    length: usize,
    /// How many of the last bytes are white space.
    spaces: usize,
}

impl Out<'_> {
    const fn byte(&mut self, byte: u8) {
        if self.length < self.buffer.len() {
            self.buffer[self.length] = byte;
        }
        self.length += 1;
        self.spaces = if byte.is_ascii_whitespace() { self.spaces + 1 } else { 0 };
    }

    const fn bytes(&mut self, bytes: &[u8]) {
        let mut at = 0;
        while at < bytes.len() {
            self.byte(bytes[at]);
            at += 1;
        }
    }

    /// A placeholder that stands for nothing takes the white space before it along.
    const fn nothing(&mut self) {
        self.length -= self.spaces;
        self.spaces = 0;
    }

    /// The list, each column with the table's name before it, if one is given.
    const fn columns(&mut self, columns: &[u8], table: &[u8]) {
        let (mut at, mut begins) = (0, true);
        while at < columns.len() {
            if begins && !columns[at].is_ascii_whitespace() {
                begins = false;
                if !table.is_empty() {
                    self.bytes(table);
                    self.byte(b'.');
                }
            }
            self.byte(columns[at]);
            begins = begins || columns[at] == b',';
            at += 1;
        }
    }

    const fn placeholder(&mut self, inside: &[u8], columns: &[u8], engine: Engine) {
        let on_postgres = matches!(engine, Engine::Postgres);
        if let Some(bind) = after(inside, b"in ") {
            let [before, behind] = dialect::one_of(engine);
            self.bytes(before.as_bytes());
            self.bytes(bind);
            self.bytes(behind.as_bytes());
        } else if let Some(b"") = after(inside, b"join") {
            self.bytes(dialect::join(engine).as_bytes());
        } else if let Some(table) = after(inside, b"columns") {
            assert!(!columns.is_empty(), "the statement has no list of columns");
            self.columns(columns, table.trim_ascii());
        } else if let Some(b"") = after(inside, b"rows") {
            self.bytes(b"{rows}");
        } else {
            let only_postgres = after(inside, b"FOR ").is_some();
            assert!(only_postgres || after(inside, b"INDEXED BY ").is_some(), "an unknown placeholder");
            if only_postgres == on_postgres { self.bytes(inside) } else { self.nothing() }
        }
    }
}

/// What follows on a beginning, if the text has it.
const fn after<'a>(text: &'a [u8], beginning: &[u8]) -> Option<&'a [u8]> {
    if text.len() < beginning.len() {
        return None;
    }
    let (start, rest) = text.split_at(beginning.len());
    let mut at = 0;
    while at < start.len() {
        if start[at] != beginning[at] {
            return None;
        }
        at += 1;
    }
    Some(rest)
}

/// Fills the buffer as far as it goes, and says how long the whole text is.
const fn expand(template: &str, columns: &str, engine: Engine, buffer: &mut [u8]) -> usize {
    let mut out = Out { buffer, length: 0, spaces: 0 };
    let mut rest = template.as_bytes();
    while let [first, behind @ ..] = rest {
        rest = behind;
        if *first == b'{' {
            let mut end = 0;
            while end < rest.len() && rest[end] != b'}' {
                end += 1;
            }
            assert!(end < rest.len(), "a placeholder has no end");
            let (inside, closed) = rest.split_at(end);
            out.placeholder(inside, columns.as_bytes(), engine);
            (_, rest) = closed.split_at(1);
        } else {
            out.byte(*first);
        }
    }
    out.length
}

/// How many bytes [`render`] makes of it.
pub(crate) const fn length(template: &str, columns: &str, engine: Engine) -> usize {
    expand(template, columns, engine, &mut [])
}

/// The text for an engine; `N` is its [`length`].
pub(crate) const fn render<const N: usize>(template: &str, columns: &str, engine: Engine) -> [u8; N] {
    let mut buffer = [0; N];
    assert!(expand(template, columns, engine, &mut buffer) == N, "as long as it was counted");
    buffer
}

/// What was rendered, as text.
pub(crate) const fn text(rendered: &[u8]) -> &str {
    match std::str::from_utf8(rendered) {
        Ok(text) => text,
        Err(_) => panic!("a template and its columns are text"),
    }
}

/// The same at run time, for a text that is not a constant.
pub(crate) fn render_string(template: &str, columns: &str, engine: Engine) -> String {
    let mut buffer = vec![0; length(template, columns, engine)];
    expand(template, columns, engine, &mut buffer);
    text(&buffer).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(template: &str) -> [String; 2] {
        [Engine::Postgres, Engine::Sqlite].map(|engine| render_string(template, "id, name,\n  at", engine))
    }

    #[test]
    fn what_differs_is_written_for_each_engine() {
        assert_eq!(
            both("a {in $2} ORDER BY a {FOR UPDATE OF a})"),
            ["a = ANY($2) ORDER BY a FOR UPDATE OF a)", "a IN (SELECT value FROM json_each($2)) ORDER BY a)"]
        );
        assert_eq!(
            both("FROM t {INDEXED BY i} {join} u, {rows}"),
            ["FROM t JOIN u, {rows}", "FROM t INDEXED BY i CROSS JOIN u, {rows}"]
        );
    }

    #[test]
    fn columns_stand_as_they_are_or_with_their_table() {
        assert_eq!(both("{columns}|{columns t}")[0], "id, name,\n  at|t.id, t.name,\n  t.at");
    }

    #[test]
    #[should_panic(expected = "an unknown placeholder")]
    fn an_unknown_placeholder_is_a_bug() {
        both("{for update}");
    }
}
