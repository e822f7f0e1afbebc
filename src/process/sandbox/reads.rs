//! What may be read: everything outside the home directory but a container's secrets; inside, what stands there,
//! without the places of keys.
//! And no disk as such, in which all of it could be found again, nor terminals and other devices.

use std::collections::BTreeSet;
use std::fs::FileType;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use super::roots::{SHARED_MEMORY, TERMINALS};
use super::{Access, Places, Rule, real};

/// Never granted for reading, in the home directory: keys and tokens, browsers with their sessions, and the shells'
/// histories, in which both have been typed.
const KEPT_FROM_READING: [&str; 70] = [
    ".spettro",
    // Keys of machines and people.
    ".ssh",
    ".gnupg",
    ".password-store",
    ".local/share/keyrings",
    ".local/share/kwalletd",
    ".pki",
    ".config/sops",
    ".config/age",
    ".config/op",
    ".config/1Password",
    ".config/Bitwarden CLI",
    ".config/keybase",
    ".vault-token",
    // Clouds and clusters.
    ".aws",
    ".azure",
    ".config/gcloud",
    ".boto",
    ".s3cfg",
    ".config/rclone",
    ".oci",
    ".config/doctl",
    ".config/hcloud",
    ".fly",
    ".kube",
    ".docker",
    ".config/containers/auth.json",
    ".terraformrc",
    ".terraform.d/credentials.tfrc.json",
    ".pulumi/credentials.json",
    // Code, packages, data.
    ".netrc",
    ".git-credentials",
    ".config/git/credentials",
    ".config/gh",
    ".config/hub",
    ".config/glab-cli",
    ".config/tea",
    ".npmrc",
    ".pypirc",
    ".config/pypoetry/auth.toml",
    ".gem/credentials",
    ".m2/settings.xml",
    ".m2/settings-security.xml",
    ".gradle/gradle.properties",
    ".config/composer/auth.json",
    ".composer/auth.json",
    ".pgpass",
    ".my.cnf",
    ".mylogin.cnf",
    ".huggingface/token",
    // Other agents.
    ".claude/.credentials.json",
    ".claude.json",
    ".codex/auth.json",
    ".gemini/oauth_creds.json",
    ".config/github-copilot",
    // Browsers and mail.
    ".mozilla",
    ".thunderbird",
    ".config/google-chrome",
    ".config/chromium",
    ".config/BraveSoftware",
    ".config/microsoft-edge",
    ".config/vivaldi",
    ".config/opera",
    // What was typed.
    ".bash_history",
    ".zsh_history",
    ".local/share/fish/fish_history",
    ".python_history",
    ".node_repl_history",
    ".psql_history",
    ".mysql_history",
];

/// The same outside of it: what a container is handed at its start.
const HANDED: [&str; 2] = ["/run/secrets", "/var/run/secrets"];

/// Granted entry by entry: their own folder may get a place of keys later.
const SPLIT: [&str; 2] = ["", ".config"];

/// Where disks, terminals and other devices are, for who may open them. What everybody needs of them is granted as a
/// device (`roots`), and so are the folders in which they are made all the time.
const DEVICES: &str = "/dev";
const GRANTED_AS_DEVICES: [&str; 2] = [TERMINALS, SHARED_MEMORY];

/// What is never granted by itself, neither for reading nor for writing: each by its name, and where a link of that
/// name leads.
pub(super) struct Kept {
    places: BTreeSet<PathBuf>,
    /// Files of tokens that cargo has, or would have.
    credentials: BTreeSet<PathBuf>,
    /// Homes of cargo.
    cargo: Vec<PathBuf>,
}

impl Kept {
    pub(super) fn of(places: &Places<'_>) -> Kept {
        let both = |path: &Path| [path.to_owned(), real(path)];
        let mut kept = Kept { places: BTreeSet::new(), credentials: BTreeSet::new(), cargo: Vec::new() };
        let own = places.stores.iter().chain(&places.keys.files);
        kept.places.extend(own.flat_map(|own| both(own)));
        if let Some(home) = places.home {
            let home = real(home);
            kept.places.extend(KEPT_FROM_READING.iter().flat_map(|name| both(&home.join(name))));
            kept.cargo.push(home.join(".cargo"));
            kept.cargo.extend((places.variable)("CARGO_HOME").map(PathBuf::from));
            for cargo in &kept.cargo {
                let files = credentials(cargo).into_iter().flat_map(|name| both(&cargo.join(name)));
                kept.credentials.extend(files);
            }
        }
        if let Some(home) = places.account_home {
            let places_of_keys = KEPT_FROM_READING.iter().chain(&[".cargo/credentials", ".cargo/credentials.toml"]);
            let there = places_of_keys.map(|name| home.join(name)).filter(|path| path.exists());
            kept.places.extend(there.flat_map(|path| both(&path)));
        }
        let handed = HANDED.iter().map(Path::new).filter(|path| path.exists());
        kept.places.extend(handed.flat_map(both));
        kept
    }

    /// Without the files that cargo does not have yet: its home may be a folder in a cache or a temporary one.
    pub(super) fn there(&self) -> Vec<PathBuf> {
        let credentials = self.credentials.iter().filter(|path| path.symlink_metadata().is_ok());
        self.places.iter().chain(credentials).cloned().collect()
    }
}

/// The rules for reading. A directory that holds something ungranted is granted entry by entry. Names are granted
/// everywhere: `ls ~` and `ls /` are what every program expects to work, and a rule for the one directory does not
/// exist, since each holds for all that is below.
pub(super) fn rules(places: &Places<'_>, kept: &Kept, narrowed: &mut Vec<String>) -> Vec<Rule> {
    let denied = kept.places.union(&kept.credentials).cloned().collect();
    let mut walk = Walk { denied, split: BTreeSet::new(), granted: Vec::new(), unlisted: Vec::new() };
    if let Some(home) = places.home.map(real) {
        SPLIT.iter().for_each(|name| walk.split(&home.join(name)));
        kept.cargo.iter().for_each(|cargo| walk.split(cargo));
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
            if GRANTED_AS_DEVICES.iter().any(|dir| path == Path::new(dir)) {
                continue;
            }
            if kind.is_dir() && path.starts_with(DEVICES) {
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
    !kind.is_symlink() && !kind.is_block_device() && !kind.is_char_device()
}

/// Whether a folder is, or lies in, a place of keys of this home directory.
pub(super) fn keeps_keys(home: &Path, folder: &Path) -> bool {
    let home = real(home);
    KEPT_FROM_READING.iter().any(|name| folder.starts_with(real(&home.join(name))))
}
