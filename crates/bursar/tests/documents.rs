//! What documents promise: a page for each error code, a reason for each dependency, an example that shows every setting, a
//! row for each command, links and paths that lead somewhere, and tests that exist where a page names them. The commands
//! that pages print are run by `tests/documents.py`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use bursar::config::{ChainNodes, Config, NodeSettings};
use domain::ledger::{Difference, Refusal};
use domain::transfer::{Rejection, State};
use toml::{Table, Value};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// All files under a folder whose names end like this. Nothing is looked for in what cargo has built.
fn files(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            if !path.ends_with("target") {
                files(&path, ending, found);
            }
        } else if path.to_string_lossy().ends_with(ending) {
            found.push(path);
        }
    }
}

/// The names of our crates: the folders of `crates/`.
fn our_crates() -> BTreeSet<String> {
    let folders = std::fs::read_dir(root().join("crates")).expect("a folder");
    folders.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
}

/// Every page: what stands at the root, and everything under `docs`.
fn pages() -> Vec<(PathBuf, String)> {
    let mut pages: Vec<PathBuf> = std::fs::read_dir(root())
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect();
    files(&root().join("docs"), ".md", &mut pages);
    pages.sort();
    pages
        .into_iter()
        .map(|page| {
            let text = std::fs::read_to_string(&page).expect("a page");
            (page, text)
        })
        .collect()
}

/// What stands between backticks, outside of code blocks.
fn quoted(text: &str) -> Vec<&str> {
    let prose = text.split("```").step_by(2);
    prose.flat_map(|prose| prose.lines()).flat_map(|line| line.split('`').skip(1).step_by(2)).collect()
}

/// The cells of a row of a table.
fn cells(row: &str) -> Vec<&str> {
    row.trim().trim_start_matches('|').trim_end_matches('|').split(" | ").map(str::trim).collect()
}

/// Every string in the sources that looks like a code: capitals and underscores. Names of statements, of environment
/// variables, of serde's spellings and of arguments look like that too, and are told apart by where they stand.
fn codes_in_sources() -> BTreeSet<String> {
    let mut sources = Vec::new();
    for name in our_crates() {
        files(&root().join("crates").join(name).join("src"), ".rs", &mut sources);
    }
    let mut codes = BTreeSet::new();
    // A string that stands in a test only is no code of the program.
    for file in sources.iter().filter(|file| !file.to_string_lossy().ends_with("_tests.rs")) {
        let text = std::fs::read_to_string(file).expect("a source");
        let text = text.split("#[cfg(test)]\nmod tests").next().expect("the code before its tests");
        let pieces: Vec<&str> = text.split('"').collect();
        for (at, piece) in pieces.iter().enumerate().skip(1).step_by(2) {
            let before = pieces[at - 1].trim_end();
            let named = ["RowsSql::new(", "RowsSql::listing(", "rename_all =", "value_name =", "var_os(", "env!("]
                .iter()
                .any(|place| before.ends_with(place));
            let capitals = piece.len() >= 8 && piece.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
            // TRON's nodes have codes too; ours begin with one of four words.
            let speaks_to_nodes =
                ["chain", "devnet", "tx"].iter().any(|name| file.starts_with(root().join("crates").join(name)));
            let of_a_node = speaks_to_nodes
                && !["CHAIN_", "ADDRESS_", "DEVNET_", "SIGNER_"].iter().any(|word| piece.starts_with(word));
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
    let index = read("docs/errors/README.md");
    for code in &codes {
        assert!(index.contains(&format!("[{code}]({code}.md)")), "docs/errors/README.md does not list {code}");
    }
}

/// Each crate from outside, and which of ours name it: `chain, server`, and in brackets those whose tests alone do.
fn users_of_dependencies() -> BTreeMap<String, String> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--locked", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let mut users: BTreeMap<String, [BTreeSet<String>; 2]> = BTreeMap::new();
    let packages = metadata["packages"].as_array().expect("packages");
    let ours: BTreeSet<&str> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    for package in packages {
        let user = package["name"].as_str().expect("a name");
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let name = dependency["name"].as_str().expect("a name");
            if !ours.contains(name) {
                let of_tests = usize::from(dependency["kind"] == "dev");
                users.entry(name.to_owned()).or_default()[of_tests].insert(user.to_owned());
            }
        }
    }
    let listed = |names: &[&String]| names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ");
    users
        .into_iter()
        .map(|(name, [programs, tests])| {
            let of_tests = listed(&tests.difference(&programs).collect::<Vec<_>>());
            let programs = listed(&programs.iter().collect::<Vec<_>>());
            let text = match (programs.is_empty(), of_tests.is_empty()) {
                (_, true) => programs,
                (true, false) => format!("(tests: {of_tests})"),
                (false, false) => format!("{programs} (tests: {of_tests})"),
            };
            (name, text)
        })
        .collect()
}

