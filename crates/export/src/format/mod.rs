//! Formats that files are written in.

pub mod csv;
pub mod float;

/// Part of every dataset's definition: raised when the same rows would be printed differently, so that
/// files printed the old way are not reused.
pub const VERSION: u32 = 1;

/// A file format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Comma-separated values by RFC 4180, as PostgreSQL's COPY writes them.
    #[default]
    Csv,
}

impl Format {
    /// All formats that can be asked for.
    pub const ALL: [Self; 1] = [Self::Csv];

    /// The word in requests and records.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Csv => "CSV",
        }
    }

    /// Reads the word.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.as_str() == text)
    }

    /// How its files' names end.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Csv => "csv",
        }
    }
}
