//! The workspace of a replay: as it was found, and changed as the recording says, so that tools for files can run in it
//! and its digest can be held against the recorded ones.
//!
//! Invariant: nothing is written but what a tool for files may come to, at plain paths below its folder, and through no
//! link; the rest is known by its digest, and stands nowhere. A comparison for which something is missing is a doubt,
//! and no pass.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use super::ToolMode;
use super::cursor::Cursor;
use super::diff::diff;
use super::files;
use super::finding::{Aspect, Divergence, Guess};
use super::held::Held;
use super::part::Part;
use crate::cassette::Tape;
use crate::session::{Effects, Fact, ListedChange, Purpose};
use crate::tools::{Answer, ToolCall};
use crate::workspace::{Tree, changed_files, is_ignore_file, shown_digest};
use crate::world::{RealDir, Roots, World};

const NO_BASE: &str = "the workspace as it was found is not in the recording";
const NO_EFFECTS: &str = "what commands did to files was not recorded (`record: effects`)";
/// How a refusal of the recorded sandbox begins: another one holds here.
const REFUSALS: [&str; 3] =
    ["outside of what the sandbox lets", "the sandbox lets nothing", "belongs to spettro itself"];

pub struct Ground {
    root: PathBuf,
    tape: Rc<Tape>,
    tree: RefCell<Tree>,
    /// What of it does not stand in the folder.
    held: RefCell<Held>,
    /// Whether the recording says how it began.
    known: bool,
    /// Whether the run at hand recorded effects.
    effects: Cell<bool>,
    /// What has happened has really happened, or happens nowhere: nothing recorded has an effect.
    own: bool,
    seen: RefCell<Seen>,
}

struct Seen {
    /// The facts before this place have had their effect.
    upto: usize,
    /// The recorded baseline has been met.
    begun: bool,
    /// Why this workspace may be another one than the recorded.
    sure: Result<(), String>,
    jobs: BTreeSet<String>,
    trees: Tally,
    files: Tally,
}

/// How often something was compared, and why it once could not be.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    pub count: u64,
    pub doubt: Option<String>,
}

impl Ground {
    /// The workspace as the recording says that it was found.
    pub fn new(tape: &Rc<Tape>, root: &Path, tools: ToolMode) -> Ground {
        let mut held = Held::new(tape, root);
        // A workspace in which tools really run was filled before.
        if tools == ToolMode::Recorded {
            held.take_base();
        }
        let known = tape.base().is_some() && tools != ToolMode::Stub;
        let sure = if known { Ok(()) } else { Err(NO_BASE.to_owned()) };
        let (jobs, trees, files) = Default::default();
        Ground {
            root: root.to_owned(),
            tape: tape.clone(),
            tree: RefCell::new(Tree::new(Roots::same(root.to_owned()), Vec::new())),
            held: RefCell::new(held),
            known,
            effects: Cell::new(false),
            own: tools != ToolMode::Recorded,
            seen: RefCell::new(Seen { upto: 0, begun: false, sure, jobs, trees, files }),
        }
    }

    /// A run begins; `effects`: it recorded them.
    pub fn begin(&self, part: &Part, effects: bool) {
        self.effects.set(effects);
        let mut seen = self.seen.borrow_mut();
        seen.upto = part.range.start;
        seen.jobs.clear();
        if part.start.resumed && self.known {
            seen.sure = Err("what happened to the files between two runs is not recorded".to_owned());
        }
    }

    /// From here on the workspace may be another one than the recorded, until it is found to be the same.
    pub fn doubt(&self, why: &str) {
        let mut seen = self.seen.borrow_mut();
        if seen.sure.is_ok() {
            seen.sure = Err(why.to_owned());
        }
    }

    /// A result of a tool for files was the recorded one.
    pub fn same(&self) {
        self.seen.borrow_mut().files.count += 1;
    }

    /// Listings compared, and calls of tools for files.
    pub fn tallies(&self) -> (Tally, Tally) {
        let seen = self.seen.borrow();
        (seen.trees.clone(), seen.files.clone())
    }

    /// Lets everything that is recorded before a place have its effect.
    pub fn advance(&self, part: &Part, to: usize) {
        if self.own {
            return;
        }
        loop {
            let at = {
                let mut seen = self.seen.borrow_mut();
                if seen.upto >= to.min(part.range.end) {
                    return;
                }
                seen.upto += 1;
                seen.upto - 1
            };
            match part.fact(at) {
                Fact::Effects(effects) => self.apply(at, effects),
                Fact::Command(run) if run.purpose != Purpose::Git => {
                    let mut seen = self.seen.borrow_mut();
                    // What stood before the baseline is in the base.
                    if !self.effects.get() && seen.begun && seen.sure.is_ok() {
                        seen.sure = Err(NO_EFFECTS.to_owned());
                    }
                }
                Fact::JobStarted { job, .. } => {
                    self.seen.borrow_mut().jobs.insert(job.clone());
                }
                Fact::JobExited { job, .. } => {
                    self.seen.borrow_mut().jobs.remove(job);
                }
                _ => {}
            }
        }
    }

