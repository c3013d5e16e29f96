//! A bare loop of COPY: what reading small chunks and storing them costs with nothing around it.
//!
//! `bench-bare URL QUERY CHUNKS DAYS CONNECTIONS TARGET PUTS`. `{key}` and `{day}` in the query are replaced.
//! TARGET is `plain:FOLDER` (files), `fsync:FOLDER` (files, each synced, and its folder after it), or `s3:` with
//! as many PUTs in flight. A thread per connection takes every n-th chunk.

mod target;

use std::error::Error;
use std::thread;

use bytes::BytesMut;
use futures::TryStreamExt;
use sqlx::Connection;
use sqlx::postgres::PgConnection;
use target::Target;

#[derive(Clone)]
struct Loop {
    url: String,
    query: String,
    chunks: usize,
    days: usize,
    connections: usize,
    target: String,
    puts: usize,
}

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, query, chunks, days, connections, target, puts] = arguments.as_slice() else {
        return Err("usage: bench-bare URL QUERY CHUNKS DAYS CONNECTIONS TARGET PUTS".into());
    };
    let settings = Loop {
        url: url.clone(),
        query: query.clone(),
        chunks: chunks.parse()?,
        days: days.parse()?,
        connections: connections.parse()?,
        target: target.clone(),
        puts: puts.parse()?,
    };
    let threads: Vec<_> = (0..settings.connections)
        .map(|first| {
            let settings = settings.clone();
            thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                runtime.block_on(run(&settings, first))
            })
        })
        .collect();
    for thread in threads {
        thread.join().map_err(|_| "a connection's thread panicked")??;
    }
    Ok(())
}

async fn run(settings: &Loop, first: usize) -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut connection = PgConnection::connect(&settings.url).await?;
    let mut target = Target::open(&settings.target, settings.puts.div_ceil(settings.connections))?;
    for chunk in (first..settings.chunks).step_by(settings.connections) {
        let (key, day) = (chunk / settings.days, chunk % settings.days);
        let query = settings.query.replace("{key}", &key.to_string()).replace("{day}", &day.to_string());
        let copy = format!("COPY ({query}) TO STDOUT (FORMAT csv, HEADER)");
        let mut rows = BytesMut::new();
        let mut stream = connection.copy_out_raw(&copy).await?;
        while let Some(part) = stream.try_next().await? {
            rows.extend_from_slice(&part);
        }
        drop(stream);
        target.store(&day.to_string(), &format!("K{key}.csv"), rows.freeze()).await?;
    }
    target.finish().await
}
