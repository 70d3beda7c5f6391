//! The settings that name files and folders, in one list: where they begin, and what each must be like.
//!
//! A relative path in a configuration file begins in that file's folder, so that the file means the same from everywhere.
//! One from the environment or the command line begins in the current folder, as everywhere else in a shell.

use std::path::{Path, PathBuf};

use store::db::{files_of_url, resolve_url};
use terminal::failure::Failure;
use terminal::files::{check_pinned, check_readable, check_secret, is_private};
use toml::{Table, Value};

/// What a path leads to, and so what is asked of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leads {
    /// A database's URL: SQLite's file, or PostgreSQL's certificates and key.
    ToDatabase,
    /// A file that only its owner may read.
    ToSecret,
    /// A file that anybody may read.
    ToPublicFile,
    /// A file that anybody may read, and nobody but its owner may write.
    ToPinned,
    /// Where another process listens. It need not run now.
    ToSocket,
    /// A folder that a command makes when it is first wanted, and which command that is.
    ToFolder(&'static str),
}

/// Every setting that names a file or a folder: section, name, and what it leads to. A path that is not in this list would
/// begin in whatever folder the command was started from. Those of nodes are in [`NODE_FILES`].
pub const PATHS: [(&str, &str, Leads); 17] = [
    ("database", "url", Leads::ToDatabase),
    ("treasury", "file", Leads::ToPinned),
    ("signer", "socket", Leads::ToSocket),
    ("signer", "credential_file", Leads::ToSecret),
    ("signer", "tls_ca_file", Leads::ToPublicFile),
    ("signer", "tls_cert_file", Leads::ToPublicFile),
    ("signer", "tls_key_file", Leads::ToSecret),
    ("auth", "hs256_secret_file", Leads::ToSecret),
    ("auth", "jwks_file", Leads::ToPublicFile),
    ("operators", "hs256_secret_file", Leads::ToSecret),
    ("operators", "jwks_file", Leads::ToPublicFile),
    ("withdrawals", "check_key_file", Leads::ToSecret),
    ("spot", "folder", Leads::ToFolder("bursar serve --create-spot")),
    ("spot", "credentials_file", Leads::ToSecret),
    ("spot", "token_file", Leads::ToSecret),
    ("spot", "tls_ca_file", Leads::ToPublicFile),
    ("database", "mark_folder", Leads::ToFolder("bursar utxo follow")),
];

/// The settings of a chain's node that name files, all of them secret.
pub const NODE_FILES: [&str; 4] = ["url_file", "login_file", "token_file", "key_file"];

/// Lets every relative path of the settings begin in `folder`. A URL that is none stays as it is: it is refused later,
/// with its own words.
pub fn resolve(settings: &mut Table, folder: &Path) {
    for (section, name, leads) in PATHS {
        let value = settings.get_mut(section).and_then(|section| section.get_mut(name));
        let Some(Value::String(text)) = value.filter(|value| value.as_str() != Some("")) else { continue };
        match leads {
            Leads::ToDatabase => *text = resolve_url(text, folder).unwrap_or_else(|_| text.clone()),
            Leads::ToSecret | Leads::ToPublicFile | Leads::ToPinned | Leads::ToSocket | Leads::ToFolder(_) => {
                *text = folder.join(&*text).to_string_lossy().into_owned();
            }
        }
    }
    for (_, path) in node_files(settings) {
        *path = folder.join(&*path).to_string_lossy().into_owned();
    }
}

/// Each setting of a node that names a file, with its place: `chains.bsc.nodes.own-1.key_file`.
fn node_files(settings: &mut Table) -> Vec<(String, &mut String)> {
    let mut found = Vec::new();
    let chains = settings.get_mut("chains").and_then(Value::as_table_mut);
    for (chain, section) in chains.into_iter().flatten() {
        let nodes = section.get_mut("nodes").and_then(Value::as_array_mut);
        for node in nodes.into_iter().flatten().filter_map(Value::as_table_mut) {
            let name = node.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
            for (setting, value) in node.iter_mut().filter(|(setting, _)| NODE_FILES.contains(&setting.as_str())) {
                if let Value::String(path) = value
                    && !path.is_empty()
                {
                    found.push((format!("chains.{chain}.nodes.{name}.{setting}"), path));
                }
            }
        }
    }
    found
}

/// A file that the settings name, as it was found.
#[derive(Debug)]
pub struct Found {
    pub setting: String,
    pub path: PathBuf,
    /// `good`, or what an operator should know about it.
    pub state: String,
}

/// Looks at every file that the settings name. A secret that is missing or that others may read is an error, and so is any
/// other file that cannot be read; what a command makes by itself may be missing.
pub fn look(settings: &Table) -> Result<Vec<Found>, Failure> {
    let mut found = Vec::new();
    for (section, name, leads) in PATHS {
        let Some(text) = settings.get(section).and_then(|section| section.get(name)).and_then(Value::as_str) else {
            continue;
        };
        if text.is_empty() {
            continue;
        }
        let setting = format!("{section}.{name}");
        let path = PathBuf::from(text);
        let state = match leads {
            Leads::ToSecret => check_secret(&path).map(|_| "good".to_owned()),
            Leads::ToPublicFile => check_readable(&path).map(|_| "good".to_owned()),
            Leads::ToPinned => check_pinned(&path).map(|_| "good".to_owned()),
            Leads::ToSocket if path.exists() => Ok("good".to_owned()),
            Leads::ToSocket => Ok("nobody listens there now".to_owned()),
            Leads::ToFolder(command) => Ok(made_later(&path, &format!("{command} makes it"))?),
            Leads::ToDatabase => {
                found.extend(look_at_database(&setting, text)?);
                continue;
            }
        };
        let state = state.map_err(|failure| names(&setting, failure))?;
        found.push(Found { setting, path, state });
    }
    for (setting, text) in node_files(&mut settings.clone()) {
        let path = PathBuf::from(&*text);
        check_secret(&path).map_err(|failure| names(&setting, failure))?;
        found.push(Found { setting, path, state: "good".to_owned() });
    }
    Ok(found)
}

fn look_at_database(setting: &str, url: &str) -> Result<Vec<Found>, Failure> {
    let (file, named) = files_of_url(url)?;
    let mut found = Vec::new();
    if let Some(path) = file {
        let state = made_later(&path, "bursar migrate makes it").map_err(|failure| names(setting, failure))?;
        found.push(Found { setting: setting.to_owned(), path, state });
    }
    for file in named {
        let setting = format!("{setting}: {}", file.parameter);
        let looked = if file.secret { check_secret(&file.path) } else { check_readable(&file.path) };
        looked.map_err(|failure| names(&setting, failure))?;
        found.push(Found { setting, path: file.path, state: "good".to_owned() });
    }
    Ok(found)
}

/// What holds every balance is made for its owner alone; an older one may be open to others.
fn made_later(path: &Path, by: &str) -> Result<String, Failure> {
    if !path.try_exists().unwrap_or(true) {
        return Ok(format!("not there yet: {by}"));
    }
    let metadata = check_readable(path)?;
    Ok(if is_private(&metadata) || metadata.is_dir() {
        "good".to_owned()
    } else {
        format!("good, but others may read it: chmod 600 {}", path.display())
    })
}

fn names(setting: &str, mut failure: Failure) -> Failure {
    failure.messages.insert(0, setting.to_owned());
    failure
}
