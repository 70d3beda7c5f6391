//! The file of credentials: an engine lets in whoever shows a token of it, a client shows the token of its role.

use std::path::{Path, PathBuf};

use spot::net::{Credentials, Role, Token};
use terminal::failure::Failure;
use terminal::files::read_secret;

/// One line is enough to begin with.
pub const HINT: &str = "(umask 077; echo \"coordinator $(head -c 24 /dev/urandom | base64)\" > spot.credentials)";

fn bad(message: String) -> Failure {
    Failure::bad_input("SPOT_CREDENTIALS_INVALID", message, HINT)
}

pub fn read(file: &Path) -> Result<Credentials, Failure> {
    let name = file.display();
    let bytes = read_secret(file).map_err(|failure| match failure.code.as_ref() {
        // A file that is not there is no file of credentials; one that others may read has its own code.
        "FILE_NOT_READABLE" => bad(failure.messages.join(": ")),
        _ => failure,
    })?;
    let text = std::str::from_utf8(&bytes).map_err(|_| bad(format!("{name} is not a text")))?;
    Credentials::parse(text).map_err(|error| bad(format!("{name}: {error}")))
}

/// The token of the first of these roles that the file has.
pub fn token(file: &Path, roles: &[Role]) -> Result<Token, Failure> {
    let credentials = read(file)?;
    let names = || roles.iter().map(|role| role.name()).collect::<Vec<_>>().join(" or ");
    let found = roles.iter().find_map(|role| credentials.token(*role)).cloned();
    found.ok_or_else(|| bad(format!("{} has no line for the role {}", file.display(), names())))
}

/// What a client of a running engine shows.
#[derive(Debug, clap::Args)]
pub struct Shown {
    /// A file with lines of a role and a token; or set BURSAR_SPOT_TOKEN to a token
    #[arg(long, value_name = "FILE")]
    credentials: Option<PathBuf>,
}

impl Shown {
    /// Never an argument: those can be read by every process on the machine.
    pub fn token(&self, role: Role) -> Result<Token, Failure> {
        match (&self.credentials, std::env::var("BURSAR_SPOT_TOKEN")) {
            (Some(file), _) => token(file, &[role]),
            (None, Ok(token)) => Token::new(token.trim()).map_err(|error| bad(format!("BURSAR_SPOT_TOKEN: {error}"))),
            (None, Err(_)) => Err(bad("there is no token: neither --credentials nor BURSAR_SPOT_TOKEN".to_owned())),
        }
    }
}

/// A role as it is typed.
pub fn role(text: &str) -> Result<Role, String> {
    Role::from_name(text).ok_or_else(|| "there are coordinator, order-engine, operator and observer".to_owned())
}
