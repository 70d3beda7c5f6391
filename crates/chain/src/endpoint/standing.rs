//! What is known of one node. Plain state: the time comes in as an argument, the events go out as results.

use super::event::{Health, Why};

/// How failures and contradictions turn into pauses. Times in microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) failures: u32,
    pub(super) pause: u64,
    pub(super) pause_most: u64,
    pub(super) forgive: u64,
}

#[derive(Clone, Copy, Debug)]
struct Aside {
    why: Why,
    until: u64,
}

#[derive(Debug, Default)]
pub(super) struct Standing {
    latency: Option<u64>,
    failures: u32,
    aside: Option<Aside>,
    /// Apart from `aside`: a node can fail while it lags, and neither heals the other.
    lag: Option<Aside>,
    probing: bool,
    /// Pauses in short succession; each is longer than the one before.
    pauses: u32,
    /// When the last pause ended.
    paused: u64,
    /// It told us to wait until then.
    not_before: u64,
    height: Option<u64>,
    running: u32,
    asked: u64,
    failed: u64,
}

/// Whom to ask first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    Good,
    /// It fails, but that is better than nobody.
    LastResort,
    /// It lags or contradicts: not to be asked, whoever else is left.
    Never,
}

impl Standing {
    pub(super) fn start(&mut self) {
        self.running = self.running.saturating_add(1);
        self.asked = self.asked.saturating_add(1);
    }

    pub(super) fn stop(&mut self) {
        self.running = self.running.saturating_sub(1);
    }

    /// An average of about eight answers.
    pub(super) fn took(&mut self, micros: u64) {
        self.latency = Some(match self.latency {
            None => micros,
            Some(known) => known - known / 8 + micros / 8,
        });
    }

    /// What asking it now would cost, roughly in microseconds: it answers at its pace, to all who wait already.
    pub(super) fn cost(&self) -> u64 {
        let load = u64::from(self.running).saturating_add(u64::from(self.failures)).saturating_add(1);
        self.latency.unwrap_or(0).saturating_add(1_000).saturating_mul(load)
    }

    pub(super) fn rank(&self) -> Rank {
        match (self.lag, self.aside.map(|aside| aside.why)) {
            (Some(_), _) | (_, Some(Why::Contradicts | Why::Lags { .. })) => Rank::Never,
            (None, Some(Why::Fails { .. } | Why::Credentials)) => Rank::LastResort,
            (None, None) => Rank::Good,
        }
    }

    pub(super) const fn lags(&self) -> bool {
        self.lag.is_some()
    }

    /// Whether it is set aside because it fails, whatever else is held against it.
    pub(super) fn fails(&self) -> bool {
        self.aside.is_some_and(|aside| matches!(aside.why, Why::Fails { .. } | Why::Credentials))
    }

    /// Whether it contradicted, and has not agreed since.
    pub(super) fn doubted(&self) -> bool {
        self.aside.is_some_and(|aside| aside.why == Why::Contradicts)
    }

    /// Set aside for nothing but a contradiction.
    pub(super) fn outvoted(&self) -> bool {
        self.doubted() && self.lag.is_none()
    }

    /// Set aside, and its time is not over.
    pub(super) fn is_paused(&self, now: u64) -> bool {
        [self.aside, self.lag].into_iter().flatten().any(|aside| aside.until > now)
    }

    /// Takes the probe when a pause is over and nobody else tries. Whoever takes it must end it.
    pub(super) fn take_probe(&mut self, now: u64) -> bool {
        let due = [self.aside, self.lag].into_iter().flatten().map(|aside| aside.until).max();
        let take = !self.probing && due.is_some_and(|until| until <= now);
        self.probing |= take;
        take
    }

    pub(super) fn end_probe(&mut self) {
        self.probing = false;
    }

