//! Database URLs: reading one, showing one without its password, and the files that it names.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use sqlx::postgres::PgConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;

use super::Engine;
use crate::error::StoreError;

/// All that a URL of PostgreSQL may say behind its question mark. sqlx passes over any other name with a warning, and
/// `sslmod=verify-full` would connect without TLS.
const PARAMETERS: [&str; 18] = [
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "ssl-mode",
    "ssl-root-cert",
    "ssl-ca",
    "ssl-cert",
    "ssl-key",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
    "options",
    "statement-cache-capacity",
];

/// Those that name a file, and whether it is a secret.
const FILES: [(&str, bool); 7] = [
    ("sslrootcert", false),
    ("ssl-root-cert", false),
    ("ssl-ca", false),
    ("sslcert", false),
    ("ssl-cert", false),
    ("sslkey", true),
    ("ssl-key", true),
];

/// A file that a URL of PostgreSQL names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedFile {
    pub parameter: String,
    pub path: PathBuf,
    /// Only its owner may read it.
    pub secret: bool,
}

pub(crate) fn parse_postgres(url: &str) -> Result<PgConnectOptions, StoreError> {
    check_parameters(url)?;
    PgConnectOptions::from_str(url).map_err(|error| StoreError::BadUrl(Some(error)))
}

fn check_parameters(url: &str) -> Result<(), StoreError> {
    let refuse = |message: String| Err(StoreError::BadUrl(Some(sqlx::Error::Configuration(message.into()))));
    let mut seen: Vec<String> = Vec::new();
    for (at, (name, _)) in parameters(url).into_iter().enumerate() {
        let known = PARAMETERS.contains(&name.as_str()) || (name.starts_with("options[") && name.ends_with(']'));
        if !known {
            // A name is repeated only where it is like one that exists: it may be the rest of a password with an `&` in it.
            let meant = PARAMETERS.into_iter().find(|known| name.len() > 3 && known.get(..3) == name.get(..3));
            return refuse(match meant {
                Some(meant) => format!("{name} is no parameter; did you mean {meant}?"),
                None => format!("parameter {} is none of {}", at + 1, PARAMETERS.join(", ")),
            });
        }
        if seen.contains(&name) {
            return refuse(format!("{name} is there twice"));
        }
        seen.push(name);
    }
    Ok(())
}

/// Names and values behind the question mark, decoded.
fn parameters(url: &str) -> Vec<(String, String)> {
    let url = url.split_once('#').map_or(url, |(url, _)| url);
    let Some((_, query)) = url.split_once('?') else { return Vec::new() };
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| (decode(name), decode(value)))
        .collect()
}

