//! CSV exactly as PostgreSQL's `COPY … (FORMAT csv)` writes it, for sources that cannot do it themselves:
//! NULL is nothing, the empty string is `""`, and quotes appear only where they must.

use bytes::{BufMut as _, Bytes, BytesMut};

/// Builds rows one field at a time.
#[derive(Debug)]
pub struct Csv {
    row: BytesMut,
    columns: usize,
    written: usize,
}

impl Csv {
    /// For rows of so many columns.
    pub fn new(columns: usize) -> Self {
        Self { row: BytesMut::new(), columns, written: 0 }
    }

    /// Adds a field; `None` is NULL.
    pub fn field(&mut self, value: Option<&[u8]>) {
        self.separate();
        let Some(value) = value else { return };
        if !self.must_quote(value) {
            self.row.extend_from_slice(value);
            return;
        }
        self.row.put_u8(b'"');
        let mut rest = value;
        while let Some(quote) = rest.iter().position(|&byte| byte == b'"') {
            self.row.extend_from_slice(&rest[..=quote]);
            self.row.put_u8(b'"');
            rest = &rest[quote + 1..];
        }
        self.row.extend_from_slice(rest);
        self.row.put_u8(b'"');
    }

    /// Adds a binary field as `\x` and hex, which never needs quotes.
    pub fn hex(&mut self, value: &[u8]) {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        self.separate();
        self.row.reserve(2 + 2 * value.len());
        self.row.extend_from_slice(b"\\x");
        for byte in value {
            self.row.put_u8(DIGITS[usize::from(byte >> 4)]);
            self.row.put_u8(DIGITS[usize::from(byte & 15)]);
        }
    }

    /// Ends the row and takes it.
    pub fn end_row(&mut self) -> Bytes {
        self.row.put_u8(b'\n');
        self.written = 0;
        self.row.split().freeze()
    }

    fn separate(&mut self) {
        if self.written > 0 {
            self.row.put_u8(b',');
        }
        self.written += 1;
    }

    /// The rule of PostgreSQL's `CopyAttributeOutCSV`. A lone `\.` would end the data for its readers.
    fn must_quote(&self, value: &[u8]) -> bool {
        value.is_empty()
            || (self.columns == 1 && value == b"\\.")
            || value.iter().any(|byte| matches!(byte, b',' | b'"' | b'\n' | b'\r'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Row = Vec<Option<Vec<u8>>>;

    fn write(rows: &[Row]) -> Vec<u8> {
        let mut csv = Csv::new(rows.first().map_or(0, Vec::len));
        rows.iter()
            .flat_map(|row| {
                row.iter().for_each(|value| csv.field(value.as_deref()));
                csv.end_row()
            })
            .collect()
    }

    /// A strict reader of RFC 4180 that tells NULL from the empty string.
    fn read(text: &[u8]) -> Vec<Row> {
        let (mut rows, mut row, mut i) = (Vec::new(), Vec::new(), 0);
        while i < text.len() {
            let mut value = None;
            if text[i] == b'"' {
                let mut inner = Vec::new();
                i += 1;
                loop {
                    match (text[i], text.get(i + 1)) {
                        (b'"', Some(b'"')) => (inner.push(b'"'), i += 2).1,
                        (b'"', _) => break i += 1,
                        (byte, _) => (inner.push(byte), i += 1).1,
                    }
                }
                value = Some(inner);
            } else {
                let end = i + text[i..].iter().position(|byte| matches!(byte, b',' | b'\n')).unwrap();
                assert!(!text[i..end].contains(&b'"') && !text[i..end].contains(&b'\r'));
                if end > i {
                    value = Some(text[i..end].to_vec());
                }
                i = end;
            }
            row.push(value);
            match text[i] {
                b',' => {}
                b'\n' => rows.push(std::mem::take(&mut row)),
                byte => panic!("{byte} after a field"),
            }
            // A separator before the line's end is followed by one more, empty field.
            if text[i] == b',' && text[i + 1] == b'\n' {
                row.push(None);
                rows.push(std::mem::take(&mut row));
                i += 1;
            }
            i += 1;
        }
        rows
    }

    #[test]
    fn fields_are_quoted_only_where_they_must_be() {
        let row: Row =
            [None, Some(""), Some("a b "), Some("a,b"), Some("a\"b"), Some("a\nb"), Some("\r"), Some("\\.")]
                .map(|value| value.map(|value: &str| value.as_bytes().to_vec()))
                .to_vec();
        assert_eq!(write(&[row]), b",\"\",a b ,\"a,b\",\"a\"\"b\",\"a\nb\",\"\r\",\\.\n");
        assert_eq!(write(&[vec![Some(b"\\.".to_vec())]]), b"\"\\.\"\n");
        assert_eq!(write(&[vec![None]]), b"\n");
        assert_eq!(write(&[vec![Some("\u{feff}=1+1".into())]]), "\u{feff}=1+1\n".as_bytes());
    }

    #[test]
    fn binary_is_hex() {
        let mut csv = Csv::new(2);
        csv.hex(&[0, 0xab, 0xff]);
        csv.hex(&[]);
        assert_eq!(&csv.end_row()[..], b"\\x00abff,\\x\n");
    }

    fn cell() -> impl Strategy<Value = Option<Vec<u8>>> {
        let nasty = prop::sample::select(vec![",", "\"", "\r", "\n", "\\.", "\u{feff}", "", " ", "x", "😀"]);
        let text = prop::collection::vec(nasty, 0..6).prop_map(|parts| parts.concat().into_bytes());
        prop::option::of(prop_oneof![text, prop::collection::vec(any::<u8>(), 0..20)])
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(rows in (1..5_usize).prop_flat_map(|columns| {
            prop::collection::vec(prop::collection::vec(cell(), columns), 0..5)
        })) {
            prop_assert_eq!(read(&write(&rows)), rows);
        }
    }
}
