//! Datasets, checked whole at start: names, sources and queries. After that a request can only be
//! wrong, never the configuration.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use chrono::NaiveDate;
use outhaul_core::file::{BasePathOwner, FileIdentity, FilePlace};
use outhaul_core::key;
use outhaul_core::queue::QueueSpec;
use outhaul_core::retry::RetryPolicy;
use sha2::{Digest as _, Sha256};

use crate::base_path::{self, ForeignBasePath};
use crate::format::{self, Format};
use crate::scope::RowScope;
use crate::settings::{DatasetSettings, ExportSettings, SourceSettings};
use crate::source::params::Template;

/// The folder of reports, which no dataset may take.
pub(crate) const RESERVED: &str = "reports";

/// A named query on one source, checked.
#[derive(Clone, Debug)]
pub struct Dataset {
    /// Its name.
    pub name: String,
    /// Whether requests that name no dataset mean this one.
    pub default: bool,
    /// The source's name.
    pub source: String,
    /// `key = "none"`: the rows are the same for every key on purpose.
    pub keyless: bool,
    /// The query.
    pub template: Template,
    /// The query that says how many rows there will be.
    pub count: Option<Template>,
    /// What its rows depend on besides key and date; none: they are the same for everybody.
    pub scope: Option<RowScope>,
    /// Hash of what decides its files' content; files of another definition are not reused.
    pub definition: String,
    /// Prefix of its files in the storage; ends with `/` or is empty.
    pub base_path: String,
    /// Whether the configuration names the base path; if not, it follows from name and `default`.
    pub names_base_path: bool,
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
        let own = settings.base_path.as_deref().map(|own| base_path::normal_of_dataset(own, base_path));
        let base_path = match own {
            Some(Ok(own)) => own,
            Some(Err(problem)) => {
                problems.push(format!("dataset `{name}`: its base_path {problem}"));
                String::new()
            }
            None if settings.default => base_path.to_owned(),
            None => format!("{base_path}{name}/"),
        };
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
        if settings.keyless && template.uses_key() {
            problems.push(format!(
                "dataset `{name}`: its query uses `:key`, although it says key = \"none\"; leave one of them out"
            ));
            return Err(problems);
        }
        let mut queries = vec![("query", &template)];
        queries.extend(count.as_ref().map(|count| ("count_query", count)));
        let scope = RowScope::check(&settings.scope, source.url.dialect(), &queries).map_err(|found| {
            found.into_iter().map(|problem| format!("dataset `{name}`: {problem}")).collect::<Vec<_>>()
        })?;
        Ok(Self {
            name: name.clone(),
            default: settings.default,
            source: settings.source.clone(),
            keyless: settings.keyless,
            definition: definition(&settings.source, &settings.query.rows, scope.as_ref()),
            template,
            count,
            scope,
            base_path,
            names_base_path: settings.base_path.is_some(),
            retry: settings.retry.clone(),
            timeout: settings.timeout,
            stall_timeout: source.stall_timeout,
        })
    }

    /// The queue its chunks wait in.
    pub fn queue(&self) -> String {
        queue_of(&self.source)
    }

    /// Whether every key gets the same rows and the configuration does not say `key = "none"`.
    pub fn forgets_key(&self) -> bool {
        !self.keyless && !self.template.uses_key()
    }

    /// Whether which rows a caller sees is decided by the source's row-level security.
    pub fn relies_on_row_security(&self) -> bool {
        self.scope.as_ref().is_some_and(|scope| scope.security().is_some())
    }

    /// Where the file of an identity goes in the storage.
    pub fn file_path(&self, identity: &FileIdentity, format: Format) -> String {
        let FileIdentity { scope, key, effective_date, .. } = identity;
        let scope = if scope.is_empty() { String::new() } else { format!("scope={scope}/") };
        format!("{}{scope}{}", self.base_path, key::relative_path(key, *effective_date, format.extension()))
    }

    /// The same path, together with its base path.
    pub fn place(&self, identity: &FileIdentity, format: Format) -> FilePlace {
        FilePlace { base_path: self.base_path.clone(), path: self.file_path(identity, format) }
    }

    /// What makes two requests ask for the same file. The scope is that of the caller on this dataset, see
    /// [`crate::scope_of`].
    pub fn identity(&self, scope: &str, key: &str, date: NaiveDate) -> FileIdentity {
        FileIdentity {
            dataset: self.name.clone(),
            scope: scope.to_owned(),
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
        problems.extend(base_path::shared(datasets.values().map(|dataset| &**dataset)));
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

    /// The datasets whose base path is recorded for another dataset, so that they must not publish there.
    pub fn foreign_base_paths(&self, recorded: &[BasePathOwner]) -> Vec<ForeignBasePath> {
        base_path::foreign(self.datasets.values().map(|dataset| &**dataset), recorded)
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

fn definition(source: &str, query: &str, scope: Option<&RowScope>) -> String {
    let mut hash = Sha256::new();
    let scope = scope.map(RowScope::definition).unwrap_or_default();
    let parts = [source, query, &format::VERSION.to_string()].map(str::to_owned);
    // Lengths first, so that no two lists of parts make one text.
    for part in parts.iter().chain(&scope) {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{caller, dataset, scoped, settings};

    #[test]
    fn the_default_dataset_has_the_base_path_to_itself() {
        let exports =
            Exports::new(&settings([dataset("positions", true), dataset("trades", false)])).unwrap();
        let path = |name: &str| {
            let date = NaiveDate::from_ymd_opt(2025, 2, 15).unwrap();
            let dataset = exports.dataset(name).unwrap();
            dataset.file_path(&dataset.identity("", "ABC", date), Format::Csv)
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
        let mut open = dataset("open", false);
        open.query.rows = "select 1 where 'x' = :claims.\"https://ex.com/county".into();
        let mut loose = dataset("loose", false);
        loose.query.rows = "select :claims.county".into();
        let all = [
            loose,
            lost,
            wrong,
            open,
            dataset("reports", false),
            dataset("Trades", false),
            dataset("1st", false),
        ];
        let ExportsError(problems) = Exports::new(&settings(all)).unwrap_err();
        let text = problems.join("\n");
        for part in [
            "`lost`: there is no source `nowhere`",
            "`wrong`: its query unknown placeholder `:account`",
            "`wrong`: its count_query unknown placeholder `:kee`",
            "`open`: its query has a quoted claim (`:claims.\"NAME\"`) that does not end",
            "`reports`: this name is reserved",
            "`Trades`: its name must",
            "`1st`: its name must",
            "`loose`: its query uses `:claims.county`, but row_scope does not name it",
            "only one dataset can be the default, but these are: lost, wrong",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert_eq!(problems.len(), 9);
    }

    #[test]
    fn a_dataset_without_key_says_so() {
        let of = |query: &str, keyless| {
            let settings =
                settings([DatasetSettings { query: query.into(), keyless, ..dataset("positions", true) }]);
            Exports::new(&settings).map(|exports| exports.default_dataset().unwrap().forgets_key())
        };
        let (with, without) = ("select * from t where k = :key", "select ':key', day -- :key\nfrom t");
        assert_eq!(of(with, false), Ok(false));
        assert_eq!(of(without, false), Ok(true), "what stands in a text or a comment asks for nothing");
        assert_eq!(of(without, true), Ok(false));
        let ExportsError(problems) = of(with, true).unwrap_err();
        assert!(problems[0].starts_with("dataset `positions`: its query uses `:key`"), "{problems:?}");
    }

    #[test]
    fn a_definition_changes_with_source_and_query_only() {
        let of = |source, query| definition(source, query, None);
        assert_eq!(of("a", "b"), of("a", "b"));
        assert_ne!(of("a", "b"), of("a", "b "));
        assert_ne!(of("ab", "c"), of("a", "bc"));
        // As it was before rows could depend on callers: files made then are still reused.
        assert_eq!(of("a", "b"), "8463273bb28d5f4c8cb40045e29e0307cb3fb6a5bbc9b18f0038a07d6770a3a3");
        let (plain, mut counting) = (dataset("positions", true), dataset("positions", true));
        counting.query.count = Some("select count(*) from t".into());
        let definition =
            |of| Exports::new(&settings([of])).unwrap().default_dataset().unwrap().definition.clone();
        assert_eq!(definition(plain), definition(counting), "how rows are counted changes none");
        let (one, mut two) = (scoped("positions", true), scoped("positions", true));
        two.query.rows.push_str(" and :claims.city = 'y'");
        let mut more = two.clone();
        more.scope.row_scope.push("city".into());
        assert_ne!(definition(one), definition(more));
    }

    #[test]
    fn a_scope_has_a_folder_and_an_identity_of_its_own() {
        let exports = Exports::new(&settings([scoped("positions", true)])).unwrap();
        let dataset = exports.dataset("positions").unwrap();
        let date = NaiveDate::from_ymd_opt(2025, 2, 15).unwrap();
        let identity = |county: &str| {
            let scope = crate::scope_of(dataset, &caller(&[("county", county.into())])).unwrap();
            dataset.identity(&scope, "ABC", date)
        };
        let (kent, essex) = (identity("kent"), identity("essex"));
        assert_ne!(kent, essex);
        let path = |identity| dataset.file_path(identity, Format::Csv);
        assert_ne!(path(&kent), path(&essex));
        assert_eq!(path(&kent), format!("exports/scope={}/2025/02/15/ABC_20250215.csv", kent.scope));
        assert!(kent.scope.len() == 32 && kent.scope.bytes().all(|byte| byte.is_ascii_hexdigit()));
    }
}
