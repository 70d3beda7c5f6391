//! Files that an operator names. One that cannot be read is bad input, with the code `FILE_NOT_READABLE`.

use std::path::Path;

use crate::failure::Failure;

pub fn read_text(file: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(file).map_err(|error| not_readable(file, &error))
}

/// The bytes of a secret, without the newline that an editor or `base64` puts behind it.
pub fn read_secret(file: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = std::fs::read(file).map_err(|error| not_readable(file, &error))?;
    while bytes.last().is_some_and(u8::is_ascii_whitespace) {
        bytes.pop();
    }
    Ok(bytes)
}

fn not_readable(file: &Path, error: &std::io::Error) -> Failure {
    let message = format!("{} cannot be read: {error}", file.display());
    Failure::bad_input("FILE_NOT_READABLE", message, "check the path and its permissions")
}
