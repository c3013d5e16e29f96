//! Triggers on a real store.

use std::sync::atomic::Ordering;

use outhaul_core::identity::Identity;
use outhaul_core::json::Json;
use outhaul_core::schedule::{Origin, Put};
use outhaul_core::trigger::{NewTrigger, TriggerPut, TriggerSpec};
use serde_json::json;

use super::*;
use crate::planner::fixture::{CHILD, TestDelivery, TestPlanner, complete_all, jobs, store};

const BODY: &str = r#"{"jobType": "CHILD", "labels": {"from": "{{label.date}} {{parents.0.jobId}}"}}"#;

/// After every `TOUCH`, another of a type that nothing waits for.
async fn put(store: &Arc<dyn Store>, job: &str) {
    let spec = TriggerSpec {
        after: vec!["job:TOUCH".to_owned()],
        match_label: Some("date".to_owned()),
        within: None,
        job: Json::parse(job).unwrap(),
        produces: format!("job:{CHILD}"),
    };
    let trigger =
        NewTrigger { name: "after".to_owned(), spec, origin: Origin::Api, owner: ANONYMOUS.to_owned() };
    assert_eq!(store.trigger_put(&trigger).await.unwrap(), TriggerPut::Put(Put::Created));
}

async fn parent(store: &Arc<dyn Store>, owner: &str) -> Job {
    let body = json!({"jobType": "TOUCH", "labels": {"date": "20250215"}}).into();
    let job = TestPlanner::default().plan(&body, owner).unwrap();
    let id = job.job_id.clone();
    store.job_submit(job).await.unwrap();
    complete_all(store).await;
    store.job_get(&id).await.unwrap().unwrap()
}

fn duty(store: &Arc<dyn Store>) -> (Triggers, Arc<TestPlanner>, Arc<TestDelivery>) {
    let (planner, delivery) = (Arc::new(TestPlanner::default()), Arc::new(TestDelivery::default()));
    (Triggers::new(store.clone(), planner.clone(), delivery.clone()), planner, delivery)
}

async fn recorded(store: &Arc<dyn Store>) -> Vec<TriggerFire> {
    let trigger = store.trigger_get("after").await.unwrap().unwrap();
    store.trigger_fires(trigger.id, 100).await.unwrap()
}

#[tokio::test]
async fn a_job_that_completed_makes_another_with_its_words_filled_in() {
    let temporary = store().await;
    let store = temporary.store();
    put(&store, BODY).await;
    let (triggers, _, delivery) = duty(&store);
    assert_eq!(triggers.round().await.unwrap().fires, []);
    let parent = parent(&store, "ada").await;
    let fires = triggers.round().await.unwrap().fires;
    assert_eq!((fires.len(), fires[0].state), (1, FireState::Fired));
    assert_eq!(delivery.0.load(Ordering::SeqCst), 1);
    let child = store.job_get(fires[0].job_id.as_ref().unwrap()).await.unwrap().unwrap();
    assert_eq!(child.labels["from"], format!("20250215 {}", parent.job_id));
    assert_eq!(child.owner, "ada", "who owns all parents owns the child");
    assert_eq!(triggers.round().await.unwrap().fires, [], "once");
}

