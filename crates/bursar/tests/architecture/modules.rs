//! Which module uses which, read from the sources' `crate::…` and `super::…` paths.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

type ModulePath = Vec<String>;

/// A source file: the module that it holds, and the paths that it names.
struct Source {
    module: ModulePath,
    names: Vec<ModulePath>,
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push(path);
        }
    }
}

/// Every source file of every crate, tests left out, with its text.
pub fn every_source() -> Vec<(PathBuf, String)> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(crates).expect("the folder of all crates") {
        files(&entry.expect("an entry").path().join("src"), &mut found);
    }
    let rust = |file: &PathBuf| file.extension().is_some_and(|extension| extension == "rs");
    let read = |file: PathBuf| {
        let text = std::fs::read_to_string(&file).expect("a source");
        (file, text)
    };
    found.into_iter().filter(rust).map(read).collect()
}

fn sources(name: &str) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name).join("src");
    let mut found = Vec::new();
    files(&root, &mut found);
    found
        .iter()
        .map(|file| {
            let inside = file.strip_prefix(&root).expect("a file of the crate").with_extension("");
            let mut module: ModulePath = inside.iter().map(|part| part.to_string_lossy().into_owned()).collect();
            // These hold the module of their folder.
            if ["mod", "lib", "main"].iter().any(|last| module.last().is_some_and(|name| name == last)) {
                module.pop();
            }
            let text = std::fs::read_to_string(file).expect("a source");
            let names = names(&text, &module);
            Source { module, names }
        })
        .collect()
}

/// The paths inside the crate that a text names, from the root of the crate.
fn names(text: &str, module: &[String]) -> Vec<ModulePath> {
    // In a test module `super` is the module itself, and a comment uses nothing.
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let code = |line: &&str| !line.trim_start().starts_with("//");
    let text: String = text.lines().filter(code).flat_map(|line| [line, "\n"]).collect();
    let mut found = Vec::new();
    for start in ["crate::", "super::"] {
        for (at, _) in text.match_indices(start) {
            let inside_a_path = text[..at].ends_with(|before: char| before.is_alphanumeric() || "_:$".contains(before));
            if !inside_a_path {
                found.extend(paths(&text[at..]).0.iter().map(|path| absolute(path, module)));
            }
        }
    }
    found
}

/// The paths of `a::{b, c::d as e}` at the start of the text, and the text behind it.
fn paths(text: &str) -> (Vec<ModulePath>, &str) {
    let text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('{') {
        let mut all = Vec::new();
        while let Some(at) = rest.find(|letter: char| !letter.is_whitespace() && letter != ',') {
            if let Some(behind) = rest[at..].strip_prefix('}') {
                return (all, behind);
            }
            let (some, behind) = paths(&rest[at..]);
            all.extend(some);
            // Over a new name, `as e`, and a star.
            rest = &behind[behind.find([',', '}']).unwrap_or(behind.len())..];
        }
        return (all, "");
    }
    let end = text.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    if name.is_empty() {
        return (vec![Vec::new()], rest);
    }
    let (inner, rest) = rest.strip_prefix("::").map_or_else(|| (vec![Vec::new()], rest), paths);
    let full = |path: ModulePath| std::iter::once(name.to_owned()).chain(path).collect();
    (inner.into_iter().map(full).collect(), rest)
}

fn absolute(path: &[String], module: &[String]) -> ModulePath {
    let ups = path.iter().take_while(|part| *part == "super").count();
    let (kept, skipped) = if ups == 0 {
        (0, usize::from(path.first().is_some_and(|part| part == "crate")))
    } else {
        (module.len().saturating_sub(ups), ups)
    };
    module[..kept].iter().chain(&path[skipped..]).cloned().collect()
}

/// Which of the modules directly in `folder` uses which other one there.
fn uses(sources: &[Source], folder: &[String]) -> BTreeMap<String, BTreeSet<String>> {
    let inside = |path: &[String]| path.strip_prefix(folder).and_then(|rest| rest.first()).cloned();
    let members: BTreeSet<String> = sources.iter().filter_map(|source| inside(&source.module)).collect();
    let mut uses = BTreeMap::new();
    for source in sources {
        let Some(member) = inside(&source.module) else { continue };
        let used = source.names.iter().filter_map(|path| inside(path));
        let used = used.filter(|used| *used != member && members.contains(used));
        uses.entry(member.clone()).or_insert_with(BTreeSet::new).extend(used);
    }
    uses
}

/// Fails on modules of one folder that use each other, directly or through others.
fn assert_no_cycle(name: &str, sources: &[Source], folder: &[String]) {
    let mut left = uses(sources, folder);
    loop {
        let names: BTreeSet<String> = left.keys().cloned().collect();
        let before = left.len();
        // A module that uses none of those left is in no cycle.
        left.retain(|_, used| used.iter().any(|used| names.contains(used)));
        if left.len() == before {
            break;
        }
    }
    assert!(left.is_empty(), "{name}/src/{}: these modules use each other: {left:?}", folder.join("/"));
}

/// The folders of a crate, its root first.
fn folders(sources: &[Source]) -> BTreeSet<ModulePath> {
    let parents = sources.iter().filter_map(|source| source.module.split_last()).map(|(_, parent)| parent.to_vec());
    parents.collect()
}

#[test]
fn no_module_of_bursar_uses_one_that_uses_it() {
    for name in ["bursar", "terminal"] {
        let sources = sources(name);
        for folder in folders(&sources) {
            assert_no_cycle(name, &sources, &folder);
        }
    }
    let bursar = uses(&sources("bursar"), &[]);
    assert!(bursar["cli"].contains("commands") && bursar["commands"].contains("config"), "{bursar:?}");
    let commands = uses(&sources("bursar"), &["commands".to_owned()]);
    assert!(commands["audit"].contains("serve") && commands["utxo"].contains("transfer"), "{commands:?}");
}

#[test]
fn no_part_of_the_lab_uses_one_that_uses_it() {
    assert_no_cycle("lab", &sources("lab"), &[]);
}

#[test]
fn paths_are_read_as_the_compiler_reads_them() {
    let text = "use crate::{a::b as c, d::{self, e}};\nuse super::super::f;\n// crate::comment\nsuper::g::h(crate::i::<u8>());";
    let module = ["x", "y"].map(ToOwned::to_owned);
    let found: BTreeSet<String> = names(text, &module).iter().map(|path| path.join("::")).collect();
    assert_eq!(found, ["a::b", "d::self", "d::e", "f", "x::g::h", "i"].map(ToOwned::to_owned).into());
}
