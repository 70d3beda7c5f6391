//! How the demo shows itself: a story that stays, line by line, and under it a board of where everything is just now. Where nobody watches there
//! is only the story; for machines there is neither.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use terminal::output::say;

/// A line of the board.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Line {
    Chains,
    Deposits,
    Transfers,
    Treasury,
    Withdrawals,
    Trouble,
}

impl Line {
    const ALL: [Self; 6] =
        [Self::Chains, Self::Deposits, Self::Transfers, Self::Treasury, Self::Withdrawals, Self::Trouble];

    const fn name(self) -> &'static str {
        match self {
            Self::Chains => "chains",
            Self::Deposits => "deposits",
            Self::Transfers => "transfers",
            Self::Treasury => "treasury",
            Self::Withdrawals => "withdrawals",
            Self::Trouble => "trouble",
        }
    }
}

/// Longer lines would break on a common terminal.
const WIDTH: usize = 100;

pub struct Screen {
    quiet: bool,
    board: ProgressBar,
    lines: Mutex<[String; Line::ALL.len()]>,
}

impl Screen {
    pub fn new(quiet: bool) -> Self {
        // It hides itself where standard error is no terminal.
        let board = if quiet { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
        if let Ok(style) = ProgressStyle::with_template("{msg}\n{spinner} {elapsed}") {
            board.set_style(style);
        }
        board.enable_steady_tick(Duration::from_millis(150));
        Self { quiet, board, lines: Mutex::default() }
    }

    /// A line of the story.
    pub fn tell(&self, text: impl std::fmt::Display) {
        if !self.quiet {
            self.board.suspend(|| say(text));
        }
    }

    /// What the board says from now on.
    pub fn show(&self, line: Line, text: impl std::fmt::Display) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = Line::ALL.iter().position(|one| *one == line) {
            lines[at] = text.to_string();
        }
        let shown: Vec<String> = Line::ALL
            .iter()
            .zip(lines.iter())
            .filter(|(_, text)| !text.is_empty())
            .map(|(line, text)| format!("  {:<12} {text}", line.name()).chars().take(WIDTH).collect())
            .collect();
        self.board.set_message(shown.join("\n"));
    }

    /// Takes the board away.
    pub fn finish(&self) {
        self.board.finish_and_clear();
    }
}
