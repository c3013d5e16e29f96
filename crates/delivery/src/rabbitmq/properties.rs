//! A message's properties without what nobody looks at. Of what others put there only the length is read, so
//! that it does not matter what it is.

use bytes::BufMut;

use super::{LENGTH_HEADER, MESSAGE_ID_HEADER, QUEUE_HEADER};

/// Which properties are there: the two short texts before the headers, and the headers.
const CONTENT_TYPE: u16 = 1 << 15;
const CONTENT_ENCODING: u16 = 1 << 14;
const HEADERS: u16 = 1 << 13;

/// Writes the headers of ours among these properties, or what was kept of them; and the length of a body that
/// is cut.
pub(super) fn rewrite(properties: &[u8], length: Option<u64>, to: &mut Vec<u8>) {
    let mut headers = ours(properties);
    if let Some(length) = length {
        put_text(LENGTH_HEADER, &length.to_string(), &mut headers);
    }
    if headers.is_empty() {
        to.put_u16(0);
    } else {
        to.put_u16(HEADERS);
        to.put_u32(u32::try_from(headers.len()).expect("it is of one frame"));
        to.put_slice(&headers);
    }
}

fn put_text(name: &str, value: &str, to: &mut Vec<u8>) {
    to.put_u8(u8::try_from(name.len()).expect("names of ours are short"));
    to.put_slice(name.as_bytes());
    to.put_u8(b'S');
    to.put_u32(u32::try_from(value.len()).expect("it is a number"));
    to.put_slice(value.as_bytes());
}

/// The entries of ours, as they are.
fn ours(mut properties: &[u8]) -> Vec<u8> {
    let mut found = Vec::new();
    let mut table = table(&mut properties).unwrap_or_default();
    loop {
        let begin = table;
        let Some((name, is_text)) = entry(&mut table) else { return found };
        if is_text && [QUEUE_HEADER, MESSAGE_ID_HEADER].iter().any(|ours| ours.as_bytes() == name) {
            found.put_slice(&begin[..begin.len() - table.len()]);
        }
    }
}

/// The table of headers, or as much of it as was kept.
fn table<'a>(properties: &mut &'a [u8]) -> Option<&'a [u8]> {
    let flags = number(properties, 2)?;
    for text in [CONTENT_TYPE, CONTENT_ENCODING] {
        if flags & usize::from(text) != 0 {
            sized(properties, 1)?;
        }
    }
    if flags & usize::from(HEADERS) == 0 {
        return None;
    }
    let size = number(properties, 4)?;
    Some(&properties[..size.min(properties.len())])
}

/// Steps over an entry, and gives its name and whether its value is text. `None`: there is none, or one of a
/// kind that RabbitMQ does not have.
fn entry<'a>(table: &mut &'a [u8]) -> Option<(&'a [u8], bool)> {
    let name = sized(table, 1)?;
    let kind = *table.split_off_first()?;
    match kind {
        // Text, bytes, a table, an array.
        b'S' | b'x' | b'F' | b'A' => sized(table, 4)?,
        b'V' => &[],
        b't' | b'b' | b'B' => table.split_off(..1)?,
        b's' | b'u' => table.split_off(..2)?,
        b'I' | b'i' | b'f' => table.split_off(..4)?,
        b'D' => table.split_off(..5)?,
        b'l' | b'L' | b'd' | b'T' => table.split_off(..8)?,
        _ => return None,
    };
    Some((name, kind == b'S'))
}

/// Bytes that come after their own number.
fn sized<'a>(bytes: &mut &'a [u8], width: usize) -> Option<&'a [u8]> {
    let size = number(bytes, width)?;
    bytes.split_off(..size)
}

/// A number of up to four bytes.
fn number(bytes: &mut &[u8], width: usize) -> Option<usize> {
    Some(bytes.split_off(..width)?.iter().fold(0, |number, byte| number << 8 | usize::from(*byte)))
}
