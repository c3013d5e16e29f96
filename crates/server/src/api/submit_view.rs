//! The submission and the answer to `dryRun` as the API's description shows them. The request is read
//! by hand, so that every problem is found; a test holds the two together.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa::openapi::schema::{Object, ObjectBuilder, Type};

use super::options::{MAX_LABEL_NAME, MAX_LABEL_TEXT, MAX_LABELS};

/// What `json::check_text` refuses, in the words of a schema.
const NO_CONTROLS: &str = r"^[^\x00-\x1f\x7f-\x9f]*$";

/// What to do: an export, or a job of a custom type.
#[derive(Debug, ToSchema, serde::Deserialize)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes only")]
pub(super) enum JobRequest {
    /// An export.
    Export(Box<ExportJobRequest>),
    /// A custom job.
    Custom(Box<CustomJobRequest>),
}

/// A request with the options that every job has. Repeated in each description, for a schema that
/// refuses unknown members cannot be put together from two.
macro_rules! with_options {
    ($(#[$meta:meta])* struct $name:ident { $($members:tt)* }) => {
        #[derive(Debug, ToSchema, serde::Deserialize)]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        $(#[$meta])*
        #[expect(dead_code, reason = "describes only")]
        pub(super) struct $name {
            $($members)*
            /// The client's name for this request; the same as the `Idempotency-Key` header.
            #[schema(nullable = false, min_length = 1, max_length = 255, pattern = "^[ -~]+$")]
            idempotency_key: Option<String>,
            /// 0 to 9, higher first.
            #[schema(nullable = false, minimum = 0, maximum = 9, default = 5)]
            priority: Option<u8>,
            /// Not before this time.
            #[schema(nullable = false)]
            run_at: Option<DateTime<Utc>>,
            /// The jobs that must end before this one may start.
            #[schema(nullable = false, max_items = 100, example = json!([]))]
            depends_on: Option<Vec<JobIdText>>,
            /// What this job does when one of those is FAILED or CANCELLED.
            #[schema(nullable = false, default = "hold")]
            on_parent_failure: Option<OnParentFailureRequest>,
            /// The client's own notes: at most 32.
            #[schema(schema_with = labels)]
            labels: Option<BTreeMap<String, String>>,
            /// Whether one failed chunk stops the job or the others go on.
            #[schema(nullable = false, default = "stop")]
            on_failure: Option<OnFailureRequest>,
        }
    };
}

with_options! {
    /// An export: every key at every one of its dates becomes one file.
    #[schema(example = json!({"items": [{"key": "ABC", "effectiveDates": ["20250215", "20250315"]}], "output": {"format": "CSV"}}))]
    struct ExportJobRequest {
        /// The dataset; may be left out where one is the default.
        #[schema(nullable = false, pattern = "^[a-z][a-z0-9_]*$")]
        dataset: Option<String>,
        /// What to export.
        #[schema(min_items = 1)]
        items: Vec<ItemRequest>,
        /// How the files are written.
        #[schema(nullable = false)]
        output: Option<OutputRequest>,
    }
}

with_options! {
    /// A job of a type that this installation knows.
    #[schema(example = json!({"jobType": "SEND_EMAIL", "payload": {"to": "user@example.com"}, "idempotencyKey": "req_550e8400"}))]
    struct CustomJobRequest {
        /// The job type; an unknown one is refused with the names of the known ones.
        #[schema(example = "SEND_EMAIL")]
        job_type: String,
        /// What the job type's handler gets: any JSON, null where it is left out. Never shown again.
        #[schema(value_type = serde_json::Value, required = false)]
        payload: Option<serde_json::Value>,
    }
}

fn labels() -> Object {
    let text = |min, max| {
        let text = ObjectBuilder::new().schema_type(Type::String).min_length(Some(min)).max_length(Some(max));
        text.pattern(Some(NO_CONTROLS))
    };
    ObjectBuilder::new()
        .description(Some("The client's own notes"))
        .max_properties(Some(MAX_LABELS))
        .property_names(Some(text(1, MAX_LABEL_NAME).build()))
        .additional_properties(Some(text(0, MAX_LABEL_TEXT)))
        .build()
}

/// A key and its dates.
#[derive(Debug, ToSchema, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(dead_code, reason = "describes only")]
pub(super) struct ItemRequest {
    /// Trimmed; no control characters.
    #[schema(min_length = 1, max_length = 128, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$", example = "ABC")]
    key: String,
    /// `yyyyMMdd`, each a real date.
    #[schema(min_items = 1, example = json!(["20250215"]))]
    effective_dates: Vec<DateText>,
}

/// A calendar date, `yyyyMMdd`.
#[derive(Debug, ToSchema, serde::Deserialize)]
#[schema(pattern = "^[0-9]{4}(0[1-9]|1[0-2])(0[1-9]|[12][0-9]|3[01])$", example = "20250215")]
#[expect(dead_code, reason = "describes only")]
pub(super) struct DateText(String);

/// How files are written.
#[derive(Debug, ToSchema, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(dead_code, reason = "describes only")]
pub(super) struct OutputRequest {
    /// The format.
    #[schema(nullable = false, default = "CSV")]
    format: Option<FormatRequest>,
    /// Generate every file anew, whatever is there.
    #[schema(nullable = false, default = false)]
    force: Option<bool>,
}

/// The formats that are there.
#[derive(Debug, ToSchema, serde::Deserialize)]
pub(super) enum FormatRequest {
    /// Comma-separated values.
    #[serde(rename = "CSV")]
    Csv,
}

/// A job's id.
#[derive(Debug, ToSchema, serde::Deserialize)]
#[schema(pattern = "^J[0-9]{8}_[0-9A-HJKMNP-TV-Z]{13}$", example = "J20260102_0123456789ABC")]
#[expect(dead_code, reason = "describes only")]
pub(super) struct JobIdText(String);

/// What a job does whose parent came to a bad end.
#[derive(Debug, ToSchema, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum OnParentFailureRequest {
    /// It waits until the parent completes after all.
    Hold,
    /// It is CANCELLED.
    Cancel,
    /// It runs all the same.
    Run,
    /// It is FAILED.
    Fail,
}

