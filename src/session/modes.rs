//! The modes of spettro's own folders, which a command can change although it can neither read nor write there: no
//! sandbox of files knows a right for that.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The folders of a session that are spettro's: its own, its workspace's, and the store's two.
const OWN_FOLDERS: usize = 4;

/// How the folders of a session were found, those above first.
pub(super) struct Modes(Vec<(PathBuf, u32)>);

impl Modes {
    pub fn read(dir: &Path) -> Modes {
        let mut folders: Vec<&Path> = dir.ancestors().take(OWN_FOLDERS).collect();
        folders.reverse();
        Modes(folders.into_iter().filter_map(|folder| Some((folder.to_owned(), mode(folder)?))).collect())
    }

    /// Gives each the mode that it had.
    pub fn restore(&self) {
        for (folder, was) in &self.0 {
            if mode(folder).is_some_and(|now| now != *was) {
                set(folder, *was);
            }
        }
    }
}

/// Gives a folder its owner's rights, and those above it the right to be entered; true when one had lost them.
pub(super) fn restore_rights(folder: &Path) -> bool {
    let mut folders: Vec<(&Path, u32)> =
        folder.ancestors().zip([0o700, 0o100, 0o100, 0o100, 0o100]).take(OWN_FOLDERS + 1).collect();
    // What is below one that cannot be entered is not even seen.
    folders.reverse();
    let mut restored = false;
    for (folder, rights) in folders {
        if let Some(now) = mode(folder).filter(|now| now & rights != rights) {
            restored |= set(folder, now | rights);
        }
    }
    restored
}

/// Does something with a file; once more when its folders had lost their rights.
pub(super) fn with_rights<T>(file: &Path, mut work: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    match work() {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => match file.parent() {
            Some(folder) if restore_rights(folder) => work(),
            _ => Err(error),
        },
        done => done,
    }
}

/// Of a folder that is this user's.
fn mode(folder: &Path) -> Option<u32> {
    let meta = folder.symlink_metadata().ok()?;
    (meta.is_dir() && meta.uid() == rustix::process::geteuid().as_raw()).then_some(meta.mode() & 0o7777)
}

fn set(folder: &Path, mode: u32) -> bool {
    let set = std::fs::set_permissions(folder, Permissions::from_mode(mode));
    if let Err(error) = &set {
        tracing::warn!(folder = %folder.display(), %error, "its mode cannot be restored");
    }
    set.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let session = dir.path().join("store/sessions/hash/session");
        std::fs::create_dir_all(&session).unwrap();
        (dir, session)
    }

    fn mode_of(folder: &Path) -> u32 {
        folder.metadata().unwrap().mode() & 0o7777
    }

    #[test]
    fn folders_get_the_modes_back_that_they_had() {
        let (_dir, session) = place();
        let above: Vec<PathBuf> = session.ancestors().take(4).map(Path::to_owned).collect();
        set(&above[1], 0o750);
        let modes = Modes::read(&session);
        let before: Vec<u32> = above.iter().map(|folder| mode_of(folder)).collect();
        for folder in &above {
            set(folder, 0);
        }
        modes.restore();
        let after: Vec<u32> = above.iter().map(|folder| mode_of(folder)).collect();
        assert_eq!(after, before);
    }

    #[test]
    fn rights_are_added_to_what_lost_them_and_to_nothing_else() {
        let (_dir, session) = place();
        let above = session.parent().unwrap();
        set(&session, 0o040);
        set(above, 0o500);
        assert!(restore_rights(&session));
        assert_eq!((mode_of(&session), mode_of(above)), (0o740, 0o500));
        assert!(!restore_rights(&session), "nothing is missing any more");
        set(above, 0);
        assert!(restore_rights(&session));
        assert_eq!(mode_of(above), 0o100);
    }
}
