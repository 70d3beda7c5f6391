//! The configured signer: asked whether it has the keys that the treasury file pins.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use custody::signer::{SignerStanding, SignerWatch, look_once};
use custody::wallet::Pinned;
use domain::Clock;
use signer::access::Credential;
use signer::client::transport::SignerPlace;
use signer::client::{ClientSettings, SignerClient};
use store::Db;
use terminal::clock::SystemClock;
use terminal::failure::{CommandResult, Exit, Failure};
use terminal::files::{read_secret, read_text};
use zeroize::Zeroizing;

use super::super::signer::System;
use super::super::signer::asking::listen_failed;
use super::super::signer::key::access_failed;
use crate::config::Config;

/// How long a start, or a command, waits for the signer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The signer that the configuration names. `None`: there is none.
pub fn configured(config: &Config) -> Result<Option<Arc<SignerWatch>>, Failure> {
    let settings = &config.signer;
    if !settings.is_configured() {
        return Ok(None);
    }
    let bytes = Zeroizing::new(read_secret(Path::new(&settings.credential_file))?);
    let credential = Credential::parse(std::str::from_utf8(&bytes).unwrap_or_default());
    let credential = credential.map_err(|error| access_failed(&error))?;
    let clock = Arc::new(SystemClock);
    let waiting = ClientSettings { deadline: PATIENCE, try_time: PATIENCE, ..ClientSettings::default() };
    let client = SignerClient::new(place(config)?, credential, clock, Arc::new(System), waiting, None);
    Ok(Some(Arc::new(SignerWatch::new(client, settings.name.clone()))))
}

fn place(config: &Config) -> Result<SignerPlace, Failure> {
    let settings = &config.signer;
    if settings.url.is_empty() {
        return Ok(SignerPlace::unix(Path::new(&settings.socket)));
    }
    let authority = read_text(Path::new(&settings.tls_ca_file))?;
    let own = if settings.tls_cert_file.is_empty() {
        None
    } else {
        let certificate = read_text(Path::new(&settings.tls_cert_file))?;
        Some((certificate, Zeroizing::new(read_secret(Path::new(&settings.tls_key_file))?)))
    };
    let own = own.as_ref().map(|(certificate, key)| (certificate.as_bytes(), key.as_slice()));
    SignerPlace::tls(&settings.url, authority.as_bytes(), own, Arc::new(SystemClock))
        .map_err(|error| listen_failed(&error))
}

/// What the signer says now.
pub async fn ask(watch: &SignerWatch, db: &Db, pinned: &Pinned) -> Result<SignerStanding, Failure> {
    Ok(watch.look(db, pinned, SystemClock.now()).await?)
}

/// Before a server starts: a signer with other keys, or on an old copy of its log, is no mistake that time mends. One that is away is waited
/// for, and what depends on it is not served meanwhile.
pub async fn check(watch: &SignerWatch, db: &Db, pinned: &Pinned) -> CommandResult {
    let found = ask(watch, db, pinned).await?;
    if found.is_certain() { Err(failure(&found)) } else { Ok(()) }
}

/// For whatever depends on the signer's keys.
pub async fn demand(watch: &SignerWatch, db: &Db, pinned: &Pinned) -> CommandResult {
    let found = ask(watch, db, pinned).await?;
    if found == SignerStanding::Agrees { Ok(()) } else { Err(failure(&found)) }
}

pub fn failure(standing: &SignerStanding) -> Failure {
    let (exit, hint) = match standing {
        SignerStanding::New | SignerStanding::Agrees | SignerStanding::Away { .. } => (
            Exit::Outside,
            "does it run, is signer.socket or signer.url its place, and may the key of signer.credential_file ask for groups?",
        ),
        SignerStanding::Differs(_) => (
            Exit::Found,
            "no address may be given away that the signer has no key for: bursar signer export-xpub GROUP says what the file should have",
        ),
        SignerStanding::OldCopy { .. } => {
            (Exit::Found, "stop: find the newest copy of the signer's folder before anything is signed")
        }
    };
    let code = standing.code().unwrap_or("SIGNER_UNAVAILABLE");
    Failure { code: code.into(), messages: vec![standing.words()], hint: hint.to_owned(), exit }
}

/// Asks for ever. What is found is an alert, and in `/metrics`.
pub async fn watch(watch: Option<Arc<SignerWatch>>, db: Db, pinned: Arc<Pinned>, pause: Duration) {
    let Some(watch) = watch else { return std::future::pending().await };
    loop {
        tokio::time::sleep(pause).await;
        look_once(&watch, &db, &pinned, SystemClock.now()).await;
    }
}
