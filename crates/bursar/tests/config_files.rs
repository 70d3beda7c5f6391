//! The files around a configuration: where its paths begin, who may read what, and a file to begin with.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use bursar::config::Config;
use bursar::config::NodeSettings;
use bursar::paths::{NODE_FILES, PATHS, resolve};
use serde_json::Value;
use toml::Table;

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a temporary folder") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str, mode: u32) {
        let file = self.path(name);
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("made");
        std::fs::write(&file, text).expect("written");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).expect("a mode");
    }

    /// In a folder inside this place, and without the settings of whoever runs the tests.
    fn run_with(&self, folder: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bursar"));
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("BURSAR_")) {
            command.env_remove(name);
        }
        let folder = self.path(folder);
        std::fs::create_dir_all(&folder).expect("made");
        command.current_dir(folder).args(arguments).envs(variables.iter().copied()).output().expect("bursar runs")
    }

    fn run(&self, folder: &str, arguments: &[&str]) -> Output {
        self.run_with(folder, arguments, &[])
    }

    #[track_caller]
    fn ok(&self, folder: &str, arguments: &[&str]) -> String {
        let output = self.run(folder, arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }

    /// The code, the message and the hint of a failure.
    #[track_caller]
    fn refused(&self, folder: &str, arguments: &[&str]) -> [String; 3] {
        error(&self.run(folder, &[arguments, &["--json"]].concat()))
    }
}

#[track_caller]
fn error(output: &Output) -> [String; 3] {
    let stderr = String::from_utf8_lossy(&output.stderr);
    let last = stderr.lines().last().unwrap_or_default();
    let body: Value = serde_json::from_str(last).unwrap_or_else(|_| panic!("{stderr}"));
    ["code", "message", "hint"].map(|name| body["error"][name].as_str().expect(name).to_owned())
}

fn mode(file: &Path) -> u32 {
    std::fs::metadata(file).expect("there").permissions().mode() & 0o777
}

const SETTINGS: &str = "[database]\nurl = \"sqlite://data/bursar.db\"\n[auth]\nhs256_secret_file = \"jwt.secret\"\n\
                        [spot]\naddress = \"\"\nfolder = \"spot\"\n[http]\nlisten = \"127.0.0.1:0\"\n";

#[test]
fn a_configuration_means_the_same_from_every_folder() {
    let place = Place::new();
    place.write("site/bursar.toml", SETTINGS, 0o644);
    place.write("site/jwt.secret", "0123456789abcdef0123456789abcdef\n", 0o600);
    place.ok("elsewhere", &["--config", "../site/bursar.toml", "migrate"]);
    assert!(place.path("site/data/bursar.db").exists());
    let named = place.path("site/bursar.toml");
    for (folder, config) in [("site", "bursar.toml"), ("", "site/bursar.toml"), ("a/b", &named.display().to_string())] {
        place.ok(folder, &["--config", config, "balances"]);
        place.ok(folder, &["--config", config, "token", "--user", "7"]);
    }
    assert!(!place.path("elsewhere/data").exists() && !place.path("a/b/data").exists(), "looking makes nothing");
    // A path from the environment begins where the shell is.
    let output = place.run_with(
        "elsewhere",
        &["--config", "../site/bursar.toml", "migrate"],
        &[("BURSAR_DATABASE_URL", "sqlite://own/x.db")],
    );
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(place.path("elsewhere/own/x.db").exists());
    // The error names the file that was looked for.
    std::fs::remove_file(place.path("site/jwt.secret")).expect("removed");
    let config = place.path("site/bursar.toml").display().to_string();
    for command in [&["token", "--user", "7"][..], &["serve"], &["config", "check"]] {
        let [code, message, _] = place.refused("elsewhere", &[&["--config", &config], command].concat());
        let looked_for = place.path("site/jwt.secret").display().to_string();
        assert!(code == "FILE_NOT_READABLE" && message.contains(&looked_for), "{command:?}: {code}: {message}");
    }
}

#[test]
fn a_secret_that_others_may_read_is_refused_by_every_command_that_uses_it() {
    let place = Place::new();
    place.write("bursar.toml", &SETTINGS.replace("address = \"\"", "credentials_file = \"spot.credentials\""), 0o644);
    place.write("jwt.secret", "0123456789abcdef0123456789abcdef\n", 0o644);
    place.write("spot.credentials", "coordinator 0123456789abcdef0123456789abcdef\n", 0o600);
    place.ok("", &["migrate"]);
    for command in [&["serve", "--create-spot"][..], &["token", "--user", "7"], &["config", "check"]] {
        let [code, message, hint] = place.refused("", command);
        assert_eq!(code, "SECRET_EXPOSED", "{command:?}: {message}");
        assert!(message.contains("jwt.secret") && hint.starts_with("chmod 600 jwt.secret"), "{message} | {hint}");
    }
    assert!(!place.path("spot").exists(), "nothing was made");
    place.write("jwt.secret", "0123456789abcdef0123456789abcdef\n", 0o600);
    place.ok("", &["token", "--user", "7"]);
    place.write("spot.credentials", "coordinator 0123456789abcdef0123456789abcdef\n", 0o640);
    for command in [&["config", "check"][..], &["spot", "send", "--credentials", "spot.credentials"]] {
        let [code, message, _] = place.refused("", command);
        assert!(code == "SECRET_EXPOSED" && message.contains("spot.credentials"), "{command:?}: {code}: {message}");
    }
}

