//! Who asked: what is kept of them, what lists show to whom, how much an owner may have open, and the audit
//! trail.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, SubsecRound, Utc};
use outhaul_core::audit::{AuditAct, AuditEntry, AuditFilter, AuditRow};
use outhaul_core::clock;
use outhaul_core::id::JobId;
use outhaul_core::identity::{Identity, Visible};
use outhaul_core::job::NewJob;
use outhaul_core::store::{JobFilter, Submitted};
use serde_json::json;

use super::bench::{Bench, Kit, SETTINGS, at_once, job, keyed};

fn moment() -> DateTime<Utc> {
    clock::now().trunc_subsecs(6)
}

fn identity(subject: &str, department: Option<&str>) -> Identity {
    Identity {
        subject: subject.to_owned(),
        department: department.map(str::to_owned),
        claims: BTreeMap::from([("county".to_owned(), json!("it's \"K\u{f6}ln\""))]),
        verified_at: moment(),
    }
}

/// A job of somebody.
fn of(subject: &str, department: Option<&str>) -> NewJob {
    NewJob { owner: subject.to_owned(), identity: Some(identity(subject, department)), ..job(1) }
}

pub(super) async fn who_asked_is_stored_and_read_back(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let new = NewJob { scope: "0123456789abcdef".to_owned(), ..of("ann", Some("sales")) };
    let given = new.identity.clone();
    let id = bench.submit(new).await.job_id;
    let found = bench.job(&id).await;
    assert_eq!((found.identity, found.scope.as_str()), (given, "0123456789abcdef"));
    let plain = bench.submit(job(1)).await;
    assert_eq!((plain.identity, plain.scope.as_str()), (None, ""));
}

async fn seen(bench: &Bench, visible: Visible, before: Option<i64>, limit: u32) -> (Vec<JobId>, Option<i64>) {
    let filter = JobFilter { visible, before, limit, ..JobFilter::default() };
    let page = bench.store.jobs_list(&filter).await.expect("jobs_list");
    (page.items.into_iter().map(|job| job.job_id).collect(), page.next)
}

pub(super) async fn a_list_shows_what_may_be_seen(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let mut ids = Vec::new();
    for (subject, department) in
        [("ann", Some("sales")), ("bob", Some("sales")), ("eve", Some("audit")), ("ann", None), ("eve", None)]
    {
        ids.push(bench.submit(of(subject, department)).await.job_id);
    }
    let those = |places: &[usize]| places.iter().map(|place| ids[*place].clone()).collect::<Vec<_>>();
    let department = || Visible::Department { department: "sales".to_owned(), subject: "ann".to_owned() };
    assert_eq!(seen(&bench, Visible::All, None, 10).await.0, those(&[4, 3, 2, 1, 0]));
    assert_eq!(seen(&bench, Visible::Own("ann".to_owned()), None, 10).await.0, those(&[3, 0]));
    assert_eq!(seen(&bench, department(), None, 10).await.0, those(&[3, 1, 0]));
    assert_eq!(seen(&bench, Visible::Nothing, None, 10).await, (vec![], None));
    assert_eq!(seen(&bench, Visible::Own("nobody".to_owned()), None, 10).await, (vec![], None));
    // Page by page, too.
    let (first, next) = seen(&bench, department(), None, 2).await;
    assert_eq!(first, those(&[3, 1]));
    assert_eq!(seen(&bench, department(), next, 2).await, (those(&[0]), None));
    let theirs =
        JobFilter { owner: Some("eve".to_owned()), visible: department(), limit: 10, ..JobFilter::default() };
    assert_eq!(bench.store.jobs_list(&theirs).await.expect("jobs_list").items, []);
}

/// The job's row is unreadable here: every verb that reads it fails.
pub(super) async fn anothers_job_is_not_read(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let id = bench.submit(NewJob { owner: "ann".to_owned(), ..job(1) }).await.job_id;
    let look = async |visible: Visible| bench.store.job_get_visible(&id, &visible).await;
    let own = || Visible::Own("ann".to_owned());
    for visible in [Visible::All, own()] {
        assert!(look(visible).await.expect("job_get_visible").is_some());
    }
    bench.probe.execute("update job set identity = 'not JSON', department = 'sales'").await;
    let of = |department: &str| Visible::Department {
        department: department.to_owned(),
        subject: "eve".to_owned(),
    };
    for visible in [Visible::Own("eve".to_owned()), of("audit"), Visible::Nothing] {
        assert_eq!(look(visible.clone()).await.expect("job_get_visible"), None, "{visible:?}");
    }
    for visible in [Visible::All, own(), of("sales")] {
        look(visible.clone()).await.expect_err("it is read by those who may see it");
    }
}

