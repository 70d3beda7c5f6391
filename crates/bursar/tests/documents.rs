//! What documents promise: a page per error code, and a line per dependency.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use domain::ledger::{Difference, Refusal};

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

/// Every string in the sources that looks like a code: capitals and underscores. Names of statements and of
/// environment variables look like that too, and are told apart.
fn codes_in_sources() -> BTreeSet<String> {
    let mut files = Vec::new();
    for name in ["domain", "store", "spot", "bursar"] {
        sources(&root().join("crates").join(name).join("src"), &mut files);
    }
    let mut codes = BTreeSet::new();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a source");
        let text = text.split("#[cfg(test)]\nmod tests").next().expect("the code before its tests");
        let pieces: Vec<&str> = text.split('"').collect();
        for (at, piece) in pieces.iter().enumerate().skip(1).step_by(2) {
            let statement = pieces[at - 1].trim_end().ends_with("RowsSql::new(");
            let capitals = piece.len() >= 8 && piece.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
            if capitals && !statement && !piece.starts_with("BURS") && *piece != "BIGINT" {
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
    let states = domain::transfer::State::ALL.map(domain::transfer::State::as_str);
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
        assert!(index.contains(code.as_str()), "docs/errors/README.md does not list {code}");
    }
}

#[test]
fn every_dependency_has_its_line() {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).expect("the workspace's manifest");
    let listed = std::fs::read_to_string(root().join("docs/dependencies.md")).expect("the list");
    let section = manifest.split("[workspace.dependencies]").nth(1).expect("a section");
    let section = section.split("\n[").next().expect("its lines");
    let names = section.lines().filter_map(|line| line.split_once(" = ")).map(|(name, _)| name);
    for name in names.filter(|name| !["domain", "spot", "store"].contains(name)) {
        assert!(listed.contains(&format!("`{name}`")), "docs/dependencies.md has no line for {name}");
    }
}
