//! What looking at git's settings, hooks and protected files costs after each command.

use std::path::Path;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use spettro::model::Http;
use spettro::process::{self, ProcessOptions};
use spettro::workspace::{Git, Protected, Tripwire};
use spettro::world::{RealClock, RealDir, RealEnv, RealIds, Roots, World};

use crate::{Result, median};

const ROUNDS: usize = 2_000;
/// Files that `protect:` matches.
const PROTECTED: usize = 20;

/// The median of a look in a repository with some hooks and protected files. To be called before there are threads.
pub fn measure(spettro: &Path) -> Result<Duration> {
    let folder = tempfile::tempdir()?;
    let root = folder.path().join("work");
    std::fs::create_dir_all(root.join("tests"))?;
    let made = Command::new("git").args(["init", "-q"]).current_dir(&root).stdin(Stdio::null()).status()?;
    if !made.success() {
        return Err("git could not make a repository".into());
    }
    for index in 0..PROTECTED {
        std::fs::write(root.join(format!("tests/{index}")), "x")?;
    }
    for hook in ["pre-commit", "pre-push", "post-merge"] {
        std::fs::write(root.join(".git/hooks").join(hook), "exit 0")?;
    }
    let world = World {
        transport: Rc::new(Http::new()),
        exec: process::start(ProcessOptions { executable: spettro.to_owned(), ..ProcessOptions::default() })?,
        dir: Rc::new(RealDir),
        clock: Rc::new(RealClock::new()),
        ids: Rc::new(RealIds::from_seed(b"look")),
        env: Rc::new(RealEnv),
    };
    let roots = Roots::same(root.canonicalize()?);
    let protected = Protected::new(&world, &roots, &["tests".to_owned()], None)?;
    let git = Rc::new(Git::new(roots.clone(), folder.path().join("scratch")));
    let mut tripwire = Tripwire::new(&world, &roots, git, protected.files().cloned());
    let times: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let started = Instant::now();
            tripwire.look("a command");
            started.elapsed()
        })
        .collect();
    Ok(median(&times))
}
