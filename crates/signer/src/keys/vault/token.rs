//! Logging in with an AppRole, and when to do it again. A token lives in memory only.

use domain::Timestamp;
use hyper::header::HeaderValue;
use hyper::{Method, StatusCode};
use serde::Deserialize;
use zeroize::Zeroizing;

use super::client::{Client, form};
use super::error::VaultError;
use super::{Vault, VaultSettings, read_line};
use crate::keys::error::KeyError;
use crate::keys::file::{failed, replace};

pub(super) struct Token {
    value: Zeroizing<String>,
    renewable: bool,
    since: Timestamp,
    /// Zero: it does not end.
    ttl_s: u32,
    /// The name of the role that we are.
    role: String,
}

#[derive(Deserialize)]
struct LoggedIn<'a> {
    #[serde(borrow)]
    auth: Auth<'a>,
}

#[derive(Deserialize)]
struct Auth<'a> {
    client_token: &'a str,
    lease_duration: u32,
    renewable: bool,
    #[serde(default)]
    metadata: Option<Metadata>,
}

#[derive(Default, Deserialize)]
struct Metadata {
    #[serde(default)]
    role_name: String,
}

#[derive(Deserialize)]
struct NewSecretId<'a> {
    #[serde(borrow)]
    data: NewSecretIdData<'a>,
}

#[derive(Deserialize)]
struct NewSecretIdData<'a> {
    secret_id: &'a str,
}

impl Token {
    pub(super) fn header(&self) -> Result<HeaderValue, VaultError> {
        let mut header = HeaderValue::from_str(&self.value)
            .map_err(|_| VaultError::Setting("the token is not a text for a header"))?;
        header.set_sensitive(true);
        Ok(header)
    }

    /// When two thirds of its time are over. A clock that went back says nothing about the time that is left.
    fn is_due(&self, now: Timestamp) -> bool {
        let age = now.micros().saturating_sub(self.since.micros());
        self.ttl_s > 0 && (age < 0 || age >= i64::from(self.ttl_s) * 2_000_000 / 3)
    }

    fn read(body: &[u8], path: &str, now: Timestamp) -> Result<Self, VaultError> {
        let malformed = |_| VaultError::Answer { path: path.to_owned(), why: "there is no token in it" };
        let LoggedIn { auth } = serde_json::from_slice(body).map_err(malformed)?;
        let mut value = Zeroizing::new(String::with_capacity(auth.client_token.len()));
        value.push_str(auth.client_token);
        let role = auth.metadata.unwrap_or_default().role_name;
        Ok(Self { value, renewable: auth.renewable, since: now, ttl_s: auth.lease_duration, role })
    }
}

/// A token with some time left: the one at hand, the same renewed, or a new one.
pub(super) async fn fresh(
    client: &Client,
    settings: &VaultSettings,
    held: Option<Token>,
    now: Timestamp,
) -> Result<Token, KeyError> {
    let Some(token) = held else { return login(client, settings, now).await };
    if !token.is_due(now) {
        return Ok(token);
    }
    if token.renewable {
        let path = "auth/token/renew-self";
        let answer = client.call(Method::POST, path, Some(&token), Some(b"{}")).await?;
        if answer.status.is_success() {
            let renewed = Token::read(&answer.body, path, now)?;
            // Near its last end a renewal gives less and less: then a new one is better.
            if renewed.ttl_s >= token.ttl_s / 2 {
                return Ok(Token { role: token.role, ..renewed });
            }
        } else if answer.status != StatusCode::FORBIDDEN {
            answer.good(path)?;
        }
    }
    login(client, settings, now).await
}

async fn login(client: &Client, settings: &VaultSettings, now: Timestamp) -> Result<Token, KeyError> {
    let secret_id = read_line(&settings.secret_id_file)?;
    let path = format!("auth/{}/login", settings.approle);
    if !settings.role_id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)) {
        return Err(VaultError::Setting("the role id is none").into());
    }
    let body = form(&[r#"{"role_id":""#, &settings.role_id, r#"","secret_id":""#, &secret_id, r#""}"#]);
    let answer = client.call(Method::POST, &path, None, Some(body.as_bytes())).await?;
    match answer.status {
        // Vault says 400 to a role or a secret id that it does not know, and 403 to one from an address that is not allowed.
        StatusCode::BAD_REQUEST | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND => Err(VaultError::Login.into()),
        _ => {
            answer.good(&path)?;
            Ok(Token::read(&answer.body, &path, now)?)
        }
    }
}

/// The new one is in the file and has logged in before the old one goes. A crash in between leaves one more that works.
pub(super) async fn renew_secret_id(vault: &Vault) -> Result<(), KeyError> {
    let Vault { settings, client, clock, .. } = vault;
    let file = &settings.secret_id_file;
    let old = read_line(file)?;
    let token = login(client, settings, clock.now()).await?;
    let path = format!("auth/{}/role/{}/secret-id", settings.approle, token.role);
    let answer = client.call(Method::POST, &path, Some(&token), Some(b"{}")).await?;
    answer.good(&path)?;
    let malformed = |_| VaultError::Answer { path: path.clone(), why: "there is no secret id in it" };
    let NewSecretId { data } = serde_json::from_slice(&answer.body).map_err(malformed)?;
    let (Some(folder), Some(name)) = (file.parent(), file.file_name().and_then(|name| name.to_str())) else {
        return Err(VaultError::Setting("the secret id's file has no name").into());
    };
    let line = form(&[data.secret_id, "\n"]);
    // A name alone is a file of the current folder.
    let folder = if folder.as_os_str().is_empty() { std::path::Path::new(".") } else { folder };
    replace(folder, name, line.as_bytes(), |_| Ok(())).map_err(failed("be written", file))?;
    let token = login(client, settings, clock.now()).await?;
    let path = format!("{path}/destroy");
    let body = form(&[r#"{"secret_id":""#, &old, r#""}"#]);
    client.call(Method::POST, &path, Some(&token), Some(body.as_bytes())).await?.good(&path)?;
    *vault.token.lock().await = Some(token);
    Ok(())
}
