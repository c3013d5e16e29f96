//! `GET /datasets`: what can be exported. Never the query, and never how the source is reached.

use axum::Json;
use axum::extract::State;
use outhaul_export::Dataset;
use outhaul_export::format::Format;
use serde::Serialize;
use utoipa::ToSchema;

use super::page::{Cursors, PageView};
use super::problem::Problem;
use super::problem::described::BadRequest;
use super::query::Query;
use super::{AppState, access};
use crate::auth::{Act, Caller};

/// A named query that exports can use.
#[derive(Debug, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct DatasetView {
    /// Its name.
    #[schema(example = "positions")]
    pub name: String,
    /// Whether requests that name no dataset mean this one.
    pub default: bool,
    /// The source's name.
    #[schema(example = "warehouse")]
    pub source: String,
    /// The formats its files can have.
    #[schema(example = json!(["CSV"]))]
    pub formats: Vec<&'static str>,
    /// Where its files go. No other dataset ever publishes there.
    #[schema(example = "s3://bucket/exports/")]
    pub base_path: String,
}

impl DatasetView {
    fn new(dataset: &Dataset, base_path: String) -> Self {
        Self {
            name: dataset.name.clone(),
            default: dataset.default,
            source: dataset.source.clone(),
            formats: Format::ALL.map(Format::as_str).to_vec(),
            base_path,
        }
    }
}

/// Lists the datasets.
#[utoipa::path(
    get, path = "/datasets", tag = "operations", operation_id = "listDatasets",
    params(
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 200, description = "Items per page; 50 unless said"),
        ("cursor" = Option<String>, Query, pattern = "^[0-9a-f]{16,}$", description = "`nextCursor` of the page before"),
    ),
    responses((status = 200, description = "The datasets by name", body = PageView<DatasetView>), BadRequest)
)]
pub(super) async fn list(
    State(state): State<AppState>,
    caller: Caller,
    mut query: Query,
) -> Result<Json<PageView<DatasetView>>, Problem> {
    access::allow(&caller, Act::Read)?;
    let cursors = Cursors::new(state.store.installation(), "datasets", "");
    let wanted = cursors.take(&mut query);
    query.finish()?;
    let shown = |dataset: &Dataset| DatasetView::new(dataset, state.storage.display_url(&dataset.base_path));
    let all = state.exports.datasets().map(|dataset| shown(dataset)).collect();
    Ok(Json(cursors.cut(all, |one: &DatasetView| &one.name, wanted)))
}
