//! Files that an operator names. One that cannot be read is bad input, with the code `FILE_NOT_READABLE`; a secret that
//! others may read is no secret, with the code `SECRET_EXPOSED`.

use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use zeroize::Zeroizing;

use crate::failure::Failure;

pub fn read_text(file: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(file).map_err(|error| not_readable(file, &error))
}

/// The bytes of a secret, without the newline that an editor or `base64` puts behind it.
pub fn read_secret(file: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = std::mem::take(&mut *read_key(file)?);
    while bytes.last().is_some_and(u8::is_ascii_whitespace) {
        bytes.pop();
    }
    Ok(bytes)
}

/// Longer than a file of a key or a token is. What is read grows into no other place, so nothing of it stays behind.
const LONGEST_SECRET: usize = 64 * 1_024;

/// The bytes of a secret as they are: those of a key may end like a line. They are wiped when they are dropped.
pub fn read_key(file: &Path) -> Result<Zeroizing<Vec<u8>>, Failure> {
    let mut opened = File::open(file).map_err(|error| not_readable(file, &error))?;
    // Of the file that is open: the name may mean another one by now.
    let metadata = opened.metadata().map_err(|error| not_readable(file, &error))?;
    check_private(file, &metadata)?;
    let mut bytes = Zeroizing::new(Vec::with_capacity(LONGEST_SECRET));
    opened.read_to_end(&mut bytes).map_err(|error| not_readable(file, &error))?;
    Ok(bytes)
}

/// Looks at a secret without reading it.
pub fn check_secret(file: &Path) -> Result<Metadata, Failure> {
    let metadata = check_readable(file)?;
    check_private(file, &metadata)?;
    Ok(metadata)
}

/// The text of a file that says where money goes: whoever may write it decides that.
pub fn read_pinned(file: &Path) -> Result<String, Failure> {
    let mut opened = File::open(file).map_err(|error| not_readable(file, &error))?;
    // Of the file that is open: the name may mean another one by now.
    let metadata = opened.metadata().map_err(|error| not_readable(file, &error))?;
    check_writers(file, &metadata)?;
    let mut text = String::new();
    opened.read_to_string(&mut text).map_err(|error| not_readable(file, &error))?;
    Ok(text)
}

/// Looks at such a file without reading it.
pub fn check_pinned(file: &Path) -> Result<Metadata, Failure> {
    let metadata = check_readable(file)?;
    check_writers(file, &metadata)?;
    Ok(metadata)
}

/// Only this user and root may write it.
fn check_writers(file: &Path, metadata: &Metadata) -> Result<(), Failure> {
    let own = metadata.uid() == rustix::process::geteuid().as_raw() || metadata.uid() == 0;
    if !metadata.is_file() || own && metadata.mode() & 0o022 == 0 {
        return Ok(());
    }
    let (shown, mode) = (file.display(), metadata.mode() & 0o777);
    let message = format!("{shown} says where money goes, and others than its owner may write it (mode {mode:04o})");
    Err(Failure::bad_input(
        "TREASURY_FILE_EXPOSED",
        message,
        format!(
            "look whether it is still as it was, then: chmod go-w {shown}; it belongs to root or to who runs Bursar"
        ),
    ))
}

/// Looks at a file, or a folder, that this user must be able to read.
pub fn check_readable(file: &Path) -> Result<Metadata, Failure> {
    File::open(file).and_then(|opened| opened.metadata()).map_err(|error| not_readable(file, &error))
}

/// Whether others than the owner may do anything with it.
pub fn is_private(metadata: &Metadata) -> bool {
    // PostgreSQL's rule for keys: what root has put there for a service is given to it by its group.
    let given_by_root = metadata.uid() == 0 && !rustix::process::geteuid().is_root();
    let others = if given_by_root { 0o037 } else { 0o077 };
    metadata.mode() & others == 0
}

/// A pipe, such as `<(vault read …)` of a shell, has no mode that could be wrong.
fn check_private(file: &Path, metadata: &Metadata) -> Result<(), Failure> {
    if !metadata.is_file() || is_private(metadata) {
        return Ok(());
    }
    let (shown, mode) = (file.display(), metadata.mode() & 0o777);
    let message = format!("{shown} is a secret, and others than its owner may read or write it (mode {mode:04o})");
    Err(Failure::bad_input(
        "SECRET_EXPOSED",
        message,
        format!("chmod 600 {shown}; make another secret if it has been read"),
    ))
}

fn not_readable(file: &Path, error: &std::io::Error) -> Failure {
    let message = format!("{} cannot be read: {error}", file.display());
    Failure::bad_input("FILE_NOT_READABLE", message, "check the path and its permissions")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_pinned_file_that_others_may_write_is_refused() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), "xpub").expect("written");
        for (mode, good) in
            [(0o600, true), (0o644, true), (0o444, true), (0o664, false), (0o646, false), (0o666, false)]
        {
            std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).expect("a mode");
            match read_pinned(file.path()) {
                Ok(text) => assert!(good && text == "xpub", "{mode:o}"),
                Err(failure) => assert!(!good && failure.code == "TREASURY_FILE_EXPOSED", "{mode:o}: {failure:?}"),
            }
            assert_eq!(check_pinned(file.path()).is_ok(), good, "{mode:o}");
        }
    }

    #[test]
    fn a_secret_that_others_may_read_is_refused() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), "secret\n").expect("written");
        for (mode, good) in
            [(0o600, true), (0o400, true), (0o700, true), (0o640, false), (0o604, false), (0o620, false)]
        {
            std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).expect("a mode");
            match read_secret(file.path()) {
                Ok(bytes) => assert!(good && bytes == b"secret", "{mode:o}"),
                Err(failure) => assert!(!good && failure.code == "SECRET_EXPOSED", "{mode:o}: {failure:?}"),
            }
            match read_key(file.path()) {
                Ok(bytes) => assert!(good && *bytes == b"secret\n", "{mode:o}"),
                Err(failure) => assert!(!good && failure.code == "SECRET_EXPOSED", "{mode:o}: {failure:?}"),
            }
            assert_eq!(check_secret(file.path()).is_ok(), good, "{mode:o}");
        }
        assert_eq!(read_secret(Path::new("/nonexistent")).expect_err("none").code, "FILE_NOT_READABLE");
    }
}
