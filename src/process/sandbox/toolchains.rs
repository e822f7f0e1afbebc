//! Caches of toolchains, which stand in the home directory and are shared by all projects of a user.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Places, real};
use crate::world::beneath;

/// Where a toolchain keeps what it has downloaded. Nothing here configures it, and nothing is a program in `PATH`.
struct Toolchain {
    /// Files of a workspace that uses it.
    manifests: &'static [&'static str],
    /// The variable that moves its folder.
    variable: &'static str,
    /// Its folder, in the home directory.
    folder: &'static str,
    /// Folders in that folder; an empty name is the folder itself.
    dirs: &'static [&'static str],
    files: &'static [&'static str],
}

const TOOLCHAINS: [Toolchain; 6] = [
    Toolchain {
        manifests: &["Cargo.toml"],
        variable: "CARGO_HOME",
        folder: ".cargo",
        dirs: &["registry", "git"],
        files: &[".package-cache"],
    },
    Toolchain { manifests: &["package.json"], variable: "npm_config_cache", folder: ".npm", dirs: &[""], files: &[] },
    Toolchain {
        manifests: &["pyproject.toml", "requirements.txt", "setup.py", "setup.cfg"],
        variable: "PIP_CACHE_DIR",
        folder: ".cache/pip",
        dirs: &[""],
        files: &[],
    },
    Toolchain { manifests: &["go.mod", "go.work"], variable: "GOPATH", folder: "go", dirs: &["pkg"], files: &[] },
    Toolchain {
        manifests: &["build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts"],
        variable: "GRADLE_USER_HOME",
        folder: ".gradle",
        dirs: &["caches", "daemon", "native", "wrapper"],
        files: &[],
    },
    Toolchain { manifests: &["pom.xml"], variable: "", folder: ".m2", dirs: &["repository"], files: &[] },
];

/// A folder or a file that a toolchain shares with all projects.
pub(super) struct Cache {
    path: PathBuf,
    is_file: bool,
}

impl Cache {
    /// By its name; links may stand on the way.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes what is missing: a path that is not there cannot be granted. `at` is where the name leads, without links;
    /// none is followed that has come since.
    ///
    /// Without it the toolchain works as on a machine that has none, or says itself what it misses.
    pub(super) fn make(&self, at: &Path) {
        if at.symlink_metadata().is_ok() {
            return;
        }
        let made = match self.is_file {
            true => fs::OpenOptions::new().write(true).create_new(true).open(at).map(drop),
            false => beneath::make_folders(at).map(drop),
        };
        if let Err(error) = made {
            tracing::warn!(at = %at.display(), %error, "a cache cannot be made");
        }
    }
}

/// `~/.cache`, and the caches of the toolchains whose manifest stands in the workspace.
pub(super) fn caches(places: &Places<'_>) -> Vec<Cache> {
    of(places, |toolchain| toolchain.manifests.iter().any(|name| places.workspace.join(name).is_file()))
}

/// The same whatever stands in the workspace, without links: where commands write in some run or other.
pub(super) fn anywhere(places: &Places<'_>) -> Vec<PathBuf> {
    of(places, |_| true).iter().map(|cache| real(&cache.path)).collect()
}

fn of(places: &Places<'_>, used: impl Fn(&Toolchain) -> bool) -> Vec<Cache> {
    let Some(home) = places.home.map(real).filter(|home| home.is_dir()) else { return Vec::new() };
    let mut caches = vec![Cache { path: home.join(".cache"), is_file: false }];
    for toolchain in TOOLCHAINS.iter().filter(|toolchain| used(toolchain)) {
        let moved = (places.variable)(toolchain.variable).filter(|dir| dir.starts_with('/'));
        let folder = moved.map_or_else(|| home.join(toolchain.folder), PathBuf::from);
        let dirs = toolchain.dirs.iter().map(|name| (name, false));
        for (name, is_file) in dirs.chain(toolchain.files.iter().map(|name| (name, true))) {
            let path = if name.is_empty() { folder.clone() } else { folder.join(name) };
            caches.push(Cache { path, is_file });
        }
    }
    caches
}
