//! A source user that row-level security does not concern: no process starts that would show its rows to all.

use outhaul::Registry;
use outhaul_server::config::{Config, Environment, Load};
use outhaul_server::roles::Roles;
use outhaul_server::serve;
use outhaul_testkit::test_db::TestDb;

use crate::people::AUTH;

#[tokio::test(flavor = "multi_thread")]
async fn a_source_user_that_bypasses_row_level_security_keeps_a_process_from_starting() {
    let (source, folder) = (TestDb::create().await, tempfile::tempdir().unwrap());
    let text = format!(
        "data_dir = \"data\"\n[server]\nlisten = \"127.0.0.1:0\"\n{AUTH}\n[sources.crm]\nurl = \"{}\"\n\
         [datasets.people]\nsource = \"crm\"\nrow_scope = [\"county\"]\nrow_security = true\n\
         query = \"select :key::text, :effective_date::date\"\n",
        source.url()
    );
    let load = Load { file: None, insecure: false, environment: Environment::default() };
    let config = Config::parse(&text, folder.path(), &load).unwrap_or_else(|wrong| panic!("{wrong}"));
    // The server's own user is a superuser.
    let Err(error) = serve::start(config, Roles::ALL, Registry::new()).await else {
        panic!("it must not start")
    };
    let said = error.to_string();
    assert!(said.contains("dataset `people`"), "{said}");
    assert!(error.0.iter().all(|error| matches!(error, serve::StartError::RowSecurity(_))), "{said}");
}
