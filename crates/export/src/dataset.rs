//! Datasets, checked whole at start: names, sources and queries. After that a request can only be
//! wrong, never the configuration.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use chrono::NaiveDate;
use outhaul_core::file::FileIdentity;
use outhaul_core::key;
use outhaul_core::queue::QueueSpec;
use outhaul_core::retry::RetryPolicy;
use sha2::{Digest as _, Sha256};

use crate::format::{self, Format};
use crate::settings::{DatasetSettings, ExportSettings, SourceSettings};
use crate::source::params::Template;

/// The folder of reports, which no dataset may take.
const RESERVED: &str = "reports";

/// A named query on one source, checked.
#[derive(Clone, Debug)]
pub struct Dataset {
    /// Its name.
    pub name: String,
    /// Whether requests that name no dataset mean this one.
    pub default: bool,
    /// The source's name.
    pub source: String,
    /// The query.
    pub template: Template,
    /// The query that says how many rows there will be.
    pub count: Option<Template>,
    /// Hash of what decides its files' content; files of another definition are not reused.
    pub definition: String,
    /// Prefix of its files in the storage; ends with `/` or is empty.
    pub base_path: String,
    /// How failed chunks are tried again.
    pub retry: RetryPolicy,
    /// How long one attempt may take in all.
    pub timeout: Option<Duration>,
    /// How long a query may send nothing.
    pub stall_timeout: Duration,
}

impl Dataset {
    fn check(
        settings: &DatasetSettings,
        source: Option<&SourceSettings>,
        base_path: &str,
    ) -> Result<Self, Vec<String>> {
        let name = &settings.name;
        let mut problems = Vec::new();
        if let Err(problem) = check_name(name) {
            problems.push(format!("dataset `{name}`: {problem}"));
        }
        let Some(source) = source else {
            problems.push(format!("dataset `{name}`: there is no source `{}`", settings.source));
            return Err(problems);
        };
        let mut parse = |which, sql| {
            Template::parse(sql, source.url.dialect())
                .map_err(|problem| problems.push(format!("dataset `{name}`: its {which} {problem}")))
                .ok()
        };
        let template = parse("query", &settings.query.rows);
        let count = settings.query.count.as_ref().and_then(|sql| parse("count_query", sql));
        let Some(template) = template.filter(|_| problems.is_empty()) else { return Err(problems) };
        Ok(Self {
            name: name.clone(),
            default: settings.default,
            source: settings.source.clone(),
            template,
            count,
            definition: definition(&settings.source, &settings.query.rows),
            base_path: if settings.default { base_path.to_owned() } else { format!("{base_path}{name}/") },
            retry: settings.retry.clone(),
            timeout: settings.timeout,
            stall_timeout: source.stall_timeout,
        })
    }

    /// The queue its chunks wait in.
    pub fn queue(&self) -> String {
        queue_of(&self.source)
    }

    /// Where the file of a key and date goes in the storage.
    pub fn file_path(&self, key: &str, date: NaiveDate, format: Format) -> String {
        format!("{}{}", self.base_path, key::relative_path(key, date, format.extension()))
    }

    /// What makes two requests ask for the same file.
    pub fn identity(&self, key: &str, date: NaiveDate) -> FileIdentity {
        FileIdentity {
            dataset: self.name.clone(),
            scope: String::new(),
            key: key.to_owned(),
            effective_date: date,
            variant: String::new(),
        }
    }
}

/// Everything that requests are checked against.
#[derive(Clone, Debug)]
pub struct Exports {
    datasets: BTreeMap<String, Arc<Dataset>>,
    default: Option<Arc<Dataset>>,
    queues: Vec<QueueSpec>,
    /// `reuse.window_days`.
    pub reuse_window_days: u32,
    /// The most chunks one job may have.
    pub max_chunks_per_job: usize,
}

/// Everything that is wrong with the configuration of exports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportsError(pub Vec<String>);

impl fmt::Display for ExportsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("; "))
    }
}

impl std::error::Error for ExportsError {}

