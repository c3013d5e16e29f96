//! Base paths: which ones a configuration may name, and which dataset owns them. No two datasets ever publish to the
//! same path, also when `default` moves from one dataset to another.

use std::collections::BTreeMap;

use outhaul_core::file::BasePathOwner;

use crate::dataset::{Dataset, RESERVED};

/// A dataset whose base path belongs to another one. Start and `check` refuse such a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "dataset `{dataset}` would publish below `{path}`, where files of dataset `{owner}` are recorded, and would \
     overwrite them; set datasets.{dataset}.base_path to a folder of its own{or_default}"
)]
pub struct ForeignBasePath {
    /// The dataset of the configuration.
    pub dataset: String,
    /// Its base path.
    pub path: String,
    /// The dataset that published there first.
    pub owner: String,
    or_default: String,
}

impl ForeignBasePath {
    pub(crate) fn new(dataset: &Dataset, owner: &str) -> Self {
        // Only the base path of the default dataset moves by itself.
        let or_default = if dataset.default && !dataset.names_base_path {
            format!(", or make `{owner}` the default dataset again")
        } else {
            String::new()
        };
        Self {
            dataset: dataset.name.clone(),
            path: dataset.base_path.clone(),
            owner: owner.to_owned(),
            or_default,
        }
    }
}

/// Brings a base path into its form: empty, or folders that each end with `/`. It never leads out of the
/// storage, into its staging area, or into the folders that Outhaul makes below a base path.
pub fn normal(text: &str) -> Result<String, String> {
    let path = text.trim().trim_matches('/');
    if path.is_empty() {
        return Ok(String::new());
    }
    let wrong = |part: &str| {
        part.is_empty()
            || part.starts_with('.')
            || part.contains(['\\', '%'])
            || part.chars().any(char::is_control)
    };
    if path.split('/').any(wrong) {
        return Err(
            "must be plain folder names, such as \"exports/\"; none may be empty or begin with a dot".into(),
        );
    }
    let made_by_us = |part: &&str| part.starts_with("scope=") || part.starts_with("variant=");
    if let Some(part) = path.split('/').find(made_by_us) {
        return Err(format!(
            "has the folder `{part}`, but folders that begin with `scope=` or `variant=` are made by Outhaul; \
             choose another name"
        ));
    }
    Ok(format!("{path}/"))
}

/// The same for the base path that a dataset names, beside the storage's own.
pub fn normal_of_dataset(text: &str, storage: &str) -> Result<String, String> {
    let path = normal(text)?;
    let reports = format!("{storage}{RESERVED}/");
    if path.starts_with(&reports) {
        return Err(format!("must not be below `{reports}`: reports are published there"));
    }
    let is_year = |part: &&str| part.len() == 4 && part.bytes().all(|byte| byte.is_ascii_digit());
    if let Some(part) = path.split('/').find(is_year) {
        return Err(format!(
            "has the folder `{part}`, which looks like the folder of a year in another dataset's files; choose \
             another name"
        ));
    }
    Ok(path)
}

/// What base paths are compared by. Folders whose names differ in case only are one folder on many disks.
fn folded(path: &str) -> String {
    path.to_lowercase()
}

/// Datasets of one configuration that have one base path, with what to do.
pub(crate) fn shared<'a>(datasets: impl Iterator<Item = &'a Dataset>) -> Vec<String> {
    let mut by_path = BTreeMap::<String, (&str, Vec<&str>)>::new();
    for dataset in datasets {
        let (_, names) =
            by_path.entry(folded(&dataset.base_path)).or_insert((&dataset.base_path, Vec::new()));
        names.push(&dataset.name);
    }
    let problem = |(path, names): (&str, Vec<&str>)| {
        (names.len() > 1).then(|| {
            let names = names.join(", ");
            format!(
                "the datasets {names} all have the base path `{path}`: give each of them its own base_path"
            )
        })
    };
    by_path.into_values().filter_map(problem).collect()
}

