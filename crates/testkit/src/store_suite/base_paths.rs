//! The owner of a base path is for ever the dataset whose file was begun there first, whatever later configurations
//! say.

use outhaul_core::file::{BasePathOwner, FileBegin, FileBegun, FileIdentity};
use outhaul_core::reuse::Reuse;
use outhaul_core::worker::ClaimedChunk;

use super::bench::{Kit, SETTINGS, at_once};
use super::files::{ask, begin, identity, one, publish};

/// The chunk's wish to write the key's file for another dataset at the same place, as after `default` has moved.
fn of(dataset: &str, chunk: &ClaimedChunk) -> FileBegin {
    let identity = FileIdentity { dataset: dataset.to_owned(), ..identity("K00000") };
    FileBegin { identity, ..begin(chunk, "K00000", Reuse::Never) }
}

fn owner(path: &str, dataset: &str) -> BasePathOwner {
    BasePathOwner { path: path.to_owned(), dataset: dataset.to_owned() }
}

pub(super) async fn the_first_writer_makes_a_base_path_its_datasets(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    assert_eq!(bench.store.base_paths().await.expect("base_paths"), []);
    let (_, chunk) = one(&bench).await;
    assert!(matches!(ask(&bench, &chunk, Reuse::Any).await, FileBegun::Write(_)));
    publish(&bench, &chunk).await;
    assert_eq!(bench.other.base_paths().await.expect("base_paths"), [owner("exports/", "positions")]);

    let (_, chunk) = one(&bench).await;
    let asked = bench.store.file_begin(&of("totals", &chunk)).await.expect("file_begin");
    assert_eq!(asked, FileBegun::Foreign("positions".to_owned()));
    let rows = bench.probe.number("select count(*) from file_cache where dataset = 'totals'").await;
    assert_eq!(rows, 0, "a refusal leaves nothing");

    let mut moved = of("totals", &chunk);
    moved.place.base_path = "exports/totals/".to_owned();
    let asked = bench.store.file_begin(&moved).await.expect("file_begin");
    assert!(matches!(asked, FileBegun::Write(_)), "{asked:?}");
    // The row of an identity is there already: a dataset that moves onto another's base path is refused too.
    moved.place.base_path = "exports/".to_owned();
    let asked = bench.store.file_begin(&moved).await.expect("file_begin");
    assert_eq!(asked, FileBegun::Foreign("positions".to_owned()));

    let (_, chunk) = one(&bench).await;
    assert!(matches!(ask(&bench, &chunk, Reuse::Never).await, FileBegun::Write(_)), "its own dataset may");
    let mut back = begin(&chunk, "K00000", Reuse::Never);
    back.place.base_path = "archive/".to_owned();
    let asked = bench.store.file_begin(&back).await.expect("file_begin");
    assert!(matches!(asked, FileBegun::Write(_)), "{asked:?}");
    let found = bench.store.base_paths().await.expect("base_paths");
    let expected = [("exports/", "positions"), ("exports/totals/", "totals")];
    assert_eq!(found, expected.map(|(path, dataset)| owner(path, dataset)), "asking again takes no other");
}

pub(super) async fn datasets_that_race_for_a_base_path_do_not_both_win(kit: Kit) {
    let bench = kit.bench(SETTINGS).await;
    let mut chunks = Vec::new();
    for _ in 0..8 {
        chunks.push(one(&bench).await.1);
    }
    for round in 0..5 {
        let acts = chunks
            .iter()
            .enumerate()
            .map(|(n, chunk)| {
                let store = if n % 2 == 0 { bench.store.clone() } else { bench.other.clone() };
                let mut begin = of(if n % 2 == 0 { "positions" } else { "totals" }, chunk);
                begin.identity.key = format!("{round}-{n}");
                begin.place.base_path = format!("exports/{round}/");
                async move { store.file_begin(&begin).await.expect("file_begin") }
            })
            .collect();
        let answers: Vec<FileBegun> = at_once(acts).await;
        let wins = |which: usize| {
            let mine = answers.iter().enumerate().filter(|(n, _)| n % 2 == which);
            mine.filter(|(_, answer)| matches!(answer, FileBegun::Write(_))).count()
        };
        assert!(matches!((wins(0), wins(1)), (4, 0) | (0, 4)), "{answers:?}");
        let refused = answers.iter().filter(|answer| matches!(answer, FileBegun::Foreign(_))).count();
        assert_eq!(refused, 4, "{answers:?}");
    }
}
