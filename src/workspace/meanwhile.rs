//! Whether one of the folders above some files was moved away meanwhile.
//!
//! A folder that is moved away, replaced and moved back leaves no mark on the files in it, and its own times move with
//! every file that is made in it. So the kernel is asked to tell of moves (inotify). Where it cannot, any change of a
//! folder's change time counts as one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use rustix::fs::CWD;

use super::stamp::Stamp;

/// The folders, from [`Folders::watch`] on.
pub(super) struct Folders {
    #[cfg(target_os = "linux")]
    watched: Option<linux::Watched>,
    stamps: BTreeMap<PathBuf, Option<Stamp>>,
}

impl Folders {
    /// Watches `root` and the folders between it and these files. What stands outside of it has none.
    pub fn watch<'a>(root: &Path, files: impl Iterator<Item = &'a PathBuf>) -> Folders {
        let above = |file: &'a PathBuf| file.ancestors().skip(1).take_while(move |folder| folder.starts_with(root));
        let folders: BTreeSet<&Path> = files.filter(|file| file.starts_with(root)).flat_map(above).collect();
        Folders {
            #[cfg(target_os = "linux")]
            watched: linux::Watched::start(&folders)
                .inspect_err(|error| tracing::warn!(%error, "moves of folders cannot be watched"))
                .ok(),
            // The times of the root move with nearly everything.
            stamps: folders
                .into_iter()
                .filter(|folder| *folder != root)
                .map(|folder| (folder.to_owned(), stamp(folder)))
                .collect(),
        }
    }

    /// Those that were moved or removed since.
    pub fn moved(self) -> BTreeSet<PathBuf> {
        #[cfg(target_os = "linux")]
        if let Some(moved) = self.watched.and_then(linux::Watched::moved) {
            return moved;
        }
        self.stamps.into_iter().filter(|(folder, was)| stamp(folder) != *was).map(|(folder, _)| folder).collect()
    }
}

fn stamp(folder: &Path) -> Option<Stamp> {
    Stamp::read(CWD, folder).ok().flatten()
}

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::{BTreeMap, BTreeSet};
    use std::mem::MaybeUninit;
    use std::os::fd::OwnedFd;
    use std::path::{Path, PathBuf};

    use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init};
    use rustix::io::Errno;

    pub struct Watched {
        events: OwnedFd,
        folders: BTreeMap<i32, PathBuf>,
    }

    impl Watched {
        pub fn start(folders: &BTreeSet<&Path>) -> rustix::io::Result<Watched> {
            let events = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
            let mut watched = BTreeMap::new();
            let flags = WatchFlags::MOVE_SELF | WatchFlags::DELETE_SELF | WatchFlags::ONLYDIR | WatchFlags::DONT_FOLLOW;
            for folder in folders {
                match add_watch(&events, *folder, flags) {
                    Ok(number) => drop(watched.insert(number, (*folder).to_owned())),
                    // It is gone already, and so are the files in it: their own stamps tell.
                    Err(Errno::NOENT | Errno::NOTDIR) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(Watched { events, folders: watched })
        }

        /// `None` when events were lost.
        pub fn moved(self) -> Option<BTreeSet<PathBuf>> {
            let mut buffer = [MaybeUninit::uninit(); 4_096];
            let mut events = Reader::new(&self.events, &mut buffer);
            let mut moved = BTreeSet::new();
            loop {
                match events.next() {
                    Ok(event) if event.events().contains(ReadFlags::QUEUE_OVERFLOW) => return None,
                    Ok(event) => moved.extend(self.folders.get(&event.wd()).cloned()),
                    Err(Errno::WOULDBLOCK) => return Some(moved),
                    Err(Errno::INTR) => {}
                    Err(_) => return None,
                }
            }
        }
    }
}
