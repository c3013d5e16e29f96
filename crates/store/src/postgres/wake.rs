//! Hints between processes by LISTEN/NOTIFY, on a connection of its own. Polling finds what a lost
//! hint would have told.

use futures::StreamExt;
use futures::stream::BoxStream;
use outhaul_core::store::StoreResult;
use sqlx::postgres::{PgListener, PgPoolOptions};

use super::PostgresStore;
use crate::error::from_sqlx;

const CHANNEL: &str = "outhaul_work";

impl PostgresStore {
    pub(super) async fn listen_for_wakeups(&self) -> StoreResult<Option<BoxStream<'static, ()>>> {
        let Some(options) = &self.listen else { return Ok(None) };
        let pool = PgPoolOptions::new().max_connections(1).connect_lazy_with(options.as_ref().clone());
        let mut listener = PgListener::connect_with(&pool).await.map_err(from_sqlx)?;
        listener.listen(CHANNEL).await.map_err(from_sqlx)?;
        // The stream ends with the connection; whoever reads it asks for another.
        let hints = listener.into_stream().take_while(|hint| std::future::ready(hint.is_ok())).map(|_| ());
        Ok(Some(hints.boxed()))
    }

    pub(super) async fn notify(&self) -> StoreResult<()> {
        if self.listen.is_some() {
            sqlx::query("SELECT pg_notify($1, '')")
                .bind(CHANNEL)
                .execute(&self.pool())
                .await
                .map_err(from_sqlx)?;
        }
        Ok(())
    }
}