    /// It answered. True when it is back from failing; neither lag nor lies are healed by an answer.
    pub(super) fn answered(&mut self, now: u64) -> bool {
        self.failures = 0;
        match self.aside.map(|aside| aside.why) {
            Some(Why::Fails { .. } | Why::Credentials) => self.back(now),
            Some(Why::Contradicts | Why::Lags { .. }) | None => false,
        }
    }

    /// It said what a quorum says. True when it is back.
    pub(super) fn agreed(&mut self, now: u64) -> bool {
        self.aside.is_some() && self.back(now)
    }

    fn back(&mut self, now: u64) -> bool {
        self.aside = None;
        self.paused = now;
        self.lag.is_none()
    }

    /// It failed. The pause that this brings, if any.
    pub(super) fn fail(&mut self, now: u64, rules: &Rules, jitter: u64) -> Option<(Why, u64)> {
        self.failed = self.failed.saturating_add(1);
        self.failures = self.failures.saturating_add(1);
        match self.aside {
            // Last resorts that fail as expected do not prolong the pause, or it would never end.
            Some(aside) if aside.until > now => None,
            Some(aside) if aside.why == Why::Contradicts => Some(self.set_aside(now, Why::Contradicts, rules, jitter)),
            _ if self.failures < rules.failures.max(1) => None,
            _ => Some(self.set_aside(now, Why::Fails { failures: self.failures }, rules, jitter)),
        }
    }

    pub(super) fn refuse_credentials(&mut self, now: u64, rules: &Rules, jitter: u64) -> Option<(Why, u64)> {
        self.failed = self.failed.saturating_add(1);
        self.failures = self.failures.saturating_add(1);
        let paused = self.aside.is_some_and(|aside| aside.until > now);
        // Credentials do not heal by themselves: the longest pause at once.
        self.pauses = u32::MAX;
        (!paused).then(|| self.set_aside(now, Why::Credentials, rules, jitter))
    }

    pub(super) fn contradict(&mut self, now: u64, rules: &Rules, jitter: u64) -> (Why, u64) {
        self.set_aside(now, Why::Contradicts, rules, jitter)
    }

    fn set_aside(&mut self, now: u64, why: Why, rules: &Rules, jitter: u64) -> (Why, u64) {
        if why != Why::Credentials && self.aside.is_none() && now.saturating_sub(self.paused) >= rules.forgive {
            self.pauses = 0;
        }
        let pause = rules.pause.saturating_mul(1_u64.checked_shl(self.pauses).unwrap_or(u64::MAX));
        let pause = pause.clamp(1, rules.pause_most.max(1));
        // Up to a quarter more, so that those who failed together are not tried together.
        let pause = pause.saturating_add(jitter % (pause / 4 + 1));
        self.pauses = self.pauses.saturating_add(1).min(63);
        self.aside = Some(Aside { why, until: now.saturating_add(pause) });
        (why, pause)
    }

    pub(super) const fn height(&self) -> Option<u64> {
        self.height
    }

    /// Notes the height; the one known before.
    pub(super) fn saw(&mut self, height: u64) -> Option<u64> {
        self.height.replace(height)
    }

    /// True when that is news.
    pub(super) fn lag(&mut self, now: u64, behind: u64, pause: u64) -> bool {
        let known = self.lag.is_some();
        self.lag = Some(Aside { why: Why::Lags { behind }, until: now.saturating_add(pause) });
        !known
    }

    /// A probe that did not say what the height is now: try again after a pause.
    pub(super) fn still_lags(&mut self, now: u64, pause: u64) {
        if let Some(lag) = self.lag.as_mut().filter(|lag| lag.until <= now) {
            lag.until = now.saturating_add(pause);
        }
    }

    /// True when it is back.
    pub(super) fn caught_up(&mut self) -> bool {
        self.lag.take().is_some() && self.aside.is_none()
    }

    pub(super) fn wait_until(&mut self, at: u64) {
        self.not_before = self.not_before.max(at);
    }

    pub(super) const fn not_before(&self) -> u64 {
        self.not_before
    }

