//! Three schedulers and what befalls them: killed at any moment and started again, stopped and let go on
//! much later, or all gone for days.

use std::path::PathBuf;
use std::process::{Child, Command};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::process::start;

const SCHEDULERS: usize = 3;

/// The processes. All are killed when it is dropped.
pub(crate) struct Disorder {
    database: String,
    folder: PathBuf,
    crew: Vec<Member>,
    started: usize,
    pub(crate) random: StdRng,
    pub(crate) kills: usize,
    pub(crate) pauses: usize,
    pub(crate) outages: usize,
}

struct Member {
    child: Child,
    /// Stopped until so many more looks are over.
    stopped: Option<usize>,
}

impl Disorder {
    pub(crate) fn new(database: &str, folder: PathBuf, seed: u64) -> Self {
        let random = StdRng::seed_from_u64(seed);
        let (kills, pauses, outages) = (0, 0, 0);
        let database = database.to_owned();
        let mut new = Self { database, folder, crew: Vec::new(), started: 0, random, kills, pauses, outages };
        new.hire();
        new
    }

    fn hire(&mut self) {
        while self.crew.len() < SCHEDULERS {
            self.started += 1;
            let child = start(&self.database, &self.folder, self.started);
            self.crew.push(Member { child, stopped: None });
        }
    }

    /// Everybody is gone; `hire` comes with the next look.
    pub(crate) fn outage(&mut self) {
        self.outages += 1;
        self.crew.iter_mut().for_each(Member::kill);
        self.crew.clear();
    }

    /// What happens at a look, mostly nothing. At least one scheduler is not stopped afterwards.
    pub(crate) fn strike(&mut self) {
        self.hire();
        for member in &mut self.crew {
            match member.stopped {
                Some(0) => member.go_on(),
                Some(looks) => member.stopped = Some(looks - 1),
                None => {}
            }
        }
        // Always as many numbers, so that a seed means the same whatever happens meanwhile.
        let (victim, looks) = (self.random.random_range(0..SCHEDULERS), self.random.random_range(1..30));
        match self.random.random_range(0..100) {
            0..2 => {
                self.kills += 1;
                self.crew[victim].kill();
                self.crew.remove(victim);
                self.hire();
            }
            2..6 if self.crew[victim].stopped.is_none() => {
                self.pauses += 1;
                self.crew[victim].signal("STOP");
                self.crew[victim].stopped = Some(looks);
            }
            _ => {}
        }
        if self.crew.iter().all(|member| member.stopped.is_some()) {
            self.crew[victim].go_on();
        }
    }

    /// A process that was stopped inside a transaction keeps others from its schedule: it may go on.
    pub(crate) fn relent(&mut self) {
        self.crew.iter_mut().filter(|member| member.stopped.is_some()).for_each(Member::go_on);
    }
}

impl Member {
    fn signal(&self, name: &str) {
        let done = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status();
        assert!(done.expect("run kill").success(), "kill -{name}");
    }

    fn go_on(&mut self) {
        self.signal("CONT");
        self.stopped = None;
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Disorder {
    fn drop(&mut self) {
        self.crew.iter_mut().for_each(Member::kill);
    }
}
