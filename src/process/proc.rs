//! A look at `/proc`: who lives, whose child it is, when it began.

use std::collections::HashMap;
use std::fs;
use std::io::Read;

/// What `/proc/<pid>/stat` says of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    pub pid: i32,
    pub name: String,
    pub state: u8,
    pub parent: i32,
    pub group: i32,
    pub session: i32,
    /// Clock ticks after boot; with the pid it names a process for as long as the machine runs.
    pub start: u64,
}

impl Stat {
    /// A zombie counts as dead.
    pub fn alive(&self) -> bool {
        !matches!(self.state, b'Z' | b'X' | b'x')
    }
}

/// `None` when there is no such process.
pub fn stat(pid: i32) -> Option<Stat> {
    let mut buffer = [0; 1024];
    let length = fs::File::open(format!("/proc/{pid}/stat")).ok()?.read(&mut buffer).ok()?;
    parse(pid, &buffer[..length])
}

fn parse(pid: i32, text: &[u8]) -> Option<Stat> {
    // The name is in parentheses and may hold some itself: the last one closes it.
    let open = text.iter().position(|&byte| byte == b'(')?;
    let close = text.iter().rposition(|&byte| byte == b')')?;
    let name = String::from_utf8_lossy(text.get(open + 1..close)?).into_owned();
    let mut fields = std::str::from_utf8(text.get(close + 2..)?).ok()?.split(' ');
    let state = *fields.next()?.as_bytes().first()?;
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    let session = fields.next()?.parse().ok()?;
    // Fields 3 to 6 are taken; the start is field 22.
    let start = fields.nth(15)?.parse().ok()?;
    Some(Stat { pid, name, state, parent, group, session, start })
}

/// Every process, as each was when it was looked at. `seen` gets each at that moment.
pub fn each(mut seen: impl FnMut(Stat)) {
    let Ok(entries) = fs::read_dir("/proc") else { return };
    for entry in entries.flatten() {
        if let Some(stat) = entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(stat) {
            seen(stat);
        }
    }
}

pub fn all() -> Vec<Stat> {
    let mut all = Vec::new();
    each(|stat| all.push(stat));
    all
}

/// The number of all threads of the machine; cheap to ask. `None` when it cannot be had.
pub fn threads() -> Option<usize> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().nth(3)?.split_once('/')?.1.parse().ok()
}

/// The descendants of `root` in `all`, parents before children, zombies included.
pub fn descendants(all: &[Stat], root: i32) -> Vec<&Stat> {
    let mut children: HashMap<i32, Vec<&Stat>> = HashMap::new();
    for stat in all {
        children.entry(stat.parent).or_default().push(stat);
    }
    let mut found: Vec<&Stat> = children.remove(&root).unwrap_or_default();
    let mut next = 0;
    while let Some(stat) = found.get(next) {
        // Removing keeps this finite even when an inconsistent view has a circle.
        let below = children.remove(&stat.pid);
        found.extend(below.unwrap_or_default());
        next += 1;
    }
    found
}

/// The command line with spaces between its arguments, or the bare name.
pub fn command_line(pid: i32) -> Option<String> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let line = String::from_utf8_lossy(&bytes).trim_end_matches('\0').replace('\0', " ");
    if line.is_empty() { stat(pid).map(|stat| stat.name) } else { Some(line) }
}

/// How many filters of system calls a process has that gave up new privileges, as every confined command has. A
/// container's own filter is counted too. `None` when it cannot be told.
pub fn filters(pid: i32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    Some(filters_in(&status))
}

fn filters_in(status: &str) -> u32 {
    let field = |name: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.and_then(|value| value.trim().parse::<u32>().ok())
    };
    let filtered = field("NoNewPrivs") == Some(1) && field("Seccomp") == Some(2);
    // Before Linux 5.9 they are not counted.
    if filtered { field("Seccomp_filters").unwrap_or(1) } else { 0 }
}

/// Whether this is the helper of some run that starts its commands, or one of its supervisors.
pub fn is_helper(pid: i32) -> bool {
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.starts_with(b"spettro\0__zygote\0"))
}

/// The real owner.
pub fn uid(pid: i32) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok();
    let real = status.as_deref().and_then(|status| {
        status.lines().find_map(|line| line.strip_prefix("Uid:")?.split_whitespace().next()?.parse().ok())
    });
    real.or_else(|| fs::metadata(format!("/proc/{pid}")).ok().map(|data| data.uid()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, parent: i32) -> Stat {
        Stat { pid, name: String::new(), state: b'S', parent, group: pid, session: pid, start: 1 }
    }

    #[test]
    fn a_name_with_parentheses_and_spaces_is_read_whole() {
        let line = b"42 (a) b (c) R 7 9 8 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 123456 1000 2";
        let stat = parse(42, line).unwrap();
        assert_eq!((stat.name.as_str(), stat.state, stat.parent), ("a) b (c", b'R', 7));
        assert_eq!((stat.group, stat.session), (9, 8));
        assert_eq!(stat.start, 123_456);
    }

    #[test]
    fn a_cut_line_is_nobody() {
        assert_eq!(parse(42, b"42 (sleep) S 7 9"), None);
        assert_eq!(parse(42, b"42 (sleep"), None);
        assert_eq!(parse(42, b""), None);
    }

    #[test]
    fn filters_count_only_where_privileges_were_given_up() {
        let status = |privileges: u32, mode: u32, count: &str| {
            format!("Name:\tx\nNoNewPrivs:\t{privileges}\nSeccomp:\t{mode}\n{count}Speculation_Store_Bypass:\tx\n")
        };
        assert_eq!(filters_in(&status(1, 2, "Seccomp_filters:\t3\n")), 3);
        assert_eq!(filters_in(&status(1, 2, "")), 1, "an old kernel");
        assert_eq!(filters_in(&status(0, 2, "Seccomp_filters:\t1\n")), 0, "a container");
        assert_eq!(filters_in(&status(1, 0, "Seccomp_filters:\t0\n")), 0);
    }

    #[test]
    fn descendants_are_found_at_any_depth_and_strangers_are_not() {
        let all = [process(5, 4), process(1, 0), process(4, 3), process(3, 1), process(9, 1), process(6, 3)];
        let mut found: Vec<i32> = descendants(&all, 3).iter().map(|stat| stat.pid).collect();
        found.sort_unstable();
        assert_eq!(found, [4, 5, 6]);
        assert!(descendants(&all, 5).is_empty());
    }

    #[test]
    fn this_very_process_is_alive_and_its_own_start_is_stable() {
        let me = rustix::process::getpid().as_raw_nonzero().get();
        let (one, two) = (stat(me).unwrap(), stat(me).unwrap());
        assert!(one.alive());
        assert_eq!(one.start, two.start);
    }
}
