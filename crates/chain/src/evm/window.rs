//! How many blocks one `eth_getLogs` may span. Every provider has another limit, and says so in other words.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::endpoint::CallError;

/// So many answers in a row, and a wider window is tried again.
const PATIENCE: u64 = 16;

#[derive(Debug)]
pub(super) struct Window {
    now: AtomicU64,
    good: AtomicU64,
    most: u64,
}

impl Window {
    pub(super) fn new(most: u64) -> Self {
        let most = most.max(1);
        Self { now: AtomicU64::new(most), good: AtomicU64::new(0), most }
    }

    pub(super) fn blocks(&self) -> u64 {
        self.now.load(Ordering::Relaxed).clamp(1, self.most)
    }

    /// So many blocks were too many.
    pub(super) fn shrink(&self, refused: u64) {
        self.good.store(0, Ordering::Relaxed);
        self.now.fetch_min(refused / 2, Ordering::Relaxed);
    }

    pub(super) fn answered(&self) {
        let good = self.good.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if good >= PATIENCE && self.blocks() < self.most {
            self.good.store(0, Ordering::Relaxed);
            self.now.store(self.blocks().saturating_mul(2).min(self.most), Ordering::Relaxed);
        }
    }
}

/// Whether a provider refused because it was too much at once, so that half of it may do.
pub(super) fn too_much(error: &CallError) -> bool {
    match error {
        // BSC's public nodes say "limit exceeded" to a wide window, in the words of who wants fewer calls.
        CallError::TooLong { .. } | CallError::Timeout { .. } | CallError::RateLimited { .. } => true,
        CallError::Refused { code, message, .. } => {
            let message = message.to_ascii_lowercase();
            let words = [
                "query returned more than",
                "more than",
                "range",
                "limit exceeded",
                "limited to",
                "too many",
                "too large",
                "too big",
                "too wide",
                "response size",
                "timeout",
                "timed out",
                "exceed",
            ];
            *code == -32_005 || words.iter().any(|word| message.contains(word))
        }
        // Whatever else goes wrong, asking for less does not mend it.
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_halves_to_one_and_grows_back_but_never_beyond() {
        let window = Window::new(100);
        let mut seen = vec![window.blocks()];
        for _ in 0..8 {
            window.shrink(window.blocks());
            seen.push(window.blocks());
        }
        assert_eq!(seen, [100, 50, 25, 12, 6, 3, 1, 1, 1]);
        for _ in 0..PATIENCE - 1 {
            window.answered();
        }
        assert_eq!(window.blocks(), 1);
        window.answered();
        assert_eq!(window.blocks(), 2);
        for _ in 0..PATIENCE * 20 {
            window.answered();
        }
        assert_eq!(window.blocks(), 100);
        assert_eq!(Window::new(0).blocks(), 1);
    }

    #[test]
    fn the_words_of_providers_are_known() {
        let refused =
            |code, message: &str| CallError::Refused { endpoint: String::new(), code, message: message.to_owned() };
        for (code, words) in [
            (-32_005, "query returned more than 10000 results"),
            (-32_005, "limit exceeded"),
            (-32_000, "exceed maximum block range: 50000"),
            (-32_602, "eth_getLogs is limited to a 10,000 range"),
            (-32_600, "You can make eth_getLogs requests with up to a 10 block range"),
            (-32_000, "block range is too wide"),
            (-32_614, "eth_getLogs is limited to a 5 block range"),
            (-32_602, "Log response size exceeded."),
            (-32_000, "One of the blocks specified in filter has too many logs"),
            (-32_002, "request timed out"),
        ] {
            assert!(too_much(&refused(code, words)), "{words}");
        }
        assert!(too_much(&CallError::RateLimited { endpoint: String::new() }));
        assert!(!too_much(&CallError::Unreachable { endpoint: String::new() }));
        for (code, words) in [(-32_601, "the method eth_getLogs does not exist"), (-32_000, "header not found")] {
            assert!(!too_much(&refused(code, words)), "{words}");
        }
    }
}
