//! Durations as people write them in a configuration: `200ms`, `90s`, `5m`, `24h`, `30d`.

use std::time::Duration;

/// Reads a duration such as `"90s"`; the error says what would have been right.
pub fn parse(text: &str) -> Result<Duration, String> {
    let wrong =
        || format!("`{text}` is not a duration: write a whole number and ms, s, m, h or d, such as \"90s\"");
    let text = text.trim();
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let number: u64 = text[..digits].parse().map_err(|_| wrong())?;
    let seconds = |factor: u64| number.checked_mul(factor).map(Duration::from_secs).ok_or_else(wrong);
    match &text[digits..] {
        "ms" => Ok(Duration::from_millis(number)),
        "s" => seconds(1),
        "m" => seconds(60),
        "h" => seconds(3_600),
        "d" => seconds(86_400),
        _ => Err(wrong()),
    }
}

/// The same back, for messages: `10m`, `90s`, `200ms`.
pub fn short(span: Duration) -> String {
    let seconds = span.as_secs();
    match (span.subsec_millis(), seconds) {
        (0, s) if s >= 3600 && s % 3600 == 0 => format!("{}h", s / 3600),
        (0, s) if s >= 60 && s % 60 == 0 => format!("{}m", s / 60),
        (0, s) => format!("{s}s"),
        _ => format!("{}ms", span.as_millis()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_unit() {
        for (text, millis) in
            [("200ms", 200), ("90s", 90_000), ("5m", 300_000), ("24h", 86_400_000), ("30d", 2_592_000_000)]
        {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn messages_show_them_as_they_were_configured() {
        for text in ["200ms", "1s", "90s", "10m", "24h"] {
            assert_eq!(parse(text).map(short).as_deref(), Ok(text));
        }
    }

    #[test]
    fn refuses_what_is_not_a_duration() {
        for text in
            ["", "s", "5", "-5s", "1.5s", "5 s", "5w", "99999999999999999999s", "18446744073709551615d"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