impl Exports {
    /// Checks sources' and datasets' settings and lists every problem.
    pub fn new(settings: &ExportSettings) -> Result<Self, ExportsError> {
        let (mut problems, mut datasets) = (Vec::new(), BTreeMap::new());
        for dataset in settings.datasets.values() {
            let source = settings.sources.get(&dataset.source);
            match Dataset::check(dataset, source, &settings.storage.base_path) {
                Ok(dataset) => drop(datasets.insert(dataset.name.clone(), Arc::new(dataset))),
                Err(found) => problems.extend(found),
            }
        }
        let defaults: Vec<&str> = settings
            .datasets
            .values()
            .filter(|dataset| dataset.default)
            .map(|dataset| &*dataset.name)
            .collect();
        if defaults.len() > 1 {
            problems
                .push(format!("only one dataset can be the default, but these are: {}", defaults.join(", ")));
        }
        if !problems.is_empty() {
            return Err(ExportsError(problems));
        }
        let default = datasets.values().find(|dataset| dataset.default).cloned();
        let queues = settings.sources.values().map(|source| QueueSpec {
            name: queue_of(&source.name),
            max_concurrent: Some(source.max_concurrent),
        });
        Ok(Self {
            datasets,
            default,
            queues: queues.collect(),
            reuse_window_days: settings.reuse_window_days,
            max_chunks_per_job: settings.max_chunks_per_job,
        })
    }

    /// A dataset by name.
    pub fn dataset(&self, name: &str) -> Option<&Arc<Dataset>> {
        self.datasets.get(name)
    }

    /// The dataset of requests that name none.
    pub fn default_dataset(&self) -> Option<&Arc<Dataset>> {
        self.default.as_ref()
    }

    /// All datasets by name.
    pub fn datasets(&self) -> impl Iterator<Item = &Arc<Dataset>> {
        self.datasets.values()
    }

    /// The queues of all sources, with their budgets.
    pub fn queues(&self) -> &[QueueSpec] {
        &self.queues
    }
}

fn queue_of(source: &str) -> String {
    format!("source:{source}")
}

fn check_name(name: &str) -> Result<(), &'static str> {
    let mut bytes = name.bytes();
    let well_formed = bytes.next().is_some_and(|byte| byte.is_ascii_lowercase())
        && bytes.all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    if !well_formed {
        return Err("its name must be lower-case letters, digits and _, and start with a letter");
    }
    if name == RESERVED { Err("this name is reserved") } else { Ok(()) }
}

fn definition(source: &str, query: &str) -> String {
    let mut hash = Sha256::new();
    // Lengths first, so that no two lists of parts make one text.
    for part in [source, query, &format::VERSION.to_string()] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{dataset, settings};

    #[test]
    fn the_default_dataset_has_the_base_path_to_itself() {
        let exports =
            Exports::new(&settings([dataset("positions", true), dataset("trades", false)])).unwrap();
        let path = |name: &str| {
            let date = NaiveDate::from_ymd_opt(2025, 2, 15).unwrap();
            exports.dataset(name).unwrap().file_path("ABC", date, Format::Csv)
        };
        assert_eq!(path("positions"), "exports/2025/02/15/ABC_20250215.csv");
        assert_eq!(path("trades"), "exports/trades/2025/02/15/ABC_20250215.csv");
        assert_eq!(exports.default_dataset().unwrap().name, "positions");
        assert_eq!(exports.dataset("trades").unwrap().queue(), "source:warehouse");
        assert_eq!(exports.queues()[0].name, "source:warehouse");
    }

    #[test]
    fn every_problem_of_the_configuration_is_listed() {
        let mut lost = dataset("lost", true);
        lost.source = "nowhere".into();
        let mut wrong = dataset("wrong", true);
        wrong.query.rows = "select :account".into();
        wrong.query.count = Some("select count(*) from t where k = :kee".into());
        let all = [lost, wrong, dataset("reports", false), dataset("Trades", false), dataset("1st", false)];
        let ExportsError(problems) = Exports::new(&settings(all)).unwrap_err();
        let text = problems.join("\n");
        for part in [
            "`lost`: there is no source `nowhere`",
            "`wrong`: its query unknown placeholder `:account`",
            "`wrong`: its count_query unknown placeholder `:kee`",
            "`reports`: this name is reserved",
            "`Trades`: its name must",
            "`1st`: its name must",
            "only one dataset can be the default, but these are: lost, wrong",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert_eq!(problems.len(), 7);
    }

    #[test]
    fn a_definition_changes_with_source_and_query_only() {
        assert_eq!(definition("a", "b"), definition("a", "b"));
        assert_ne!(definition("a", "b"), definition("a", "b "));
        assert_ne!(definition("ab", "c"), definition("a", "bc"));
        assert_eq!(definition("a", "b").len(), 64);
        let (plain, mut counting) = (dataset("positions", true), dataset("positions", true));
        counting.query.count = Some("select count(*) from t".into());
        let definition =
            |of| Exports::new(&settings([of])).unwrap().default_dataset().unwrap().definition.clone();
        assert_eq!(definition(plain), definition(counting), "how rows are counted changes none");
    }
}
