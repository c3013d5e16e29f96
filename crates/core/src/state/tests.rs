//! Every (state, event) pair against the table of the design.

use super::*;

fn at(state: ChunkState, held: bool) -> Chunk {
    Chunk { state, attempt: 2, fence: 7, returned: 1, lost: 1, held }
}

/// The table, as a reader of the design would write it: from, held, event, to.
fn table() -> Vec<(ChunkState, bool, Event, ChunkState)> {
    use ChunkState as S;
    use Event as E;
    vec![
        (S::Created, false, E::Stage, S::Queued),
        (S::Retry, false, E::Stage, S::Queued),
        (S::Queued, false, E::Claim, S::Running),
        (S::Running, false, E::Finish, S::Success),
        (S::Running, false, E::FailRetryable, S::Retry),
        (S::Running, false, E::FailFinal, S::Dead),
        (S::Running, false, E::ExpireRetryable, S::Retry),
        (S::Running, false, E::ExpireFinal, S::Dead),
        (S::Running, false, E::GiveBack, S::Queued),
        (S::Running, false, E::Snooze, S::Created),
        (S::Queued, false, E::Hold, S::Created),
        (S::Retry, false, E::Hold, S::Created),
        (S::Created, false, E::Hold, S::Created),
        (S::Created, false, E::ParentFailed, S::Dead),
        (S::Created, true, E::ParentFailed, S::Dead),
        (S::Created, false, E::Cancel, S::Cancelled),
        (S::Created, true, E::Cancel, S::Cancelled),
        (S::Queued, false, E::Cancel, S::Cancelled),
        (S::Retry, false, E::Cancel, S::Cancelled),
        (S::Running, false, E::Cancel, S::Cancelled),
        (S::Dead, false, E::Redrive, S::Queued),
        (S::Created, true, E::Redrive, S::Queued),
    ]
}

#[test]
fn every_pair_is_allowed_or_refused_as_the_table_says() {
    let table = table();
    let mut allowed = 0;
    for state in ChunkState::ALL {
        for held in [false, true] {
            if held && state != ChunkState::Created {
                continue;
            }
            for event in Event::ALL {
                let expected =
                    table.iter().find(|row| (row.0, row.1, row.2) == (state, held, event)).map(|row| row.3);
                let got = apply(at(state, held), event);
                assert_eq!(got.map(|chunk| chunk.state).ok(), expected, "{state} held={held} {event:?}");
                allowed += usize::from(got.is_ok());
            }
        }
    }
    assert_eq!(allowed, table.len(), "no row of the table is out of reach");
}

#[test]
fn nothing_leaves_success_or_cancelled() {
    for event in Event::ALL {
        assert!(apply(at(ChunkState::Success, false), event).is_err());
        assert!(apply(at(ChunkState::Cancelled, false), event).is_err());
    }
}

#[test]
fn attempts_count_at_claim_and_the_fence_never_falls() {
    let claimed = apply(Chunk::new(true), Event::Claim).unwrap();
    assert_eq!((claimed.attempt, claimed.fence), (1, 1));
    for event in Event::ALL {
        if let Ok(after) = apply(claimed, event) {
            assert!(after.fence >= claimed.fence, "{event:?}");
        }
    }
    let dead = apply(claimed, Event::FailFinal).unwrap();
    let redriven = apply(dead, Event::Redrive).unwrap();
    assert_eq!((redriven.attempt, redriven.fence), (0, 1));
}

#[test]
fn giving_back_is_free_three_times_in_a_row_only() {
    let mut chunk = Chunk::new(true);
    for n in 1..=MAX_RETURNS {
        chunk = apply(chunk, Event::Claim).unwrap();
        chunk = apply(chunk, Event::GiveBack).unwrap();
        assert_eq!((chunk.attempt, chunk.returned, chunk.fence), (0, n, i64::from(n)));
    }
    let chunk = apply(chunk, Event::Claim).unwrap();
    assert!(apply(chunk, Event::GiveBack).is_err());
    assert_eq!(apply(chunk, Event::FailRetryable).unwrap().returned, 0, "a real outcome starts the row anew");
}

#[test]
fn lost_leases_are_counted_in_a_row() {
    let running = |chunk| apply(chunk, Event::Claim).unwrap();
    let once = apply(running(Chunk::new(true)), Event::ExpireRetryable).unwrap();
    let twice = apply(running(apply(once, Event::Stage).unwrap()), Event::ExpireRetryable).unwrap();
    assert_eq!((once.lost, twice.lost), (1, LOST_LEASES_TO_ISOLATE));
    let failed = apply(running(apply(twice, Event::Stage).unwrap()), Event::FailRetryable).unwrap();
    assert_eq!(failed.lost, 0);
}

#[test]
fn words_read_back() {
    for state in ChunkState::ALL {
        assert_eq!(ChunkState::parse(state.as_str()), Some(state));
        assert!(state.status().states().contains(&state));
    }
    assert_eq!(ChunkState::parse("PENDING"), None);
}
