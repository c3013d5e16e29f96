//! Words in a template: `{{ … }}` inside the text values of a JSON body. What the words mean is for the
//! caller to say; here they are found and replaced, and everything wrong is told at once.

use outhaul_core::json::{Json, Lexer, Token, unescaped};

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
/// Only strings that are values change; member names, numbers and other values stay as they are written.
pub(crate) fn render(
    body: &Json,
    meaning: &mut dyn FnMut(&str) -> Result<String, String>,
) -> Result<Json, Vec<PlanProblem>> {
    let mut walk = Walk {
        lexer: Lexer::new(body.as_str()),
        rendered: String::with_capacity(body.as_str().len()),
        pointer: String::new(),
        meaning,
        problems: Vec::new(),
    };
    if let Some(first) = walk.lexer.next() {
        walk.value(first);
    }
    let Walk { rendered, problems, .. } = walk;
    if !problems.is_empty() {
        return Err(problems);
    }
    Ok(Json::stored(&rendered).expect("a text in place of a text is JSON"))
}

/// Whether a text has a word in it.
pub(crate) fn has_word(text: &str) -> bool {
    text.contains(OPEN)
}

/// Goes through the text of a body once and writes the filled-in text.
struct Walk<'a, 'm> {
    lexer: Lexer<'a>,
    rendered: String,
    /// Where it is.
    pointer: String,
    meaning: &'m mut dyn FnMut(&str) -> Result<String, String>,
    problems: Vec<PlanProblem>,
}

impl<'a> Walk<'a, '_> {
    /// Writes the value that begins with this token.
    fn value(&mut self, first: Token<'a>) {
        match first {
            Token::Mark(mark @ ('{' | '[')) => {
                self.rendered.push(mark);
                self.inside(mark == '{');
            }
            Token::Mark(_) => {}
            Token::Word(word) => self.rendered.push_str(word),
            Token::Text(token) => {
                let text = unescaped(token);
                if !has_word(&text) {
                    return self.rendered.push_str(token);
                }
                let Self { pointer, problems, .. } = self;
                let mut wrong = |message| {
                    if problems.len() < MAX_PROBLEMS {
                        problems.push(PlanProblem { pointer: pointer.clone(), message });
                    }
                };
                let text = replace(&text, self.meaning, &mut wrong);
                self.rendered.push_str(&serde_json::to_string(&text).expect("text is JSON"));
            }
        }
    }

    /// Writes the members of an object or the elements of a list, to its end.
    fn inside(&mut self, is_object: bool) {
        let mut index = 0;
        while let Some(token) = self.lexer.next() {
            match token {
                Token::Mark(end @ ('}' | ']')) => return self.rendered.push(end),
                Token::Mark(',') => self.rendered.push(','),
                Token::Text(name) if is_object => {
                    self.rendered.push_str(name);
                    self.rendered.push(':');
                    let first = self.lexer.by_ref().find(|token| *token != Token::Mark(':'));
                    self.child(&unescaped(name), first);
                }
                first => {
                    self.child(&index.to_string(), Some(first));
                    index += 1;
                }
            }
        }
    }

    fn child(&mut self, name: &str, first: Option<Token<'a>>) {
        let length = self.pointer.len();
        let end = name.char_indices().nth(MAX_NAME).map_or(name.len(), |(end, _)| end);
        self.pointer.push('/');
        self.pointer.push_str(&name[..end].replace('~', "~0").replace('/', "~1"));
        if let Some(first) = first {
            self.value(first);
        }
        self.pointer.truncate(length);
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
    use serde_json::{Value, json};

    fn rendered(body: &Json) -> Result<Json, Vec<PlanProblem>> {
        render(body, &mut |word| match word {
            "known" => Ok("KNOWN".to_owned()),
            "opens" => Ok("{{known}}".to_owned()),
            _ => Err("is unknown".to_owned()),
        })
    }

    fn loud(body: Value) -> Result<Value, Vec<PlanProblem>> {
        rendered(&body.into()).map(|body| body.read().unwrap())
    }

    #[test]
    fn what_has_no_words_stands_as_it_was_written() {
        let body = r#"{ "n": [1.50, 123456789012345678901234567890], "\u007b{a": "\u007b\u007bknown}}\n" }"#;
        let expected = r#"{"n":[1.50,123456789012345678901234567890],"\u007b{a":"KNOWN\n"}"#;
        assert_eq!(rendered(&Json::parse(body).unwrap()).unwrap().as_str(), expected);
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
