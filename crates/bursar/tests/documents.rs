//! What documents promise: a page per error code, a line per dependency, and an example that shows every setting.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use bursar::config::Config;
use domain::ledger::{Difference, Refusal};
use domain::transfer::{Rejection, State};
use toml::{Table, Value};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Every string in the sources that looks like a code: capitals and underscores. Names of statements, of environment
/// variables, of serde's spellings and of arguments look like that too, and are told apart by where they stand.
fn codes_in_sources() -> BTreeSet<String> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(root().join("crates")).expect("the crates") {
        sources(&entry.expect("a crate").path().join("src"), &mut files);
    }
    let mut codes = BTreeSet::new();
    // What only a test says is nobody's code.
    for file in files.iter().filter(|file| !file.to_string_lossy().ends_with("_tests.rs")) {
        let text = std::fs::read_to_string(file).expect("a source");
        let text = text.split("#[cfg(test)]\nmod tests").next().expect("the code before its tests");
        let pieces: Vec<&str> = text.split('"').collect();
        for (at, piece) in pieces.iter().enumerate().skip(1).step_by(2) {
            let before = pieces[at - 1].trim_end();
            let named = ["RowsSql::new(", "RowsSql::listing(", "rename_all =", "value_name =", "var_os(", "env!("]
                .iter()
                .any(|place| before.ends_with(place));
            let capitals = piece.len() >= 8 && piece.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
            // TRON's nodes have codes too; ours about chains begin with one of three words.
            let of_a_node =
                ["crates/chain", "crates/devnet"].iter().any(|folder| file.starts_with(root().join(folder)))
                    && !["CHAIN_", "ADDRESS_", "DEVNET_"].iter().any(|word| piece.starts_with(word));
            if capitals && !named && !of_a_node && !piece.starts_with("BURS") && *piece != "BIGINT" {
                codes.insert((*piece).to_owned());
            }
        }
    }
    codes
}

#[test]
fn every_code_has_its_page_and_every_page_its_code() {
    let mut codes = codes_in_sources();
    codes.extend(Refusal::ALL.iter().map(|refusal| refusal.code().to_owned()));
    codes.extend(Difference::ALL.iter().map(|difference| difference.code().to_owned()));
    codes.extend(Rejection::ALL.iter().map(|rejection| rejection.code().to_owned()));
    // The states of a transfer, and its outcomes, which have the same names, are no errors.
    let states = State::ALL.map(State::as_str);
    codes.retain(|code| code != "ROLLBACK" && !states.contains(&code.as_str()));
    let pages: BTreeSet<String> = std::fs::read_dir(root().join("docs/errors"))
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
        .filter_map(|path| path.file_stem().map(|stem| stem.to_string_lossy().into_owned()))
        .filter(|name| name != "README")
        .collect();
    assert!(codes.len() > 40, "{codes:?}");
    assert_eq!(codes.difference(&pages).collect::<Vec<_>>(), Vec::<&String>::new(), "codes without a page");
    assert_eq!(pages.difference(&codes).collect::<Vec<_>>(), Vec::<&String>::new(), "pages without a code");
    let index = std::fs::read_to_string(root().join("docs/errors/README.md")).expect("an index");
    for code in &codes {
        assert!(index.contains(&format!("[{code}]({code}.md)")), "docs/errors/README.md does not list {code}");
    }
}

#[test]
fn every_dependency_has_its_line() {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).expect("the workspace's manifest");
    let listed = std::fs::read_to_string(root().join("docs/dependencies.md")).expect("the list");
    let section = manifest.split("[workspace.dependencies]").nth(1).expect("a section");
    let section = section.split("\n[").next().expect("its lines");
    let foreign = section.lines().filter(|line| !line.contains("path = \"crates/"));
    for name in foreign.filter_map(|line| line.split_once(" = ")).map(|(name, _)| name) {
        assert!(listed.contains(&format!("`{name}`")), "docs/dependencies.md has no line for {name}");
    }
}

/// Every setting as its path: `database.url`.
fn settings(table: &Table, path: &str, found: &mut BTreeSet<String>) {
    for (key, value) in table {
        match value {
            Value::Table(inner) => settings(inner, &format!("{path}{key}."), found),
            _ => {
                found.insert(format!("{path}{key}"));
            }
        }
    }
}

#[test]
fn the_example_shows_every_setting_with_its_default() {
    let text = std::fs::read_to_string(root().join("examples/bursar.toml")).expect("the example");
    let shown: Config = toml::from_str(&text).expect("a configuration");
    assert_eq!(shown, Config::default());
    let (mut written, mut known) = (BTreeSet::new(), BTreeSet::new());
    settings(&text.parse().expect("TOML"), "", &mut written);
    settings(&Table::try_from(Config::default()).expect("TOML"), "", &mut known);
    assert_eq!(written, known);
}

/// A link to a page that is not there helps nobody.
#[test]
fn links_between_documents_lead_somewhere() {
    let mut pages: Vec<PathBuf> = ["", "docs", "docs/adr", "docs/errors"]
        .iter()
        .flat_map(|folder| std::fs::read_dir(root().join(folder)).expect("a folder"))
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect();
    pages.sort();
    let mut dead = Vec::new();
    for page in pages {
        let text = std::fs::read_to_string(&page).expect("a page");
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = link.split('#').next().unwrap_or_default();
            let inside = !file.is_empty() && !link.contains("://");
            if inside && !page.parent().expect("a folder").join(file).exists() {
                dead.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert_eq!(dead, Vec::<String>::new());
}