#[test]
fn the_check_looks_at_every_file_and_says_what_is_not_there_yet() {
    let place = Place::new();
    place.write("bursar.toml", SETTINGS, 0o644);
    place.write("jwt.secret", "0123456789abcdef0123456789abcdef\n", 0o600);
    let text = place.ok("", &["config", "check"]);
    assert!(text.contains("not there yet: bursar migrate makes it"), "{text}");
    assert!(text.contains("not there yet: bursar serve --create-spot makes it"), "{text}");
    place.ok("", &["migrate"]);
    for file in ["data/bursar.db", "data/bursar.db-wal"] {
        let file = place.path(file);
        assert!(!file.exists() || mode(&file) == 0o600, "{}: {:o}", file.display(), mode(&file));
    }
    let body: Value = serde_json::from_str(&place.ok("", &["config", "check", "--json"])).expect("JSON");
    let states: Vec<&str> =
        body["files"].as_array().expect("files").iter().filter_map(|file| file["state"].as_str()).collect();
    let later = ["bursar serve --create-spot", "bursar utxo follow"].map(|by| format!("not there yet: {by} makes it"));
    assert_eq!(states, ["good", "good", &later[0], &later[1]], "{body}");
    std::fs::set_permissions(place.path("data/bursar.db"), std::fs::Permissions::from_mode(0o644)).expect("a mode");
    let text = place.ok("", &["config", "check"]);
    assert!(text.contains("others may read it: chmod 600 data/bursar.db"), "{text}");
    place.write(
        "bursar.toml",
        "[database]\nurl = \"postgres://ann@db/x?sslmode=verify-full&sslrootcert=ca.pem\"",
        0o644,
    );
    let [code, message, _] = place.refused("", &["config", "check"]);
    assert!(code == "FILE_NOT_READABLE" && message.starts_with("database.url: sslrootcert"), "{code}: {message}");
}

#[test]
fn a_file_to_begin_with_is_written_once() {
    let place = Place::new();
    let text = place.ok("", &["config", "init"]);
    assert!(text.contains("bursar.toml"), "{text}");
    assert_eq!(mode(&place.path("bursar.toml")), 0o600);
    place.ok("", &["config", "check"]);
    let written = std::fs::read_to_string(place.path("bursar.toml")).expect("there");
    assert!(written.contains("# How long a request waits") && !written.contains("examples/"), "{written}");
    place.write("bursar.toml", "[database]\nmax_connections = 3\n", 0o600);
    let [code, message, _] = place.refused("", &["config", "init"]);
    assert!(code == "CONFIG_EXISTS" && message.contains("bursar.toml"), "{code}: {message}");
    let kept = std::fs::read_to_string(place.path("bursar.toml")).expect("there");
    assert_eq!(kept, "[database]\nmax_connections = 3\n", "it is somebody's");
    place.ok("", &["--config", "other.toml", "config", "init"]);
    place.ok("", &["--config", "other.toml", "config", "check"]);
    assert_eq!(place.refused("", &["--config", "no/such/folder.toml", "config", "init"])[0], "FILE_NOT_WRITABLE");
}

#[test]
fn serve_names_its_own_flags() {
    let place = Place::new();
    place.write("bursar.toml", SETTINGS, 0o644);
    place.write("jwt.secret", "0123456789abcdef0123456789abcdef\n", 0o600);
    place.ok("", &["migrate"]);
    let [code, _, hint] = place.refused("", &["serve"]);
    assert_eq!(
        (code.as_str(), hint.as_str()),
        ("SPOT_LOG_MISSING", "check spot.folder; for a new and empty engine say --create-spot")
    );
    place.write("spot/wal-0000000001.log", "", 0o600);
    let [code, _, hint] = place.refused("", &["serve", "--create-spot"]);
    assert_eq!((code.as_str(), hint.as_str()), ("SPOT_LOG_EXISTS", "leave out --create-spot"));
}

fn table(config: &Config) -> Table {
    Table::try_from(config).expect("TOML")
}

