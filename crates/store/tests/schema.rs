//! `schema/postgres.sql` and `schema/sqlite.sql` are what the migrations make, so that a reader finds every table in one
//! place and a change of the schema is seen in its review. `OUTHAUL_TEST_BLESS=1` writes them anew.

#![expect(clippy::unwrap_used, reason = "whatever fails in a helper fails its test")]

use std::path::Path;
use std::time::Duration;

use outhaul_core::store::StoreSettings;
use outhaul_store::sqlite::SqliteStore;
use outhaul_testkit::test_db::TestDb;
use sqlx::{Connection, PgConnection, SqliteConnection};

/// One statement per table, index and view, by name.
const POSTGRES: &str = "
    with owned as (
        select c.oid, c.relname::text as name, c.relkind, c.reloptions
        from pg_class c where c.relnamespace = 'outhaul'::regnamespace
    ), columns as (
        select o.name, a.attnum as place,
               format('    %s %s%s%s%s', a.attname, format_type(a.atttypid, a.atttypmod),
                      case a.attidentity when 'a' then ' GENERATED ALWAYS AS IDENTITY' else '' end,
                      ' DEFAULT ' || pg_get_expr(d.adbin, d.adrelid),
                      case when a.attnotnull then ' NOT NULL' else '' end) as line
        from owned o
        join pg_attribute a on a.attrelid = o.oid and a.attnum > 0 and not a.attisdropped
        left join pg_attrdef d on d.adrelid = o.oid and d.adnum = a.attnum
        where o.relkind = 'r'
        union all
        select o.name, 1000 + row_number() over (partition by o.name order by c.conname),
               '    CONSTRAINT ' || c.conname || ' ' || pg_get_constraintdef(c.oid)
        from owned o join pg_constraint c on c.conrelid = o.oid
        where o.relkind = 'r'
    )
    select statement from (
        select 1 as kind, o.name, format(E'CREATE TABLE outhaul.%s (\\n%s\\n)%s;', o.name,
                   (select string_agg(c.line, E',\\n' order by c.place) from columns c where c.name = o.name),
                   ' WITH (' || array_to_string(o.reloptions, ', ') || ')') as statement
        from owned o where o.relkind = 'r'
        union all
        select 2, o.name, pg_get_indexdef(o.oid) || ';'
        from owned o
        where o.relkind = 'i' and not exists (select from pg_constraint c where c.conindid = o.oid)
        union all
        select 3, o.name, format(E'CREATE VIEW outhaul.%s AS\\n%s', o.name, pg_get_viewdef(o.oid))
        from owned o where o.relkind = 'v'
    ) as all_of_it
    order by kind, name";

const SQLITE: &str =
    "SELECT sql || ';' FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE '\\_sqlx%' ESCAPE '\\'
    AND name <> 'sqlite_sequence' ORDER BY type = 'view', type DESC, name";

fn compare(name: &str, statements: &[String]) {
    let found = statements.join("\n\n") + "\n";
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema").join(name);
    if std::env::var_os("OUTHAUL_TEST_BLESS").is_some() {
        std::fs::write(&file, &found).unwrap();
    }
    let written = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        written == found,
        "schema/{name} is not what the migrations make: run this test with OUTHAUL_TEST_BLESS=1"
    );
}

#[tokio::test]
async fn the_schema_of_postgres_is_written_down() {
    let database = TestDb::migrated().await;
    let mut connection = PgConnection::connect(database.url()).await.unwrap();
    // Names are shown with their schema.
    sqlx::query("set search_path = ''").execute(&mut connection).await.unwrap();
    let statements: Vec<String> = sqlx::query_scalar(POSTGRES).fetch_all(&mut connection).await.unwrap();
    compare("postgres.sql", &statements);
}

#[tokio::test]
async fn the_schema_of_sqlite_is_written_down() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("outhaul.db");
    let settings = StoreSettings {
        lease: Duration::from_secs(60),
        fairness_step: Duration::ZERO,
        idempotency_window: Duration::ZERO,
        parking: false,
    };
    let store = SqliteStore::open(&file, settings).await.unwrap();
    let url = format!("sqlite:{}", file.display());
    let mut connection = SqliteConnection::connect(&url).await.unwrap();
    let statements: Vec<String> = sqlx::query_scalar(SQLITE).fetch_all(&mut connection).await.unwrap();
    compare("sqlite.sql", &statements);
    drop(store);
}
