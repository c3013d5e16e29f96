//! What the handlers' tests share, and the API's own description. The routes are tested over HTTP in
//! `tests/api/`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use outhaul::{ChunkContext, Failed, Handler, Outcome, Registry};
use outhaul_core::queue::QueueSpec;
use outhaul_core::retry::RetryPolicy;
use outhaul_export::Exports;
use outhaul_export::settings::{
    DatasetSettings, ExportSettings, FileAccess, ScopeSettings, SourceSettings, SourceUrl, StorageSettings,
    StorageTarget,
};
use outhaul_export::storage::Storage;

use crate::planning::RequestPlanner;

fn settings() -> ExportSettings {
    let source = SourceSettings {
        name: "warehouse".into(),
        url: SourceUrl::Sqlite("warehouse.db".into()),
        max_concurrent: 2,
        statement_timeout: Duration::from_secs(60),
        stall_timeout: Duration::from_secs(60),
        max_row_bytes: 64 << 20,
    };
    let dataset = DatasetSettings {
        name: "positions".into(),
        default: true,
        source: "warehouse".into(),
        keyless: false,
        query: "select * from positions where key = :key and day = :effective_date".into(),
        base_path: None,
        scope: ScopeSettings::default(),
        retry: RetryPolicy::default(),
        timeout: None,
    };
    ExportSettings {
        sources: BTreeMap::from([(source.name.clone(), source)]),
        datasets: BTreeMap::from([(dataset.name.clone(), dataset)]),
        storage: StorageSettings {
            target: StorageTarget::Local("files".into()),
            base_path: "exports/".into(),
            file_access: FileAccess::Owner,
        },
        reuse_window_days: 7,
        max_chunks_per_job: 10,
        snapshot_max_age: None,
        retry: RetryPolicy::default(),
    }
}

/// One dataset, `positions`, the default one.
pub(crate) fn exports() -> Exports {
    exports_of(10)
}

/// The same, with a limit for the chunks of a job.
pub(super) fn exports_of(max_chunks_per_job: usize) -> Exports {
    Exports::new(&ExportSettings { max_chunks_per_job, ..settings() }).unwrap()
}

/// `SEND_EMAIL`, and `ONCE`, of which equal ones may be there only once.
pub(crate) fn registry() -> Registry {
    Registry::new().with(Named("SEND_EMAIL")).with(Named("ONCE"))
}

/// What makes jobs of bodies, with that dataset and these job types.
pub(crate) fn planner() -> RequestPlanner {
    let files = tempfile::tempdir().unwrap();
    let target = StorageTarget::Local(files.path().to_owned());
    let storage = Storage::open(&StorageSettings {
        target,
        base_path: "exports/".into(),
        file_access: FileAccess::Owner,
    })
    .unwrap();
    RequestPlanner::new(Arc::new(exports()), registry(), storage)
}

/// A job type that is never run.
struct Named(&'static str);

#[async_trait::async_trait]
impl Handler for Named {
    fn job_type(&self) -> &str {
        self.0
    }

    fn queues(&self) -> Vec<QueueSpec> {
        Vec::new()
    }

    fn retry(&self, _: Option<&str>) -> RetryPolicy {
        RetryPolicy::default()
    }

    fn timeout(&self, _: Option<&str>) -> Option<Duration> {
        None
    }

    fn stall_timeout(&self, _: Option<&str>) -> Option<Duration> {
        None
    }

    async fn run(&self, _: &ChunkContext) -> Result<Outcome, Failed> {
        Err(Failed::Stopped)
    }

    fn unique_key(&self, payload: &outhaul_core::json::Json) -> Option<String> {
        (self.0 == "ONCE").then(|| payload.as_str().to_owned())
    }
}

fn description() -> serde_json::Value {
    let (_, api) = super::described().split_for_parts();
    serde_json::from_str(&super::openapi::complete(api, true).to_json().unwrap()).unwrap()
}

#[test]
fn the_description_names_every_route_of_this_version() {
    let api = description();
    assert!(api["openapi"].as_str().unwrap().starts_with("3.1"), "{}", api["openapi"]);
    assert_eq!(api["info"]["title"], "Outhaul");
    let mut routes: Vec<String> = Vec::new();
    for (path, item) in api["paths"].as_object().unwrap() {
        routes.extend(item.as_object().unwrap().keys().map(|method| format!("{method} {path}")));
    }
    routes.sort();
    assert_eq!(
        routes,
        [
            "delete /schedules/{name}",
            "delete /triggers/{name}",
            "get /audit",
            "get /datasets",
            "get /dead-letters",
            "get /docs",
            "get /docs/{name}",
            "get /healthz",
            "get /jobs",
            "get /jobs/{jobId}",
            "get /jobs/{jobId}/chunks",
            "get /jobs/{jobId}/events",
            "get /jobs/{jobId}/files",
            "get /jobs/{jobId}/files/{fileId}",
            "get /jobs/{jobId}/history",
            "get /metrics",
            "get /openapi.json",
            "get /queues",
            "get /readyz",
            "get /schedules",
            "get /schedules/{name}",
            "get /triggers",
            "get /triggers/{name}",
            "get /workers",
            "post /dead-letters/redrive",
            "post /jobs",
            "post /jobs/{jobId}/cancel",
            "post /jobs/{jobId}/priority",
            "post /jobs/{jobId}/retry",
            "post /queues/{name}/pause",
            "post /queues/{name}/resume",
            "post /schedules/{name}/pause",
            "post /schedules/{name}/resume",
            "post /schedules/{name}/run",
            "put /schedules/{name}",
            "put /triggers/{name}",
        ]
    );
}

#[test]
fn every_refusal_is_described_as_problem_json() {
    let api = description();
    for (path, item) in api["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            for (status, response) in operation["responses"].as_object().unwrap() {
                let is_problem = response["content"].get("application/problem+json").is_some();
                assert_eq!(is_problem, status.as_str() >= "400", "{method} {path} {status}: {response}");
            }
            for status in ["500", "503"] {
                assert!(operation["responses"].get(status).is_some(), "{method} {path} {status}");
            }
        }
    }
}

#[test]
fn every_reference_in_the_description_leads_somewhere() {
    fn check(api: &serde_json::Value, value: &serde_json::Value) {
        match value {
            serde_json::Value::Object(members) => {
                if let Some(target) = members.get("$ref").and_then(|target| target.as_str()) {
                    assert!(api.pointer(target.trim_start_matches('#')).is_some(), "{target}");
                }
                members.values().for_each(|value| check(api, value));
            }
            serde_json::Value::Array(items) => items.iter().for_each(|value| check(api, value)),
            _ => {}
        }
    }
    let api = description();
    check(&api, &api);
}

#[test]
fn every_member_of_an_answer_is_promised() {
    let api = description();
    for name in [
        "JobView",
        "StepView",
        "ChunkView",
        "ChunkProgressView",
        "ScheduleView",
        "SlotView",
        "TriggerView",
        "WaitView",
        "ArrivalView",
        "FireView",
        "TransitionView",
        "DeadLetterView",
        "RedriveView",
        "FileView",
        "AuditView",
        "QueueView",
        "WorkerView",
        "DatasetView",
        "ProblemBody",
    ] {
        let schema = &api["components"]["schemas"][name];
        let properties = schema["properties"].as_object().unwrap_or_else(|| panic!("{name}: {schema}"));
        let required = schema["required"].as_array().unwrap();
        assert_eq!(required.len(), properties.len(), "{name}: {schema}");
    }
}
