//! Lists: `limit`, `cursor`, and the one shape `{items, nextCursor}`. A cursor is opaque and proved:
//! one that this installation did not make for this very list is refused.

use serde::Serialize;
use sha2::{Digest, Sha256};
use utoipa::ToSchema;

use super::problem::FieldError;
use super::query::Query;

/// How many items a page has when the client does not say.
pub(super) const DEFAULT_LIMIT: u32 = 50;
/// The most items a page may have.
pub(super) const MAX_LIMIT: u32 = 200;
const PROOF_BYTES: usize = 8;

/// A page of a list.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct PageView<T> {
    /// The items of this page.
    pub items: Vec<T>,
    /// Pass it as `cursor` to get the next page; null on the last.
    #[schema(required)]
    pub next_cursor: Option<String>,
}

/// Makes and reads the cursors of one list.
pub(super) struct Cursors<'a> {
    installation: &'a str,
    list: &'a str,
    owner: &'a str,
}

impl<'a> Cursors<'a> {
    /// The cursors of a list (`jobs`, `chunks`, `files`), of one job where the list is a job's.
    pub(super) fn new(installation: &'a str, list: &'a str, owner: &'a str) -> Self {
        Self { installation, list, owner }
    }

    /// The cursor that continues after `position`.
    pub(super) fn make(&self, position: &str) -> String {
        let proof = self.proof(position.as_bytes());
        proof.iter().chain(position.as_bytes()).map(|byte| format!("{byte:02x}")).collect()
    }

    /// The position in a cursor of ours.
    pub(super) fn read(&self, cursor: &str) -> Option<String> {
        let bytes = decode_hex(cursor)?;
        let (proof, position) = bytes.split_at_checked(PROOF_BYTES)?;
        (proof == self.proof(position)).then(|| String::from_utf8(position.to_vec()).ok())?
    }

    fn proof(&self, position: &[u8]) -> [u8; PROOF_BYTES] {
        let mut hash = Sha256::new();
        for part in [self.installation.as_bytes(), self.list.as_bytes(), self.owner.as_bytes(), position] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let mut proof = [0; PROOF_BYTES];
        proof.copy_from_slice(&hash.finalize()[..PROOF_BYTES]);
        proof
    }

    /// Takes `limit` and `cursor` from a query; problems go to the query.
    pub(super) fn take(&self, query: &mut Query) -> (u32, Option<String>) {
        let limit = query.take_with("limit", |text| match text.parse::<u32>() {
            Ok(limit @ 1..=MAX_LIMIT) if !text.starts_with('+') => Ok(limit),
            _ => Err(format!("must be a number from 1 to {MAX_LIMIT}")),
        });
        let position = query.take_with("cursor", |text| {
            self.read(text).ok_or_else(|| "must be a `nextCursor` of this list".to_owned())
        });
        (limit.unwrap_or(DEFAULT_LIMIT), position)
    }

    /// The same where a position is more than a text.
    pub(super) fn take_as<T>(
        &self,
        query: &mut Query,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> (u32, Option<T>) {
        let (limit, position) = self.take(query);
        let place = position.and_then(|position| {
            let place = read(&position);
            if place.is_none() {
                query.refuse(FieldError::new("?cursor", "must be a `nextCursor` of this list"));
            }
            place
        });
        (limit, place)
    }

    /// Cuts a page out of a short list that is at hand as a whole, ordered by `name`, which no two
    /// items share.
    pub(super) fn cut<T>(
        &self,
        mut items: Vec<T>,
        name: impl Fn(&T) -> &str,
        (limit, after): (u32, Option<String>),
    ) -> PageView<T> {
        items.retain(|item| after.as_deref().is_none_or(|after| name(item) > after));
        items.sort_by(|a, b| name(a).cmp(name(b)));
        let limit = limit as usize;
        let more = items.len() > limit;
        items.truncate(limit);
        let next_cursor = items.last().filter(|_| more).map(|last| self.make(name(last)));
        PageView { items, next_cursor }
    }
}

fn decode_hex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: Cursors<'static> = Cursors { installation: "abc", list: "chunks", owner: "J1" };

    #[test]
    fn cursors_read_back() {
        for position in ["", "17", "key=É/😀:date=20250215"] {
            assert_eq!(OURS.read(&OURS.make(position)).as_deref(), Some(position));
        }
    }

    #[test]
    fn cursors_of_others_and_forged_ones_are_refused() {
        let cursor = OURS.make("key=ABC:date=20250215");
        for other in [
            Cursors::new("abd", "chunks", "J1"),
            Cursors::new("abc", "files", "J1"),
            Cursors::new("abc", "chunks", "J2"),
            Cursors::new("abcc", "hunks", "J1"),
        ] {
            assert_eq!(other.read(&cursor), None);
        }
        let mut changed = cursor.clone();
        changed.replace_range(cursor.len() - 1.., "0");
        assert_eq!(OURS.read(&changed), None);
        for forged in ["", "0", "00", "zz", "é", "00000000000000003137", &cursor.to_uppercase(), "../x"] {
            assert_eq!(OURS.read(forged), None, "{forged}");
        }
    }

    #[test]
    fn a_list_at_hand_is_cut_into_pages() {
        let all = ["e", "a", "d", "b", "c"];
        let mut after = None;
        for (expected, more) in [(vec!["a", "b"], true), (vec!["c", "d"], true), (vec!["e"], false)] {
            let page = OURS.cut(all.to_vec(), |name| name, (2, after));
            assert_eq!((page.items, page.next_cursor.is_some()), (expected, more));
            after = page.next_cursor.and_then(|cursor| OURS.read(&cursor));
        }
        assert_eq!(OURS.cut(all.to_vec(), |name| name, (5, None)).next_cursor, None);
    }

    #[test]
    fn limits_outside_the_range_are_refused() {
        for (text, limit) in [
            ("", Some(50)),
            ("limit=1", Some(1)),
            ("limit=200", Some(200)),
            ("limit=0", None),
            ("limit=201", None),
            ("limit=-1", None),
            ("limit=%2B5", None),
            ("limit=", None),
            ("limit=x", None),
            ("limit=99999999999999999999", None),
            ("limit=1&limit=2", None),
        ] {
            let mut query = Query::parse(text);
            let (got, _) = OURS.take(&mut query);
            assert_eq!(query.finish().is_ok().then_some(got), limit, "{text}");
        }
    }
}
