//! Floating-point numbers as PostgreSQL prints float8 with `extra_float_digits = 1`: the shortest
//! digits that read back as the same number.

/// Digits that settle any doubt about a 17-digit decimal against the border between two numbers.
const TINY: usize = 60;

/// A float8 in PostgreSQL's text form.
pub fn float8(number: f64) -> String {
    if number.is_nan() {
        return "NaN".into();
    }
    if number.is_infinite() {
        return if number > 0.0 { "Infinity" } else { "-Infinity" }.into();
    }
    let sign = if number.is_sign_negative() { "-" } else { "" };
    let (digits, exponent) = shortest(number.abs());
    format!("{sign}{}", layout(&digits, exponent))
}

/// Digits and decimal exponent of the first, for a number that is finite and not negative.
fn shortest(number: f64) -> (String, i32) {
    let parts = |text: String| {
        let (mantissa, exponent) = text.split_once('e').expect("`{:e}` prints an exponent");
        let exponent: i32 = exponent.parse().expect("`{:e}` prints the exponent as a number");
        (mantissa.replace('.', ""), exponent)
    };
    let (digits, exponent) = parts(format!("{number:e}"));
    if number == 0.0 {
        return (digits, exponent);
    }
    // Rust knows how many digits are needed, but differs from PostgreSQL in two ways. Of two decimals
    // equally near it takes the upper, PostgreSQL the even one, as printing with a precision does. And
    // it also takes a decimal on the very border to the next number, where reading rounds to even;
    // PostgreSQL does not, and prints more digits.
    for precision in digits.len() - 1..16 {
        let (nearest, exponent) = parts(format!("{number:.precision$e}"));
        // Above a power of two numbers lie twice as far apart as below it: there the nearest decimal may
        // be outside, and the next one up inside.
        let next_up = nearest.parse::<u64>().expect("at most 17 digits") + 1;
        for digits in [nearest.clone(), next_up.to_string()] {
            let exponent = exponent + (digits.len() - nearest.len()) as i32;
            if strictly_inside(number, &digits, exponent) {
                return (digits, exponent);
            }
        }
    }
    parts(format!("{number:.16e}"))
}

/// Whether the decimal reads as `number` even if it is moved a tiny bit up or down.
fn strictly_inside(number: f64, digits: &str, exponent: i32) -> bool {
    let reads_as = |digits: &str| format!("0.{digits}e{}", exponent + 1).parse() == Ok(number);
    let above = format!("{digits}{}1", "0".repeat(TINY));
    let last = digits.len() - 1;
    // A last digit of 0 belongs to a shorter decimal, which was tried before.
    let Some(lower) = digits.as_bytes()[last].checked_sub(1).filter(u8::is_ascii_digit) else { return false };
    let below = format!("{}{}{}", &digits[..last], char::from(lower), "9".repeat(TINY));
    reads_as(&above) && reads_as(&below)
}

/// Plain notation from 1e-4 up to 15 digits before the point, else an exponent of two digits or more.
fn layout(digits: &str, exponent: i32) -> String {
    let count = digits.len() as i32;
    let zeros = |count: i32| "0".repeat(usize::try_from(count).unwrap_or(0));
    match exponent {
        -4..0 => format!("0.{}{digits}", zeros(-exponent - 1)),
        0..15 if count <= exponent + 1 => format!("{digits}{}", zeros(exponent + 1 - count)),
        0..15 => {
            let (whole, part) = digits.split_at(exponent as usize + 1);
            format!("{whole}.{part}")
        }
        _ => {
            let (first, rest) = digits.split_at(1);
            let point = if rest.is_empty() { "" } else { "." };
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{first}{point}{rest}e{sign}{:02}", exponent.abs())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_look_as_postgresql_prints_them() {
        for (number, text) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-1.5, "-1.5"),
            (0.1, "0.1"),
            (100.0, "100"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (123_456_789_012_345.0, "123456789012345"),
            (1e14, "100000000000000"),
            (1e15, "1e+15"),
            (1e20, "1e+20"),
            (1.25e-7, "1.25e-07"),
            (f64::MAX, "1.7976931348623157e+308"),
            (5e-324, "5e-324"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "Infinity"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(float8(number), text);
        }
    }

    proptest! {
        #[test]
        fn every_number_reads_back(bits in any::<u64>()) {
            let number = f64::from_bits(bits);
            prop_assume!(number.is_finite());
            prop_assert_eq!(float8(number).parse::<f64>().unwrap().to_bits(), number.to_bits());
        }
    }
}
