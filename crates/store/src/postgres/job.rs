//! Reading, listing and cancelling jobs.

use outhaul_core::id::JobId;
use outhaul_core::identity::Visible;
use outhaul_core::job::{Job, JobStatus};
use outhaul_core::store::{Cancelled, JobFilter, Page, Prioritised, StoreResult};

use super::PostgresStore;
use super::row::JobRow;
use crate::error::{corrupt, from_sqlx};
use crate::page::{cut, visible_columns};

impl PostgresStore {
    pub(super) async fn get_job(&self, job_id: &JobId, visible: &Visible) -> StoreResult<Option<Job>> {
        let (anything, subject, department) = visible_columns(visible);
        if !anything {
            return Ok(None);
        }
        let row: Option<JobRow> = sqlx::query_as(self.sql(include_str!("sql/job_get.sql")))
            .bind(job_id.as_str())
            .bind(subject)
            .bind(department)
            .fetch_optional(&self.pool())
            .await
            .map_err(from_sqlx)?;
        row.map(JobRow::into_job).transpose()
    }

    pub(super) async fn get_jobs(&self, job_ids: &[JobId]) -> StoreResult<Vec<Job>> {
        let rows: Vec<JobRow> = sqlx::query_as(self.sql(include_str!("sql/jobs_get.sql")))
            .bind(job_ids.iter().map(JobId::as_str).collect::<Vec<_>>())
            .fetch_all(&self.pool())
            .await
            .map_err(from_sqlx)?;
        rows.into_iter().map(JobRow::into_job).collect()
    }

    pub(super) async fn prioritise_job(&self, job_id: &JobId, priority: u8) -> StoreResult<Prioritised> {
        let row: Option<(String, bool)> = sqlx::query_as(self.sql(include_str!("sql/job_prioritise.sql")))
            .bind(job_id.as_str())
            .bind(i16::from(priority))
            .fetch_optional(&self.pool())
            .await
            .map_err(from_sqlx)?;
        match row {
            None => Ok(Prioritised::Unknown),
            Some((_, true)) => Ok(Prioritised::Yes),
            // It ended before, or between the two parts of the statement: a second look tells how.
            Some((_, false)) => match self.get_job(job_id, &Visible::All).await? {
                Some(job) => Ok(Prioritised::TooLate(job.status)),
                None => Ok(Prioritised::Unknown),
            },
        }
    }

    pub(super) async fn list_jobs(&self, filter: &JobFilter) -> StoreResult<Page<Job, i64>> {
        let (anything, subject, department) = visible_columns(&filter.visible);
        if !anything {
            return Ok(Page { items: Vec::new(), next: None });
        }
        // A stored SUBMITTED may be shown as IN_PROGRESS, never the other way round.
        let stored: Vec<&str> = match filter.status {
            Some(JobStatus::InProgress) => vec!["SUBMITTED", "IN_PROGRESS"],
            Some(status) => vec![status.as_str()],
            None => vec![],
        };
        let rows: Vec<JobRow> = sqlx::query_as(self.sql(include_str!("sql/jobs_list.sql")))
            .bind(filter.status.map(JobStatus::as_str))
            .bind(stored)
            .bind(&filter.job_type)
            .bind(&filter.dataset)
            .bind(&filter.owner)
            .bind(filter.created_after)
            .bind(filter.created_before)
            .bind(filter.before)
            .bind(i64::from(filter.limit) + 1)
            .bind(subject)
            .bind(department)
            .fetch_all(&self.pool())
            .await
            .map_err(from_sqlx)?;
        let (rows, next) = cut(rows, filter.limit, |row| row.id);
        let items = rows.into_iter().map(JobRow::into_job).collect::<StoreResult<_>>()?;
        Ok(Page { items, next })
    }

    pub(super) async fn cancel_job(&self, job_id: &JobId) -> StoreResult<Cancelled> {
        let row: Option<(String, bool)> = sqlx::query_as(self.sql(include_str!("sql/job_cancel.sql")))
            .bind(job_id.as_str())
            .fetch_optional(&self.pool())
            .await
            .map_err(from_sqlx)?;
        let status = match row {
            None => return Ok(Cancelled::Unknown),
            Some((_, true)) => return Ok(Cancelled::Yes),
            Some((status, false)) => status,
        };
        match JobStatus::parse(&status).ok_or_else(|| corrupt("job.status", &status))? {
            JobStatus::Cancelled => Ok(Cancelled::Already),
            // The job's row changed between the two parts of the statement: its snapshot is older
            // than the row, so it ended meanwhile, and a second look tells how.
            JobStatus::Submitted | JobStatus::InProgress => {
                match self.get_job(job_id, &Visible::All).await? {
                    Some(job) if job.status == JobStatus::Cancelled => Ok(Cancelled::Already),
                    Some(job) => Ok(Cancelled::TooLate(job.status)),
                    None => Ok(Cancelled::Unknown),
                }
            }
            ended => Ok(Cancelled::TooLate(ended)),
        }
    }
}
