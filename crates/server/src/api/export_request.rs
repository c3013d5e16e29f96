//! The `items` shape of a submission: from JSON to the request that `outhaul_export` judges. Only
//! types and unknown members are judged here; both kinds of problems are reported together.

use outhaul_core::clock;
use outhaul_export::request::{ExportPlan, ExportRequest, Item, Output};
use serde_json::{Map, Value};

use super::AppState;
use super::json::{child, kind};
use super::problem::{FieldError, Problem};
use super::submit_view::PlanView;

/// The members of a submission that are read here.
pub(super) const MEMBERS: [&str; 3] = ["dataset", "items", "output"];

/// Plans the export that a body asks for; what is wrong is added to `errors`.
pub(super) fn plan(
    exports: &outhaul_export::Exports,
    body: &Map<String, Value>,
    errors: &mut Vec<FieldError>,
) -> Option<ExportPlan> {
    let mut reader = Reader { errors: Vec::new() };
    let request = reader.request(body);
    let judged = request.validate(exports);
    // What has the wrong type was replaced by nothing, and must not be blamed for that as well.
    let wrong_type = |pointer: &str| {
        reader.errors.iter().any(|error| {
            pointer.strip_prefix(&error.pointer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    };
    let plan = match judged {
        Ok(plan) => Some(plan),
        Err(problems) => {
            let problems = problems.into_iter().filter(|problem| !wrong_type(&problem.pointer));
            errors.extend(problems.map(|problem| FieldError::new(problem.pointer, problem.message)));
            None
        }
    };
    errors.extend(reader.errors);
    plan
}

/// Answers `dryRun` from the recorded files.
pub(super) async fn foresee(state: &AppState, plan: &ExportPlan) -> Result<PlanView, Problem> {
    // No scope and no variant: what rows depend on callers, and output options, come later.
    let recorded = state.store.files_recorded(&plan.dataset.name, "", "", &plan.wanted()).await?;
    let dry = plan.dry_run(&recorded, clock::now(), state.exports.reuse_window_days);
    Ok(PlanView { total: dry.total, reuse: dry.reuse, generate: dry.generate, verdict: dry.verdict })
}

struct Reader {
    errors: Vec<FieldError>,
}

impl Reader {
    fn wrong(&mut self, pointer: &str, message: impl Into<String>) {
        self.errors.push(FieldError::new(pointer, message));
    }

    fn request(&mut self, body: &Map<String, Value>) -> ExportRequest {
        let items = self.list("/items", body.get("items"));
        ExportRequest {
            dataset: body.get("dataset").map(|value| self.text("/dataset", value)),
            items: items
                .iter()
                .enumerate()
                .map(|(i, item)| self.item(&format!("/items/{i}"), item))
                .collect(),
            output: body.get("output").map_or_else(Output::default, |output| self.output(output)),
        }
    }

    fn item(&mut self, pointer: &str, item: &Value) -> Item {
        let Some(members) = self.object(pointer, item, &["key", "effectiveDates"]) else {
            return Item::default();
        };
        let key_at = child(pointer, "key");
        let key = match members.get("key") {
            Some(key) => self.text(&key_at, key),
            None => {
                self.wrong(&key_at, "is required");
                String::new()
            }
        };
        let dates_at = child(pointer, "effectiveDates");
        let dates = self.list(&dates_at, members.get("effectiveDates"));
        let dates = dates.iter().enumerate().map(|(i, date)| self.text(&format!("{dates_at}/{i}"), date));
        Item { key, effective_dates: dates.collect() }
    }

    fn output(&mut self, output: &Value) -> Output {
        let Some(members) = self.object("/output", output, &["format", "force"]) else {
            return Output::default();
        };
        let force = members.get("force").map(|value| (value, value.as_bool()));
        if let Some((value, None)) = force {
            self.wrong("/output/force", format!("must be true or false, not {}", kind(value)));
        }
        Output {
            format: members.get("format").map(|value| self.text("/output/format", value)),
            force: force.and_then(|(_, force)| force).unwrap_or(false),
        }
    }

    fn object<'a>(
        &mut self,
        pointer: &str,
        value: &'a Value,
        known: &[&str],
    ) -> Option<&'a Map<String, Value>> {
        let Some(members) = value.as_object() else {
            self.wrong(pointer, format!("must be an object, not {}", kind(value)));
            return None;
        };
        for name in members.keys().filter(|name| !known.contains(&name.as_str())) {
            self.wrong(&child(pointer, name), "there is no such field");
        }
        Some(members)
    }

    fn list<'a>(&mut self, pointer: &str, value: Option<&'a Value>) -> &'a [Value] {
        match value {
            Some(Value::Array(items)) => return items,
            Some(other) => self.wrong(pointer, format!("must be a list, not {}", kind(other))),
            None => self.wrong(pointer, "is required"),
        }
        &[]
    }

    fn text(&mut self, pointer: &str, value: &Value) -> String {
        match value {
            Value::String(text) => text.clone(),
            other => {
                self.wrong(pointer, format!("must be text, not {}", kind(other)));
                String::new()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::exports;
    use super::*;
    use serde_json::json;

    fn pointers(body: Value) -> Vec<String> {
        let mut errors = Vec::new();
        plan(&exports(), body.as_object().unwrap(), &mut errors);
        errors.into_iter().map(|error| error.pointer).collect()
    }

    #[test]
    fn a_good_request_becomes_a_plan() {
        let body =
            json!({"items": [{"key": " ABC ", "effectiveDates": ["20250215", "20250315", "20250215"]}]});
        let plan = plan(&exports(), body.as_object().unwrap(), &mut Vec::new()).unwrap();
        let keys: Vec<_> = plan.chunks.iter().map(|chunk| chunk.chunk_key.as_str()).collect();
        assert_eq!(keys, ["key=ABC:date=20250215", "key=ABC:date=20250315"]);
    }

    #[test]
    fn wrong_types_and_wrong_values_are_listed_together_and_once() {
        let body = json!({"dataset": 1, "output": {"format": "PDF", "force": "yes", "mode": 1}, "items": [
            {"key": 1, "effectiveDates": ["20250230", 20250215]},
            {"effectiveDates": {}},
            "ABC",
            {"key": " ", "effectiveDates": [], "date": 1},
        ]});
        let mut found = pointers(body);
        found.sort();
        assert_eq!(
            found,
            [
                "/dataset",
                "/items/0/effectiveDates/0",
                "/items/0/effectiveDates/1",
                "/items/0/key",
                "/items/1/effectiveDates",
                "/items/1/key",
                "/items/2",
                "/items/3/date",
                "/items/3/effectiveDates",
                "/items/3/key",
                "/output/force",
                "/output/format",
                "/output/mode",
            ]
        );
    }

    #[test]
    fn lists_must_be_lists() {
        for items in [json!(null), json!({}), json!("x"), json!(1)] {
            assert_eq!(pointers(json!({ "items": items })), ["/items"]);
        }
        assert_eq!(pointers(json!({"items": []})), ["/items"]);
        assert_eq!(
            pointers(json!({"items": [{"key": "A", "effectiveDates": ["20250215"]}], "output": []})),
            ["/output"]
        );
    }
}
