//! How large the long runs are. In a usual run they have a size that still finds what they are for; with
//! `OUTHAUL_TEST_FULL=1` they have their full size, which takes much longer.

/// `usual`, or `full` where the full sizes are asked for.
pub fn size<T>(usual: T, full: T) -> T {
    if is_full() { full } else { usual }
}

/// Whether the full sizes are asked for.
pub fn is_full() -> bool {
    std::env::var("OUTHAUL_TEST_FULL").is_ok_and(|asked| asked == "1")
}
