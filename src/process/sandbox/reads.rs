//! What may be read: everything outside the home directory; inside, what stands there, without the places of keys.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{Access, Places, Rule, real};

/// Never granted for reading, in the home directory.
pub(super) const KEPT_FROM_READING: [&str; 15] = [
    ".ssh",
    ".aws",
    ".azure",
    ".gnupg",
    ".kube",
    ".docker",
    ".netrc",
    ".git-credentials",
    ".npmrc",
    ".pypirc",
    ".password-store",
    ".spettro",
    ".config/gh",
    ".config/gcloud",
    ".config/op",
];

/// Granted entry by entry: their own folder may get a place of keys later.
const SPLIT: [&str; 2] = ["", ".config"];

/// The rules for reading. A directory that holds something ungranted is granted entry by entry, so it cannot be
/// listed itself.
pub(super) fn rules(places: &Places<'_>, narrowed: &mut Vec<String>) -> Vec<Rule> {
    let mut walk = Walk { denied: BTreeSet::new(), split: BTreeSet::new(), granted: Vec::new(), unlisted: Vec::new() };
    for store in &places.stores {
        walk.deny(store);
    }
    if let Some(home) = places.home {
        let home = real(home);
        KEPT_FROM_READING.iter().for_each(|name| walk.deny(&home.join(name)));
        SPLIT.iter().for_each(|name| walk.split(&home.join(name)));
        let cargo = (places.variable)("CARGO_HOME").map_or_else(|| home.join(".cargo"), PathBuf::from);
        walk.split(&cargo);
        for name in credentials(&cargo) {
            walk.deny(&cargo.join(name));
        }
    }
    walk.grant(Path::new("/"));
    narrowed.extend(
        walk.unlisted.iter().map(|dir| format!("nothing in `{}` can be read, for it cannot be listed", dir.display())),
    );
    walk.granted.into_iter().map(|path| Rule { path, access: Access::Read }).collect()
}

/// Files of cargo's home that hold tokens.
fn credentials(cargo: &Path) -> Vec<String> {
    let found = std::fs::read_dir(cargo).into_iter().flatten().flatten();
    let names = found.filter_map(|entry| entry.file_name().into_string().ok());
    let usual = ["credentials".to_owned(), "credentials.toml".to_owned()];
    names.filter(|name| name.starts_with("credentials")).chain(usual).collect()
}

struct Walk {
    denied: BTreeSet<PathBuf>,
    split: BTreeSet<PathBuf>,
    granted: Vec<PathBuf>,
    unlisted: Vec<PathBuf>,
}

impl Walk {
    /// By the name it has, and where a link of that name leads.
    fn deny(&mut self, path: &Path) {
        self.denied.extend([path.to_owned(), real(path)]);
    }

    fn split(&mut self, path: &Path) {
        self.split.insert(real(path));
    }

    fn grant(&mut self, path: &Path) {
        if self.denied.contains(path) {
            return;
        }
        if !self.denied.iter().chain(&self.split).any(|inner| inner.starts_with(path)) {
            self.granted.push(path.to_owned());
            return;
        }
        let Ok(entries) = std::fs::read_dir(path) else {
            self.unlisted.push(path.to_owned());
            return;
        };
        for entry in entries.flatten() {
            // A link is no place of its own: what it leads to is granted, or not, where it is.
            if entry.file_type().is_ok_and(|kind| !kind.is_symlink()) {
                self.grant(&entry.path());
            }
        }
    }
}
