//! Words in a template: `{{ … }}` inside the text values of a JSON body. What the words mean is for the
//! caller to say; here they are found and replaced, and everything wrong is told at once.

use serde_json::Value;

use crate::planner::PlanProblem;

const OPEN: &str = "{{";
const CLOSE: &str = "}}";
/// The most characters of a word that a problem shows.
const SHOWN: usize = 40;
/// The most characters of a member's name that its place shows.
const MAX_NAME: usize = 128;
/// The most problems that are told: more help nobody, and a short body can have very many.
const MAX_PROBLEMS: usize = 1001;

/// The body with every word replaced by what `meaning` says of it; or all problems with their places.
/// Member names are left as they are.
pub(crate) fn render(
    body: &Value,
    meaning: &mut dyn FnMut(&str) -> Result<String, String>,
) -> Result<Value, Vec<PlanProblem>> {
    let mut problems = Vec::new();
    let rendered = walk(body, &mut String::new(), meaning, &mut problems);
    if problems.is_empty() { Ok(rendered) } else { Err(problems) }
}

/// Whether a text has a word in it.
pub(crate) fn has_word(text: &str) -> bool {
    text.contains(OPEN)
}

fn walk(
    value: &Value,
    pointer: &mut String,
    meaning: &mut dyn FnMut(&str) -> Result<String, String>,
    problems: &mut Vec<PlanProblem>,
) -> Value {
    let mut child = |value: &Value, name: &str, pointer: &mut String| {
        let length = pointer.len();
        pointer.push('/');
        let end = name.char_indices().nth(MAX_NAME).map_or(name.len(), |(end, _)| end);
        pointer.push_str(&name[..end].replace('~', "~0").replace('/', "~1"));
        let value = walk(value, pointer, meaning, problems);
        pointer.truncate(length);
        value
    };
    match value {
        Value::Object(members) => Value::Object(
            members.iter().map(|(name, value)| (name.clone(), child(value, name, pointer))).collect(),
        ),
        Value::Array(items) => Value::Array(
            items.iter().enumerate().map(|(i, value)| child(value, &i.to_string(), pointer)).collect(),
        ),
        Value::String(text) if has_word(text) => {
            let mut wrong = |message| {
                if problems.len() < MAX_PROBLEMS {
                    problems.push(PlanProblem { pointer: pointer.clone(), message });
                }
            };
            Value::String(replace(text, meaning, &mut wrong))
        }
        other => other.clone(),
    }
}

fn replace(
    text: &str,
    meaning: &mut dyn FnMut(&str) -> Result<String, String>,
    wrong: &mut dyn FnMut(String),
) -> String {
    let (mut rendered, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, after)) = rest.split_once(OPEN) {
        rendered.push_str(before);
        let Some((word, after)) = after.split_once(CLOSE) else {
            wrong(format!("`{OPEN}` is not closed with `{CLOSE}`"));
            return rendered;
        };
        match meaning(word.trim()) {
            Ok(text) => rendered.push_str(&text),
            Err(why) => {
                let shown: String = word.trim().chars().take(SHOWN).collect();
                wrong(format!("`{OPEN}{}{CLOSE}` {why}", shown.escape_debug()));
            }
        }
        rest = after;
    }
    rendered.push_str(rest);
    rendered
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn loud(body: Value) -> Result<Value, Vec<PlanProblem>> {
        render(&body, &mut |word| match word {
            "known" => Ok("KNOWN".to_owned()),
            "opens" => Ok("{{known}}".to_owned()),
            _ => Err("is unknown".to_owned()),
        })
    }

    #[test]
    fn words_are_replaced_in_texts_wherever_they_stand_and_nowhere_else() {
        let body = json!({
            "{{known}}": "{{known}}", "list": ["a {{ known }}-{{known}}.", 1, null, {"deep": "{{known}}"}],
            "number": 17, "none": "} } { {known}", "empty": "",
        });
        let expected = json!({
            "{{known}}": "KNOWN", "list": ["a KNOWN-KNOWN.", 1, null, {"deep": "KNOWN"}],
            "number": 17, "none": "} } { {known}", "empty": "",
        });
        assert_eq!(loud(body).unwrap(), expected);
        assert_eq!(loud(json!("{{known}}")).unwrap(), json!("KNOWN"));
    }

    #[test]
    fn what_a_word_stands_for_is_not_searched_for_words() {
        assert_eq!(loud(json!(["{{opens}}"])).unwrap(), json!(["{{known}}"]));
    }

    #[test]
    fn every_problem_is_told_with_its_place() {
        let body =
            json!({"a/b": {"~": ["{{known}}", "{{x}} {{y}}"]}, "open": "{{known} {{", "z": "{{known}}"});
        let problems = loud(body).unwrap_err();
        let told: Vec<_> = problems.iter().map(|p| (p.pointer.as_str(), p.message.as_str())).collect();
        assert_eq!(
            told,
            [
                ("/a~1b/~0/1", "`{{x}}` is unknown"),
                ("/a~1b/~0/1", "`{{y}}` is unknown"),
                ("/open", "`{{` is not closed with `}}`"),
            ]
        );
        let long = loud(json!(format!("{{{{{}}}}}", "ä\n".repeat(500)))).unwrap_err();
        assert!(long[0].message.chars().count() < 120 && !long[0].message.contains('\n'));
    }

    #[test]
    fn many_problems_below_a_long_name_stay_short() {
        let problems = loud(json!({ "ä".repeat(100_000): vec!["{{x}}"; 10_000] })).unwrap_err();
        assert_eq!(problems.len(), MAX_PROBLEMS);
        assert!(problems.iter().all(|problem| problem.pointer.len() < 300), "{}", problems[0].pointer.len());
    }
}
