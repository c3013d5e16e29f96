//! Cutting a page: one row more than asked for was read, to know whether another page follows.

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