    fn apply(&self, at: usize, effects: &Effects) {
        let mut held = self.held.borrow_mut();
        for (index, file) in effects.files.iter().enumerate() {
            let path = Path::new(OsStr::from_bytes(&file.path.0));
            let done = match &file.after {
                Some(after) => held.take(path, after, (at, index)),
                None => held.remove(path),
            };
            if let Err(error) = done {
                let why = format!("`{}` cannot be removed: {error}", path.display());
                self.seen.borrow_mut().sure = Err(why);
            }
        }
        if effects.partial {
            self.seen.borrow_mut().sure = Err("a step changed more files than are recorded".to_owned());
        }
    }

    /// A tool for files is about to run that is given this path, as it was written.
    pub fn look(&self, part: &Part, named: &str) {
        self.held.borrow_mut().look(inside(part, named).as_deref());
    }

    /// The workspace is listed where the recording holds no listing any more.
    pub fn unlisted(&self, part: &Part) {
        // Where a recording ends in the middle there need be none.
        if part.ended {
            self.doubt_trees("the replay lists the workspace once more than the recording");
        }
    }

    fn doubt_trees(&self, why: &str) {
        self.seen.borrow_mut().trees.doubt.get_or_insert_with(|| why.to_owned());
    }

    /// Compares with a recorded listing.
    pub fn listing(&self, world: &World, cursor: &Cursor, at: usize) {
        self.advance(&cursor.part, at);
        let Fact::Listing { digest, changed } = cursor.part.fact(at) else { return };
        if !self.known {
            return self.doubt_trees(NO_BASE);
        }
        let Some(digest) = digest else {
            return self.doubt_trees("a listing of the workspace failed when it was recorded");
        };
        // What is listed in another order is no other workspace.
        let world = World { dir: Rc::new(RealDir), ..world.clone() };
        self.held.borrow_mut().list();
        let now = self.tree.borrow_mut().digest_with(&world, self.held.borrow().iter());
        let mut seen = self.seen.borrow_mut();
        let begun = std::mem::replace(&mut seen.begun, true);
        match (now, seen.sure.clone()) {
            (Ok(now), _) if now == *digest => {
                seen.trees.count += 1;
                seen.sure = Ok(());
                drop(seen);
                self.told(cursor, changed);
            }
            (Ok(_), Ok(())) if !begun && !cursor.part.keeps_base() => {
                let why = "the workspace was kept by a later run than the first";
                seen.sure = Err(why.to_owned());
                seen.trees.doubt.get_or_insert(why.to_owned());
            }
            (Ok(now), Ok(())) => {
                let text = format!("the workspace is another one than was recorded: {now} instead of {digest}");
                seen.sure = Err("the workspace differs already".to_owned());
                drop(seen);
                cursor.find(cursor.differs(Aspect::Trees, text));
            }
            (Ok(_), Err(why)) => drop(seen.trees.doubt.get_or_insert(why)),
            (Err(error), _) => drop(seen.trees.doubt.get_or_insert(error.to_string())),
        }
    }

    /// Compares what a listing says has changed, where it says so, with what has.
    fn told(&self, cursor: &Cursor, recorded: &[ListedChange]) {
        if recorded.is_empty() {
            return;
        }
        let base = self.tape.base().into_iter().flat_map(|base| &base.files);
        let shown = |path: &Path, kind, sha256: &str| Some((path.to_owned(), shown_digest(kind, sha256)?));
        let before: BTreeMap<_, _> = base.filter_map(|file| shown(&file.path, file.kind, &file.sha256)).collect();
        let mut after = self.tree.borrow().files().clone();
        for (path, kind, sha256) in self.held.borrow().iter() {
            if !after.contains_key(path) {
                after.extend(shown(path, kind, sha256));
            }
        }
        let change = |path: String| {
            let (before, after) = (before.get(Path::new(&path)).cloned(), after.get(Path::new(&path)).cloned());
            ListedChange { path, before, after }
        };
        let now: Vec<ListedChange> = changed_files(&before, &after).into_iter().map(change).collect();
        if now != recorded {
            let text = "the recording says of other files that they have changed, or otherwise".to_owned();
            let lines = |changes: &[ListedChange]| changes.iter().map(line).collect::<String>();
            let divergence = cursor.differs(Aspect::Trees, text);
            cursor.find(Divergence { diff: diff(&lines(recorded), &lines(&now)), ..divergence });
        }
    }

