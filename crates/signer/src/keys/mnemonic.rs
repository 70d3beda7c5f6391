//! BIP-39 words: 12 or 24 of the English list, with their checksum. There is no passphrase beside them (ADR 12).

use std::fmt;

use bip39::Language;
use zeroize::Zeroizing;

use super::error::KeyError;

/// Wiped when it is dropped. It is shown in no other way than by [`words`](Self::words).
pub struct Mnemonic(bip39::Mnemonic);

impl fmt::Debug for Mnemonic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mnemonic({} words)", self.0.word_count())
    }
}

impl Mnemonic {
    /// 16 bytes are 12 words, 32 bytes are 24.
    pub fn from_entropy(entropy: &[u8]) -> Result<Self, KeyError> {
        if !matches!(entropy.len(), 16 | 32) {
            return Err(KeyError::BadMnemonic("it has neither 12 nor 24 words"));
        }
        bip39::Mnemonic::from_entropy_in(Language::English, entropy)
            .map(Self)
            .map_err(|_| KeyError::BadMnemonic("it has neither 12 nor 24 words"))
    }

    /// As somebody typed it: any white space between the words, any case.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let mut normal = Zeroizing::new(String::with_capacity(text.len() + 1));
        for word in text.split_whitespace() {
            if !normal.is_empty() {
                normal.push(' ');
            }
            normal.extend(word.chars().map(|letter| letter.to_ascii_lowercase()));
        }
        let read = bip39::Mnemonic::parse_in_normalized(Language::English, &normal);
        let read = read.map_err(|error| match error {
            bip39::Error::BadWordCount(_) => KeyError::BadMnemonic("it has neither 12 nor 24 words"),
            // Which word it is would be said in an error and in a log.
            bip39::Error::UnknownWord(_) => KeyError::BadMnemonic("a word is not of the English list"),
            bip39::Error::InvalidChecksum => {
                KeyError::BadMnemonic("its checksum does not fit: a word is wrong, or two have changed places")
            }
            _ => KeyError::BadMnemonic("it cannot be read"),
        })?;
        match read.word_count() {
            12 | 24 => Ok(Self(read)),
            _ => Err(KeyError::BadMnemonic("it has neither 12 nor 24 words")),
        }
    }

    /// For the one who writes them down, and for the source that keeps them.
    pub fn words(&self) -> impl Iterator<Item = &'static str> {
        self.0.words()
    }

    /// All words with blanks between them.
    pub fn phrase(&self) -> Zeroizing<String> {
        // 24 words of at most eight letters, so that it never grows and leaves a copy behind.
        let mut text = Zeroizing::new(String::with_capacity(24 * 9));
        for word in self.words() {
            if !text.is_empty() {
                text.push(' ');
            }
            text.push_str(word);
        }
        text
    }

    pub fn word_count(&self) -> usize {
        self.0.word_count()
    }

    pub(super) fn seed(&self) -> Zeroizing<[u8; 64]> {
        Zeroizing::new(self.0.to_seed_normalized(""))
    }
}