/// A part of a query: `%41` is a byte, `+` a blank.
fn decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, behind @ ..] = rest {
        let hex = |at: usize| behind.get(at).and_then(|byte| char::from(*byte).to_digit(16));
        match (first, hex(0), hex(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push(u8::try_from(high * 16 + low).unwrap_or_default());
                rest = behind.get(2..).unwrap_or_default();
            }
            (first, _, _) => {
                bytes.push(if *first == b'+' { b' ' } else { *first });
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Only files: a database in memory would forget what it acknowledged.
pub(super) fn parse_sqlite(url: &str) -> Result<SqliteConnectOptions, StoreError> {
    let (path, query) = url.split_once('?').unwrap_or((url, ""));
    let path = path.trim_start_matches("sqlite:").trim_start_matches("//");
    if path.is_empty() || path.starts_with(":memory:") || query.split('&').any(|pair| pair == "mode=memory") {
        return Err(StoreError::BadUrl(None));
    }
    SqliteConnectOptions::from_str(url).map_err(|error| StoreError::BadUrl(Some(error)))
}

/// A URL as it may be shown: made from its parsed parts, without password or options. Says so when it is no good.
pub fn describe_url(url: &str) -> Result<String, StoreError> {
    match Engine::of_url(url).ok_or(StoreError::BadUrl(None))? {
        Engine::Postgres => {
            let parsed = parse_postgres(url)?;
            let place = parsed.get_socket().map_or_else(
                || format!("{}:{}", parsed.get_host(), parsed.get_port()),
                |folder| folder.display().to_string(),
            );
            let database = parsed.get_database().unwrap_or_default();
            Ok(format!("postgres://{}@{place}/{database}", parsed.get_username()))
        }
        Engine::Sqlite => Ok(format!("sqlite://{}", parse_sqlite(url)?.get_filename().display())),
    }
}

/// The same database as seen from `folder`: its relative paths begin there. Of SQLite that is the file, of PostgreSQL the
/// certificates and the key.
pub fn resolve_url(url: &str, folder: &Path) -> Result<String, StoreError> {
    match Engine::of_url(url).ok_or(StoreError::BadUrl(None))? {
        Engine::Sqlite => {
            let file = folder.join(parse_sqlite(url)?.get_filename());
            let query = url.split_once('?').map_or_else(String::new, |(_, query)| format!("?{query}"));
            Ok(format!("{}{query}", sqlite_url(&file)))
        }
        Engine::Postgres => {
            parse_postgres(url)?;
            let Some((place, query)) = url.split_once('?') else { return Ok(url.to_owned()) };
            let resolved: Vec<String> = query
                .split('&')
                .map(|pair| match named_file(pair) {
                    Some(file) => format!("{}={}", file.parameter, percent_encoded(&folder.join(file.path))),
                    None => pair.to_owned(),
                })
                .collect();
            Ok(format!("{place}?{}", resolved.join("&")))
        }
    }
}

/// The database's own file, or the certificates and the key with which its server is met.
pub fn files_of_url(url: &str) -> Result<(Option<PathBuf>, Vec<NamedFile>), StoreError> {
    match Engine::of_url(url).ok_or(StoreError::BadUrl(None))? {
        Engine::Sqlite => Ok((Some(parse_sqlite(url)?.get_filename().to_owned()), Vec::new())),
        Engine::Postgres => {
            parse_postgres(url)?;
            let query = url.split_once('?').map_or("", |(_, query)| query);
            Ok((None, query.split('&').filter_map(named_file).collect()))
        }
    }
}

/// A certificate may stand in the URL itself; then there is no file.
fn named_file(pair: &str) -> Option<NamedFile> {
    let (name, value) = pair.split_once('=')?;
    let (parameter, value) = (decode(name), decode(value));
    let (_, secret) = FILES.into_iter().find(|(file, _)| *file == parameter)?;
    (!value.trim_start().starts_with("-----BEGIN")).then(|| NamedFile { parameter, path: value.into(), secret })
}

/// The URL of a SQLite file, whatever characters its path has.
pub fn sqlite_url(file: &Path) -> String {
    format!("sqlite://{}", percent_encoded(file))
}

/// A path as a part of a URL.
pub fn percent_encoded(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte);
    let encode = |byte: &u8| if plain(*byte) { char::from(*byte).to_string() } else { format!("%{byte:02X}") };
    path.as_os_str().as_bytes().iter().map(encode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `sslmod=verify-full` connected without TLS, and said nothing.
    #[test]
    fn an_unknown_parameter_never_becomes_a_default() {
        for (query, said) in [
            ("sslmod=verify-full", "sslmod is no parameter; did you mean sslmode?"),
            ("sslmode=require&SSLMODE=disable", "parameter 2 is none of sslmode, "),
            ("sslmode=verify-full&sslmode=disable", "sslmode is there twice"),
            ("connect_timeout=3", "parameter 1 is none of"),
            ("sslmode=require&ssl%6dod=x", "sslmod is no parameter"),
        ] {
            let error = describe_url(&format!("postgres://ann:pw@db/x?{query}")).expect_err(query);
            let StoreError::BadUrl(Some(cause)) = error else { panic!("{query}: {error}") };
            assert!(cause.to_string().contains(said), "{query}: {cause}");
        }
        let good =
            "postgres://ann@db/x?sslmode=verify-full&sslrootcert=ca.pem&options[geqo]=off&statement-cache-capacity=9";
        describe_url(good).expect("all of it is known");
        // What stands behind an `&` may be the rest of a password.
        let rest = describe_url("postgres://ann@db/x?password=one&two").expect_err("no parameter");
        assert!(!format!("{rest:?}").contains("two"), "{rest:?}");
        describe_url("sqlite://x.db?mod=ro").expect_err("SQLite knows no such parameter");
    }

    #[test]
    fn relative_paths_begin_in_the_folder() {
        for (url, resolved) in [
            ("sqlite://data/a.db", "sqlite:///etc/b%20c/data/a.db"),
            ("sqlite:a%3Fb.db?mode=ro", "sqlite:///etc/b%20c/a%3Fb.db?mode=ro"),
            ("sqlite:///var/a.db", "sqlite:///var/a.db"),
            ("postgres://ann@db/x", "postgres://ann@db/x"),
            (
                "postgres://ann@db/x?sslmode=verify-full&sslrootcert=ca.pem&sslkey=/k",
                "postgres://ann@db/x?sslmode=verify-full&sslrootcert=/etc/b%20c/ca.pem&sslkey=/k",
            ),
        ] {
            assert_eq!(resolve_url(url, Path::new("/etc/b c")).expect(url), resolved);
            assert_eq!(resolve_url(resolved, Path::new("/elsewhere")).expect(url), resolved);
        }
        let (file, named) = files_of_url("postgres://db/x?sslrootcert=ca.pem&sslkey=k.pem").expect("good");
        assert_eq!((file, named.len(), named[1].secret), (None, 2, true));
    }
}
