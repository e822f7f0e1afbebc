//! What may be read: everything outside the home directory but a container's secrets; inside, what stands there,
//! without the places of keys.
//! And no disk as such, in which all of it could be found again.

use std::collections::BTreeSet;
use std::fs::FileType;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use super::{Access, Places, Rule, real};

/// Never granted for reading, in the home directory: keys and tokens, browsers with their sessions, and the shells'
/// histories, in which both have been typed.
pub(super) const KEPT_FROM_READING: [&str; 70] = [
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
    HANDED.iter().map(Path::new).filter(|path| path.exists()).for_each(|path| walk.deny(path));
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
