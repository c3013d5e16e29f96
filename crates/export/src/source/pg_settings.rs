//! The settings of every transaction on a PostgreSQL source, whatever the server, the database and the role prefer:
//! what shapes the output and what limits the query. No notices come: functions may raise them with values of rows,
//! and the driver would log them.

use std::time::Duration;

/// The settings that are the same for all sources.
const FIXED: [(&str, &str); 9] = [
    ("idle_in_transaction_session_timeout", "60s"),
    ("client_min_messages", "error"),
    ("standard_conforming_strings", "on"),
    ("client_encoding", "UTF8"),
    ("datestyle", "ISO, MDY"),
    ("intervalstyle", "postgres"),
    ("timezone", "UTC"),
    ("bytea_output", "hex"),
    ("extra_float_digits", "1"),
];

/// Names and values of the settings, all of them constants or numbers.
pub(super) struct Settings(Vec<(&'static str, String)>);

impl Settings {
    pub(super) fn new(statement_timeout: Duration) -> Self {
        // Zero would mean no limit at all.
        let statement = statement_timeout.as_millis().clamp(1, i32::MAX as u128);
        let limits = [("statement_timeout", statement), ("lock_timeout", statement.min(30_000))];
        let limits = limits.map(|(name, limit)| (name, limit.to_string()));
        let fixed = FIXED.map(|(name, value)| (name, value.to_owned()));
        Self(limits.into_iter().chain(fixed).collect())
    }

    /// Begins a read-only transaction that has the settings.
    pub(super) fn begin(&self) -> String {
        let settings = self.0.iter().map(|(name, value)| format!("; set local {name} = '{value}'"));
        format!("begin read only{}", settings.collect::<String>())
    }

    /// The settings for a connection's startup packet. Every transaction of the session has them, and is read-only
    /// unless it says otherwise.
    pub(super) fn startup(&self) -> impl Iterator<Item = (&str, &str)> {
        let read_only = ("default_transaction_read_only", "on");
        self.0.iter().map(|(name, value)| (*name, value.as_str())).chain([read_only])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_of_nothing_is_not_no_timeout() {
        let timeouts = |timeout| {
            let Settings(settings) = Settings::new(timeout);
            [settings[0].1.clone(), settings[1].1.clone()]
        };
        assert_eq!(timeouts(Duration::ZERO), ["1", "1"]);
        assert_eq!(timeouts(Duration::MAX), ["2147483647", "30000"]);
    }

    #[test]
    fn values_need_no_escapes() {
        for (name, value) in &Settings::new(Duration::from_secs(1)).0 {
            assert!(!value.contains(['\'', '\\']), "{name}");
        }
    }
}