pub(super) async fn an_owner_never_passes_the_quota(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let new = |chunks: usize| NewJob { owner: "ann".to_owned(), quota: Some(10), ..job(chunks) };
    let acts = (0..24).map(|n| {
        let store = if n % 2 == 0 { bench.store.clone() } else { bench.other.clone() };
        let job = new(3);
        async move { store.job_submit(job).await.expect("job_submit") }
    });
    let answers = at_once(acts.collect()).await;
    let created = answers.iter().filter(|answer| matches!(answer, Submitted::Created(_))).count();
    assert_eq!(created, 3, "nine of ten");
    let refused = answers.iter().filter(|answer| matches!(answer, Submitted::OverQuota(3 | 6 | 9))).count();
    assert_eq!(created + refused, 24);
    assert!(matches!(bench.store.job_submit(new(1)).await, Ok(Submitted::Created(_))), "one has room");
    let other = NewJob { owner: "bob".to_owned(), ..new(10) };
    assert!(matches!(bench.store.job_submit(other).await, Ok(Submitted::Created(_))), "another's count");
    let free = NewJob { quota: None, ..new(100) };
    let free = bench.submit(free).await.job_id;
    assert!(matches!(bench.store.job_submit(new(1)).await, Ok(Submitted::OverQuota(110))));
    bench.store.job_cancel(&free).await.expect("job_cancel");
    assert!(
        matches!(bench.store.job_submit(new(1)).await, Ok(Submitted::OverQuota(10))),
        "an ended job is not open"
    );
}

pub(super) async fn a_quota_hides_no_job_that_is_there(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let new = || NewJob { quota: Some(1), ..keyed(job(1), "key", "hash") };
    let first = bench.submit(new()).await.job_id;
    match bench.store.job_submit(new()).await.expect("job_submit") {
        Submitted::Existing(found) => assert_eq!(found.job_id, first),
        other => panic!("a repeated request finds its job: {other:?}"),
    }
    let different = NewJob { quota: Some(1), ..keyed(job(1), "key", "another") };
    assert_eq!(bench.store.job_submit(different).await.expect("job_submit"), Submitted::KeyConflict);
}

async fn trail(bench: &Bench, filter: AuditFilter) -> Vec<AuditRow> {
    bench.other.audit_list(&filter, None, 100).await.expect("audit_list").items
}

pub(super) async fn the_audit_trail_is_kept_in_order(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let job_id = JobId::new(clock::now(), 7);
    let entry = |actor: &str, act, job_id: Option<&JobId>, detail: Option<&str>| AuditEntry {
        actor: actor.to_owned(),
        act,
        job_id: job_id.cloned(),
        detail: detail.map(str::to_owned),
    };
    let first = [
        entry("ann", AuditAct::Cancel, Some(&job_id), None),
        entry("ops", AuditAct::Operate, None, Some("pause queue \"source:x\"")),
    ];
    let second = [entry("ann", AuditAct::Download, Some(&job_id), Some("a/b.csv"))];
    bench.store.audit_record(&first).await.expect("audit_record");
    bench.other.audit_record(&second).await.expect("audit_record");
    bench.store.audit_record(&[]).await.expect("audit_record");
    let all: Vec<AuditEntry> =
        trail(&bench, AuditFilter::default()).await.into_iter().map(|row| row.entry).collect();
    assert_eq!(all, [second[0].clone(), first[1].clone(), first[0].clone()]);
    let of_ann = AuditFilter { actor: Some("ann".to_owned()), ..AuditFilter::default() };
    assert_eq!(trail(&bench, of_ann).await.len(), 2);
    let of_job = AuditFilter { job_id: Some(job_id), ..AuditFilter::default() };
    assert_eq!(trail(&bench, of_job).await.len(), 2);
    let downloads = AuditFilter { act: Some(AuditAct::Download), ..AuditFilter::default() };
    assert_eq!(trail(&bench, downloads).await.len(), 1);
    // Page by page.
    let page = bench.store.audit_list(&AuditFilter::default(), None, 2).await.expect("audit_list");
    let rest = bench.store.audit_list(&AuditFilter::default(), page.next, 2).await.expect("audit_list");
    assert_eq!((page.items.len(), rest.items.len(), rest.next), (2, 1, None));
    assert_eq!(bench.store.audit_prune(Duration::from_secs(60), 10).await.expect("audit_prune"), 0);
    assert_eq!(bench.store.audit_prune(Duration::ZERO, 2).await.expect("audit_prune"), 2);
    assert_eq!(trail(&bench, AuditFilter::default()).await.len(), 1, "the oldest go first");
}

pub(super) async fn submissions_are_on_record(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let new = NewJob { ..keyed(of("ann", None), "key", "hash") };
    let id = bench.submit(new.clone()).await.job_id;
    let again = NewJob { job_id: JobId::new(clock::now(), 9), ..new };
    bench.store.job_submit(again).await.expect("job_submit");
    bench.submit(job(1)).await;
    let made = NewJob { made_by: Some("schedule s".to_owned()), ..of("bob", None) };
    let made = bench.submit(made).await.job_id;
    let rows = trail(&bench, AuditFilter::default()).await;
    let entry = |actor: &str, job_id: JobId, detail: Option<&str>| AuditEntry {
        actor: actor.to_owned(),
        act: AuditAct::Submit,
        job_id: Some(job_id),
        detail: detail.map(str::to_owned),
    };
    let told: Vec<AuditEntry> = rows.into_iter().map(|row| row.entry).collect();
    let expected = [entry("bob", made, Some("schedule s")), entry("ann", id, None)];
    assert_eq!(told, expected, "once, and only where callers can be told apart");
}
