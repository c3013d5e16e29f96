//! Pages: one row more than asked for is read, to know whether another follows; and what a list may show.

use outhaul_core::identity::Visible;

/// Keeps `limit` rows; the place of the last one, if there are more.
pub(crate) fn cut<T, C>(mut rows: Vec<T>, limit: u32, place: impl Fn(&T) -> C) -> (Vec<T>, Option<C>) {
    let limit = limit as usize;
    if rows.len() <= limit {
        return (rows, None);
    }
    rows.truncate(limit);
    let next = rows.last().map(place);
    (rows, next)
}

/// What a list may show, as it is bound: whether it may show anything, the subject and the department.
pub(crate) fn visible_columns(visible: &Visible) -> (bool, Option<&str>, Option<&str>) {
    match visible {
        Visible::All => (true, None, None),
        Visible::Department { department, subject } => (true, Some(subject), Some(department)),
        Visible::Own(subject) => (true, Some(subject), None),
        Visible::Nothing => (false, None, None),
    }
}
