//! A new mnemonic; shown once on the terminal if that is wanted, and three of its words asked back.

use signer::GroupId;
use signer::keys::Mnemonic;
use terminal::failure::Failure;
use terminal::prompt::Prompt;
use zeroize::Zeroizing;

use super::{failed, passphrase};

/// So many words are asked for again.
const ASKED: usize = 3;
/// Takes what was shown off the screen and out of what can be scrolled back to.
const CLEAR: &str = "\x1b[2J\x1b[3J\x1b[H";

#[derive(Debug, clap::Args)]
pub struct Made {
    /// How many words a new mnemonic has: 12 or 24
    #[arg(long, value_name = "COUNT", default_value_t = 24, value_parser = clap::value_parser!(u8).range(12..=24))]
    words: u8,
    /// Show each new mnemonic once, on the terminal, and ask for three of its words
    #[arg(long)]
    show_mnemonic: bool,
}

impl Made {
    pub fn make(&self, id: &GroupId) -> Result<Mnemonic, Failure> {
        let bytes = match self.words {
            12 => 16,
            24 => 32,
            _ => return Err(failed(signer::keys::KeyError::BadMnemonic("it has neither 12 nor 24 words"))),
        };
        let mut entropy = Zeroizing::new(vec![0; bytes]);
        fill(&mut entropy)?;
        let mnemonic = Mnemonic::from_entropy(&entropy).map_err(failed)?;
        if self.show_mnemonic {
            let mut prompt = passphrase::prompt("run it on a terminal, or without --show-mnemonic")?;
            confirm(&mut prompt, id, &mnemonic)?;
        }
        Ok(mnemonic)
    }
}

fn fill(bytes: &mut [u8]) -> Result<(), Failure> {
    terminal::entropy::fill(bytes).map_err(|error| {
        Failure::outside("SIGNER_STORAGE_FAILED", &error, "the system gives no random bytes: nothing was made")
    })
}

fn confirm(prompt: &mut Prompt, id: &GroupId, mnemonic: &Mnemonic) -> Result<(), Failure> {
    let words: Vec<&'static str> = mnemonic.words().collect();
    let not_typed = |error: std::io::Error| passphrase::not_typed(&error);
    let mut text = Zeroizing::new(String::with_capacity(2_048));
    text.push_str(&format!("the mnemonic of {id}: write it down; it is not shown again\n\n"));
    for (number, word) in (1..).zip(&words) {
        text.push_str(&format!("  {number:>2} {word:<9}"));
        if number % 4 == 0 {
            text.push('\n');
        }
    }
    prompt.show(&text).map_err(not_typed)?;
    for number in places(words.len())? {
        let typed = prompt.hidden(&format!("\nword {number}: ")).map_err(not_typed)?;
        if words.get(number - 1).is_none_or(|word| *word != typed.trim()) {
            let message = format!("word {number} of {id} is another one: nothing was made");
            let hint = "run the command again, and write the words down in their order";
            return Err(Failure::bad_input("SIGNER_MNEMONIC_NOT_CONFIRMED", message, hint));
        }
    }
    prompt.show(CLEAR).map_err(not_typed)
}

/// Three different places among so many, in rising order.
fn places(count: usize) -> Result<Vec<usize>, Failure> {
    let mut chosen = std::collections::BTreeSet::new();
    while chosen.len() < ASKED {
        let mut byte = [0];
        fill(&mut byte)?;
        chosen.insert(usize::from(byte[0]) % count + 1);
    }
    Ok(chosen.into_iter().collect())
}
