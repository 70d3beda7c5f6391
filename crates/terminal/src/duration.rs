//! Times as a person types them on the command line.

use std::time::Duration;

const TIMES: &str = "write a time such as 500ms, 10s, 2m or 1h";

/// `500ms`, `10s`, `2m`, `1h`; at most a day.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let number: u64 = digits.parse().map_err(|_| TIMES.to_owned())?;
    let millis = match &text[digits.len()..] {
        "ms" => Some(number),
        "s" => number.checked_mul(1_000),
        "m" => number.checked_mul(60_000),
        "h" => number.checked_mul(3_600_000),
        _ => return Err(TIMES.to_owned()),
    };
    match millis {
        Some(millis @ 1..=86_400_000) => Ok(Duration::from_millis(millis)),
        _ => Err("between 1ms and a day (24h)".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_or_refused() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(parse_duration("24h"), Ok(Duration::from_secs(86_400)));
        for bad in ["", "10", "s", "-1s", "1.5s", "10d", "0s", "25h", "1441m", "99999999999999999999s", "10 s"] {
            assert!(parse_duration(bad).is_err(), "{bad:?}");
        }
    }
}
