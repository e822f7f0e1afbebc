//! What may be written: the workspace, temporary folders, devices that hold nothing, caches.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{Access as Wish, AtFlags, CWD, accessat};
use rustix::io::Errno;

use super::guarded::{Granting, Guarded};
use super::ways::{Doubtful, Ways};
use super::{Access, Files, Places, Rule, SandboxError, Wanted, real, repository, toolchains};

/// Devices that every program takes to be there.
const DEVICES: [&str; 7] = ["null", "zero", "full", "random", "urandom", "tty", "ptmx"];
/// Where terminals are made.
pub(super) const TERMINALS: &str = "/dev/pts";
/// Memory that processes share under names.
pub(super) const SHARED_MEMORY: &str = "/dev/shm";

pub(super) fn rules(
    wanted: &Wanted,
    places: &Places<'_>,
    guarded: &Guarded,
    narrowed: &mut Vec<String>,
) -> Result<Vec<Rule>, SandboxError> {
    let ways = Ways::new(open_folders(wanted, places, guarded));
    let mut rules = vec![rule(places.temporary, Access::Write), rule(&real(Path::new(SHARED_MEMORY)), Access::Write)];
    rules.extend(devices(wanted, narrowed));
    let workspace = if wanted.files == Files::WorkspaceWrite { Access::Write } else { Access::Read };
    rules.push(rule(places.workspace, workspace));
    // What is named comes first: it is granted for its name alone, and only the way there is looked at.
    for (key, paths, access) in
        [("sandbox.write", &wanted.write, Access::Write), ("sandbox.read", &wanted.read, Access::Read)]
    {
        for path in paths {
            let path = places.at_home(path);
            let found = ways.real(&path).map_err(|Doubtful(link)| SandboxError::Link { key, path: path.clone(), link });
            let found = found?;
            if !found.exists() {
                return Err(SandboxError::NoSuchPath { key, path });
            }
            if access == Access::Write {
                guarded.is_outside(&found)?;
            }
            // A device that is named is meant to be used as one.
            let device = access == Access::Write && found.starts_with("/dev") && !found.starts_with(SHARED_MEMORY);
            rules.push(Rule { path: found, access: if device { Access::Device } else { access } });
        }
    }
    if wanted.files == Files::WorkspaceWrite {
        let mut granting = Granting { guarded, ways: &ways, narrowed };
        for folder in temporary_folders(places) {
            rules.extend(granting.take(&folder).map(|path| rule(&path, Access::Write)));
        }
        for cache in toolchains::caches(places) {
            if let Some(path) = granting.take(cache.path()) {
                cache.make(&path);
                rules.push(rule(&path, Access::Write));
            }
        }
        let mut writable = toolchains::anywhere(places);
        writable.extend(rules.iter().filter(|rule| rule.access == Access::Write).map(|rule| rule.path.clone()));
        let repository = repository::grants(places.workspace, &writable, &mut granting);
        rules.extend(repository.iter().map(|path| rule(path, Access::Write)));
    }
    rules.retain(|rule| rule.path.exists());
    Ok(rules)
}

fn rule(path: &Path, access: Access) -> Rule {
    Rule { path: path.to_owned(), access }
}

/// Where commands, of whatever run of this user, may have put a link, or a commit may hold one.
fn open_folders(wanted: &Wanted, places: &Places<'_>, guarded: &Guarded) -> Vec<PathBuf> {
    let mut open = vec![places.workspace.to_owned(), places.project.to_owned(), PathBuf::from(SHARED_MEMORY)];
    open.extend(repository::tops(places.project).map(Path::to_owned));
    open.extend(temporary_folders(places));
    open.extend(toolchains::anywhere(places));
    open.extend(wanted.write.iter().map(|path| places.at_home(path)));
    let mut open: Vec<PathBuf> = open.iter().map(|folder| real(folder)).collect();
    open.retain(|folder| !guarded.holds_home(folder));
    open
}

/// `/tmp`, `/var/tmp` and `TMPDIR`.
fn temporary_folders(places: &Places<'_>) -> Vec<PathBuf> {
    let named = (places.variable)("TMPDIR").filter(|dir| dir.starts_with('/')).map(PathBuf::from);
    ["/tmp", "/var/tmp"].into_iter().map(PathBuf::from).chain(named).collect()
}

fn devices(wanted: &Wanted, narrowed: &mut Vec<String>) -> Vec<Rule> {
    let mut devices = DEVICES.map(|name| Path::new("/dev").join(name)).to_vec();
    let terminals = Path::new(TERMINALS);
    if !has_terminals(terminals) {
        devices.push(terminals.to_owned());
    } else if !wanted.write.iter().any(|path| path == terminals) {
        narrowed.push(format!(
            "`{TERMINALS}` is closed, for this user has terminals there: programs that make one of their own fail"
        ));
    }
    devices.iter().map(|path| rule(&real(path), Access::Device)).collect()
}

/// Whether a terminal is there that commands could read from, or write to, if they were let. A right to the folder is
/// one to all of them, and there is none to those alone that are still to be made.
pub(super) fn has_terminals(folder: &Path) -> bool {
    let Ok(entries) = fs::read_dir(folder) else { return folder.exists() };
    let can = |path: &Path, wish| match accessat(CWD, path, wish, AtFlags::EACCESS) {
        Ok(()) => true,
        // Somebody else's; or closed meanwhile.
        Err(error) => !matches!(error, Errno::ACCESS | Errno::PERM | Errno::NOENT),
    };
    let terminals = entries.flatten().filter(|entry| entry.file_name().to_str().is_some_and(is_a_number));
    terminals.map(|entry| entry.path()).any(|path| can(&path, Wish::READ_OK) || can(&path, Wish::WRITE_OK))
}

/// The folder holds, besides, the device that makes terminals.
fn is_a_number(name: &str) -> bool {
    name.parse::<u32>().is_ok()
}
