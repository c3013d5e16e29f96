//! Which steps may run when: a directed acyclic graph over the listed steps, by their position.

/// The steps that each step needs, by position.
pub(crate) type Needs = Vec<Vec<usize>>;

/// One after another, as listed.
pub(crate) fn in_order(steps: usize) -> Needs {
    (0..steps).map(|step| step.checked_sub(1).into_iter().collect()).collect()
}

/// Steps that wait for each other: each needs the next, the last is the first again.
pub(crate) fn cycle(needs: &Needs) -> Option<Vec<usize>> {
    let mut harmless = vec![false; needs.len()];
    (0..needs.len()).find_map(|step| cycle_from(step, needs, &mut Vec::new(), &mut harmless))
}

fn cycle_from(
    step: usize,
    needs: &Needs,
    way: &mut Vec<usize>,
    harmless: &mut Vec<bool>,
) -> Option<Vec<usize>> {
    if harmless[step] {
        return None;
    }
    if let Some(start) = way.iter().position(|passed| *passed == step) {
        return Some(way[start..].iter().copied().chain([step]).collect());
    }
    way.push(step);
    for needed in &needs[step] {
        if let Some(cycle) = cycle_from(*needed, needs, way, harmless) {
            return Some(cycle);
        }
    }
    way.pop();
    harmless[step] = true;
    None
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Waiting,
    Started,
    Done,
}

/// How far one attempt has come.
pub(super) struct Progress<'a> {
    needs: &'a Needs,
    stages: Vec<Stage>,
}

impl<'a> Progress<'a> {
    /// A start where `done` says which steps earlier attempts recorded.
    pub(super) fn new(needs: &'a Needs, done: impl Fn(usize) -> bool) -> Self {
        let stage = |step| if done(step) { Stage::Done } else { Stage::Waiting };
        Self { needs, stages: (0..needs.len()).map(stage).collect() }
    }

    /// Starts the first step that waits for nothing any more.
    pub(super) fn start_next(&mut self) -> Option<usize> {
        let is_done = |step: &usize| self.stages[*step] == Stage::Done;
        let ready =
            |step: &usize| self.stages[*step] == Stage::Waiting && self.needs[*step].iter().all(is_done);
        let step = (0..self.stages.len()).find(ready)?;
        self.stages[step] = Stage::Started;
        Some(step)
    }

    /// A started step was recorded.
    pub(super) fn done(&mut self, step: usize) {
        self.stages[step] = Stage::Done;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Whether some order exists, by taking away what needs nothing, again and again.
    fn has_order(needs: &Needs) -> bool {
        let mut left: Vec<usize> = (0..needs.len()).collect();
        loop {
            let before = left.len();
            let gone = left.clone();
            left.retain(|step| needs[*step].iter().any(|needed| gone.contains(needed)));
            if left.is_empty() {
                return true;
            }
            if left.len() == before {
                return false;
            }
        }
    }

    fn any_graph() -> impl Strategy<Value = Needs> {
        (1..9_usize).prop_flat_map(|steps| {
            let needs = proptest::collection::btree_set(0..steps, 0..3.min(steps + 1));
            proptest::collection::vec(needs.prop_map(|set| set.into_iter().collect()), steps)
        })
    }

    /// Any graph without a cycle, with its steps listed in any order.
    fn acyclic() -> impl Strategy<Value = Needs> {
        let steps = 1..20_usize;
        let shuffled = steps.prop_flat_map(|steps| Just((0..steps).collect::<Vec<_>>()).prop_shuffle());
        (shuffled, any::<u64>()).prop_map(|(order, mut bits)| {
            let mut needs = vec![Vec::new(); order.len()];
            for (later, step) in order.iter().enumerate() {
                for earlier in &order[..later] {
                    bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    if bits >> 62 == 0 {
                        needs[*step].push(*earlier);
                    }
                }
            }
            needs
        })
    }

    proptest! {
        #[test]
        fn a_cycle_is_found_where_no_order_exists(needs in any_graph()) {
            let found = cycle(&needs);
            prop_assert_eq!(found.is_none(), has_order(&needs));
            if let Some(found) = found {
                prop_assert!(found.len() >= 2);
                prop_assert_eq!(found.first(), found.last());
                for pair in found.windows(2) {
                    prop_assert!(needs[pair[0]].contains(&pair[1]));
                }
            }
        }

        #[test]
        fn every_order_respects_needs_and_runs_what_is_not_recorded_once(
            needs in acyclic(),
            recorded in any::<u32>(),
            picks in proptest::collection::vec(any::<proptest::sample::Index>(), 20),
        ) {
            prop_assert_eq!(cycle(&needs), None);
            let was = |step: usize| recorded >> step & 1 == 1;
            let mut done: Vec<usize> = (0..needs.len()).filter(|step| was(*step)).collect();
            let mut ran = Vec::new();
            let mut progress = Progress::new(&needs, was);
            let mut started = Vec::new();
            for pick in picks {
                while let Some(step) = progress.start_next() {
                    prop_assert!(needs[step].iter().all(|needed| done.contains(needed)));
                    started.push(step);
                    ran.push(step);
                }
                if started.is_empty() {
                    break;
                }
                let step = started.remove(pick.index(started.len()));
                progress.done(step);
                done.push(step);
            }
            ran.sort_unstable();
            let expected: Vec<usize> = (0..needs.len()).filter(|step| !was(*step)).collect();
            prop_assert_eq!(ran, expected);
        }
    }

    #[test]
    fn listed_steps_run_one_after_another() {
        let needs = in_order(3);
        assert_eq!(needs, [vec![], vec![0], vec![1]]);
        let mut progress = Progress::new(&needs, |_| false);
        for step in 0..3 {
            assert_eq!(progress.start_next(), Some(step));
            assert_eq!(progress.start_next(), None);
            progress.done(step);
        }
        assert_eq!(progress.start_next(), None);
        assert!(in_order(0).is_empty());
    }
}