/// What a failed chunk does to the rest.
#[derive(Debug, ToSchema, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum OnFailureRequest {
    /// The job is FAILED at once.
    Stop,
    /// The others go on.
    Continue,
}

/// What a submission would do.
#[derive(Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(super) struct PlanView {
    /// Chunks in all: files of an export, 1 for a custom job.
    pub total: usize,
    /// Files that are recorded and would be used again.
    pub reuse: usize,
    /// Files that would be made.
    pub generate: usize,
    /// The same in a sentence.
    #[schema(example = "3 of 4 files would be generated, 1 reused")]
    pub verdict: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_and_the_reader_know_the_same_fields() {
        use super::super::{custom_request, export_request, options};
        use utoipa::PartialSchema;
        for (schema, shape, required) in [
            (ExportJobRequest::schema(), export_request::MEMBERS.as_slice(), "items"),
            (CustomJobRequest::schema(), custom_request::MEMBERS.as_slice(), "jobType"),
        ] {
            let schema = serde_json::to_value(schema).unwrap();
            let mut described: Vec<&str> =
                schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
            let mut read: Vec<&str> = [&options::MEMBERS, shape].concat();
            described.sort_unstable();
            read.sort_unstable();
            assert_eq!(described, read);
            assert_eq!(schema["additionalProperties"], false);
            assert_eq!(schema["required"], serde_json::json!([required]));
        }
    }

    #[test]
    fn any_json_is_a_payload() {
        use utoipa::PartialSchema;
        let schema = serde_json::to_value(CustomJobRequest::schema()).unwrap();
        assert_eq!(schema["properties"]["payload"].get("type"), None, "{schema}");
    }
}
