//! `/schedules`: jobs that are submitted again and again. Those of the configuration are shown here, and
//! paused and run; anything else is changed there.

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::{Extension, Json};
use chrono::{DateTime, FixedOffset, Utc};
use outhaul::schedule::{ByHand, Times};
use outhaul_core::clock;
use outhaul_core::schedule::{Deleted, NewSchedule, Origin, Put, Schedule, SlotOutcome};

use super::bodies::Bodies;
use super::definitions::{gone, judge, read_only, stored};
use super::job_view::JobView;
use super::page::{Cursors, PageView};
use super::path::{NewName, SchedulePath, no_such_schedule};
use super::problem::described::{BadRequest, Conflict, NotFound};
use super::problem::{Problem, ProblemBody};
use super::query::{NoQuery, Query};
use super::schedule_view::{ScheduleRequest, ScheduleView};
use super::{AppState, access, jobs};
use crate::auth::{Act, Caller};
use crate::definition::{next_slot, read_schedule};

/// How many of its next times a schedule shows.
const NEXT_TIMES: usize = 5;
/// How many of its last slots.
const LAST_SLOTS: u32 = 20;

/// Makes a schedule, or has one say something else from now on. Its slots stay, and so does its pause; what
/// it waits for changes only with `cron`, `timezone` and `jitter`.
#[utoipa::path(
    put, path = "/schedules/{name}", tag = "schedules", operation_id = "putSchedule",
    params(("name" = String, Path, pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", description = "The schedule", example = "nightly-positions")),
    request_body = ScheduleRequest,
    responses(
        (status = 200, description = "The schedule, replaced", body = ScheduleView),
        (status = 201, description = "The schedule, which is new", body = ScheduleView, headers(("Location" = String, description = "The schedule"))),
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
    let (name, (spec, owner)) = judge(&state, name, &sent, read_schedule)?;
    let now = database_now(&state).await?;
    let next = next_slot(&name, &spec, now);
    let schedule = NewSchedule { name: name.clone(), spec, origin: Origin::Api, owner, next };
    let there = state.store.schedule_get(&name).await?;
    if there.is_some_and(|there| there.origin == Origin::Config) {
        return Err(read_only("schedule"));
    }
    let what = format!("put schedule {name}, which runs as {}", schedule.owner);
    let recorded = access::record_operation(&state, &caller, what).await?;
    let put = state.store.schedule_put(&schedule).await?;
    if put == Put::ReadOnly {
        return Err(recorded.refused(read_only("schedule")).await);
    }
    tracing::info!(schedule = name, created = put == Put::Created, "api.schedule_put");
    let schedule = state.store.schedule_get(&name).await?.ok_or_else(|| gone("schedule"))?;
    Ok(stored(put, &format!("/schedules/{name}"), whole(&state, schedule).await?))
}

/// Shows one schedule: what it says, when it is due next, and what became of its last slots.
#[utoipa::path(
    get, path = "/schedules/{name}", tag = "schedules", operation_id = "getSchedule",
    params(("name" = String, Path, description = "The schedule", example = "nightly-positions")),
    responses((status = 200, description = "The schedule", body = ScheduleView), BadRequest, NotFound)
)]
pub(super) async fn get(
    State(state): State<AppState>,
    caller: Caller,
    SchedulePath(name): SchedulePath,
    _: NoQuery,
) -> Result<Json<ScheduleView>, Problem> {
    access::allow(&caller, Act::Operate)?;
    shown(&state, &name).await
}

/// Lists all schedules; `job` is null and `slots` empty here, `GET /schedules/{name}` has them.
#[utoipa::path(
    get, path = "/schedules", tag = "schedules", operation_id = "listSchedules",
    params(
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 200, description = "Items per page; 50 unless said"),
        ("cursor" = Option<String>, Query, pattern = "^[0-9a-f]{16,}$", description = "`nextCursor` of the page before"),
    ),
    responses((status = 200, description = "All schedules by name; without their `job` and `slots`", body = PageView<ScheduleView>), BadRequest)
)]
pub(super) async fn list(
    State(state): State<AppState>,
    caller: Caller,
    mut query: Query,
) -> Result<Json<PageView<ScheduleView>>, Problem> {
    access::allow(&caller, Act::Operate)?;
    let cursors = Cursors::new(state.store.installation(), "schedules", "");
    let wanted = cursors.take(&mut query);
    query.finish()?;
    let all = state.store.schedules_list().await?;
    let page = cursors.cut(all, |one: &Schedule| &one.name, wanted);
    let now = clock::now();
    let view = |schedule: Schedule| {
        let times = next_times(&schedule, now);
        ScheduleView::listed(schedule, times)
    };
    let items = page.items.into_iter().map(view).collect();
    Ok(Json(PageView { items, next_cursor: page.next_cursor }))
}

/// Deletes a schedule: it fires nothing more. Jobs that it submitted go on.
#[utoipa::path(
    delete, path = "/schedules/{name}", tag = "schedules", operation_id = "deleteSchedule",
    params(("name" = String, Path, description = "The schedule", example = "nightly-positions")),
    responses((status = 204, description = "It is gone"), BadRequest, NotFound, Conflict)
)]
pub(super) async fn delete(
    State(state): State<AppState>,
    caller: Caller,
    SchedulePath(name): SchedulePath,
    _: NoQuery,
) -> Result<StatusCode, Problem> {
    access::allow(&caller, Act::Operate)?;
    if find(&state, &name).await?.origin == Origin::Config {
        return Err(read_only("schedule"));
    }
    let recorded = access::record_operation(&state, &caller, format!("delete schedule {name}")).await?;
    match state.store.schedule_delete(&name).await? {
        Deleted::Yes => {
            tracing::info!(schedule = name, "api.schedule_deleted");
            Ok(StatusCode::NO_CONTENT)
        }
        Deleted::ReadOnly => Err(recorded.refused(read_only("schedule")).await),
        Deleted::Unknown => Err(recorded.refused(no_such_schedule()).await),
    }
}