    pub(super) fn health(&self, endpoint: &str, now: u64) -> Health {
        let asides = [self.aside, self.lag];
        let until = asides.iter().flatten().map(|aside| aside.until).max().unwrap_or(0);
        Health {
            endpoint: endpoint.to_owned(),
            aside: asides.into_iter().flatten().next().map(|aside| aside.why),
            pause_micros: until.saturating_sub(now),
            latency_micros: self.latency,
            failures: self.failures,
            height: self.height,
            running: self.running,
            asked: self.asked,
            failed: self.failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules = Rules { failures: 3, pause: 1_000, pause_most: 60_000, forgive: 1_000_000 };

    #[test]
    fn each_pause_is_twice_the_last_up_to_the_longest() {
        let (mut standing, mut now) = (Standing::default(), 0);
        assert_eq!([standing.fail(0, &RULES, 0), standing.fail(0, &RULES, 0)], [None, None]);
        assert_eq!(standing.rank(), Rank::Good);
        for pause in [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000] {
            let (_, found) = standing.fail(now, &RULES, 0).unwrap();
            assert_eq!((found, standing.rank()), (pause, Rank::LastResort));
            assert_eq!(standing.fail(now + pause - 1, &RULES, 0), None, "within the pause");
            assert!(!standing.take_probe(now + pause - 1));
            now += pause;
            assert!(standing.take_probe(now));
            assert!(!standing.take_probe(now), "one probe at a time");
            standing.end_probe();
        }
    }

    #[test]
    fn a_node_that_was_good_for_long_is_forgiven() {
        let mut standing = Standing::default();
        let pause =
            |standing: &mut Standing, now| (0..3).find_map(|_| standing.fail(now, &RULES, 0)).map(|(_, pause)| pause);
        assert_eq!(pause(&mut standing, 0), Some(1_000));
        assert!(standing.answered(1_000));
        assert_eq!(pause(&mut standing, 2_000), Some(2_000), "not for long enough");
        assert!(standing.answered(4_000));
        assert_eq!(pause(&mut standing, 1_004_000), Some(1_000));
    }

    #[test]
    fn jitter_is_at_most_a_quarter() {
        for jitter in [0, 1, 249, 250, 251, u64::MAX] {
            let mut standing = Standing::default();
            let (_, pause) = standing.contradict(0, &RULES, jitter);
            assert!((1_000..=1_250).contains(&pause), "{pause}");
        }
    }

    #[test]
    fn refused_credentials_bring_the_longest_pause_at_once() {
        let mut standing = Standing::default();
        assert_eq!(standing.refuse_credentials(0, &RULES, 0), Some((Why::Credentials, 60_000)));
        assert!(standing.answered(60_000), "somebody has put that right");
    }

    #[test]
    fn an_answer_heals_failures_but_neither_lag_nor_lies() {
        let mut standing = Standing::default();
        standing.contradict(0, &RULES, 0);
        assert!(!standing.answered(5_000));
        assert_eq!(standing.rank(), Rank::Never);
        assert!(standing.agreed(5_000));
        assert_eq!(standing.rank(), Rank::Good);
        assert!(standing.lag(0, 9, 100));
        assert!(!standing.lag(0, 9, 100), "it is known");
        assert!(!standing.answered(0) && !standing.agreed(0));
        assert_eq!(standing.rank(), Rank::Never);
        assert!(standing.caught_up());
        assert_eq!(standing.rank(), Rank::Good);
    }

    #[test]
    fn latency_follows_what_is_measured() {
        let mut standing = Standing::default();
        standing.took(8_000);
        assert_eq!(standing.latency, Some(8_000));
        for _ in 0..100 {
            standing.took(80_000);
        }
        assert!(standing.latency.unwrap() > 70_000);
        standing.took(u64::MAX);
        standing.took(u64::MAX);
        assert!(standing.cost() > 0);
    }
}
