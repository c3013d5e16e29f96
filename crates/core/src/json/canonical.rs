//! One spelling of equal JSON, for hashes: no white space, members by name, one way to write a text or a number.
//! Numbers that a 64-bit float cannot hold keep all their digits, so that two different account numbers of 30
//! digits stay different.

use std::borrow::Cow;
use std::ops::Range;

use serde_json::Number;

use super::Json;
use super::lexer::{Lexer, Token, unescaped};

/// Whole numbers up to here are the same as integers and as floats.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// The one spelling. It must not change: hashes of it are stored with idempotency keys.
pub fn canonical(json: &Json) -> String {
    let mut lexer = Lexer::new(json.as_str());
    let mut out = String::with_capacity(json.as_str().len());
    if let Some(first) = lexer.next() {
        write(&mut lexer, first, &mut out);
    }
    out
}

/// Writes the value that begins with `first`. Recursion is bounded by the depth of checked JSON.
fn write<'a>(lexer: &mut Lexer<'a>, first: Token<'a>, out: &mut String) {
    match first {
        Token::Mark('{') => write_object(lexer, out),
        Token::Mark('[') => {
            out.push('[');
            while let Some(token) = lexer.next() {
                match token {
                    Token::Mark(']') => break,
                    Token::Mark(',') => out.push(','),
                    first => write(lexer, first, out),
                }
            }
            out.push(']');
        }
        Token::Mark(_) => {}
        Token::Text(text) => out.push_str(&spelled(text)),
        Token::Word(word @ ("true" | "false" | "null")) => out.push_str(word),
        Token::Word(word) => out.push_str(&number(word)),
    }
}

fn write_object<'a>(lexer: &mut Lexer<'a>, out: &mut String) {
    out.push('{');
    let start = out.len();
    let mut members: Vec<(Cow<'a, str>, Range<usize>)> = Vec::new();
    while let Some(token) = lexer.next() {
        let name = match token {
            Token::Mark('}') => break,
            Token::Text(name) => name,
            _ => continue,
        };
        if !members.is_empty() {
            out.push(',');
        }
        let begin = out.len();
        out.push_str(&spelled(name));
        out.push(':');
        let first = lexer.by_ref().find(|token| *token != Token::Mark(':'));
        if let Some(first) = first {
            write(lexer, first, out);
        }
        members.push((unescaped(name), begin..out.len()));
    }
    if !members.is_sorted_by(|one, other| one.0 <= other.0) {
        members.sort_by(|one, other| one.0.cmp(&other.0));
        let unsorted = out.split_off(start);
        for (i, (_, range)) in members.into_iter().enumerate() {
            if i > 0 {
                out.push(',');
            }
            out.push_str(&unsorted[range.start - start..range.end - start]);
        }
    }
    out.push('}');
}

/// A text with only those escapes that it needs.
fn spelled(token: &str) -> Cow<'_, str> {
    if !token.contains('\\') {
        return Cow::Borrowed(token);
    }
    Cow::Owned(serde_json::to_string(&*unescaped(token)).unwrap_or_default())
}

/// One spelling of a number: `5.0` is `5`. A number that a float would round is spelled out as digits and an
/// exponent.
fn number(word: &str) -> Cow<'_, str> {
    if word != "-0" && (word.parse::<u64>().is_ok() || word.parse::<i64>().is_ok()) {
        return Cow::Borrowed(word);
    }
    let (Ok(read), Some(exact)) = (serde_json::from_str::<Number>(word), Decimal::of(word)) else {
        return Cow::Borrowed(word);
    };
    let whole = read.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < EXACT);
    let short = whole.map_or_else(|| read.to_string(), |float| (float as i64).to_string());
    if Decimal::of(&short).as_ref() == Some(&exact) {
        return Cow::Owned(short);
    }
    Cow::Owned(format!("{}{}e{}", if exact.negative { "-" } else { "" }, exact.digits, exact.exponent))
}

/// The value of a number: `digits` × 10^`exponent`, without zeros at either end.
#[derive(PartialEq, Eq)]
struct Decimal {
    negative: bool,
    digits: String,
    exponent: i64,
}