#[test]
fn every_dependency_has_its_reason_and_its_users() {
    const HEADER: &str = "| crate | used by |";
    let page = read("docs/dependencies.md");
    let lines: Vec<&str> = page.lines().collect();
    let first = 2 + lines.iter().position(|line| line.starts_with(HEADER)).expect("the table");
    let last = first + lines[first..].iter().position(|line| !line.starts_with('|')).expect("an end of the table");
    let written: BTreeMap<String, (String, String)> = lines[first..last]
        .iter()
        .map(|row| match cells(row)[..] {
            [name, users, ref reason @ ..] => {
                (name.trim_matches('`').to_owned(), (users.to_owned(), reason.join(" | ")))
            }
            _ => panic!("not a row of the table: {row}"),
        })
        .collect();
    let users = users_of_dependencies();
    if std::env::var_os("BURSAR_TEST_BLESS").is_some() {
        let rows = users.iter().map(|(name, users)| {
            let reason = written.get(name).map_or("?", |(_, reason)| reason.as_str());
            format!("| `{name}` | {users} | {reason} |")
        });
        let before = lines[..first].iter().map(|line| (*line).to_owned());
        let after = lines[last..].iter().map(|line| (*line).to_owned());
        let text: Vec<String> = before.chain(rows).chain(after).collect();
        std::fs::write(root().join("docs/dependencies.md"), text.join("\n") + "\n").expect("written");
        return;
    }
    let shown: BTreeSet<(&String, &String)> = written.iter().map(|(name, (users, _))| (name, users)).collect();
    let known: BTreeSet<(&String, &String)> = users.iter().collect();
    let missing: Vec<_> = known.difference(&shown).collect();
    let stale: Vec<_> = shown.difference(&known).collect();
    let remedy = "docs/dependencies.md says how to write this anew";
    assert!(missing.is_empty() && stale.is_empty(), "missing: {missing:?}\nstale: {stale:?}\n{remedy}");
    for (name, (_, reason)) in &written {
        assert!(reason.len() > 20, "docs/dependencies.md does not say why {name} is here");
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
    let text = read("examples/bursar.toml");
    let shown: Config = toml::from_str(&text).expect("a configuration");
    assert_eq!(shown, Config::default());
    let (mut written, mut known) = (BTreeSet::new(), BTreeSet::new());
    settings(&text.parse().expect("TOML"), "", &mut written);
    settings(&Table::try_from(Config::default()).expect("TOML"), "", &mut known);
    assert_eq!(written, known);
}

/// Which chains there are is nobody's default, so that section is in comments.
#[test]
fn the_example_shows_every_setting_of_nodes_with_its_default() {
    let text = read("examples/bursar.toml");
    let (_, section) = text.split_once("\n# [chains.bsc]\n").expect("the section of a chain");
    let uncommented: Vec<&str> =
        section.lines().map(|line| line.strip_prefix("# ").unwrap_or(line.trim_start_matches('#'))).collect();
    let shown: Config = toml::from_str(&format!("[chains.bsc]\n{}", uncommented.join("\n"))).expect("a configuration");
    let table = |config: &Config| Table::try_from(config).expect("TOML")["chains"]["bsc"].clone();
    let node = NodeSettings { name: "own-1".to_owned(), url: "http://127.0.0.1:8545".to_owned(), ..Default::default() };
    let chain = ChainNodes { nodes: vec![node], ..ChainNodes::default() };
    let usual = Config { chains: [("bsc".to_owned(), chain)].into(), ..Config::default() };
    assert_eq!(table(&shown), table(&usual));
    for name in table(&usual).as_table().into_iter().chain(table(&usual)["nodes"][0].as_table()).flat_map(Table::keys) {
        let said = format!("{name} = ");
        assert!(name == "nodes" || uncommented.iter().any(|line| line.starts_with(&said)), "{name} is not shown");
    }
}

#[test]
fn the_readme_is_one_page() {
    let lines = read("README.md").lines().count();
    assert!(lines <= 100, "README.md has {lines} lines; guides are in docs/guide, figures in docs/performance.md");
}

/// The commands that `bursar … --help` lists under these words.
#[cfg(feature = "lab")]
fn commands(words: &[&str]) -> Vec<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_bursar")).args(words).arg("--help").output().expect("bursar runs");
    let help = String::from_utf8(output.stdout).expect("text");
    let section = help.split("\nCommands:\n").nth(1).unwrap_or_default();
    section
        .lines()
        .take_while(|line| !line.is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

/// The page has the commands of the feature `lab` too.
#[cfg(feature = "lab")]
#[test]
fn every_command_has_its_row_and_every_row_its_command() {
    let page = read("docs/guide/command-line.md");
    let rows: Vec<Vec<&str>> = page.lines().filter(|line| line.starts_with("| `bursar ")).map(cells).collect();
    let known = commands(&[]);
    assert!(known.len() > 15, "{known:?}");
    for row in &rows {
        let name = row[0].trim_matches('`').split_whitespace().nth(1).expect("a command");
        assert!(known.iter().any(|command| command == name), "there is no command {name}: {}", row[0]);
    }
    for command in &known {
        let begins = [format!("`bursar {command}`"), format!("`bursar {command} ")];
        let of_it: Vec<&Vec<&str>> =
            rows.iter().filter(|row| begins.iter().any(|begin| row[0].starts_with(begin))).collect();
        assert!(!of_it.is_empty(), "docs/guide/command-line.md has no row for bursar {command}");
        for inner in commands(&[command]) {
            let named = of_it.iter().any(|row| {
                row[0].split([' ', '`']).nth(3) == Some(inner.as_str())
                    || quoted(row[1]).iter().any(|word| word.split(' ').next() == Some(inner.as_str()))
            });
            assert!(named, "docs/guide/command-line.md does not name bursar {command} {inner}");
        }
    }
}

#[test]
fn the_map_shows_every_crate() {
    let page = read("CONTRIBUTING.md");
    for name in our_crates() {
        assert!(page.contains(&format!("\n| `{name}` | ")), "CONTRIBUTING.md, Where things are: no row for {name}");
    }
}

/// How a heading is addressed: its letters and digits, small, with hyphens for blanks.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.split("```").step_by(2).flat_map(str::lines).filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let kept = line.trim_start_matches('#').trim().chars();
            let kept = kept.filter(|letter| letter.is_alphanumeric() || [' ', '-', '_'].contains(letter));
            kept.flat_map(char::to_lowercase).map(|letter| if letter == ' ' { '-' } else { letter }).collect()
        })
        .collect()
}

