//! Files that must not change: the goal file, and what the globs of `protect:` match.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::CWD;

use super::WorkspaceError;
use super::globs::Globs;
use super::meanwhile::{Meanwhile, Watching};
use super::stamp::{Content, Hash, Kind, Stamp, content};
use crate::world::{Roots, WalkOptions, World};

/// Larger files are told by size and times alone: hashing them takes longer than any run should stand still.
const LARGEST_HASHED_BYTES: u64 = 256 << 20;

/// Files that must not change: the goal file and what `protect:` matches, by content.
///
/// Ignored files count; `.git` only where a glob names it. A glob that names a folder means all below it. Touching a
/// file, or its permissions, is no change (but of a very large one, and while checks run); a file that is added and
/// matches is one.
pub struct Protected {
    root: PathBuf,
    globs: Arc<Globs>,
    /// By absolute real path.
    guarded: BTreeMap<PathBuf, Guarded>,
    /// Who tells what happens while checks run.
    meanwhile: Meanwhile,
    /// How they stood when the checks began, while those run.
    held: Option<Held>,
}

struct Held {
    stamps: BTreeMap<PathBuf, Option<Stamp>>,
    watching: Watching,
}

struct Guarded {
    /// As reported: relative to the workspace, or the shown path outside of it.
    name: String,
    was: Was,
    /// `None`: compare the content whatever the stat data say.
    stamp: Option<Stamp>,
}

#[derive(Debug, PartialEq, Eq)]
enum Was {
    Hashed { symlink: bool, special: bool, size: u64, hash: Hash },
    Large(Stamp),
    Unreadable,
    Gone,
}

impl Protected {
    /// Takes the digests. `goal_file` may stand anywhere. `WorkspaceError::Glob` for what is no glob, or leads out of the
    /// workspace.
    pub fn new(
        world: &World,
        roots: &Roots,
        globs: &[String],
        goal_file: Option<&Path>,
    ) -> Result<Protected, WorkspaceError> {
        let globs = Arc::new(Globs::new(globs, roots)?);
        let meanwhile = Meanwhile::new(&roots.real, globs.clone());
        let guarded = BTreeMap::new();
        let mut protected = Protected { root: roots.real.clone(), globs, guarded, meanwhile, held: None };

        let mut paths = protected.matching(world);
        if let Some(file) = goal_file {
            std::fs::metadata(file).map_err(WorkspaceError::io("read the goal file", file))?;
            paths.insert(file.to_owned());
        }
        for path in paths {
            let name = protected.name(&path, roots);
            // What a link leads to is what it says: both are guarded.
            if let Ok(target) = std::fs::canonicalize(&path)
                && target != path
                && target.is_file()
            {
                protected.guard(target, name.clone());
            }
            protected.guard(path, name);
        }
        protected.read_all();
        protected.meanwhile.keep(protected.guarded.keys());
        Ok(protected)
    }

    /// Names of protected files that were changed, added or removed since `new`, sorted: relative to the workspace,
    /// shown paths outside of it.
    pub fn violations(&mut self, world: &World) -> Result<Vec<String>, WorkspaceError> {
        let root = &self.root;
        std::fs::metadata(root).map_err(WorkspaceError::io("look at the workspace", root))?;
        let mut names: BTreeSet<String> = self
            .matching(world)
            .iter()
            .filter(|path| !self.guarded.contains_key(*path))
            .map(|path| self.relative(path))
            .collect();
        names.extend(self.read_all());
        Ok(names.into_iter().collect())
    }

    /// From now on a file that is touched counts as changed, whatever it holds in the end: checks that run meanwhile
    /// may have seen something else. A change time cannot be set back, so what was swapped and restored shows; what was
    /// made and removed, and folders that were moved, are watched for.
    pub fn hold(&mut self) {
        // The folders first: one that is moved between the two looks is no longer where its files were.
        let watching = self.meanwhile.watch(self.guarded.keys());
        let stamps = self.guarded.keys().map(|path| (path.clone(), stamp(path))).collect();
        self.held = Some(Held { stamps, watching });
    }

