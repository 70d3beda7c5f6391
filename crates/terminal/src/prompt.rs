//! What a person types at the terminal while a command runs. It is asked for on the terminal itself, so that neither the question
//! nor the answer gets into a file that output was sent to.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use zeroize::Zeroizing;

/// Longer than anything that is asked for.
const LONGEST: usize = 2_048;

/// The terminal of this process. Its settings come back when it is dropped.
pub struct Prompt {
    tty: File,
    before: Termios,
}

impl Prompt {
    /// An error: there is no terminal, as under a service manager.
    pub fn open() -> io::Result<Self> {
        let tty = OpenOptions::new().read(true).write(true).open("/dev/tty")?;
        let before = tcgetattr(&tty)?;
        Ok(Self { tty, before })
    }

    /// Shows a text.
    pub fn show(&mut self, text: &str) -> io::Result<()> {
        self.tty.write_all(text.as_bytes())?;
        self.tty.flush()
    }

    /// A line that is not shown while it is typed.
    pub fn hidden(&mut self, question: &str) -> io::Result<Zeroizing<String>> {
        let mut modes = self.before.clone();
        // Without signals: one would end the program and leave the terminal without its echo.
        modes.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG);
        tcsetattr(&self.tty, OptionalActions::Flush, &modes)?;
        // Only now: whoever answers at once would be seen.
        self.show(question)?;
        let line = self.line();
        tcsetattr(&self.tty, OptionalActions::Now, &self.before)?;
        self.show("\n")?;
        line
    }

    /// A line that is seen while it is typed.
    pub fn asked(&mut self, question: &str) -> io::Result<String> {
        self.show(question)?;
        self.line().map(|line| (*line).clone())
    }

    fn line(&mut self) -> io::Result<Zeroizing<String>> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(LONGEST));
        let mut byte = Zeroizing::new([0]);
        loop {
            if self.tty.read(byte.as_mut_slice())? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            match byte[0] {
                b'\n' | b'\r' => break,
                // Ctrl-C, Ctrl-D, Ctrl-\.
                3 | 4 | 28 => return Err(io::ErrorKind::Interrupted.into()),
                8 | 127 => {
                    // A character may be several bytes.
                    while bytes.pop().is_some_and(|last| last & 0xc0 == 0x80) {}
                }
                // Ctrl-U.
                21 => bytes.clear(),
                other if bytes.len() < LONGEST => bytes.push(other),
                _ => return Err(io::Error::other("the line is too long")),
            }
        }
        let text = std::str::from_utf8(&bytes).map_err(|_| io::Error::other("the line is not UTF-8"))?;
        let mut line = Zeroizing::new(String::with_capacity(bytes.len()));
        line.push_str(text);
        Ok(line)
    }
}

impl Drop for Prompt {
    fn drop(&mut self) {
        // Nothing can be done about a terminal that is gone.
        tcsetattr(&self.tty, OptionalActions::Now, &self.before).ok();
    }
}
