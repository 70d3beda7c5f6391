//! Whatever locks, and every unique index that exactly once rests on, has its line in `tests/mutants.toml`: the change that
//! takes it away, and the test that must go red.
#![allow(clippy::unwrap_used, reason = "in a test an unwrap is an assertion")]

use std::fs;
use std::path::{Path, PathBuf};

#[derive(serde::Deserialize)]
struct Table {
    mutant: Vec<Mutant>,
}

#[derive(serde::Deserialize)]
struct Mutant {
    name: String,
    why: String,
    file: Option<String>,
    find: Option<String>,
    replace: Option<String>,
    #[serde(default)]
    edits: Vec<Edit>,
    test: String,
}

#[derive(Clone, serde::Deserialize)]
struct Edit {
    file: String,
    find: String,
    replace: String,
}

impl Mutant {
    fn edits(&self) -> Vec<Edit> {
        match (&self.file, &self.find, &self.replace) {
            (Some(file), Some(find), Some(replace)) => {
                vec![Edit { file: file.clone(), find: find.clone(), replace: replace.clone() }]
            }
            _ => self.edits.clone(),
        }
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn table() -> Vec<Mutant> {
    let text = fs::read_to_string(root().join("tests/mutants.toml")).unwrap();
    toml::from_str::<Table>(&text).unwrap().mutant
}

/// All files below a folder whose names end so.
fn files(folder: &str, end: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut open = vec![root().join(folder)];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.to_str().unwrap().ends_with(end) {
                let name = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
                found.push((name, fs::read_to_string(path).unwrap()));
            }
        }
    }
    found
}

/// The lines that lock: a clause of a statement, an advisory lock, a table.
fn locks(file: &str, text: &str) -> Vec<String> {
    let clauses = ["{FOR ", "pg_advisory", "LOCK TABLE", " FOR UPDATE", " FOR SHARE", " FOR NO KEY", " FOR KEY SHARE"];
    let code = |line: &&str| {
        let line = line.trim_start();
        !line.starts_with("//") && !line.starts_with("--")
    };
    // `template.rs` explains the placeholder, `testing` plays the operator with a shell, and `copy` is run while everything
    // is stopped: its lock only turns away who did not stop.
    if file.ends_with("template.rs") || file.contains("/testing") || file.ends_with("copy.rs") {
        return Vec::new();
    }
    let locking = |line: &&str| clauses.iter().any(|clause| line.contains(clause));
    text.lines().filter(code).filter(locking).map(|line| line.trim().to_owned()).collect()
}

#[test]
fn every_lock_clause_has_its_mutant() {
    let edits: Vec<Edit> = table().iter().flat_map(Mutant::edits).collect();
    let mut sources = files("crates/store/src", ".rs");
    sources.extend(files("crates/store/migrations/postgres", ".sql"));
    let mut count = 0;
    for (file, text) in sources {
        for line in locks(&file, &text) {
            count += 1;
            let taken = |edit: &&Edit| {
                let within = edit.find.lines().any(|part| !part.trim().is_empty() && line.contains(part.trim()));
                edit.file == file && within && locks(&file, &edit.replace).len() < locks(&file, &edit.find).len()
            };
            assert!(
                edits.iter().any(|edit| taken(&edit)),
                "{file} locks in this line, and tests/mutants.toml has no mutant that takes the lock away:\n    {line}"
            );
        }
    }
    assert!(count >= 14, "only {count} locks were found");
}

#[test]
fn every_unique_index_has_its_mutant() {
    let table = table();
    for guard in store::migrate::GUARDS {
        let named =
            |edit: &Edit| edit.file.ends_with("migrate.rs") && edit.find.contains(&format!("\"{}\"", guard.name));
        let taken = |mutant: &&Mutant| mutant.edits().iter().any(named) && mutant.edits().len() > 1;
        assert!(table.iter().any(|mutant| taken(&mutant)), "no mutant takes the index {} away", guard.name);
    }
}

#[test]
fn every_mutant_applies_and_names_a_test_that_is_there() {
    let sources = [files("crates", ".rs")].concat();
    for mutant in table() {
        assert!(!mutant.edits().is_empty() && !mutant.why.is_empty(), "{}", mutant.name);
        for edit in mutant.edits() {
            let text = fs::read_to_string(root().join(&edit.file)).unwrap();
            let places = text.matches(&edit.find).count();
            assert_eq!(places, 1, "{}: {} has so many places with {:?}", mutant.name, edit.file, edit.find);
        }
        let parts: Vec<&str> = mutant.test.split(' ').collect();
        let [package, program, path] = parts[..] else { panic!("{}: {}", mutant.name, mutant.test) };
        let test = path.rsplit("::").find(|part| !["sqlite", "postgres"].contains(part)).unwrap();
        let folder =
            if program == "lib" { format!("crates/{package}/src/") } else { format!("crates/{package}/tests/") };
        let there =
            |(file, text): &&(String, String)| file.starts_with(&folder) && text.contains(&format!("fn {test}"));
        assert!(sources.iter().any(|source| there(&source)), "{}: there is no test {test} in {folder}", mutant.name);
    }
}
