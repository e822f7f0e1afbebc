//! Caches of toolchains, which stand in the home directory and are shared by all projects of a user.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Places, real};

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

/// `~/.cache`, and the caches of the toolchains whose manifest stands in the workspace. What is missing is made: a
/// path that is not there cannot be granted.
pub(super) fn caches(places: &Places<'_>) -> Vec<PathBuf> {
    let Some(home) = places.home.map(real).filter(|home| home.is_dir()) else { return Vec::new() };
    let mut caches = vec![home.join(".cache")];
    made_dir(&caches[0]);
    for toolchain in &TOOLCHAINS {
        if !toolchain.manifests.iter().any(|name| places.workspace.join(name).is_file()) {
            continue;
        }
        let moved = (places.variable)(toolchain.variable).filter(|dir| dir.starts_with('/'));
        let folder = moved.map_or_else(|| home.join(toolchain.folder), PathBuf::from);
        for name in toolchain.dirs {
            let dir = if name.is_empty() { folder.clone() } else { folder.join(name) };
            made_dir(&dir);
            caches.push(dir);
        }
        for name in toolchain.files {
            let file = folder.join(name);
            made_file(&file);
            caches.push(file);
        }
    }
    caches
}

/// Without it the toolchain works as on a machine that has none, or says itself what it misses.
fn made_dir(dir: &Path) {
    if let Err(error) = fs::create_dir_all(dir) {
        tracing::warn!(dir = %dir.display(), %error, "a cache cannot be made");
    }
}

fn made_file(file: &Path) {
    if let Err(error) = fs::OpenOptions::new().append(true).create(true).open(file) {
        tracing::warn!(file = %file.display(), %error, "a file of a cache cannot be made");
    }
}