impl Decimal {
    /// `None`: the exponent is too large to count.
    fn of(word: &str) -> Option<Self> {
        let (negative, word) = word.strip_prefix('-').map_or((false, word), |rest| (true, rest));
        let (mantissa, exponent) = word.split_once(['e', 'E']).unwrap_or((word, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = format!("{whole}{fraction}");
        let digits = digits.trim_start_matches('0');
        let kept = digits.trim_end_matches('0');
        if kept.is_empty() {
            return Some(Self { negative: false, digits: "0".to_owned(), exponent: 0 });
        }
        let exponent: i64 = exponent.parse().ok()?;
        let exponent = exponent.checked_sub(i64::try_from(fraction.len()).ok()?)?;
        let exponent = exponent.checked_add(i64::try_from(digits.len() - kept.len()).ok()?)?;
        Some(Self { negative, digits: kept.to_owned(), exponent })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Map, Value};
    use std::collections::BTreeMap;

    fn spelling(text: &str) -> String {
        canonical(&Json::parse(text).unwrap())
    }

    #[test]
    fn equal_json_has_one_spelling() {
        let one = spelling(r#" { "b" : [1.0, -0.0, 1e2], "a\u0062": {"y": null, "\u0078": "\u00e9\/"} } "#);
        assert_eq!(one, r#"{"ab":{"x":"é/","y":null},"b":[1,0,100]}"#);
        assert_eq!(spelling("[]"), "[]");
        assert_eq!(spelling("{ }"), "{}");
        assert_eq!(spelling(r#""\n\u0000\"""#), r#""\n\u0000\"""#);
    }

    #[test]
    fn numbers_keep_the_digits_that_a_float_would_lose() {
        for (text, expected) in [
            ("18446744073709551615", "18446744073709551615"),
            ("-9223372036854775808", "-9223372036854775808"),
            ("123456789012345678901234567890", "12345678901234567890123456789e1"),
            ("123456789012345678901234567891", "123456789012345678901234567891e0"),
            ("-123456789012345678901234567891.50", "-1234567890123456789012345678915e-1"),
            ("0.1234567890123456789", "1234567890123456789e-19"),
            ("9007199254740993.0", "9007199254740993e0"),
            ("1e-400", "1e-400"),
            ("0.001e-397", "1e-400"),
            ("1e20", "1e+20"),
            ("100000000000000000000", "1e+20"),
            ("1.50", "1.5"),
            ("15e-1", "1.5"),
            ("-0", "0"),
            ("0e99999999999999999999", "0"),
            ("1e-99999999999999999999", "1e-99999999999999999999"),
        ] {
            assert_eq!(spelling(text), expected, "{text}");
        }
    }

    /// How requests were spelled while payloads were trees of values.
    fn of_tree(value: &Value) -> Value {
        match value {
            Value::Object(members) => {
                let sorted: BTreeMap<&String, Value> =
                    members.iter().map(|(name, value)| (name, of_tree(value))).collect();
                Value::Object(sorted.into_iter().map(|(name, value)| (name.clone(), value)).collect())
            }
            Value::Array(items) => Value::Array(items.iter().map(of_tree).collect()),
            Value::Number(number) if number.is_f64() => {
                let whole = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < EXACT);
                Value::Number(whole.map_or_else(|| number.clone(), |float| Number::from(float as i64)))
            }
            other => other.clone(),
        }
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            (-100_000i32..100_000, 0u32..4)
                .prop_map(|(n, places)| { Value::from(f64::from(n) / f64::from(10u32.pow(places))) }),
            ".{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::vec((".{0,4}", inner), 0..5)
                    .prop_map(|members| Value::Object(members.into_iter().collect::<Map<_, _>>())),
            ]
        })
    }

    proptest! {
        #[test]
        fn ordinary_json_is_spelled_as_it_was_when_it_was_a_tree(value in any_json()) {
            prop_assert_eq!(canonical(&Json::from(value.clone())), of_tree(&value).to_string());
        }
    }
}