/// Whoever adds a setting that names a file adds it to the list.
#[test]
fn every_setting_that_names_a_file_is_in_the_list() {
    for (section, settings) in table(&Config::default()) {
        for (name, value) in settings.as_table().into_iter().flatten() {
            let words = ["file", "folder", "path", "dir"];
            let names_a_file = words.iter().any(|word| name == word || name.ends_with(&format!("_{word}")));
            if names_a_file && value.is_str() {
                let listed = PATHS.iter().any(|(known, setting, _)| section == *known && name == setting);
                assert!(listed, "{section}.{name} is not in PATHS: its path would begin anywhere");
            }
        }
    }
    let node = Table::try_from(NodeSettings::default()).expect("TOML");
    let of_nodes: Vec<&str> = node.keys().map(String::as_str).filter(|name| name.ends_with("_file")).collect();
    let mut listed = NODE_FILES.to_vec();
    listed.sort_unstable();
    assert_eq!(listed, of_nodes);
    for (section, name, _) in PATHS {
        assert!(table(&Config::default())[section].get(name).is_some(), "there is no setting {section}.{name}");
    }
}

#[test]
fn only_relative_paths_begin_in_the_folder_of_the_file() {
    let mut config = Config::default();
    "jwt.secret".clone_into(&mut config.auth.hs256_secret_file);
    "/run/spot.token".clone_into(&mut config.spot.token_file);
    let mut settings = table(&config);
    resolve(&mut settings, Path::new("/etc/bursar"));
    let config: Config = settings.try_into().expect("a configuration");
    assert_eq!(config.database.url, "sqlite:///etc/bursar/bursar-data/bursar.db");
    assert_eq!(config.auth.hs256_secret_file, "/etc/bursar/jwt.secret");
    assert_eq!(config.spot.token_file, "/run/spot.token");
    assert_eq!(config.spot.folder, "/etc/bursar/bursar-data/spot");
    assert_eq!(config.auth.jwks_file, "", "what is not set stays so");
}

/// Two nodes, each with a secret in a file beside the configuration.
const NODES: &str = "[[chains.bsc.nodes]]\nname = \"own\"\nurl = \"http://127.0.0.1:8545/very-secret\"\nlogin_file = \"own.login\"\n\
                     headers = { x-team = \"hidden-team\" }\n[[chains.bsc.nodes]]\nname = \"theirs\"\nurl_file = \"theirs.url\"\n\
                     key_header = \"x-key\"\nkey_file = \"theirs.key\"\n[chains.tron]\n";

#[test]
fn the_secrets_of_nodes_are_files_that_are_looked_at_and_never_shown() {
    let place = Place::new();
    place.write("site/bursar.toml", &format!("{SETTINGS}{NODES}"), 0o644);
    place.write("site/jwt.secret", "0123456789abcdef0123456789abcdef\n", 0o600);
    place.write("site/own.login", "ann:own-password\n", 0o600);
    place.write("site/theirs.url", "https://node.example/url-secret\n", 0o600);
    let check = ["--config", "../site/bursar.toml", "config", "check"];
    let [code, message, _] = place.refused("elsewhere", &check);
    assert!(code == "FILE_NOT_READABLE" && message.contains("chains.bsc.nodes.theirs.key_file"), "{code}: {message}");
    place.write("site/theirs.key", "key-secret\n", 0o644);
    let [code, message, _] = place.refused("elsewhere", &check);
    assert!(code == "SECRET_EXPOSED" && message.contains("theirs.key"), "{code}: {message}");
    place.write("site/theirs.key", "key-secret\n", 0o600);
    let text = place.ok("elsewhere", &check);
    assert!(text.contains("more than half of own, theirs") && text.contains("no nodes: not followed"), "{text}");
    for shown in [text, place.ok("elsewhere", &[&check[..], &["--json"]].concat())] {
        for secret in ["very-secret", "own-password", "url-secret", "key-secret", "hidden-team"] {
            assert!(!shown.contains(secret), "{secret}: {shown}");
        }
    }
    for (file, text, expected) in [
        ("own.login", "no password", "there is no user:password in it"),
        ("theirs.key", "", "is empty, or no text"),
        ("theirs.url", "http://node.example/url-secret", "would travel in the clear"),
        ("theirs.url", "https://node.example/?key=url-secret", "the address of theirs must be"),
        ("theirs.url", "http://127.0.0.1:8545/very-secret", "is there twice"),
    ] {
        let good = std::fs::read_to_string(place.path(&format!("site/{file}"))).expect("there");
        place.write(&format!("site/{file}"), text, 0o600);
        let [code, message, _] = place.refused("elsewhere", &check);
        assert!(code == "CONFIG_INVALID" && message.contains(expected), "{file}: {code}: {message}");
        assert!(!message.contains("secret"), "{message}");
        place.write(&format!("site/{file}"), &good, 0o600);
    }
}
