//! Where spettro keeps its files, and the two paths of a workspace.

use std::path::{Path, PathBuf};

use super::ports::Env;

/// The workspace's two paths. Live they are equal; in replay `shown` is the recorded one. All that the model, the
/// log or an estimate sees uses `shown`; only file tools and `Exec` map it to `real`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roots {
    pub real: PathBuf,
    pub shown: PathBuf,
}

impl Roots {
    pub fn same(path: PathBuf) -> Roots {
        Roots { real: path.clone(), shown: path }
    }

    /// A path as the model wrote it (absolute or relative to the workspace) → where it really is.
    pub fn to_real(&self, path: &Path) -> PathBuf {
        if path.is_absolute() {
            match path.strip_prefix(&self.shown) {
                Ok(rest) => self.real.join(rest),
                Err(_) => path.to_owned(),
            }
        } else {
            self.real.join(path)
        }
    }

    /// Where something really is → the path to show.
    pub fn to_shown(&self, path: &Path) -> PathBuf {
        match path.strip_prefix(&self.real) {
            Ok(rest) => self.shown.join(rest),
            Err(_) => path.to_owned(),
        }
    }
}

/// `SPETTRO_HOME` (a relative one below the current folder), else `.spettro` in `HOME`, else in the account's home directory; `None` without all three.
pub fn home_dir(env: &dyn Env) -> Option<PathBuf> {
    if let Some(home) = env.var("SPETTRO_HOME").filter(|home| !home.is_empty()) {
        // Once and for all: what is printed of it is used elsewhere.
        return Some(std::path::absolute(&home).unwrap_or_else(|_| home.into()));
    }
    Some(user_home(env)?.join(".spettro"))
}

/// The user's home directory: HOME, or what the account database says.
pub fn user_home(env: &dyn Env) -> Option<PathBuf> {
    match env.var("HOME").filter(|home| !home.is_empty()) {
        Some(home) => Some(PathBuf::from(home)),
        None => account_home(),
    }
}

/// The home directory that the account database names for the effective user.
pub fn account_home() -> Option<PathBuf> {
    let uid = rustix::process::geteuid().as_raw().to_string();
    let accounts = std::fs::read_to_string("/etc/passwd").ok()?;
    accounts.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        (fields.get(2) == Some(&uid.as_str())).then(|| fields.get(5).map(PathBuf::from))?
    })
}