/// The datasets whose base path is recorded for another dataset.
pub(crate) fn foreign<'a>(
    datasets: impl Iterator<Item = &'a Dataset>,
    recorded: &[BasePathOwner],
) -> Vec<ForeignBasePath> {
    let owners: BTreeMap<String, &str> =
        recorded.iter().map(|owner| (folded(&owner.path), &*owner.dataset)).collect();
    let problem = |dataset: &Dataset| {
        let owner = owners.get(&folded(&dataset.base_path)).filter(|owner| **owner != dataset.name)?;
        Some(ForeignBasePath::new(dataset, owner))
    };
    datasets.filter_map(problem).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::{Exports, ExportsError};
    use crate::settings::DatasetSettings;
    use crate::testing::{dataset, settings};

    fn at(base_path: &str, of: DatasetSettings) -> DatasetSettings {
        DatasetSettings { base_path: Some(base_path.into()), ..of }
    }

    #[test]
    fn folders_that_could_hold_other_files_are_refused() {
        assert_eq!(normal(" /a/b "), Ok("a/b/".to_owned()));
        assert_eq!(normal("/"), Ok(String::new()));
        for text in
            ["..", "a/../b", "a//b", ".staging", "a/.b", "a%2F", "a\\b", "a\nb", "a/scope=x", "variant=1"]
        {
            assert!(normal(text).is_err(), "{text}");
        }
        let own = |text| normal_of_dataset(text, "exports/");
        for text in ["exports/reports", "exports/reports/daily", "2025", "exports/2025/02/15", "scope=1"] {
            assert!(own(text).is_err(), "{text}");
        }
        for text in ["reports", "exports/reports2", "exports/20250215", "exports/totals"] {
            assert_eq!(own(text), Ok(format!("{text}/")));
        }
    }

    #[test]
    fn a_dataset_may_name_its_base_path() {
        let all = [dataset("positions", true), at("elsewhere", dataset("totals", false))];
        let exports = Exports::new(&settings(all)).unwrap();
        assert_eq!(exports.dataset("totals").unwrap().base_path, "elsewhere/");
        let named = Exports::new(&settings([at("exports/p", dataset("positions", true))])).unwrap();
        assert_eq!(named.default_dataset().unwrap().base_path, "exports/p/");
    }

    #[test]
    fn every_problem_of_base_paths_is_listed() {
        let all = [
            dataset("a", true),
            at("exports/", dataset("b", false)),
            at("Exports/D", dataset("c", false)),
            dataset("d", false),
            at("exports/reports", dataset("e", false)),
        ];
        let ExportsError(problems) = Exports::new(&settings(all)).unwrap_err();
        let text = problems.join("\n");
        for part in [
            "dataset `e`: its base_path must not be below `exports/reports/`",
            "the datasets a, b all have the base path `exports/`",
            "the datasets c, d all have the base path `Exports/D/`",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert_eq!(problems.len(), 3, "{text}");
    }

    #[test]
    fn a_moved_default_is_told_how_to_go_on() {
        let owner = |path: &str, dataset: &str| BasePathOwner { path: path.into(), dataset: dataset.into() };
        let recorded =
            [owner("exports/", "positions"), owner("exports/totals/", "totals"), owner("x/", "gone")];
        let all = [dataset("positions", false), dataset("totals", true), at("x", dataset("new", false))];
        let exports = Exports::new(&settings(all)).unwrap();
        let found: Vec<String> =
            exports.foreign_base_paths(&recorded).iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found[0].starts_with("dataset `new` would publish below `x/`, where files of dataset `gone`")
        );
        assert!(!found[0].contains("default"), "{}", found[0]);
        assert!(found[1].contains("set datasets.totals.base_path to a folder of its own"), "{}", found[1]);
        assert!(found[1].ends_with("or make `positions` the default dataset again"), "{}", found[1]);
        let back = [dataset("positions", true), dataset("totals", false)];
        assert_eq!(Exports::new(&settings(back)).unwrap().foreign_base_paths(&recorded), []);
    }
}