    /// The run is over: what it listed at its end, beside the loop, is compared too.
    pub fn finish(&self, world: &World, cursor: &Cursor) {
        while let Some(at) = cursor.listing() {
            self.listing(world, cursor, at);
        }
        self.advance(&cursor.part, cursor.part.range.end);
    }

    /// Holds what a tool for files gave here against its recorded answer and effects; then the recording's hold.
    pub fn compare(&self, cursor: &Cursor, call: &ToolCall, told: &Answer, real: &Answer) {
        let end = cursor.tool(&call.id).unwrap_or_else(|| cursor.here());
        let own = cursor.here()..end;
        let effects = own.filter_map(|at| match cursor.part.fact(at) {
            Fact::Effects(effects) => Some(effects),
            _ => None,
        });
        let differs = effects.flat_map(|effects| &effects.files).find(|file| {
            let path = Path::new(OsStr::from_bytes(&file.path.0));
            let after = file.after.as_ref().map(|after| (after.kind, after.sha256.clone()));
            self.held.borrow().stands(path) != after
        });
        let same = (told.status, &told.text) == (real.status, &real.text)
            && (&told.marks, &told.changed) == (&real.marks, &real.changed);
        if same && differs.is_none() {
            self.seen.borrow_mut().files.count += 1;
        } else if let Some(doubt) = self.excuse(&cursor.part, call, told) {
            self.seen.borrow_mut().files.doubt.get_or_insert(doubt);
        } else {
            let text = match differs {
                Some(file) => format!("{} left `{}` otherwise", call.name, String::from_utf8_lossy(&file.path.0)),
                None => format!("{} gives something else", call.name),
            };
            let divergence = cursor.differs(Aspect::Files, text);
            cursor.find(Divergence { diff: diff(&told.text, &real.text), guess: Guess::ToolResult, ..divergence });
        }
        self.advance(&cursor.part, end);
        if !self.effects.get() && real.changed.iter().any(|path| is_ignore_file(Path::new(path))) {
            // What is ignored from here on is seen in the folder alone.
            self.held.borrow_mut().look_everywhere();
            if self.held.borrow().holds(Path::new("")) {
                self.doubt("which files are ignored was changed, and not all of them are in the recording");
            }
        }
    }

    /// Why a difference may come from what is not in the recording.
    fn excuse(&self, part: &Part, call: &ToolCall, told: &Answer) -> Option<String> {
        let seen = self.seen.borrow();
        if let Err(why) = &seen.sure {
            return Some(why.clone());
        }
        if !seen.jobs.is_empty() {
            return Some("a job was running".to_owned());
        }
        if REFUSALS.iter().any(|refusal| told.text.contains(refusal)) {
            return Some("the recorded sandbox refused a path".to_owned());
        }
        let arguments: Option<serde_json::Value> = serde_json::from_str(&call.arguments).ok();
        let named = arguments.as_ref().and_then(|arguments| arguments.get("path")?.as_str()).unwrap_or(".");
        let lacks = || Some(format!("`{named}` is not, or not whole, in the recorded tree"));
        let Some(path) = inside(part, named) else { return lacks() };
        let held = self.held.borrow();
        if !files::is_plain_on_disk(&self.root, &path) || held.holds(&path) {
            return lacks();
        }
        // Who searches sees files alone.
        let lists = arguments.as_ref().is_some_and(|arguments| arguments.get("pattern").is_none());
        (lists && held.may_be_bare(&path)).then(|| "a recording does not tell of folders without files".to_owned())
    }
}

/// The path below the workspace that the model has written. `None` for one that may lead out of it.
fn inside(part: &Part, named: &str) -> Option<PathBuf> {
    let named = Path::new(named);
    let below = named.strip_prefix(&part.start.workspace).unwrap_or(named).components();
    let names = below.filter(|part| *part != Component::CurDir).map(|part| match part {
        Component::Normal(name) => Some(name),
        _ => None,
    });
    names.collect()
}

/// A change, for people.
fn line(change: &ListedChange) -> String {
    let shown = |digest: &Option<String>| digest.clone().unwrap_or_else(|| "(absent)".to_owned());
    format!("{}: {} to {}\n", change.path, shown(&change.before), shown(&change.after))
}
