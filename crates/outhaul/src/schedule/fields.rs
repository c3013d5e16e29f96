//! The grammar of cron expressions, checked before the library reads them: it takes names in any field and
//! empty lists, and would make something else of them than was meant.

/// The most characters of an expression.
const MAX_LENGTH: usize = 256;

/// Words for whole expressions.
const NICKNAMES: [&str; 6] = ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@hourly"];

const MONTHS: [&str; 12] =
    ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

/// One field of an expression.
struct Field {
    name: &'static str,
    low: u16,
    high: u16,
    /// Names of values, from `low` on.
    names: &'static [&'static str],
    kind: Kind,
}

#[derive(PartialEq)]
enum Kind {
    Plain,
    DayOfMonth,
    DayOfWeek,
}

const FIELDS: [Field; 6] = [
    Field { name: "second", low: 0, high: 59, names: &[], kind: Kind::Plain },
    Field { name: "minute", low: 0, high: 59, names: &[], kind: Kind::Plain },
    Field { name: "hour", low: 0, high: 23, names: &[], kind: Kind::Plain },
    Field { name: "day of the month", low: 1, high: 31, names: &[], kind: Kind::DayOfMonth },
    Field { name: "month", low: 1, high: 12, names: &MONTHS, kind: Kind::Plain },
    Field { name: "day of the week", low: 0, high: 7, names: &WEEKDAYS, kind: Kind::DayOfWeek },
];

/// What is wrong with an expression, as the end of a sentence.
pub(super) fn check(text: &str) -> Result<(), String> {
    if text.len() > MAX_LENGTH {
        return Err(format!("it is longer than {MAX_LENGTH} characters"));
    }
    let text = text.trim().to_ascii_uppercase();
    if text.starts_with('@') {
        let known = NICKNAMES.iter().any(|nickname| nickname.eq_ignore_ascii_case(&text));
        return known.then_some(()).ok_or_else(|| format!("the short forms are {}", NICKNAMES.join(", ")));
    }
    let fields: Vec<&str> = text.split_ascii_whitespace().collect();
    let rules = match fields.len() {
        5 => &FIELDS[1..],
        6 => &FIELDS[..],
        count => {
            let form =
                "minute, hour, day of the month, month, day of the week; before them a second, if wanted";
            return Err(format!("it has {count} fields, not 5 or 6: {form}"));
        }
    };
    rules
        .iter()
        .zip(fields)
        .try_for_each(|(rule, field)| field.split(',').try_for_each(|part| rule.part(part)))
}

impl Field {
    /// One member of the field's list.
    fn part(&self, part: &str) -> Result<(), String> {
        let Some((base, step)) = part.split_once('/') else { return self.base(part) };
        if base != "*" && !base.contains('-') {
            return Err(self.wrong(part, "only `*` and a range can have a step, as in `*/5` or `10-50/5`"));
        }
        if !matches!(number(step), Some(1..)) {
            return Err(self.wrong(part, "a step is a whole number from 1"));
        }
        self.base(base)
    }

    /// What stands before a step.
    fn base(&self, base: &str) -> Result<(), String> {
        if base == "*" || (base == "?" && self.kind != Kind::Plain) {
            return Ok(());
        }
        if let Some((from, to)) = base.split_once('-') {
            let (from, to) = (self.value(from)?, if to == "SUN" { 7 } else { self.value(to)? });
            return if from <= to { Ok(()) } else { Err(self.wrong(base, "it ends before it begins")) };
        }
        match self.kind {
            Kind::DayOfMonth if base == "L" || base == "LW" => Ok(()),
            Kind::DayOfMonth => self.value(base.strip_suffix('W').unwrap_or(base)).map(drop),
            Kind::DayOfWeek => {
                let day = match base.split_once('#') {
                    Some((day, "1" | "2" | "3" | "4" | "5")) => day,
                    Some(_) => return Err(self.wrong(base, "after `#` stands 1 to 5")),
                    None => base.strip_suffix('L').unwrap_or(base),
                };
                self.value(day).map(drop)
            }
            Kind::Plain => self.value(base).map(drop),
        }
    }

    fn value(&self, text: &str) -> Result<u16, String> {
        let named =
            || Some(self.low + u16::try_from(self.names.iter().position(|name| *name == text)?).ok()?);
        let value = number(text).or_else(named).filter(|value| (self.low..=self.high).contains(value));
        value.ok_or_else(|| {
            let or_name = match self.names {
                [first, .., last] => format!(", or {first} to {last}"),
                _ => String::new(),
            };
            self.wrong(text, &format!("it is {} to {}{or_name}", self.low, self.high))
        })
    }

    fn wrong(&self, what: &str, why: &str) -> String {
        format!("the {} cannot be `{}`: {why}", self.name, what.escape_debug())
    }
}

/// A short whole number without a sign.
fn number(text: &str) -> Option<u16> {
    let short = (1..=4).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    short.then(|| text.parse().ok()).flatten()
}
