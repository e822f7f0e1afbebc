//! What may be read: everything outside the home directory; inside, what stands there, without the places of keys.
//! And no disk as such, in which all of it could be found again.

use std::collections::BTreeSet;
use std::fs::FileType;
use std::os::unix::fs::FileTypeExt;
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

/// Where disks are, for who may open them.
const DEVICES: &str = "/dev";
/// Folders of devices that are made all the time.
const MOVING_DEVICES: [&str; 2] = ["/dev/pts", "/dev/shm"];

/// The rules for reading. A directory that holds something ungranted is granted entry by entry. Names are granted
/// everywhere: `ls ~` and `ls /` are what every program expects to work, and a rule for the one directory does not
/// exist, since each holds for all that is below.
pub(super) fn rules(places: &Places<'_>, narrowed: &mut Vec<String>) -> Vec<Rule> {
    let mut walk = Walk { denied: BTreeSet::new(), split: BTreeSet::new(), granted: Vec::new(), unlisted: Vec::new() };
    for own in places.stores.iter().chain(&places.keys.files) {
        walk.deny(own);
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
    if let Some(home) = places.account_home {
        let places_of_keys = KEPT_FROM_READING.iter().chain(&[".cargo/credentials", ".cargo/credentials.toml"]);
        places_of_keys.map(|name| home.join(name)).filter(|path| path.exists()).for_each(|path| walk.deny(&path));
    }
    walk.split(Path::new(DEVICES));
    walk.grant(Path::new("/"));
    narrowed.extend(
        walk.unlisted.iter().map(|dir| format!("nothing in `{}` can be read, for it cannot be listed", dir.display())),
    );
    let names = Rule { path: PathBuf::from("/"), access: Access::List };
    walk.granted.into_iter().map(|path| Rule { path, access: Access::Read }).chain([names]).collect()
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
            let Ok(kind) = entry.file_type() else { continue };
            let path = entry.path();
            if kind.is_dir() && path.starts_with(DEVICES) && !MOVING_DEVICES.iter().any(|dir| path == Path::new(dir)) {
                self.split.insert(path.clone());
            }
            if is_a_place(kind) {
                self.grant(&path);
            }
        }
    }
}

/// A link is no place of its own: what it leads to is granted, or not, where it is.
fn is_a_place(kind: FileType) -> bool {
    !kind.is_symlink() && !kind.is_block_device()
}
