//! Where a path leads, and who may have laid the way.
//!
//! What is granted by itself goes by a name (`~/.cache`, `$CARGO_HOME/registry`), and links on the way there are the
//! operator's to make: a cache may stand on another disk. A link where commands write, or in the project, can be
//! anybody's: who puts it there chooses what the next run grants. So nothing is granted behind one.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// More links than the kernel follows lead nowhere.
const MOST_LINKS: usize = 40;

/// A link that commands, of this run or of an earlier one, or a commit may have made; or one of a circle.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Doubtful(pub(super) PathBuf);

pub(super) struct Ways {
    /// Without links. Folders in which links are doubtful.
    open: Vec<PathBuf>,
}

/// A step of a path.
enum Step {
    Top,
    Up,
    To(OsString),
}

impl Ways {
    pub(super) fn new(open: Vec<PathBuf>) -> Ways {
        Ways { open }
    }

    /// An absolute path without links and `..`; what does not exist is taken as it is written.
    ///
    /// # Errors
    /// The first link on the way that is doubtful.
    pub(super) fn real(&self, path: &Path) -> Result<PathBuf, Doubtful> {
        let mut reached = PathBuf::from("/");
        let mut ahead: VecDeque<Step> = steps(path).into();
        let mut links = 0;
        while let Some(step) = ahead.pop_front() {
            match step {
                Step::Top => reached = PathBuf::from("/"),
                Step::Up => _ = reached.pop(),
                Step::To(name) => {
                    let next = reached.join(name);
                    match fs::read_link(&next) {
                        Ok(target) => {
                            links += 1;
                            if links > MOST_LINKS || self.open.iter().any(|folder| reached.starts_with(folder)) {
                                return Err(Doubtful(next));
                            }
                            steps(&target).into_iter().rev().for_each(|step| ahead.push_front(step));
                        }
                        // No link, or nothing yet; what cannot be looked at cannot be granted either.
                        Err(_) => reached = next,
                    }
                }
            }
        }
        Ok(reached)
    }
}

fn steps(path: &Path) -> Vec<Step> {
    let step = |part| match part {
        Component::RootDir => Some(Step::Top),
        Component::ParentDir => Some(Step::Up),
        Component::Normal(name) => Some(Step::To(name.to_owned())),
        Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().filter_map(step).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Folders `open` and `own`, and a folder `far` that links lead to.
    fn ground() -> (tempfile::TempDir, PathBuf, Ways) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for name in ["open/deep", "own", "far/in"] {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        let ways = Ways::new(vec![root.join("open")]);
        (dir, root, ways)
    }

    #[test]
    fn links_elsewhere_are_followed_and_those_in_open_folders_are_not() {
        let (_dir, root, ways) = ground();
        symlink(root.join("far"), root.join("own/link")).unwrap();
        symlink("../far/in", root.join("own/relative")).unwrap();
        symlink("relative", root.join("own/twice")).unwrap();
        for (path, leads) in [
            ("own/link/in/new", "far/in/new"),
            ("own/relative", "far/in"),
            ("own/twice/../x", "far/x"),
            ("own/./none/../y", "own/y"),
            ("open/deep/new", "open/deep/new"),
        ] {
            assert_eq!(ways.real(&root.join(path)), Ok(root.join(leads)), "{path}");
        }
        symlink(root.join("far"), root.join("open/link")).unwrap();
        symlink(root.join("none"), root.join("open/deep/dangling")).unwrap();
        symlink(root.join("open/link"), root.join("own/into")).unwrap();
        for (path, link) in [
            ("open/link", "open/link"),
            ("open/link/in", "open/link"),
            ("open/deep/dangling", "open/deep/dangling"),
            ("own/into/in", "open/link"),
            ("own/../open/link/in", "open/link"),
        ] {
            assert_eq!(ways.real(&root.join(path)), Err(Doubtful(root.join(link))), "{path}");
        }
    }

    #[test]
    fn the_open_folder_itself_may_be_a_link_and_a_circle_ends() {
        let (_dir, root, ways) = ground();
        symlink(root.join("open"), root.join("own/cache")).unwrap();
        assert_eq!(ways.real(&root.join("own/cache/pip")), Ok(root.join("open/pip")));
        symlink("circle", root.join("own/circle")).unwrap();
        assert_eq!(ways.real(&root.join("own/circle")), Err(Doubtful(root.join("own/circle"))));
    }
}