#[tokio::test]
async fn what_cannot_be_made_is_refused_once() {
    let temporary = store().await;
    let store = temporary.store();
    put(&store, r#"{"jobType": "TOUCH", "payload": "{{label.missing}}"}"#).await;
    let (triggers, _, delivery) = duty(&store);
    parent(&store, "ada").await;
    let fires = triggers.round().await.unwrap().fires;
    assert_eq!((fires.len(), fires[0].state), (1, FireState::Refused));
    let detail = fires[0].detail.as_deref().unwrap();
    assert_eq!(
        detail,
        "no job could be made: /payload `{{label.missing}}` is a label that none of the parents has"
    );
    assert_eq!((jobs(&store).await.len(), delivery.0.load(Ordering::SeqCst)), (1, 0));
    assert_eq!(triggers.round().await.unwrap().fires, []);
}

#[tokio::test]
async fn a_planner_that_refuses_does_not_stop_later_firings() {
    let temporary = store().await;
    let store = temporary.store();
    put(&store, BODY).await;
    let (triggers, planner, _) = duty(&store);
    planner.refuse.store(true, Ordering::SeqCst);
    parent(&store, "ada").await;
    triggers.round().await.unwrap();
    planner.refuse.store(false, Ordering::SeqCst);
    parent(&store, "ada").await;
    triggers.round().await.unwrap();
    let states: Vec<_> = recorded(&store).await.iter().map(|fire| fire.state).collect();
    assert_eq!(states, [FireState::Fired, FireState::Refused]);
}

#[tokio::test]
async fn a_parent_that_is_gone_is_said_to_be() {
    let temporary = store().await;
    let store = temporary.store();
    put(&store, BODY).await;
    let (triggers, ..) = duty(&store);
    parent(&store, "ada").await;
    assert_eq!(store.triggers_match(10).await.unwrap(), 1);
    while store.jobs_prune(Duration::ZERO, 1000).await.unwrap() > 0 {}
    assert!(jobs(&store).await.is_empty());
    let fires = triggers.round().await.unwrap().fires;
    assert_eq!(fires[0].detail.as_deref(), Some("a job that it waited for has been deleted"));
}

#[tokio::test]
async fn an_error_of_the_store_with_one_does_not_stop_the_others() {
    let temporary = store().await;
    let store = temporary.store();
    put(&store, BODY).await;
    let mut broken = store.trigger_get("after").await.unwrap().unwrap().spec;
    broken.job = json!({"jobType": CHILD, "broken": true}).into();
    let broken = NewTrigger {
        name: "a-broken".to_owned(),
        spec: broken,
        origin: Origin::Api,
        owner: ANONYMOUS.to_owned(),
    };
    store.trigger_put(&broken).await.unwrap();
    let (triggers, _, delivery) = duty(&store);
    parent(&store, "ada").await;
    let error = triggers.round().await.unwrap_err();
    assert!(matches!(error, StoreError::Refused(_)), "{error}");
    assert_eq!(recorded(&store).await[0].state, FireState::Fired);
    assert_eq!((jobs(&store).await.len(), delivery.0.load(Ordering::SeqCst)), (2, 1));
}

#[tokio::test]
async fn an_identity_of_its_own_goes_before_a_shared_one_and_a_mixture_is_nobodys() {
    let temporary = store().await;
    let store = temporary.store();
    put(&store, BODY).await;
    let (one, mut two) = (parent(&store, "ada").await, parent(&store, "ada").await);
    store.triggers_match(10).await.unwrap();
    let mut due = store.trigger_fires_due(10).await.unwrap().remove(0);
    due.fire.parents = vec![one.job_id.clone(), two.job_id.clone()];
    let owner = |due: &DueFire, known: &[Job]| match duty(&store).0.plan(due, known) {
        FirePlan::Run(job) => job.owner,
        FirePlan::Refused(why) => why,
    };
    assert_eq!(owner(&due, &[one.clone(), two.clone()]), "ada");
    two.owner = "grace".to_owned();
    let mixture = "its parents have different owners, and it has none of its own";
    assert_eq!(owner(&due, &[two.clone(), one.clone()]), mixture);
    due.trigger.owner = "identity:rule".to_owned();
    assert_eq!(owner(&due, &[two.clone(), one.clone()]), "identity:rule");
    two.owner = "ada".to_owned();
    assert_eq!(owner(&due, &[two.clone(), one.clone()]), "identity:rule");
    due.trigger.spec.produces = "dataset:other".to_owned();
    assert!(owner(&due, &[two, one]).contains("no longer a dataset:other"));
}

#[tokio::test]
async fn a_shared_owner_is_who_they_were_when_the_newest_parent_was_submitted() {
    let temporary = store().await;
    let store = temporary.store();
    put(&store, BODY).await;
    let (mut one, mut two) = (parent(&store, "ada").await, parent(&store, "ada").await);
    store.triggers_match(10).await.unwrap();
    let mut due = store.trigger_fires_due(10).await.unwrap().remove(0);
    due.fire.parents = vec![two.job_id.clone(), one.job_id.clone()];
    let planned = |known: &[Job]| match duty(&store).0.plan(&due, known) {
        FirePlan::Run(job) => (job.owner, job.identity.map(|identity| identity.claims["county"].clone())),
        FirePlan::Refused(why) => panic!("{why}"),
    };
    let at = one.created_at;
    let ada = |county: &str| {
        let claims = [("county".to_owned(), json!(county))].into();
        Identity { subject: "ada".to_owned(), claims, ..Identity::anonymous(at) }
    };
    (one.identity, two.identity) = (Some(ada("Kent")), Some(ada("Essex")));
    two.created_at = at + chrono::TimeDelta::seconds(1);
    assert_eq!(planned(&[one.clone(), two.clone()]), ("ada".to_owned(), Some(json!("Essex"))));
    two.created_at = at - chrono::TimeDelta::seconds(1);
    assert_eq!(planned(&[two.clone(), one.clone()]), ("ada".to_owned(), Some(json!("Kent"))));
}

#[tokio::test(flavor = "multi_thread")]
async fn duties_that_race_make_one_job_for_each_firing() {
    let temporary = store().await;
    let store = temporary.store();
    put(&store, BODY).await;
    for _ in 0..10 {
        parent(&store, "ada").await;
    }
    let racing = (0..3).map(|_| {
        let (triggers, ..) = duty(&store);
        tokio::spawn(async move { triggers.round().await.unwrap().fires.len() })
    });
    let fired: usize = futures::future::join_all(racing).await.into_iter().map(Result::unwrap).sum();
    assert_eq!(fired, 10);
    assert_eq!(jobs(&store).await.len(), 20);
}
