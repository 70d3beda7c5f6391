//! Where events go: to standard error, a line each, as text or as JSON.

use terminal::failure::Failure;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::{Log, LogFormat, LogLevel};

/// The crates whose events are ours. Those of others are shown from `warn` on: what a driver says below that helps its
/// authors, and may hold what a log must not.
const OURS: [&str; 13] = [
    "bursar", "chain", "custody", "devnet", "domain", "lab", "server", "signer", "spot", "store", "terminal",
    "transfer", "tx",
];

fn filter(level: LogLevel) -> Targets {
    let level = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let others = level.min(LevelFilter::WARN);
    Targets::new().with_default(others).with_targets(OURS.map(|name| (name, level)))
}

/// Begins to write. `json`: the command was asked to speak JSON, and so does its log.
pub fn begin(settings: &Log, json: bool) -> Result<(), Failure> {
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let lines = if json || settings.format == LogFormat::Json {
        // The fields of an event stand beside its message, and those of the request that it is about under "span".
        lines.json().flatten_event(true).with_span_list(false).boxed()
    } else {
        lines.boxed()
    };
    let begun = tracing_subscriber::registry().with(lines.with_filter(filter(settings.level))).try_init();
    begun.map_err(|error| Failure::outside("INTERNAL", &error, "this is a bug in Bursar: please report it"))?;
    report_panics();
    Ok(())
}

/// A panic is an event like others, in the form of the others, with the place where it happened.
fn report_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let words = transfer::supervisor::words_of(panic.payload());
        let thread = std::thread::current();
        let thread = thread.name().unwrap_or_default();
        let trace = std::backtrace::Backtrace::capture();
        match trace.status() {
            std::backtrace::BacktraceStatus::Captured => {
                tracing::error!(code = "TASK_PANICKED", place, words, thread, %trace, "a panic: please report it");
            }
            _ => tracing::error!(code = "TASK_PANICKED", place, words, thread, "a panic: please report it"),
        }
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    #[test]
    fn the_level_is_for_our_own_events_and_drivers_are_heard_from_warn_on() {
        for (level, ours, others) in [
            (LogLevel::Error, Level::ERROR, Level::ERROR),
            (LogLevel::Warn, Level::WARN, Level::WARN),
            (LogLevel::Info, Level::INFO, Level::WARN),
            (LogLevel::Trace, Level::TRACE, Level::WARN),
        ] {
            let filter = filter(level);
            for one in [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE] {
                assert_eq!(filter.would_enable("transfer::scanner", &one), one <= ours, "{level:?} {one}");
                assert_eq!(filter.would_enable("sqlx::postgres::notice", &one), one <= others, "{level:?} {one}");
            }
        }
    }
}
