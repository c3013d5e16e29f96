//! The `items` shape of a submission: from JSON to the request that `outhaul_export` judges. Only
//! types and unknown members are judged here; both kinds of problems are reported together. A body may
//! hold a million mistakes: the search ends when there are enough of them.

use std::collections::HashSet;

use outhaul_core::clock;
use outhaul_core::identity::Identity;
use outhaul_core::json::{Json, Object};
use outhaul_export::request::{ExportPlan, ExportRequest, Item, Output, PlanError};
use outhaul_export::rights::MissingClaims;
use serde_json::{Map, Value};

use super::AppState;
use super::json::{child, kind};
use super::problem::{ENOUGH_ERRORS, FieldError, Problem};
use super::submit_view::PlanView;

/// The members of a submission that are read here.
pub(super) const MEMBERS: [&str; 3] = ["dataset", "items", "output"];

/// Equal dates are merged, so a request may list more dates than a job may have files; one that lists
/// this many times more is not worth reading.
const FAR_MORE: usize = 10;
/// However small a job must be, this many dates are read.
const ALWAYS_READ: usize = 10_000;

/// Plans the export that a body asks for, for whoever `identity` says; what is wrong is added to `errors`.
pub(super) fn plan(
    exports: &outhaul_export::Exports,
    identity: Option<&Identity>,
    body: &Object,
    errors: &mut Vec<FieldError>,
) -> Result<Option<ExportPlan>, MissingClaims> {
    let (listed, most) = (dates_listed(body), exports.max_chunks_per_job);
    if listed > most.saturating_mul(FAR_MORE).max(ALWAYS_READ) {
        let message = format!(
            "lists {listed} dates, but a job may have at most {most} files; nothing else of it was looked at"
        );
        errors.push(FieldError::new("/items", message));
        return Ok(None);
    }
    let mut reader = Reader { errors: Vec::new() };
    let request = reader.request(body);
    if reader.has_enough() {
        errors.extend(reader.errors);
        return Ok(None);
    }
    // What has the wrong type was replaced by nothing, and must not be blamed for that as well.
    let wrong: HashSet<&str> = reader.errors.iter().map(|error| error.pointer.as_str()).collect();
    let is_known = |pointer: &str| {
        // Its parents, not every other problem: the cost must not grow with their product.
        std::iter::successors(Some(pointer), |place| {
            let end = place.rfind('/')?;
            pointer.get(..end)
        })
        .any(|place| wrong.contains(place))
    };
    let judged = request.plan(exports, identity, ENOUGH_ERRORS, &is_known);
    let plan = match judged {
        Ok(plan) => Ok(Some(plan).filter(|_| reader.errors.is_empty())),
        Err(PlanError::Problems(problems)) => {
            errors.extend(
                problems.into_iter().map(|problem| FieldError::new(problem.pointer, problem.message)),
            );
            Ok(None)
        }
        Err(PlanError::MissingClaims(missing)) => Err(missing),
    };
    errors.extend(reader.errors);
    plan
}

/// How many dates a body lists, good or not.
fn dates_listed(body: &Object) -> usize {
    let mut listed = 0;
    if let Some(items) = body.text("items") {
        items.each(&mut |item| {
            let dates = item.get("effectiveDates").and_then(Value::as_array);
            listed += dates.map_or(0, Vec::len);
        });
    }
    listed
}

/// Answers `dryRun` from the recorded files.
pub(super) async fn foresee(state: &AppState, plan: &ExportPlan) -> Result<PlanView, Problem> {
    // No variant: output options come later.
    let recorded = state.store.files_recorded(&plan.dataset.name, plan.scope(), "", &plan.wanted()).await?;
    let dry = plan.dry_run(&recorded, clock::now(), state.exports.reuse_window_days);
    Ok(PlanView { total: dry.total, reuse: dry.reuse, generate: dry.generate, verdict: dry.verdict })
}

struct Reader {
    errors: Vec<FieldError>,
}

impl Reader {
    fn wrong(&mut self, pointer: &str, message: impl Into<String>) {
        if !self.has_enough() {
            self.errors.push(FieldError::new(pointer, message));
        }
    }

    /// Whether to look no further: the answer would not say more.
    fn has_enough(&self) -> bool {
        self.errors.len() >= ENOUGH_ERRORS
    }

    fn request(&mut self, body: &Object) -> ExportRequest {
        let dataset = body.members.get("dataset").map(|value| self.text("/dataset", value));
        let output = body.members.get("output").map_or_else(Output::default, |output| self.output(output));
        ExportRequest { dataset, items: self.items(body.text("items")), output }
    }