/// A link to a page or a heading that is not there helps nobody.
#[test]
fn links_between_documents_lead_somewhere() {
    let mut dead = Vec::new();
    for (page, text) in pages() {
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { page.clone() } else { page.parent().expect("a folder").join(file) };
            let there = target.exists()
                && (heading.is_empty()
                    || std::fs::read_to_string(&target).is_ok_and(|text| anchors(&text).contains(heading)));
            if !there {
                dead.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert_eq!(dead, Vec::<String>::new());
}

/// Where a path in backticks may lead: `crates/store/src/audit.rs`, or for short `store/src/audit.rs` and `store/audit.rs`;
/// `tests/…` at the root or, where a page speaks of a crate, in that crate. Nowhere: it is no path into the tree, or has a
/// wildcard.
fn path_named(word: &str, ours: &BTreeSet<String>) -> Vec<PathBuf> {
    let crates = root().join("crates");
    let Some((first, rest)) = word.split_once('/').filter(|_| !word.contains(['*', '{', '…', ' ', '<'])) else {
        return Vec::new();
    };
    match first {
        "crates" | "examples" => vec![root().join(word)],
        "tests" => {
            std::iter::once(root().join(word)).chain(ours.iter().map(|name| crates.join(name).join(word))).collect()
        }
        name if !ours.contains(name) => Vec::new(),
        _ if ["src/", "tests/", "migrations/"].iter().any(|folder| rest.starts_with(folder)) => vec![crates.join(word)],
        _ if rest.ends_with(".rs") => vec![crates.join(first).join("src").join(rest)],
        _ => Vec::new(),
    }
}

#[test]
fn paths_that_documents_name_exist() {
    let ours = our_crates();
    let mut missing = Vec::new();
    // The changelog tells of files as they were.
    for (page, text) in pages().into_iter().filter(|(page, _)| !page.ends_with("CHANGELOG.md")) {
        for word in quoted(&text) {
            let paths = path_named(word, &ours);
            if !paths.is_empty() && !paths.iter().any(|path| path.exists()) {
                missing.push(format!("{}: {word}", page.display()));
            }
        }
    }
    assert_eq!(missing, Vec::<String>::new());
}

/// docs/laws.md says which tests hold a law, which constraints enforce it, and which check proves it.
#[test]
fn what_the_laws_page_names_is_there() {
    let page = read("docs/laws.md");
    let mut sources = Vec::new();
    files(&root().join("crates"), ".rs", &mut sources);
    let code: String = sources.iter().map(|file| std::fs::read_to_string(file).expect("a source")).collect();
    let rows = |of: &str| -> Vec<&str> {
        let begin = format!("| {of} |");
        page.lines().filter(|line| line.starts_with(&begin)).flat_map(quoted).collect()
    };
    // A name of a test is a sentence; a file, a command or a type is not.
    let sentence = |word: &&str| word.matches('_').count() >= 1 && !word.contains(['/', ' ', '.', ':']);
    let tests: BTreeSet<&str> = rows("tests").into_iter().filter(sentence).collect();
    assert!(tests.len() > 40, "{tests:?}");
    for test in tests {
        assert!(code.contains(&format!("fn {test}(")), "docs/laws.md names a test that is not there: {test}");
    }
    let constraints: BTreeSet<&str> = rows("constraints").into_iter().filter(sentence).collect();
    assert!(constraints.len() > 15, "{constraints:?}");
    for engine in ["postgres", "sqlite"] {
        let mut migrations = Vec::new();
        files(&root().join("crates/store/migrations").join(engine), ".sql", &mut migrations);
        let text: String = migrations.iter().map(|file| std::fs::read_to_string(file).expect("SQL")).collect();
        for constraint in &constraints {
            let known = ["spent_by_tx_id", "check_schema"].contains(constraint) || text.contains(constraint);
            assert!(known, "docs/laws.md names a constraint that {engine} does not have: {constraint}");
        }
    }
    let checks: BTreeSet<&str> = rows("`bursar audit`").into_iter().collect();
    for table in ["crates/store/src/audit.rs", "crates/transfer/src/audit.rs"] {
        let text = read(table);
        let names: Vec<&str> =
            text.lines().filter_map(|line| line.strip_prefix("//! | `")?.split('`').next()).collect();
        assert!(!names.is_empty(), "{table} has no table of its checks");
        for name in names {
            assert!(checks.contains(name), "docs/laws.md does not say which law the check {name} belongs to");
        }
    }
}

/// The headings of a source, without the pictures in front of some; what stands in code is none.
fn headings(source: &str) -> Vec<String> {
    let mut in_code = false;
    let mut found = Vec::new();
    for line in source.lines() {
        in_code ^= line.starts_with("```");
        if !in_code && line.starts_with('#') {
            let text = line.trim_start_matches('#').trim();
            // A picture is a word of its own, and was broken on its way here.
            let words = text.split_whitespace().skip_while(|word| !word.is_ascii());
            found.push(words.collect::<Vec<_>>().join(" "));
        }
    }
    found
}

/// docs/sources.md says of each heading of 000 and 001 where it lives here.
#[test]
fn every_heading_of_the_two_sources_has_its_row() {
    let page = read("docs/sources.md");
    for source in ["000", "001"] {
        let wanted = headings(&read(&format!("crates/store/tests/it/sources/{source}.txt")));
        assert!(wanted.len() > 30, "{wanted:?}");
        let begin = format!("| {source} | where it lives here |");
        let table = page.split_once(&begin).unwrap_or_else(|| panic!("no table for {source}")).1;
        let rows: Vec<&str> = table.lines().skip(2).take_while(|line| line.starts_with("| ")).collect();
        let cells =
            |row: &&str| row.split(" | ").map(|cell| cell.trim_matches(['|', ' ']).to_owned()).collect::<Vec<_>>();
        let told: Vec<String> = rows.iter().filter_map(|row| cells(row).first().cloned()).collect();
        assert_eq!(told, wanted, "the table of {source}, in the source's order");
        for row in &rows {
            assert!(cells(row).get(1).is_some_and(|place| !place.is_empty()), "{source}: says nothing: {row}");
        }
    }
}