/// Lets a schedule fire nothing until it is resumed; its slots pass.
#[utoipa::path(
    post, path = "/schedules/{name}/pause", tag = "schedules", operation_id = "pauseSchedule",
    params(("name" = String, Path, description = "The schedule", example = "nightly-positions")),
    responses((status = 200, description = "The schedule, paused", body = ScheduleView), BadRequest, NotFound)
)]
pub(super) async fn pause(
    State(state): State<AppState>,
    caller: Caller,
    SchedulePath(name): SchedulePath,
    _: NoQuery,
) -> Result<Json<ScheduleView>, Problem> {
    access::allow(&caller, Act::Operate)?;
    find(&state, &name).await?;
    let recorded = access::record_operation(&state, &caller, format!("pause schedule {name}")).await?;
    if !state.store.schedule_pause(&name).await? {
        return Err(recorded.refused(no_such_schedule()).await);
    }
    tracing::info!(schedule = name, paused = true, "api.schedule_paused");
    shown(&state, &name).await
}

/// Lets a schedule fire again, from its next slot on; what passed while it was paused is not made up for.
#[utoipa::path(
    post, path = "/schedules/{name}/resume", tag = "schedules", operation_id = "resumeSchedule",
    params(("name" = String, Path, description = "The schedule", example = "nightly-positions")),
    responses((status = 200, description = "The schedule, running", body = ScheduleView), BadRequest, NotFound)
)]
pub(super) async fn resume(
    State(state): State<AppState>,
    caller: Caller,
    SchedulePath(name): SchedulePath,
    _: NoQuery,
) -> Result<Json<ScheduleView>, Problem> {
    access::allow(&caller, Act::Operate)?;
    let schedule = find(&state, &name).await?;
    let next = next_slot(&name, &schedule.spec, database_now(&state).await?);
    let recorded = access::record_operation(&state, &caller, format!("resume schedule {name}")).await?;
    if !state.store.schedule_resume(&name, next).await? {
        return Err(recorded.refused(no_such_schedule()).await);
    }
    tracing::info!(schedule = name, paused = false, "api.schedule_paused");
    shown(&state, &name).await
}

/// Runs a schedule's job now, also while it is paused; its own slots go on as they were. `{{slot}}` is now.
#[utoipa::path(
    post, path = "/schedules/{name}/run", tag = "schedules", operation_id = "runSchedule",
    params(("name" = String, Path, description = "The schedule", example = "nightly-positions")),
    responses(
        (status = 202, description = "The job; the unfinished one where the job type allows one at a time", body = JobView, headers(
            ("Location" = String, description = "The job"), ("Retry-After" = u32, description = "Seconds until a look is worth it"),
        )),
        BadRequest, NotFound, Conflict,
    )
)]
pub(super) async fn run(
    State(state): State<AppState>,
    caller: Caller,
    SchedulePath(name): SchedulePath,
    _: NoQuery,
) -> Result<Response, Problem> {
    access::allow(&caller, Act::Operate)?;
    find(&state, &name).await?;
    let recorded = access::record_operation(&state, &caller, format!("run schedule {name}")).await?;
    let slot = match state.scheduler.run(&name).await? {
        ByHand::Slot(slot) => slot,
        ByHand::Unknown => return Err(recorded.refused(no_such_schedule()).await),
        ByHand::Changing => {
            let changing = Problem::conflict("the schedule is being changed; try again");
            return Err(recorded.refused(changing).await);
        }
    };
    tracing::info!(schedule = name, outcome = slot.outcome.as_str(), "api.schedule_run");
    match (slot.outcome, slot.job_id) {
        (SlotOutcome::Fired | SlotOutcome::Skipped, Some(job_id)) => {
            jobs::accepted(&state, jobs::find(&state, &job_id).await?).await
        }
        _ => {
            let why = slot.detail.unwrap_or_else(|| "no job could be made".to_owned());
            Err(recorded.refused(Problem::conflict(why)).await)
        }
    }
}

async fn find(state: &AppState, name: &str) -> Result<Schedule, Problem> {
    state.store.schedule_get(name).await?.ok_or_else(no_such_schedule)
}

async fn shown(state: &AppState, name: &str) -> Result<Json<ScheduleView>, Problem> {
    Ok(Json(whole(state, find(state, name).await?).await?))
}

async fn whole(state: &AppState, schedule: Schedule) -> Result<ScheduleView, Problem> {
    let slots = state.store.schedule_slots(&schedule.name, LAST_SLOTS).await?;
    let times = next_times(&schedule, clock::now());
    Ok(ScheduleView::whole(schedule, times, slots))
}

/// The next slots at the schedule's own clocks; none where this version cannot read when they are.
fn next_times(schedule: &Schedule, now: DateTime<Utc>) -> Vec<DateTime<FixedOffset>> {
    let Ok(times) = Times::parse(&schedule.spec.cron, &schedule.spec.timezone) else { return Vec::new() };
    let slots = std::iter::successors(times.next_after(now), |slot| times.next_after(*slot));
    slots.take(NEXT_TIMES).map(|slot| slot.with_timezone(&times.zone()).fixed_offset()).collect()
}

/// The clock that decides when slots are due.
async fn database_now(state: &AppState) -> Result<DateTime<Utc>, Problem> {
    Ok(state.store.schedules_due(None, 0).await?.now)
}
