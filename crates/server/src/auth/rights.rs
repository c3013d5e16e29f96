//! The one function that decides who may do what, and which jobs lists and counts may show. What a caller
//! may not see is not there for them; what they see but may not do is refused.

use outhaul_core::identity::Visible;
use outhaul_core::job::Job;

use super::caller::{Caller, Role};

/// What somebody wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    /// Submit a job.
    Submit,
    /// Look at a job, its chunks or its events.
    Read,
    /// Cancel or retry a job, or give it another priority.
    Change,
    /// List or download a job's files.
    Files,
    /// Look at what happened to a job's chunks.
    History,
    /// Look at dead letters or redrive them.
    DeadLetters,
    /// Queues, workers, schedules, triggers and the audit trail.
    Operate,
}

/// Whose a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owned<'a> {
    /// The subject that submitted it.
    pub owner: &'a str,
    /// The department they were in.
    pub department: Option<&'a str>,
}

impl<'a> From<&'a Job> for Owned<'a> {
    fn from(job: &'a Job) -> Self {
        let department = job.identity.as_ref().and_then(|identity| identity.department.as_deref());
        Self { owner: &job.owner, department }
    }
}

/// What was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Go on.
    Yes,
    /// 404, in the same words as for a job that never was.
    Hidden,
    /// 403.
    Forbidden,
}

/// Whether the caller may do it, `on` a job where there is one. Without one, `Yes` to a look or a change
/// is only leave to go on: what is found is then judged by itself or by [`visible`].
pub fn may(caller: &Caller, act: Act, on: Option<&Owned<'_>>) -> Verdict {
    let has = |role| caller.roles.has(role);
    if has(Role::Operator) {
        return Verdict::Yes;
    }
    // Before anything is looked up, so that it says nothing about what there is.
    if caller.roles.is_empty() {
        return Verdict::Forbidden;
    }
    if on.is_some_and(|job| !covers(&visible(caller), job)) {
        return Verdict::Hidden;
    }
    let own = on.is_none_or(|job| job.owner == caller.subject());
    let allowed = match act {
        Act::Read | Act::Files => true,
        Act::Submit => has(Role::Submitter),
        Act::Change => has(Role::Submitter) && own,
        Act::History | Act::DeadLetters | Act::Operate => false,
    };
    if allowed { Verdict::Yes } else { Verdict::Forbidden }
}

/// Whether a job is among those that may be seen.
fn covers(visible: &Visible, job: &Owned<'_>) -> bool {
    match visible {
        Visible::All => true,
        Visible::Department { department, subject } => {
            job.owner == subject || job.department == Some(department.as_str())
        }
        Visible::Own(subject) => job.owner == subject,
        Visible::Nothing => false,
    }
}

