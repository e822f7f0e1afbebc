//! Where control sockets are: a folder that nobody else can write to.

use std::fs::{DirBuilder, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::ControlError;
use crate::world::{Env, Ids};

/// A socket's path has room for 107 bytes on Linux and 103 elsewhere.
const MOST_PATH_BYTES: usize = 103;
/// `/12345678.sock`
const NAME_BYTES: usize = 14;

/// `$XDG_RUNTIME_DIR` where it can be trusted, else `/tmp/spettro-<uid>`, made when it is missing.
///
/// # Errors
/// When that folder is a symlink, another user's, or open to others.
pub fn folder(env: &dyn Env) -> Result<PathBuf, ControlError> {
    let uid = rustix::process::geteuid().as_raw();
    let runtime = env.var("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|folder| {
        let fits = folder.as_os_str().as_bytes().len() + NAME_BYTES <= MOST_PATH_BYTES;
        folder.is_absolute() && fits && std::fs::metadata(folder).is_ok_and(|found| only_mine(&found, uid, 0o022))
    });
    match runtime {
        Some(folder) => Ok(folder),
        None => own(Path::new("/tmp").join(format!("spettro-{uid}")), uid),
    }
}

/// Makes or checks a folder in a place where everybody can write.
fn own(folder: PathBuf, uid: u32) -> Result<PathBuf, ControlError> {
    let refused = |folder: &Path, why: String| ControlError::Folder { folder: folder.to_owned(), why };
    match DirBuilder::new().mode(0o700).create(&folder) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(refused(&folder, format!("cannot be made: {error}"))),
    }
    // Not followed: a link would lead to where somebody else wants it.
    let found = std::fs::symlink_metadata(&folder).map_err(|error| refused(&folder, format!("is gone: {error}")))?;
    if !only_mine(&found, uid, 0o077) {
        return Err(refused(&folder, "is not a folder of this user alone (mode 0700, no symlink)".to_owned()));
    }
    Ok(folder)
}

/// A folder of `uid` that gives others none of the `forbidden` permissions.
fn only_mine(found: &Metadata, uid: u32, forbidden: u32) -> bool {
    found.is_dir() && found.uid() == uid && found.mode() & forbidden == 0
}

/// A name nobody has to guess: the lock tells it.
pub fn socket(folder: &Path, ids: &dyn Ids) -> PathBuf {
    folder.join(format!("{:08x}.sock", ids.draw("control socket") & 0xffff_ffff))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().mode() & 0o777
    }

    struct Variables(Option<PathBuf>);

    impl Env for Variables {
        fn var(&self, name: &str) -> Option<String> {
            self.0.as_ref().filter(|_| name == "XDG_RUNTIME_DIR").map(|path| path.display().to_string())
        }

        fn vars(&self) -> Vec<(String, String)> {
            Vec::new()
        }
    }

    #[test]
    fn a_folder_is_made_private_and_found_again() {
        let temp = tempfile::tempdir().unwrap();
        let uid = rustix::process::geteuid().as_raw();
        let folder = temp.path().join("spettro-0");
        assert_eq!(own(folder.clone(), uid).unwrap(), folder);
        assert_eq!(mode(&folder), 0o700);
        assert_eq!(own(folder.clone(), uid).unwrap(), folder);
    }

    #[test]
    fn a_link_a_file_an_open_folder_and_a_strangers_are_refused() {
        let temp = tempfile::tempdir().unwrap();
        let uid = rustix::process::geteuid().as_raw();
        let (real, link, file, open) =
            (temp.path().join("real"), temp.path().join("link"), temp.path().join("file"), temp.path().join("open"));
        own(real.clone(), uid).unwrap();
        symlink(&real, &link).unwrap();
        std::fs::write(&file, "").unwrap();
        std::fs::create_dir(&open).unwrap();
        std::fs::set_permissions(&open, PermissionsExt::from_mode(0o755)).unwrap();
        for bad in [link, file, open] {
            let error = own(bad.clone(), uid).unwrap_err();
            assert!(matches!(&error, ControlError::Folder { folder, .. } if *folder == bad), "{error}");
        }
        assert!(own(real, uid + 1).is_err(), "it belongs to another user");
    }

    #[test]
    fn a_runtime_folder_that_others_can_write_to_is_not_used() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::set_permissions(temp.path(), PermissionsExt::from_mode(0o700)).unwrap();
        assert_eq!(folder(&Variables(Some(temp.path().to_owned()))).unwrap(), temp.path());
        std::fs::set_permissions(temp.path(), PermissionsExt::from_mode(0o777)).unwrap();
        let found = folder(&Variables(Some(temp.path().to_owned())));
        assert_ne!(found.ok().as_deref(), Some(temp.path()));
        let found = folder(&Variables(Some("relative".into())));
        assert_ne!(found.ok(), Some(PathBuf::from("relative")));
    }
}
