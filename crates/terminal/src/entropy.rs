//! Random bytes of the system, for keys: **the only place that reads them**. What is random elsewhere is seeded.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// Waits for the system to have gathered enough after its start, unlike `/dev/urandom`.
pub fn fill(bytes: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while filled < bytes.len() {
        match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(0) => return Err(io::Error::other("the system gave no random bytes")),
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