    /// Reads the items one after the other: all of them as values would cost many times their text.
    fn items(&mut self, sent: Option<&Json>) -> Vec<Item> {
        let (mut items, mut place) = (Vec::new(), 0);
        let Some(sent) = sent else {
            self.wrong("/items", "is required");
            return items;
        };
        let is_list = sent.each(&mut |item| {
            if !self.has_enough() {
                items.push(self.item(&format!("/items/{place}"), &item));
            }
            place += 1;
        });
        if !is_list {
            self.wrong("/items", format!("must be a list, not {}", sent.kind()));
        }
        items
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
        Item { key, effective_dates: self.each(&dates_at, dates, Self::text) }
    }

    /// Reads the elements of a list, until there are enough problems.
    fn each<T>(
        &mut self,
        pointer: &str,
        items: &[Value],
        read: impl Fn(&mut Self, &str, &Value) -> T,
    ) -> Vec<T> {
        let mut found = Vec::new();
        for (i, item) in items.iter().enumerate() {
            if self.has_enough() {
                break;
            }
            found.push(read(self, &format!("{pointer}/{i}"), item));
        }
        found
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
        let unknown = members.keys().filter(|name| !known.contains(&name.as_str()));
        for name in unknown.take(ENOUGH_ERRORS) {
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
    use super::super::tests::{exports, exports_of};
    use super::*;
    use crate::api::problem::MAX_ERRORS;
    use serde_json::json;

    fn object(body: Value) -> Object {
        Json::from(body).object(&["items"]).unwrap()
    }

    fn pointers(body: Value) -> Vec<String> {
        let mut errors = Vec::new();
        plan(&exports(), None, &object(body), &mut errors).unwrap();
        errors.into_iter().map(|error| error.pointer).collect()
    }

    #[test]
    fn a_good_request_becomes_a_plan() {
        let body =
            json!({"items": [{"key": " ABC ", "effectiveDates": ["20250215", "20250315", "20250215"]}]});
        let plan = plan(&exports(), None, &object(body), &mut Vec::new()).unwrap().unwrap();
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

    /// What the answer to a body with far too many problems lists.
    fn listed(most: usize, body: Value) -> Vec<String> {
        let mut errors = Vec::new();
        assert!(plan(&exports_of(most), None, &object(body), &mut errors).unwrap().is_none());
        assert!(errors.len() <= 2 * ENOUGH_ERRORS, "{}", errors.len());
        let problem = Problem::invalid(errors);
        assert!(format!("{problem:?}").contains("more than 1000 problems"));
        assert_eq!(problem.errors().len(), MAX_ERRORS);
        problem.errors().iter().map(|error| error.pointer.clone()).collect()
    }

    #[test]
    fn the_search_for_problems_ends_when_there_are_enough() {
        const MANY: usize = 200_000;
        let dates = |date: Value| json!({"items": [{"key": "A", "effectiveDates": vec![date; MANY]}]});
        for bad in [json!(0), json!(null), json!([]), json!("x"), json!("20250230")] {
            let pointers = listed(MANY, dates(bad));
            assert_eq!(pointers[999], "/items/0/effectiveDates/999");
        }
        let items = |item: Value| json!({ "items": vec![item; MANY] });
        assert_eq!(listed(10, items(json!(0)))[999], "/items/999");
        listed(10, items(json!({"key": "", "effectiveDates": []})));
        listed(MANY, items(json!({"key": "A", "effectiveDates": [""], "x": 1})));
        let members: Map<String, Value> = (0..MANY).map(|i| (i.to_string(), json!(1))).collect();
        listed(10, json!({"items": [members]}));
    }

    #[test]
    fn known_problems_do_not_hide_others_behind_the_bound() {
        // Each of these items is wrong as a whole, which the validator sees as two problems.
        let mut items = vec![json!(0); MAX_ERRORS - 1];
        items.push(json!({"key": "", "effectiveDates": ["20250215"]}));
        let found = pointers(json!({ "items": items }));
        assert_eq!(found.len(), MAX_ERRORS);
        assert_eq!(found[0], "/items/999/key");
    }

    #[test]
    fn far_too_many_dates_are_refused_unread() {
        let body = json!({"items": [{"key": "A", "effectiveDates": vec![json!(0); 200_000]}], "dataset": 1});
        assert_eq!(pointers(body), ["/items"]);
        let equal = json!({"items": [{"key": "A", "effectiveDates": vec![json!("20250215"); 10_000]}]});
        assert_eq!(pointers(equal), [""; 0], "equal dates are one file");
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