/// The jobs that a list, a count or a stream may show.
pub fn visible(caller: &Caller) -> Visible {
    let subject = caller.subject().to_owned();
    if caller.roles.has(Role::Operator) {
        return Visible::All;
    }
    match caller.department() {
        _ if caller.roles.is_empty() => Visible::Nothing,
        Some(department) if caller.roles.has(Role::Viewer) => {
            Visible::Department { department: department.to_owned(), subject }
        }
        _ => Visible::Own(subject),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Roles;
    use chrono::DateTime;
    use outhaul_core::identity::Identity;

    const ACTS: [Act; 7] =
        [Act::Submit, Act::Read, Act::Change, Act::Files, Act::History, Act::DeadLetters, Act::Operate];

    const OWN: Owned<'_> = Owned { owner: "ann", department: Some("sales") };
    const OWN_FROM_ELSEWHERE: Owned<'_> = Owned { owner: "ann", department: Some("audit") };
    const OWN_WITHOUT: Owned<'_> = Owned { owner: "ann", department: None };
    const COLLEAGUE: Owned<'_> = Owned { owner: "bob", department: Some("sales") };
    const STRANGER: Owned<'_> = Owned { owner: "eve", department: Some("audit") };
    const NOBODYS: Owned<'_> = Owned { owner: "eve", department: None };
    const EMPTY: Owned<'_> = Owned { owner: "eve", department: Some("") };

    fn caller(roles: &[Role], department: Option<&str>) -> Caller {
        let mut identity = Identity::anonymous(DateTime::UNIX_EPOCH);
        identity.subject = "ann".into();
        identity.department = department.map(str::to_owned);
        Caller { identity, roles: roles.iter().copied().collect(), until: None }
    }

    /// One letter per act, in the order of `ACTS`: Yes, Hidden, Forbidden.
    fn row(caller: &Caller, on: Option<&Owned<'_>>) -> String {
        let letter = |act| match may(caller, act, on) {
            Verdict::Yes => 'Y',
            Verdict::Hidden => 'H',
            Verdict::Forbidden => 'F',
        };
        ACTS.into_iter().map(letter).collect()
    }

    #[test]
    fn the_whole_table() {
        use Role::{Operator, Submitter, Viewer};
        let mine = [OWN, OWN_FROM_ELSEWHERE, OWN_WITHOUT];
        let others = [STRANGER, NOBODYS, EMPTY];
        //       roles                    none       own        colleague  stranger
        let table: [(&[Role], &str, &str, &str, &str); 8] = [
            (&[], "FFFFFFF", "FFFFFFF", "FFFFFFF", "FFFFFFF"),
            (&[Submitter], "YYYYFFF", "YYYYFFF", "HHHHHHH", "HHHHHHH"),
            (&[Viewer], "FYFYFFF", "FYFYFFF", "FYFYFFF", "HHHHHHH"),
            (&[Submitter, Viewer], "YYYYFFF", "YYYYFFF", "YYFYFFF", "HHHHHHH"),
            (&[Operator], "YYYYYYY", "YYYYYYY", "YYYYYYY", "YYYYYYY"),
            (&[Submitter, Operator], "YYYYYYY", "YYYYYYY", "YYYYYYY", "YYYYYYY"),
            (&[Viewer, Operator], "YYYYYYY", "YYYYYYY", "YYYYYYY", "YYYYYYY"),
            (&[Submitter, Viewer, Operator], "YYYYYYY", "YYYYYYY", "YYYYYYY", "YYYYYYY"),
        ];
        for (roles, none, own, colleague, stranger) in table {
            let caller = caller(roles, Some("sales"));
            assert_eq!(row(&caller, None), none, "{roles:?}, no job");
            for job in mine {
                assert_eq!(row(&caller, Some(&job)), own, "{roles:?}, {job:?}");
            }
            assert_eq!(row(&caller, Some(&COLLEAGUE)), colleague, "{roles:?}, a colleague's");
            for job in others {
                assert_eq!(row(&caller, Some(&job)), stranger, "{roles:?}, {job:?}");
            }
        }
    }

    #[test]
    fn without_a_department_there_are_no_colleagues() {
        for department in [None, Some("")] {
            let caller = caller(&[Role::Viewer], department);
            assert_eq!(visible(&caller), Visible::Own("ann".into()));
            for job in [COLLEAGUE, STRANGER, NOBODYS, EMPTY] {
                assert_eq!(row(&caller, Some(&job)), "HHHHHHH", "{department:?}, {job:?}");
            }
            assert_eq!(row(&caller, Some(&OWN)), "FYFYFFF");
        }
    }

    #[test]
    fn lists_show_what_may_be_read_and_nothing_else() {
        let jobs = [OWN, OWN_FROM_ELSEWHERE, OWN_WITHOUT, COLLEAGUE, STRANGER, NOBODYS, EMPTY];
        for bits in 0..8_usize {
            let roles: Vec<Role> = Role::ALL
                .into_iter()
                .enumerate()
                .filter(|(i, _)| bits & (1 << i) != 0)
                .map(|(_, r)| r)
                .collect();
            for department in [None, Some(""), Some("sales"), Some("audit")] {
                let caller = caller(&roles, department);
                for job in jobs {
                    let readable = may(&caller, Act::Read, Some(&job)) == Verdict::Yes;
                    assert_eq!(covers(&visible(&caller), &job), readable, "{roles:?} {department:?} {job:?}");
                }
            }
        }
    }

    #[test]
    fn scopes_of_lists() {
        let department = Visible::Department { department: "sales".into(), subject: "ann".into() };
        assert_eq!(visible(&caller(&[Role::Viewer], Some("sales"))), department);
        assert_eq!(visible(&caller(&[Role::Submitter], Some("sales"))), Visible::Own("ann".into()));
        assert_eq!(visible(&caller(&[Role::Operator], None)), Visible::All);
        assert_eq!(visible(&caller(&[], Some("sales"))), Visible::Nothing);
        assert_eq!(caller(&[], None).roles, Roles::NONE);
    }
}