    /// Names of what was touched since [`Protected::hold`], sorted; what is still changed now is one of them.
    pub fn touched(&mut self, world: &World) -> Result<Vec<String>, WorkspaceError> {
        let Some(held) = self.held.take() else { return Ok(Vec::new()) };
        let seen = held.watching.end();
        let mut names = BTreeSet::new();
        for (path, guarded) in &self.guarded {
            let touched = held.stamps.get(path).is_none_or(|was| *was != stamp(path));
            if touched || seen.moved.iter().any(|folder| path.starts_with(folder)) {
                names.insert(guarded.name.clone());
            }
        }
        // Where nothing was guarded yet, something may have been there meanwhile.
        let bare = |folder: &&PathBuf| !self.guarded.keys().any(|path| path.starts_with(folder));
        let made = seen.made.iter().filter(|path| !self.guarded.contains_key(*path));
        names.extend(seen.moved.iter().filter(bare).chain(made).map(|path| self.relative(path)));
        names.extend(self.violations(world)?);
        Ok(names.into_iter().collect())
    }

    /// The files that are guarded, for whoever looks at them between two comparisons.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        self.guarded.keys()
    }

    fn guard(&mut self, path: PathBuf, name: String) {
        self.guarded.entry(path).or_insert(Guarded { name, was: Was::Gone, stamp: None });
    }

    /// The workspace itself is `.`, and what stands outside of it keeps its path.
    fn relative(&self, path: &Path) -> String {
        match path.strip_prefix(&self.root) {
            Ok(relative) if relative == Path::new("") => ".".to_owned(),
            Ok(relative) => relative.to_string_lossy().into_owned(),
            Err(_) => path.to_string_lossy().into_owned(),
        }
    }

    fn name(&self, path: &Path, roots: &Roots) -> String {
        match path.strip_prefix(&self.root) {
            Ok(relative) => relative.to_string_lossy().into_owned(),
            Err(_) => roots.to_shown(path).to_string_lossy().into_owned(),
        }
    }

    /// Absolute paths that match now.
    fn matching(&self, world: &World) -> BTreeSet<PathBuf> {
        let mut found = BTreeSet::new();
        let mut add = |relative: PathBuf| {
            if self.globs.is_match(&relative) {
                found.insert(self.root.join(relative));
            }
        };
        for base in &self.globs.bases {
            // A walk above this one sees it, unless `.git` lies between, which no walk enters.
            let covered = self.globs.bases.iter().any(|other| match base.strip_prefix(other) {
                Ok(rest) => other != base && !rest.iter().any(|part| part == ".git"),
                Err(_) => false,
            });
            if covered {
                continue;
            }
            let start = self.root.join(base);
            if start.is_dir() {
                let (paths, _) = world.dir.walk(&start, WalkOptions { gitignore: false, nested_repositories: true });
                paths.into_iter().for_each(|path| add(base.join(path)));
            }
            if std::fs::symlink_metadata(&start).is_ok_and(|metadata| !metadata.is_dir()) {
                add(base.clone());
            }
        }
        found
    }

    /// Reads what may have changed, keeps what is new, and names what differs from before. The first time that is
    /// everything.
    fn read_all(&mut self) -> Vec<String> {
        let stamps: Vec<Option<Stamp>> = self.guarded.keys().map(|path| stamp(path)).collect();
        // The racy-entry rule, see `stamp`.
        let before_reading = stamps.iter().flatten().map(|stamp| stamp.ctime).max().unwrap_or(i128::MIN);
        let mut buffer = Vec::new();
        let mut changed = Vec::new();
        for ((path, guarded), stamp) in self.guarded.iter_mut().zip(stamps) {
            if stamp.is_some() && guarded.stamp == stamp {
                continue;
            }
            if let (Was::Hashed { size, .. }, Some(stamp)) = (&guarded.was, &stamp)
                && *size != stamp.size
            {
                // Nothing more is to be learned by reading it.
                changed.push(guarded.name.clone());
                continue;
            }
            let (now, stamp) = match content(CWD, path, LARGEST_HASHED_BYTES, &mut buffer) {
                Content::Read { stamp, .. } if stamp.size > LARGEST_HASHED_BYTES => (Was::Large(stamp), Some(stamp)),
                Content::Read { stamp, hash } => {
                    let (symlink, special) = (stamp.kind == Kind::Symlink, stamp.kind == Kind::Special);
                    let was = Was::Hashed { symlink, special, size: stamp.size, hash };
                    (was, (stamp.ctime < before_reading).then_some(stamp))
                }
                Content::Unreadable => (Was::Unreadable, None),
                Content::Gone => (Was::Gone, None),
            };
            if now == guarded.was {
                guarded.stamp = stamp;
            } else {
                changed.push(guarded.name.clone());
                if guarded.was == Was::Gone {
                    (guarded.was, guarded.stamp) = (now, stamp);
                }
            }
        }
        changed
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    Stamp::read(CWD, path).ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{sh, world, write};
    use super::*;

    fn sample() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for name in ["tests/a.rs", "tests/deep/b.rs", "src/lib.rs", "src/gen/x.lock", "Cargo.lock", "target/c.lock"] {
            write(dir.path(), name, name);
        }
        write(dir.path(), ".gitignore", "target\n");
        write(dir.path(), ".git/HEAD", "ref: refs/heads/main");
        write(dir.path(), ".git/hooks/pre-commit", "exit 0");
        // All of that is past by the time anything is read.
        sh(dir.path(), "sleep 0.02");
        dir
    }

    fn protect(dir: &Path, globs: &[&str]) -> Protected {
        let globs: Vec<String> = globs.iter().map(|glob| (*glob).to_owned()).collect();
        Protected::new(&world(), &Roots::same(dir.to_owned()), &globs, None).unwrap()
    }

    /// Names reported after a change of the sample.
    fn after(globs: &[&str], change: &str) -> Vec<String> {
        let dir = sample();
        let mut protected = protect(dir.path(), globs);
        assert_eq!(protected.violations(&world()).unwrap(), Vec::<String>::new());
        sh(dir.path(), change);
        let names = protected.violations(&world()).unwrap();
        assert_eq!(protected.violations(&world()).unwrap(), names, "and is still so when asked again");
        names
    }

    #[test]
    fn changes_additions_and_removals_are_named() {
        assert_eq!(after(&["tests/**"], "echo x >> tests/deep/b.rs"), ["tests/deep/b.rs"]);
        assert_eq!(after(&["tests/**"], "rm tests/a.rs; echo x > tests/new"), ["tests/a.rs", "tests/new"]);
        assert_eq!(after(&["tests/**"], "rm -r tests"), ["tests/a.rs", "tests/deep/b.rs"]);
        assert_eq!(after(&["tests/**"], "echo x >> src/lib.rs"), Vec::<String>::new());
        assert_eq!(after(&[], "rm -r tests"), Vec::<String>::new());
    }

    #[test]
    fn globs_mean_what_they_do_elsewhere() {
        let all = "for f in $(find . -type f ! -path './.git/*'); do echo x >> $f; done";
        assert_eq!(after(&["*.lock"], all), ["Cargo.lock"], "one star stays in its folder");
        assert_eq!(after(&["**/*.lock"], all), ["Cargo.lock", "src/gen/x.lock", "target/c.lock"], "ignored ones too");
        assert_eq!(after(&["src/{lib.rs,gen/*}"], all), ["src/gen/x.lock", "src/lib.rs"]);
        for folder in ["tests", "tests/", "./tests", "tests/**", "{tests,nothing}"] {
            assert_eq!(after(&[folder], all), ["tests/a.rs", "tests/deep/b.rs"], "{folder}");
        }
    }

    #[test]
    fn git_is_looked_at_only_when_named() {
        let change = "echo x >> .git/hooks/pre-commit";
        assert_eq!(after(&["**"], change), Vec::<String>::new());
        for glob in [".git/hooks/**", ".git", "**/.git/hooks/*"] {
            assert_eq!(after(&[glob], change), [".git/hooks/pre-commit"], "{glob}");
        }
        assert_eq!(after(&["**", ".git/hooks"], change), [".git/hooks/pre-commit"]);
    }

    #[test]
    fn touching_is_no_change_but_hiding_one_is() {
        assert_eq!(after(&["tests"], "touch tests/a.rs; chmod +x tests/a.rs"), Vec::<String>::new());
        assert_eq!(after(&["tests"], "cp tests/a.rs x; rm tests/a.rs; mv x tests/a.rs"), Vec::<String>::new());
        let hidden = "touch -r tests/a.rs ref; printf tests/A.rs > tests/a.rs; touch -r ref tests/a.rs";
        assert_eq!(after(&["tests"], hidden), ["tests/a.rs"], "same size, same time");
        assert_eq!(after(&["tests"], "mv tests/a.rs x; ln -s ../x tests/a.rs"), ["tests/a.rs"]);
        assert_eq!(after(&["tests"], "mv tests other; ln -s other tests"), ["tests"]);
        assert_eq!(after(&["tests"], "rm tests/a.rs; mkfifo tests/a.rs"), ["tests/a.rs"]);
    }

    #[test]
    fn a_file_put_back_is_no_change_any_more() {
        let dir = sample();
        let mut protected = protect(dir.path(), &["tests"]);
        sh(dir.path(), "mv tests/a.rs x");
        assert_eq!(protected.violations(&world()).unwrap(), ["tests/a.rs"]);
        sh(dir.path(), "mv x tests/a.rs");
        assert_eq!(protected.violations(&world()).unwrap(), Vec::<String>::new());
    }

    /// What was touched when this happened while checks ran.
    fn while_held(globs: &[&str], change: &str) -> Vec<String> {
        let dir = sample();
        let mut protected = protect(dir.path(), globs);
        assert_eq!(protected.violations(&world()).unwrap(), Vec::<String>::new());
        protected.hold();
        sh(dir.path(), change);
        let names = protected.touched(&world()).unwrap();
        assert_eq!(protected.touched(&world()).unwrap(), Vec::<String>::new(), "nothing is held any more");
        names
    }

    #[test]
    fn what_is_restored_before_the_checks_are_over_shows() {
        for swapped in [
            "cp -p tests/a.rs x; echo y > tests/a.rs; cat x > tests/a.rs; touch -r x tests/a.rs",
            "mv tests/a.rs x; echo y > tests/a.rs; mv x tests/a.rs",
            "cp -p tests/a.rs x; rm tests/a.rs; mv x tests/a.rs",
            "ln tests/a.rs x; cp -p x y; echo z > x; cat y > x; touch -r y x",
        ] {
            assert_eq!(while_held(&["tests/a.rs"], swapped), ["tests/a.rs"], "{swapped}");
        }
        let all = ["tests/a.rs", "tests/deep/b.rs"];
        let folder = "mv tests x; mkdir tests; echo y > tests/a.rs; rm -r tests; mv x tests";
        assert_eq!(while_held(&["tests/**"], folder), all, "no file in it has another time");
        let explained = format!("{folder}; touch tests/new; rm tests/new");
        let named = while_held(&["**/b.rs"], &explained);
        assert!(named.contains(&"tests/deep/b.rs".to_owned()), "nor does a busy folder hide it: {named:?}");
        assert_eq!(while_held(&["tests/**"], "echo y > tests/a.rs"), ["tests/a.rs"]);
        assert_eq!(while_held(&["tests/**"], "echo y > tests/new.rs"), ["tests/new.rs"]);
    }

    #[test]
    fn what_checks_usually_do_touches_nothing() {
        let usual = "cat tests/*.rs; mkdir tests/__cache__; echo x > tests/__cache__/y; mkdir out; cp -r tests out/";
        assert_eq!(while_held(&["tests/*.rs", "tests/deep/**"], usual), Vec::<String>::new());
    }

    #[test]
    fn a_file_that_is_there_only_while_checks_run_shows() {
        for (globs, made, named) in [
            (&["tests/**"][..], "echo x > tests/c.sh; rm tests/c.sh", "tests/c.sh"),
            (&["**/*.rs"], "echo x > src/gen/c.rs; rm src/gen/c.rs", "src/gen/c.rs"),
            (&["tests/*.rs"], "echo x > y; mv y tests/c.rs; mv tests/c.rs y", "tests/c.rs"),
            (&["tests/*.rs"], "ln -s ../src/lib.rs tests/c.rs; rm tests/c.rs", "tests/c.rs"),
            (&["{tests,other}/c.rs"], "ln src/lib.rs tests/c.rs; rm tests/c.rs", "tests/c.rs"),
            (&["conf/a/*.rs"], "mkdir -p x/a; echo x > x/a/c.rs; mv x conf; sleep 0.3; mv conf x", "conf/a/c.rs"),
            (
                &["tests/**/*.rs"],
                "mkdir -p x/y; echo x > x/y/c.rs; mv x tests/x; sleep 0.3; rm -r tests/x",
                "tests/x/y/c.rs",
            ),
            (
                &["src/gen/*.rs"],
                "mv src/gen old; mkdir src/gen; echo x > src/gen/c.rs; sleep 0.3; rm -r src/gen; mv old src/gen",
                "src/gen/c.rs",
            ),
            (&["Cargo.*"], "echo x > Cargo.toml; rm Cargo.toml", "Cargo.toml"),
            (&[".git/hooks"], "echo x > .git/hooks/x; rm .git/hooks/x", ".git/hooks/x"),
        ] {
            assert!(while_held(globs, made).contains(&named.to_owned()), "{made}");
        }
    }

    #[test]
    fn what_does_not_match_may_come_and_go() {
        for (globs, made) in [
            (
                &["tests/*.rs", "tests/deep/*.rs"][..],
                "mkdir tests/__pycache__; echo x > tests/__pycache__/a.pyc; rm -r tests/__pycache__",
            ),
            (
                &["tests/**/*.rs"],
                "mkdir tests/__pycache__; echo x > tests/__pycache__/t; mv tests/__pycache__/t tests/__pycache__/a.pyc",
            ),
            (&["tests/**/*.rs"], "mkdir tests/tmp1; echo x > tests/tmp1/y; mv tests/tmp1 tests/.pytest_cache"),
            (
                &["**/*.rs"],
                "for n in 1 2 3 4 5 6 7 8 9; do mkdir -p target/$n/x; echo x > target/$n/x/y; rm -r target/$n; done",
            ),
            (&["**/*.rs"], "echo x > tests/a.tmp; rm tests/a.tmp; mkdir out; echo x > out/y; mv out out2; rm -r out2"),
            (
                &["**"],
                "echo x > .git/index.lock; mv .git/index.lock .git/index; mkdir .git/objects; rmdir .git/objects",
            ),
            (&[], "mkdir tests/new; echo x > tests/new/y; rm -r tests/new"),
        ] {
            assert_eq!(while_held(globs, made), Vec::<String>::new(), "{made}");
        }
    }

    #[test]
    fn more_than_the_kernel_keeps_at_once_is_followed() {
        let much = "mkdir tests/out; cd tests/out; seq 40000 | xargs -n 4000 touch; rm -r ../out";
        assert_eq!(while_held(&["tests/**/*.rs"], much), Vec::<String>::new());
        let hidden = format!("{much}; cd ..; echo x > deep/c.rs; rm deep/c.rs");
        assert_eq!(while_held(&["tests/**/*.rs"], &hidden), ["tests/deep/c.rs"]);
    }

    #[test]
    fn folders_above_the_workspace_are_watched() {
        let dir = sample();
        let root = dir.path().join("src");
        let mut protected = protect(&root, &["lib.rs"]);
        protected.hold();
        sh(dir.path(), "echo x > beside; mkdir ../$$; rmdir ../$$");
        assert_eq!(protected.touched(&world()).unwrap(), Vec::<String>::new());
        for above in [root.clone(), dir.path().to_owned()] {
            protected.hold();
            let away = above.with_extension("away");
            let (above, away) = (above.display(), away.display());
            sh(Path::new("/"), &format!("mv {above} {away}; cp -r {away} {above}; rm -r {above}; mv {away} {above}"));
            assert_eq!(protected.touched(&world()).unwrap(), ["lib.rs"], "{above}");
        }
        // With nothing that is guarded yet, the folder is what can be named.
        let mut protected = protect(&root, &["none/*.rs"]);
        protected.hold();
        sh(dir.path(), "mv src away; mv away src");
        assert_eq!(protected.touched(&world()).unwrap(), ["."]);
    }

    #[test]
    fn a_watch_that_nobody_asks_about_ends_by_itself() {
        let dir = sample();
        let mut protected = protect(dir.path(), &["tests/**"]);
        protected.hold();
        sh(dir.path(), "echo x > tests/c; rm tests/c");
        protected.hold();
        assert_eq!(protected.touched(&world()).unwrap(), Vec::<String>::new(), "that was before");
    }

    #[test]
    fn a_file_without_end_is_not_read() {
        assert_eq!(after(&["tests"], "truncate -s 3T tests/a.rs"), ["tests/a.rs"]);
        let dir = sample();
        sh(dir.path(), "truncate -s 3T tests/large; sleep 0.02");
        let mut protected = protect(dir.path(), &["tests"]);
        assert_eq!(protected.violations(&world()).unwrap(), Vec::<String>::new());
        let hidden = "touch -r tests/large ref; printf x | dd of=tests/large conv=notrunc 2>/dev/null";
        sh(dir.path(), &format!("{hidden}; touch -r ref tests/large"));
        assert_eq!(protected.violations(&world()).unwrap(), ["tests/large"], "a change time cannot be set back");
    }

    #[test]
    fn what_a_link_leads_to_is_guarded_too() {
        let dir = sample();
        sh(dir.path(), "ln -s ../src/lib.rs tests/link.rs");
        let mut protected = protect(dir.path(), &["tests"]);
        sh(dir.path(), "echo x >> src/lib.rs");
        assert_eq!(protected.violations(&world()).unwrap(), ["tests/link.rs"]);
    }

    #[test]
    fn the_goal_file_is_always_guarded() {
        let dir = sample();
        let elsewhere = tempfile::tempdir().unwrap();
        write(elsewhere.path(), "goal.yaml", "goal: x");
        let goal = elsewhere.path().join("goal.yaml");
        let roots = Roots::same(dir.path().to_owned());
        let mut protected = Protected::new(&world(), &roots, &[], Some(&goal)).unwrap();
        assert_eq!(protected.violations(&world()).unwrap(), Vec::<String>::new());
        write(elsewhere.path(), "goal.yaml", "goal: y");
        assert_eq!(protected.violations(&world()).unwrap(), [goal.display().to_string()]);
        let missing = elsewhere.path().join("none.yaml");
        assert!(matches!(Protected::new(&world(), &roots, &[], Some(&missing)), Err(WorkspaceError::Io { .. })));
    }

    #[test]
    fn bad_globs_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots { real: dir.path().to_owned(), shown: PathBuf::from("/shown/here") };
        for bad in ["", " ", "../x", "a/../../x", "/etc/passwd", "/shown/hereafter", "!tests", "a[", "{a", "a{b,{c"] {
            let built = Protected::new(&world(), &roots, &[bad.to_owned()], None);
            assert!(matches!(built, Err(WorkspaceError::Glob(glob, _)) if glob == bad), "{bad}");
        }
        for good in ["/shown/here/tests/**", "/shown/here", ".", "./", "a b/ü*"] {
            assert!(Protected::new(&world(), &roots, &[good.to_owned()], None).is_ok(), "{good}");
        }
    }

    #[test]
    fn names_of_any_bytes_match() {
        use std::os::unix::ffi::OsStringExt;
        let dir = sample();
        let odd = std::ffi::OsString::from_vec(b"\xff.rs".to_vec());
        let path = dir.path().join("tests").join(odd);
        std::fs::write(&path, "x").unwrap();
        let mut protected = protect(dir.path(), &["tests/*.rs"]);
        std::fs::write(&path, "y").unwrap();
        assert_eq!(protected.violations(&world()).unwrap(), ["tests/\u{fffd}.rs"]);
    }
}
