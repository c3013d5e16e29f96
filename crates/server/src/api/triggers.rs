//! `/triggers`: jobs that are submitted when others have completed. Those of the configuration are shown
//! here and changed there.

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::{Extension, Json};
use outhaul_core::identity::ANONYMOUS;
use outhaul_core::schedule::{Deleted, Origin, Put};
use outhaul_core::trigger::{NewTrigger, Trigger, TriggerPut};

use super::bodies::Bodies;
use super::definitions::{gone, judge, read_only, stored};
use super::page::{Cursors, PageView};
use super::path::{NewName, TriggerPath, no_such_trigger};
use super::problem::described::{BadRequest, Conflict, NotFound};
use super::problem::{FieldError, Problem, ProblemBody};
use super::query::{NoQuery, Query};
use super::trigger_view::{TriggerRequest, TriggerView};
use super::{AppState, access};
use crate::auth::{Act, Caller};
use crate::definition::read_trigger;

/// The most values and firings that are shown of a trigger.
const SHOWN: u32 = 20;

/// Makes a trigger, or has one say something else from now on. What it fired stays.
#[utoipa::path(
    put, path = "/triggers/{name}", tag = "triggers", operation_id = "putTrigger",
    params(("name" = String, Path, pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", description = "The trigger", example = "mail-positions")),
    request_body = TriggerRequest,
    responses(
        (status = 200, description = "The trigger, replaced", body = TriggerView),
        (status = 201, description = "The trigger, which is new", body = TriggerView, headers(("Location" = String, description = "The trigger"))),
        BadRequest, Conflict,
        (status = 408, description = "The body did not arrive in time", body = ProblemBody, content_type = "application/problem+json"),
        (status = 413, description = "The body is larger than `limits.max_body_bytes`", body = ProblemBody, content_type = "application/problem+json"),
        (status = 415, description = "The body is not sent as JSON", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn put(
    State(state): State<AppState>,
    caller: Caller,
    name: NewName,
    _: NoQuery,
    Extension(bodies): Extension<Bodies>,
    headers: HeaderMap,
    sent: Body,
) -> Result<Response, Problem> {
    access::allow(&caller, Act::Operate)?;
    let (sent, _room) = bodies.read(&caller, &headers, sent).await?.parse()?;
    let (name, (spec, owner)) = judge(&state, name, &sent, read_trigger)?;
    let trigger = NewTrigger { name: name.clone(), spec, origin: Origin::Api, owner };
    let runs_as = if trigger.owner == ANONYMOUS { "the owner of its parents" } else { &trigger.owner };
    let what = format!("put trigger {name}, which runs as {runs_as}");
    let there = state.store.trigger_get(&name).await?;
    if there.is_some_and(|there| there.origin == Origin::Config) {
        return Err(read_only("trigger"));
    }
    let recorded = access::record_operation(&state, &caller, what).await?;
    let put = match state.store.trigger_put(&trigger).await? {
        TriggerPut::Put(Put::ReadOnly) => return Err(recorded.refused(read_only("trigger")).await),
        TriggerPut::Put(put) => put,
        TriggerPut::Cycle(names) => {
            let way: Vec<&str> = names.iter().chain(names.first()).map(String::as_str).collect();
            let message = format!("would, in the end, trigger itself: {}", way.join(" → "));
            return Err(recorded.refused(Problem::invalid(vec![FieldError::new("/after", message)])).await);
        }
    };
    tracing::info!(trigger = name, created = put == Put::Created, "api.trigger_put");
    let trigger = state.store.trigger_get(&name).await?.ok_or_else(|| gone("trigger"))?;
    Ok(stored(put, &format!("/triggers/{name}"), whole(&state, trigger).await?))
}

/// Shows one trigger: what it says, what it waits for and what it fired.
#[utoipa::path(
    get, path = "/triggers/{name}", tag = "triggers", operation_id = "getTrigger",
    params(("name" = String, Path, description = "The trigger", example = "mail-positions")),
    responses((status = 200, description = "The trigger", body = TriggerView), BadRequest, NotFound)
)]
pub(super) async fn get(
    State(state): State<AppState>,
    caller: Caller,
    TriggerPath(name): TriggerPath,
    _: NoQuery,
) -> Result<Json<TriggerView>, Problem> {
    access::allow(&caller, Act::Operate)?;
    let trigger = find(&state, &name).await?;
    Ok(Json(whole(&state, trigger).await?))
}

/// Lists all triggers; `job` is null here, `GET /triggers/{name}` has it.
#[utoipa::path(
    get, path = "/triggers", tag = "triggers", operation_id = "listTriggers",
    params(
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 200, description = "Items per page; 50 unless said"),
        ("cursor" = Option<String>, Query, pattern = "^[0-9a-f]{16,}$", description = "`nextCursor` of the page before"),
    ),
    responses((status = 200, description = "All triggers by name; without their `job`", body = PageView<TriggerView>), BadRequest)
)]
pub(super) async fn list(
    State(state): State<AppState>,
    caller: Caller,
    mut query: Query,
) -> Result<Json<PageView<TriggerView>>, Problem> {
    access::allow(&caller, Act::Operate)?;
    let cursors = Cursors::new(state.store.installation(), "triggers", "");
    let wanted = cursors.take(&mut query);
    query.finish()?;
    let all = state.store.triggers_list().await?;
    let page = cursors.cut(all, |one: &Trigger| &one.name, wanted);
    let mut items = Vec::new();
    for trigger in page.items {
        let waiting = state.store.trigger_waits(trigger.id, SHOWN).await?;
        let fired = state.store.trigger_fires(trigger.id, SHOWN).await?;
        items.push(TriggerView::listed(trigger, waiting, fired));
    }
    Ok(Json(PageView { items, next_cursor: page.next_cursor }))
}

/// Deletes a trigger: it fires nothing more. Jobs that it submitted go on.
#[utoipa::path(
    delete, path = "/triggers/{name}", tag = "triggers", operation_id = "deleteTrigger",
    params(("name" = String, Path, description = "The trigger", example = "mail-positions")),
    responses((status = 204, description = "It is gone"), BadRequest, NotFound, Conflict)
)]
pub(super) async fn delete(
    State(state): State<AppState>,
    caller: Caller,
    TriggerPath(name): TriggerPath,
    _: NoQuery,
) -> Result<StatusCode, Problem> {
    access::allow(&caller, Act::Operate)?;
    if find(&state, &name).await?.origin == Origin::Config {
        return Err(read_only("trigger"));
    }
    let recorded = access::record_operation(&state, &caller, format!("delete trigger {name}")).await?;
    match state.store.trigger_delete(&name).await? {
        Deleted::Yes => {
            tracing::info!(trigger = name, "api.trigger_deleted");
            Ok(StatusCode::NO_CONTENT)
        }
        Deleted::ReadOnly => Err(recorded.refused(read_only("trigger")).await),
        Deleted::Unknown => Err(recorded.refused(no_such_trigger()).await),
    }
}

async fn find(state: &AppState, name: &str) -> Result<Trigger, Problem> {
    state.store.trigger_get(name).await?.ok_or_else(no_such_trigger)
}

async fn whole(state: &AppState, trigger: Trigger) -> Result<TriggerView, Problem> {
    let waiting = state.store.trigger_waits(trigger.id, SHOWN).await?;
    let fired = state.store.trigger_fires(trigger.id, SHOWN).await?;
    Ok(TriggerView::whole(trigger, waiting, fired))
}
