//! The real clock, chance, directories and environment.

#![allow(clippy::disallowed_methods, reason = "this is where clock, environment and listings are real")]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use sha2::{Digest, Sha256};

use super::ignored::Ignored;
use super::ports::{Boxed, Clock, Dir, DirEntry, Enter, Env, Explored, Ids, WalkOptions};

/// Threads that list a folder: more gain nothing.
const MOST_WALKERS: usize = 2;

pub struct RealClock {
    start: Instant,
}

impl RealClock {
    pub fn new() -> RealClock {
        RealClock { start: Instant::now() }
    }
}

impl Default for RealClock {
    fn default() -> Self {
        RealClock::new()
    }
}

impl Clock for RealClock {
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }

    fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    fn sleep(&self, duration: Duration) -> Boxed<'_, ()> {
        Box::pin(tokio::time::sleep(duration))
    }
}

/// `2026-11-29T12:03:41.512Z`.
pub fn rfc3339(time: SystemTime) -> String {
    humantime::format_rfc3339_millis(time).to_string()
}

/// Draws from a seed: the same seed gives the same numbers for each purpose.
pub struct RealIds {
    seed: [u8; 32],
    drawn: RefCell<BTreeMap<&'static str, u64>>,
}

impl RealIds {
    pub fn from_seed(seed: &[u8]) -> RealIds {
        RealIds { seed: Sha256::digest(seed).into(), drawn: RefCell::default() }
    }

    /// A seed from the system's random source.
    pub fn random() -> io::Result<RealIds> {
        let mut seed = [0u8; 32];
        io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut seed)?;
        Ok(RealIds { seed, drawn: RefCell::default() })
    }

    /// From what [`Ids::seed`] told; `None` when it is no such text.
    pub fn from_hex(seed: &str) -> Option<RealIds> {
        let mut bytes = [0u8; 32];
        if seed.len() != 2 * bytes.len() || !seed.is_ascii() {
            return None;
        }
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&seed[2 * index..2 * index + 2], 16).ok()?;
        }
        Some(RealIds { seed: bytes, drawn: RefCell::default() })
    }
}

impl Ids for RealIds {
    fn seed(&self) -> Option<String> {
        Some(self.seed.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    fn draw(&self, purpose: &'static str) -> u64 {
        let mut drawn = self.drawn.borrow_mut();
        let count = drawn.entry(purpose).or_insert(0);
        *count += 1;
        let mut hash = Sha256::new();
        hash.update(self.seed);
        hash.update(purpose.as_bytes());
        hash.update(count.to_le_bytes());
        let digest = hash.finalize();
        let mut first = [0u8; 8];
        first.copy_from_slice(&digest[..8]);
        u64::from_le_bytes(first)
    }
}

pub struct RealDir;

impl Dir for RealDir {
    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(path)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            entries.push(DirEntry { name: entry.file_name(), is_dir: kind.is_dir(), is_symlink: kind.is_symlink() });
        }
        entries.sort_by(|a, b| a.name.as_encoded_bytes().cmp(b.name.as_encoded_bytes()));
        Ok(entries)
    }

    fn explore(&self, root: &Path, options: WalkOptions, enter: Enter) -> Explored {
        // The threads find everything in no order, and all lists are whole after every push.
        let found = Arc::new(Mutex::new(Explored::default()));
        let (folders, top) = (Arc::clone(&found), root.to_owned());
        let ignored = options.gitignore.then(|| Ignored::new(root));
        let walk = ignore::WalkBuilder::new(root)
            // Ignore files are read by `Ignored`.
            .standard_filters(false)
            .follow_links(false)
            .filter_entry(move |entry| {
                if entry.depth() == 0 {
                    return true;
                }
                if entry.file_name() == ".git" {
                    return false;
                }
                let is_dir = entry.file_type().is_some_and(|kind| kind.is_dir());
                if ignored.as_ref().is_some_and(|ignored| ignored.leaves_out(entry.path(), is_dir)) {
                    return false;
                }
                if !is_dir {
                    return true;
                }
                if !options.nested_repositories && entry.path().join(".git").exists() {
                    return false;
                }
                let Ok(path) = entry.path().strip_prefix(&top) else { return true };
                lock(&folders).folders.push(path.to_owned());
                enter(path)
            })
            .threads(std::thread::available_parallelism().map_or(1, usize::from).min(MOST_WALKERS))
            .build_parallel();
        walk.run(|| {
            Box::new(|entry| {
                match entry {
                    Ok(entry) if entry.file_type().is_some_and(|kind| !kind.is_dir()) => {
                        if let Ok(path) = entry.path().strip_prefix(root) {
                            lock(&found).files.push(path.to_owned());
                        }
                    }
                    Ok(_) => {}
                    Err(error) => lock(&found).unread.push(error.to_string()),
                }
                ignore::WalkState::Continue
            })
        });
        let mut found = std::mem::take(&mut *lock(&found));
        let by_bytes =
            |a: &PathBuf, b: &PathBuf| a.as_os_str().as_encoded_bytes().cmp(b.as_os_str().as_encoded_bytes());
        found.files.sort_by(by_bytes);
        found.folders.sort_by(by_bytes);
        found.unread.sort();
        found
    }
}

fn lock(found: &Mutex<Explored>) -> MutexGuard<'_, Explored> {
    found.lock().unwrap_or_else(PoisonError::into_inner)
}

pub struct RealEnv;

impl Env for RealEnv {
    fn var(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    fn vars(&self) -> Vec<(String, String)> {
        let mut vars: Vec<(String, String)> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        vars.sort();
        vars
    }
}
